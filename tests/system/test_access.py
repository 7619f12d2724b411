"""Access: who may do what. The rules of --auth-file through every route, over real sockets; reload with a thousand waiters; bounds of failed logins;
and that secrets come out nowhere."""

import itertools
import json
import os
import signal
import socket
import threading
import time

import pytest

from pawltest.auth import AuthFile, new_token, sha256
from pawltest.http import Api, Conn, bearer, lock_path
from pawltest.pawld import binary, environment, run
from pawltest.process import Process
from pawltest.wait import until
from pawltest.waiters import Waiter, close_all, gather, new_id, standing

LONG_TTL = 600_000
VERBS = ("acquire", "read", "break", "admin")
# What each route about one lock needs, besides admin, which is enough everywhere.
NEEDS = {"acquire": "acquire", "renew": "acquire", "release": "acquire", "check": "acquire", "break": "break", "inspect": "read"}
# And those about the whole node.
NODE = {"list": ("GET", "/v1/locks"), "status": ("GET", "/v1/status"), "metrics": ("GET", "/metrics")}
OPEN = ("/healthz", "/readyz")


@pytest.fixture
def auth(world):
    return AuthFile(world.folder())


def ask(conn, call, name, grant, token):
    """One call about a lock; grant: what its holder knows."""
    params = {"acquire": {"ttl_ms": LONG_TTL}, "renew": {"lease_id": grant["lease_id"], "ttl_ms": LONG_TTL},
              "release": {"lease_id": grant["lease_id"]}, "check": {"token": grant["token"]}, "break": {"reason": "test"}}
    if call == "inspect":
        return conn.request("GET", lock_path(name), None, bearer(token))
    return conn.request("POST", lock_path(name, call), params[call], bearer(token))


GOOD = {"acquire": 409, "renew": 200, "release": 200, "check": 200, "break": 200, "inspect": 200}  # of a lock that is held


def expect_unchanged(admin, name, grant):
    told = admin.inspect(name)[1]
    assert told["held"] and told["token"] == grant["token"], told


@pytest.mark.parametrize("prefix", ["m/", "", "m/x", "other/"])
def test_p4_the_matrix_of_verbs_and_prefixes_through_every_route(world, redis, auth, prefix):
    """Broken: a route forgets to ask, a verb gives more than it says, or a refused call does something all the same. Every set of verbs, on
    locks inside and outside of the prefix, through all calls; a renew, release and check come with the lease id and token of the holder."""
    callers = {}
    for count in range(1, len(VERBS) + 1):
        for verbs in itertools.combinations(VERBS, count):
            callers[verbs] = auth.rule("+".join(verbs), [prefix], list(verbs))
    admin_token = auth.rule("the admin", [""], ["admin"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    admin = pawld.api(token=admin_token)
    wrong, asked = [], 0
    with Conn(pawld.address) as conn:
        for verbs, token in callers.items():
            for name in ("m/x", "m/y", "n/x", "m"):
                for call, need in NEEDS.items():
                    may = name.startswith(prefix) and (need in verbs or "admin" in verbs)
                    grant = admin.must("acquire", name, ttl_ms=LONG_TTL)
                    reply = ask(conn, call, name, grant, token)
                    asked += 1
                    if reply.status != (GOOD[call] if may else 403):
                        wrong.append((verbs, name, call, may, reply))
                    if not may:
                        assert reply.json()["error"] == "forbidden" and need in reply.json()["message"], reply
                        expect_unchanged(admin, name, grant)
                    admin.release(name, lease_id=grant["lease_id"])
            reads = "read" in verbs or "admin" in verbs
            for call, (method, path) in NODE.items():
                reply = conn.request(method, path, None, bearer(token))
                asked += 1
                if reply.status != (200 if reads else 403):
                    wrong.append((verbs, call, reads, reply))
    assert not wrong, wrong[:5]
    assert asked == 15 * (4 * len(NEEDS) + len(NODE))


@pytest.mark.parametrize("authorization, hint", [
    (None, False), ("Bearer nobody-has-this-one", True), ("Bearer", True), ("Basic dXNlcjpwYXNz", True), ("bearer", True), ("Token x", True), ("", True),
])
def test_401_on_every_route_but_those_of_health(world, redis, auth, authorization, hint):
    """Broken: who shows nothing, or nothing that counts, gets an answer; or a 401 that no client understands."""
    admin_token = auth.rule("admin", [""], ["admin"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    grant = pawld.api(token=admin_token).must("acquire", "l", ttl_ms=LONG_TTL)
    headers = [] if authorization is None else [("Authorization", authorization)]
    with Conn(pawld.address) as conn:
        replies = [conn.request("POST", lock_path("l", call), {"lease_id": grant["lease_id"]} if call != "check" else {"token": grant["token"]}, headers)
                   for call in NEEDS if call != "inspect"]
        replies += [conn.request(method, path, None, headers) for method, path in [("GET", lock_path("l")), *NODE.values()]]
        for reply in replies:
            assert (reply.status, reply.json()["error"]) == (401, "unauthorized"), reply
            assert reply.headers["www-authenticate"].startswith('Bearer realm="pawl"'), reply
            assert ("invalid_token" in reply.headers["www-authenticate"]) == hint, reply
        for path in OPEN:
            assert conn.request("GET", path, None, headers).status == 200
        assert conn.request("GET", "/v1/nothing").status == 404  # what there is stands in the manual
        assert conn.request("DELETE", lock_path("l"), None, headers).status == 405
        expect_unchanged(pawld.api(token=admin_token), "l", grant)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   ", "Bearer \t"])
def test_how_a_token_may_be_spelled(world, redis, auth, scheme):
    """Broken: a client that spells the scheme as the standard allows is refused."""
    token = auth.rule("one", [""], ["read"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    with Conn(pawld.address) as conn:
        assert conn.request("GET", "/v1/status", None, [("Authorization", scheme + token + "  ")]).status == 200
        assert conn.request("GET", "/v1/status", None, [("authorization", scheme + token + "x")]).status == 401
        assert conn.request("HEAD", "/v1/status", None, [("Authorization", scheme + token)]).status == 200
        assert conn.request("HEAD", "/v1/status").status == 401
        two = conn.request("GET", "/v1/status", None, [("Authorization", scheme + token)] * 2)
        assert two.status == 400, two


def test_an_old_and_a_new_token_at_the_same_time(world, redis, auth):
    """Broken: tokens can't be changed without a moment in which one of two clients is refused."""
    old, new = new_token(), new_token()
    auth.rule("one", [""], ["read"], token_sha256=[sha256(old), sha256(new)])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    assert pawld.api(token=old).status()[0] == 200 and pawld.api(token=new).status()[0] == 200


def test_the_name_of_the_rule_is_the_default_owner(world, redis, auth):
    """Broken: nobody sees whose leases without an owner are; or an owner that was given is overwritten."""
    token = auth.rule("billing ü", [""], ["acquire", "read", "break"])
    auth.write()
    pawld = world.pawld(redis, [*auth.args, "--log-level", "debug"])
    api = pawld.api(token=token)
    assert api.must("acquire", "a")["owner"] == "billing ü"
    assert api.must("acquire", "b", owner="me")["owner"] == "me"
    assert api.must("acquire", "c", owner="")["owner"] == ""
    assert api.inspect("a")[1]["owner"] == "billing ü"
    api.must("brk", "a", reason="test")
    assert until(lambda: pawld.log("lock_broken"), what="the break is logged")[0]["caller"] == "billing ü"
    assert {line["caller"] for line in pawld.log("granted")} == {"billing ü"}
    assert api.acquire("x")[0] == 200


def test_lists_show_what_the_reader_may_see(world, redis, auth):
    """Broken: a list tells names that inspect would not; or a reader of one corner can't list at all."""
    admin = auth.rule("admin", [""], ["admin"])
    reader = auth.rule("reader", ["a/", "b/only"], ["read"])
    blind = auth.rule("blind", ["a/"], ["acquire", "break"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    names = ["a/1", "a/2", "a", "b/1", "b/only", "b/only/x", "c/1"]
    for name in names:
        pawld.api(token=admin).must("acquire", name, ttl_ms=LONG_TTL)
    api = pawld.api(token=reader)

    def listed(api, **query):
        return sorted(set(api.list_all(**query)[0]))

    assert listed(pawld.api(token=admin)) == sorted(names)
    assert listed(api) == ["a/1", "a/2", "b/only", "b/only/x"]
    assert listed(api, limit=1) == ["a/1", "a/2", "b/only", "b/only/x"]
    assert listed(api, prefix="a") == listed(api, prefix="a/") == ["a/1", "a/2"]
    assert listed(api, prefix="b/") == ["b/only", "b/only/x"]
    for prefix in ("c", "c/", "b/1", "aa"):
        status, value = api.list(prefix=prefix)
        assert (status, value["error"]) == (403, "forbidden"), (prefix, value)
    for query in ({}, {"prefix": "a/"}):
        assert pawld.api(token=blind).list(**query)[0] == 403


def test_an_acquire_that_is_refused_carries_its_lease_id(world, redis, auth):
    """Broken: the rule that every error of an acquire carries its lease id has an exception."""
    token = auth.rule("one", ["a/"], ["acquire"])
    auth.write()
    api = world.pawld(redis, auth.args).api(token=token)
    lease = new_id()
    assert api.acquire("b/1", lease_id=lease)[1]["lease_id"] == lease
    assert api.acquire("b/1", lease_id=lease, ttl_ms=-1)[0] == 400


def test_p4_anothers_lease_id_is_no_right(world, redis, auth):
    """Broken: whoever got to know a lease id can renew it past the rules. (P4)"""
    holder, thief = auth.rule("holder", ["a/"], ["acquire"]), auth.rule("thief", ["b/"], ["acquire", "read", "break"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    grant = pawld.api(token=holder).must("acquire", "a/1", ttl_ms=LONG_TTL)
    api = pawld.api(token=thief)
    assert api.renew("a/1", lease_id=grant["lease_id"], ttl_ms=1)[0] == 403
    assert api.release("a/1", lease_id=grant["lease_id"])[0] == 403
    assert api.check("a/1", token=grant["token"])[0] == 403
    assert pawld.api(token=holder).must("renew", "a/1", lease_id=grant["lease_id"])["token"] == grant["token"]


def test_readyz_tells_strangers_that_and_not_why(world, auth):
    """Broken: addresses inside of the network are told to whoever can reach the port."""
    token = auth.rule("reader", [""], ["read"])
    auth.write()
    pawld = world.pawld("redis://127.0.0.1:1/0", auth.args, wait="listening")
    with Conn(pawld.address) as conn:
        reply = conn.request("GET", "/readyz")
        assert reply.status == 503 and b"127.0.0.1" not in reply.body, reply
    assert "127.0.0.1:1" in pawld.api(token=token).status()[1]["redis"]["address"]


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("text, named", [
    ("", "must be a JSON object"), ("{\"rules\": [\n  {\"name\": \"x\",}\n]}", "line 2"), ("{\"rules\": []}", "rules"),
    ('{"rules": [{"name": "x", "token_sha256": "hush", "prefixes": [""], "verbs": ["read"]}]}', 'rule 1 "x": token_sha256'),
    ('{"rules": [{"name": "x", "token": "hush", "prefixes": [""], "verbs": ["read"]}]}', "token_sha256"),
])
def test_a_bad_file_ends_the_start_and_check_config(world, redis, auth, text, named):
    """Broken: pawld starts with half of its rules, or with none; or nobody learns what is wrong with them."""
    auth.write_text(text)
    for args in (["--check-config"], ["--listen", "127.0.0.1:0"]):
        code, out, err = run(*args, *auth.args, "--redis", redis.url)
        assert code > 0 and auth.path in err and named in err.replace('\\"', '"'), (code, err)
        assert "hush" not in err + out and "listening" not in err
    auth.rule("x", [""], ["read"])
    auth.write()
    code, out, err = run("--check-config", *auth.args)
    assert code == 0 and f"auth-file = {auth.path}" in out and err == "", (out, err)


def test_a_file_that_is_not_there_and_modes(world, redis, auth):
    """Broken: a missing file means no rules; or a file that anybody may write to is believed."""
    code, _, err = run("--check-config", *auth.args)
    assert code > 0 and auth.path in err
    auth.rule("x", [""], ["read"])
    auth.write()
    os.chmod(auth.path, 0o644)
    code, _, err = run("--check-config", *auth.args)
    assert code == 0 and "auth_file_readable" in err
    os.chmod(auth.path, 0o646)
    code, _, err = run("--check-config", *auth.args)
    assert code > 0 and "write" in err
    os.chmod(auth.path, 0o600)
    os.rename(auth.path, auth.path + ".away")
    os.mkfifo(auth.path)
    code, _, err = run("--check-config", *auth.args)
    assert code > 0 and "regular" in err


@pytest.mark.parametrize("address, inside", [
    ("127.0.0.1:0", True), ("127.0.0.2:0", True), ("localhost:0", True), ("0.0.0.0:0", False), ("192.0.2.1:7295", False),
    ("[::]:0", False), ("pawl.invalid:7295", False),
])
def test_without_rules_nobody_outside_is_served(redis, auth, address, inside):
    """Broken: a pawld that asks nobody who he is listens on the network, and nobody meant it."""
    code, _, err = run("--check-config", "--listen", address)
    assert (code == 0) == inside, err
    if not inside:
        assert address in err and "--auth-file" in err and "unix:" in err and "--insecure-listen" in err
        code, _, err = run("--listen", address, "--redis", redis.url)
        assert code == 1 and "--insecure-listen" in err and "listening" not in err
    assert run("--check-config", "--listen", address, "--insecure-listen")[0] == 0
    auth.rule("x", [""], ["read"])
    auth.write()
    assert run("--check-config", "--listen", address, *auth.args)[0] == 0
    assert run("--check-config", "--listen", "unix:/run/pawl.sock")[0] == 0


def test_insecure_listen_and_rules_serve_on_all_addresses(world, redis, auth):
    """Broken: the ways out that the message names lead nowhere."""
    token = auth.rule("x", [""], ["read"])
    auth.write()
    for args, headers in ((["--insecure-listen"], []), (auth.args, bearer(token))):
        pawld = world.pawld(redis, args, listen=["0.0.0.0:0"], wait="listening")
        with Conn("127.0.0.1:" + pawld.address.rpartition(":")[2]) as conn:
            until(lambda conn=conn: conn.request("GET", "/readyz").status == 200, what="ready")
            assert conn.request("GET", "/v1/status", None, headers).status == 200


# ---------------------------------------------------------------- reload


def reload(pawld, event):
    before = len(pawld.log(event))
    pawld.signal(signal.SIGHUP)
    return until(lambda: pawld.log(event)[before:], what=f"{event} is logged")[-1]


def test_reload_brings_new_rules_and_keeps_the_old_when_they_are_bad(world, redis, auth):
    """Broken: a typo in the file locks everybody out, or lets everybody in; or the log says what stood there."""
    first = auth.rule("first", [""], ["read"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    one = pawld.api(token=first)
    assert one.status()[0] == 200
    for text in ("", "{}", '{"rules": []}', '{"rules": [{"name": "x", "token": "hush", "verbs": ["admin"], "prefixes": [""]}]}', "{\"hush"):
        auth.write_text(text)
        line = reload(pawld, "access_rules_kept")
        assert line["level"] == "error" and auth.path in line["problem"] and "hush" not in line["problem"] and line["rules"] == 1, line
        assert one.status()[0] == 200
    os.unlink(auth.path)
    reload(pawld, "access_rules_kept")
    assert one.status()[0] == 200
    second = auth.rule("second", [""], ["read"])
    auth.write()
    assert reload(pawld, "access_rules")["rules"] == 2
    assert one.status()[0] == 200 and pawld.api(token=second).status()[0] == 200
    auth.remove("first")
    auth.write()
    reload(pawld, "access_rules")
    assert one.status()[0] == 401, "on a connection that was open before"
    assert pawld.api(token=second).status()[0] == 200
    assert "hush" not in pawld.stderr()


@pytest.mark.deadline(240)
def test_reload_with_a_thousand_waiters_drops_none(world, redis, auth):
    """Broken: a HUP closes connections, or takes waiters out of the queue, or stops serving for a moment. Good and bad files in turn, while a
    thousand wait and others work; the waiters' own rule goes away with the first, and what was let in is served."""
    count = 1000
    admin = auth.rule("admin", [""], ["admin"])
    crowd_token = auth.rule("crowd", ["crowd/"], ["acquire"])
    worker = auth.rule("worker", ["work/"], ["acquire"])
    auth.write()
    pawld = world.pawld(redis, [*auth.args, "--max-connections", "3000"])
    api = pawld.api(token=admin)
    grant = api.must("acquire", "crowd/1", ttl_ms=LONG_TTL)
    waiters = []
    for i in range(count):
        waiters.append(Waiter(pawld.address, "crowd/1", 600_000, token=crowd_token))
        if i % 100 == 99:
            standing(api, "crowd/1", i + 1, 60)
    connections = api.status()[1]["connections"]
    failures, rounds, stop = [], [0], threading.Event()

    def work(n):
        mine = Api(pawld.address, token=worker)
        while not stop.is_set():
            status, value = mine.acquire(f"work/{n}")
            if status == 200:
                status, value = mine.release(f"work/{n}", lease_id=value["lease_id"])
            if status != 200:
                failures.append((status, value))
            rounds[0] += 1
        mine.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        auth.remove("crowd")
        for i in range(10):
            if i % 3 == 2:
                auth.write_text("{\"rules\": [")
                reload(pawld, "access_rules_kept")
            else:
                auth.write()
                reload(pawld, "access_rules")
        begun = rounds[0]
        until(lambda: rounds[0] > begun + 10, what="work goes on after the last reload")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:3]
    assert api.inspect("crowd/1")[1]["waiters"] == count
    assert api.status()[1]["connections"] >= connections - 2 and not any(waiter.answered() for waiter in waiters)
    late = pawld.api(token=crowd_token).acquire("crowd/2")
    assert late[0] == 401, late
    api.must("release", "crowd/1", lease_id=grant["lease_id"])
    order = gather(waiters[:1], 30)  # the first is granted; its rule is gone, so the admin gives the lock on
    assert order[0].status == 200
    api.must("release", "crowd/1", lease_id=order[0].lease_id)
    assert waiters[1].granted()["lease_id"] == waiters[1].lease_id
    close_all(waiters)


# ---------------------------------------------------------------- failed logins


def from_address(address, source):
    """A Conn to host:port from another address of this machine."""
    conn = Conn(address)
    conn.close()
    host, _, port = address.rpartition(":")
    conn.sock = socket.create_connection((host, int(port)), 30, (source, 0))
    return conn


def fail_until_429(conn):
    for _ in range(2000):
        reply = conn.request("GET", "/v1/status", None, bearer(new_token()))
        if reply.status == 429:
            return reply
        assert reply.status == 401, reply
    raise AssertionError("2000 wrong tokens, and no end")


def test_p9_failed_logins_are_bounded_per_address(world, redis, auth):
    """Broken: one broken client fills the log for ever; or the bound keeps good tokens out, or hits neighbours. (P9)"""
    token = auth.rule("reader", [""], ["read"])
    auth.write()
    path = os.path.join(world.folder(), "s")
    pawld = world.pawld(redis, auth.args, listen=["127.0.0.1:0", f"unix:{path}"])
    with Conn(pawld.address) as conn, from_address(pawld.address, "127.0.0.2") as other, Conn(f"unix:{path}") as local:
        started = time.monotonic()
        reply = fail_until_429(conn)
        assert reply.json()["error"] == "too_many_logins" and int(reply.headers["retry-after"]) >= 1, reply
        assert conn.request("GET", "/v1/status", None, bearer(token)).status == 200, "a good token is let in at any time"
        assert conn.request("GET", "/v1/status").status == 401, "to show nothing is no login"
        assert other.request("GET", "/v1/status", None, bearer("wrong")).status == 401
        assert local.request("GET", "/v1/status", None, bearer("wrong")).status == 401
        fail_until_429(local)
        until(lambda: conn.request("GET", "/v1/status", None, bearer("wrong")).status == 401, what="it is forgiven with time")
        took = time.monotonic() - started
    lines = until(lambda: pawld.log("login_failed"), what="it is logged")
    assert len(lines) <= took + 2, "a line a second"
    assert all(line["peer"] and line["reason"] and line["call"] == "status" for line in lines)


# ---------------------------------------------------------------- secrets


class TextPawld(Process):
    """A pawld that logs as text, to a unix socket of a known path, with its Redis's password in the environment."""

    def __init__(self, folder, args, env):
        super().__init__("pawld")
        self.address = f"unix:{folder}/t"
        self.start_process([binary(), "--log-format", "text", "--listen", self.address, *args], env=environment(env))

    def ready(self):
        try:
            return Api(self.address).readyz() == 200
        except OSError:
            return False

    def close(self, keep_log=False):
        self.kill9()
        if not keep_log:
            self.remove_folder()


def proc(pid, what):
    with open(f"/proc/{pid}/{what}", "rb") as f:
        return f.read().decode("utf-8", "replace")


def everything_is_asked(address, secrets, tokens, auth, pawld_signal, answers):
    """All calls, good and bad, with secrets in the places where they belong and in those where they don't. What comes back goes to `answers`."""
    lease = new_id()
    secrets["lease id"] = lease
    wrong = secrets["wrong token"]

    def go(method, target, body=None, headers=()):
        with Conn(address) as conn:
            reply = conn.request(method, target, body, headers)
            answers.append((target, f"{reply.status} {reply.headers} {reply.body.decode('utf-8', 'replace')}"))
            return reply

    for token in (tokens["admin"], tokens["narrow"], wrong, None):
        for call, params in (("acquire", {"lease_id": lease, "ttl_ms": LONG_TTL}), ("acquire", {"ttl_ms": 1000}),
                             ("renew", {"lease_id": lease}), ("check", {"token": 1}), ("renew", {"lease_id": wrong}),
                             ("acquire", {"ttl_ms": wrong}), ("acquire", {"token": wrong}),
                             ("break", {"reason": "test"}), ("release", {"lease_id": lease})):
            go("POST", lock_path("own/1", call), params, bearer(token))
        go("POST", lock_path("own/1", "acquire"), {wrong: 1}, bearer(token))
        answers.pop()  # a parameter that there isn't is named to who sent it, and to nobody else
        for path in ("/v1/locks", "/v1/locks/own/1", "/v1/status", "/metrics", "/healthz", "/readyz", "/nothing", "/v1/locks/own%zz"):
            go("GET", path, None, bearer(token))
        for headers in ([("Authorization", f"Basic {token}")], [("Authorization", f"{token}")], [("Authorization", f"Bearer {token}, x")],
                        [("Authorization", f"Bearer {token}")] * 2, [("Authorization ", f"Bearer {token}")], [("X-Token", f"{token}")],
                        [("Origin", "http://x"), *bearer(token)]):
            go("GET", "/v1/status", None, headers)
    for text in (json.dumps({"rules": [{"name": "x", "token": wrong}]}), wrong, json.dumps({wrong: 1}), json.dumps({"rules": wrong}),
                 json.dumps({"rules": [{"name": "x", "token_sha256": wrong}]}), f"{{\"rules\": [{{\"{wrong}"):
        auth.write_text(text)
        pawld_signal()
    auth.write()
    pawld_signal()


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_come_out_nowhere(world, auth, form):
    """Broken: a token, its hash, a lease id or the password of Redis stands in a log, an answer, an argument or an environment that others of the
    machine can read."""
    tokens = {"admin": auth.rule("admin", [""], ["admin"]), "narrow": auth.rule("narrow", ["other/"], ["acquire"])}
    auth.write()
    url = f"redis://:hush-redis-4711@127.0.0.1:{world.redis(password='hush-redis-4711').port}/0"
    secrets = {"redis password": "hush-redis-4711", "wrong token": new_token(), **{f"token {name}": t for name, t in tokens.items()},
               **{f"hash of {name}": sha256(t) for name, t in tokens.items()}}
    told = {}
    answers = []
    args = [*auth.args, "--log-level", "debug", "--recovery-window", "0"]
    if form == "json":
        pawld = world.pawld(None, args, env={"PAWL_REDIS": url})
        address, stderr = pawld.address, pawld.stderr
    else:
        pawld = world.keep(TextPawld(world.folder(), args, {"PAWL_REDIS": url}))
        address, stderr = pawld.address, pawld.stderr
        until(pawld.ready, what="ready")

    def hup():
        def seen():
            return stderr().count("access_rules")

        before = seen()
        pawld.signal(signal.SIGHUP)
        until(lambda: seen() > before, what="reloaded")

    everything_is_asked(address, secrets, tokens, auth, hup, answers)
    told["cmdline"], told["environ"] = proc(pawld.pid, "cmdline"), proc(pawld.pid, "environ")
    with Conn(address) as conn:
        for path in ("/v1/status", "/metrics", "/v1/locks", "/v1/locks/own/1"):
            told[path] = conn.request("GET", path, None, bearer(tokens["admin"])).body.decode()
    config = run("--check-config", *args, env={"PAWL_REDIS": url})
    assert config[0] == 0
    told["--check-config"] = config[1] + config[2]
    if form == "text":
        pawld.child.terminate()
        assert pawld.wait() == 0
    else:
        assert pawld.stop() == 0
    told["log"] = stderr() + pawld.stdout()
    assert "login_failed" in told["log"] and "access_refused" in told["log"] and "granted" in told["log"]
    for place, text in told.items():
        for what, secret in secrets.items():
            assert secret not in text, f"the {what} is in {place}"
    mine = secrets.pop("lease id")
    assert any(mine in text for _, text in answers), "its holder is told"
    assert mine[:8] in told["log"]
    for target, text in answers:
        for what, secret in secrets.items():
            assert secret not in text, f"the {what} is in the answer to {target}: {text}"


def test_the_private_redis_inherits_no_secret(world, auth):
    """Broken: the child of --dev is given the environment with everything in it."""
    token = auth.rule("admin", [""], ["admin"])
    auth.write()
    hush = new_token()
    pawld = world.pawld(None, ["--dev", *auth.args], env={"PAWL_ACCESS_TOKEN": hush})
    assert pawld.api(token=token).status()[0] == 200
    children = until(pawld.children, what="it has a child")
    for pid in children:
        for what in ("cmdline", "environ"):
            text = proc(pid, what)
            assert token not in text and sha256(token) not in text and hush not in text, (what, text)
