"""The life of a pawld: starts, refusals to start, drain, kill, freeze; --dev; and clients that come and go in numbers."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import uuid

import pytest

from pawltest import stalled
from pawltest.http import Api, Closed, Conn, lock_path, request_bytes
from pawltest.pawld import FRUGAL, run
from pawltest.process import free_port
from pawltest.residue import residue
from pawltest.wait import always, until

LONG_TTL = 600_000
MENU = ["--listen", "127.0.0.1:0"]


def new_id():
    return str(uuid.uuid4())


def serves(api):
    """For a pawld whose log can't be read."""
    try:
        return api.readyz() == 200
    except OSError:
        return False
    finally:
        api.close()


# ---------------------------------------------------------------- argv to exit code


def test_version():
    """Broken: packagers and people can't ask which version it is."""
    code, out, err = run("--version")
    assert code == 0 and err == "" and out.count("\n") == 1 and "pawl" in out and any(c.isdigit() for c in out)


def test_help_has_every_option():
    """Broken: an option exists that --help does not tell of."""
    code, out, err = run("--help")
    assert code == 0 and err == ""
    for flag in ("dev", "listen", "redis", "key-prefix", "node-name", "default-ttl", "min-ttl", "max-ttl", "store-timeout",
        "recovery-window",
                 "allow-eviction", "auth-file", "insecure-listen", "max-connections", "request-timeout", "body-timeout", "idle-timeout", "drain-timeout", "max-wait",
                 "max-waiters",
                 "max-waiters-per-lock", "busy-poll", "events", "max-streams", "allow-origin", "log-level", "log-format", "config", "check-config", "version", "help"):
        assert "--" + flag in out, flag
    assert max(len(line) for line in out.splitlines()) <= 140


def test_check_config_shows_what_would_be_used(world):
    """Broken: the order flag, environment, file, default is another; or --check-config starts to serve."""
    path = os.path.join(world.folder(), "pawld.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write("# three of them\nmax-ttl = 3h\ndefault-ttl = 20s   \n\nstore-timeout = 900ms\n")
        f.write("listen = 127.0.0.1:1111\nlisten = 127.0.0.1:2222\n")
    code, out, err = run("--config", path, "--max-ttl", "5h", "--check-config", env={"PAWL_MAX_TTL": "4h", "PAWL_DEFAULT_TTL": "25s"})
    assert code == 0, err
    shown = [tuple(part.strip() for part in line.split("=", 1)) for line in out.splitlines() if "=" in line]
    values = dict(shown)
    assert (values["max-ttl"], values["default-ttl"], values["store-timeout"], values["min-ttl"]) == ("5h", "25s", "900ms", "1ms")
    assert [value for key, value in shown if key == "listen"] in (["127.0.0.1:1111", "127.0.0.1:2222"], ["127.0.0.1:1111,127.0.0.1:2222"])
    code, out, err = run("--config", path, "--check-config", env={"PAWL_LISTEN": "127.0.0.1:3333"})
    assert code == 0 and "3333" in out and "1111" not in out, "a repeatable option replaces all of the lower ones"


@pytest.mark.parametrize("args, named", [
    (["--nonsense"], "nonsense"), (["--max-tll", "5s"], "max-tll"), (["--max-ttl"], "max-ttl"), (["--max-ttl", "5"], "max-ttl"),
    (["--max-ttl", "-5s"], "max-ttl"), (["--max-ttl", "366d"], "max-ttl"), (["--min-ttl", "0"], "min-ttl"),
    (["--store-timeout", "1ms"], "store-timeout"),
    (["--max-connections", "0"], "max-connections"), (["--max-connections", "x"], "max-connections"),
    (["--max-connections", "10k"], "max-connections"),
    (["--max-connections", "99999999999999999999"], "max-connections"), (["--log-level", "loud"], "log-level"),
    (["--log-format", "xml"], "log-format"),
    (["--key-prefix", "a{b}"], "key-prefix"), (["--key-prefix", "a b"], "key-prefix"), (["--key-prefix", "k" * 65], "key-prefix"),
    (["--config", "/nonexistent/pawld.conf"], "/nonexistent/pawld.conf"), (["--redis", "redis://"], "redis"),
    (["--redis", "127.0.0.1:6379"], "redis"),
    (["--redis", "redis://127.0.0.1:99999/0"], "redis"), (["--redis", "sentinel://x"], "redis"),
    (["--min-ttl", "2h", "--max-ttl", "1h"], "ttl"),
    (["--default-ttl", "2h", "--max-ttl", "1h"], "default-ttl"), (["--recovery-window", "100ms"], "recovery-window"),
    (["--allow-origin", "nonsense"], "allow-origin"), (["stray"], "argument 1"), (["--dev=maybe"], "dev"), (["-x"], "x"),
])
def test_bad_options_are_named(args, named):
    """Broken: a typo in an option becomes a default; or the complaint does not say which one."""
    code, out, err = run(*args, *MENU)
    assert code > 0, (code, out, err)
    assert named in err, err
    assert "listening" not in err


def test_bad_settings_are_named_with_their_place(world):
    """Broken: a mistake in the environment or the file is found only by reading all of it."""
    code, _, err = run(*MENU, env={"PAWL_MAX_TTL": "soon"})
    assert code > 0 and "PAWL_MAX_TTL" in err
    path = os.path.join(world.folder(), "pawld.conf")
    for text, line, named in (("max-ttl = 1h\nnonsense = 5\n", 2, "nonsense"), ("\n\nmax-ttl = soon\n", 3, "max-ttl"),
        ("max-ttl\n", 1, "key = value"),
                              ("max-ttl = 1h\nmax-ttl = 2h\n", 2, "max-ttl")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        code, _, err = run("--config", path, "--check-config")
        assert code > 0 and path in err and str(line) in err and named in err, err


@pytest.mark.parametrize("address", [
    "256.0.0.1:80", "127.0.0.1", ":7295", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "::1:80", "[::1]", "[::1:80", "",
    "unix:", "unix:/" + "x" * 200, "unix:/nonexistent-folder/sock", "no-such-host.invalid:80", "192.0.2.1:80",
])
def test_a_bad_listen_address_is_named(redis, address):
    """Broken: pawld starts without the listener it was told to have. (C43)"""
    code, out, err = run("--insecure-listen", "--listen", "127.0.0.1:0", "--listen", address, "--redis", redis.url)
    assert code > 0, (out, err)
    assert address in err if 0 < len(address) < 100 else "listen" in err, err


def test_an_address_that_is_taken(world, redis):
    """Broken: two servers on one port, or one that runs without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "127.0.0.1:%d" % other.getsockname()[1]
        code, _, err = run("--listen", address, "--redis", redis.url)
    assert code > 0 and address in err


def test_what_libevent_says_is_a_line_of_the_log(world):
    """Broken: name servers that don't answer write past the form and the file of the log, and stop pawld when nobody reads standard error."""
    alone = ("unshare", "--user", "--map-root-user", "--net")  # where no name server is reached
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespace of its own may be made here")
    pawld = world.pawld("redis://no-such-host.invalid:6379", prefix=alone, wait="listening")
    until(lambda: pawld.log("store_link_down"), what="the name was looked up")
    assert "erver" in pawld.log("libevent")[0]["text"]
    assert pawld.stray == []


def test_several_listeners_and_a_unix_socket_that_was_left(world, redis):
    """Broken: the second listener serves nothing; a socket file of a killed pawld keeps the next one from starting."""
    path = os.path.join(world.folder(), "http.sock")
    pawld = world.pawld(redis, listen=["127.0.0.1:0", f"unix:{path}"])
    assert len(pawld.addresses()) == 2
    for address in pawld.addresses():
        api = Api(address)
        grant = api.must("acquire", "l")
        api.must("release", "l", lease_id=grant["lease_id"])
        api.close()
    pawld.kill9()
    assert os.path.exists(path)
    pawld.start()
    assert Api(f"unix:{path}").healthz() == 200
    code, _, err = run("--listen", f"unix:{path}", "--redis", redis.url)
    assert code > 0 and path in err, "a socket that is in use must not be taken over"
    assert Api(f"unix:{path}").healthz() == 200
    assert pawld.stop() == 0
    assert not os.path.exists(path)


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6") or not open("/proc/net/if_inet6").read(), reason="no IPv6 here")
def test_ipv6(world):
    """Broken: an address is split at its first colon. (C43)"""
    redis = world.redis(host="::1")
    pawld = world.pawld(f"redis://[::1]:{redis.port}/0", listen=["[::1]:0"])
    assert pawld.address.startswith("[::1]:")
    pawld.api().must("acquire", "l")


# ---------------------------------------------------------------- start and end


def test_start_before_redis_exists(world):
    """Broken: the order in which services start matters. (C26)"""
    redis = world.redis(start=False, port=free_port())
    pawld = world.pawld(redis, wait="listening")
    api = pawld.api()
    assert api.healthz() == 200 and api.readyz() == 503
    start = time.monotonic()
    status, error = api.acquire("l")
    assert (status, error["error"]) == (503, "store_unavailable") and time.monotonic() - start < 10
    assert pawld.running()
    redis.start()
    pawld.wait_ready()
    api.must("acquire", "l")


def test_sigterm_ends_an_idle_pawld(world, redis):
    """Broken: idle keep-alive connections, or leases whose holders are elsewhere, hold the end up; or the exit code is not 0. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "10m"])
    grant = pawld.api().must("acquire", "released")
    pawld.api().must("release", "released", lease_id=grant["lease_id"])
    idle = [Conn(pawld.address) for _ in range(10)]
    for conn in idle[:5]:
        assert conn.request("GET", "/healthz").status == 200
    pawld.signal(signal.SIGTERM)
    assert pawld.wait() == 0
    for conn in idle:
        assert conn.at_eof()
        conn.close()
    assert pawld.refuses_connections()


def test_sigterm_gives_no_lease_back(world, redis):
    """Broken: a pawld that ends frees what its clients hold. (C18, C50)"""
    pawld = world.pawld(redis, ["--drain-timeout", "10m"])
    grant = pawld.api().must("acquire", "held", ttl_ms=LONG_TTL)
    assert pawld.stop() == 0, "holders without a connection are not waited for"
    assert redis.holds("held") and str(grant["token"]) in redis.command("GET", redis.lock_key("held"))
    assert all(redis.command("PTTL", key) > 0 for key in redis.keys() if ":node:" in key), "the node's key ends by itself"


def test_while_draining_holders_can_renew_and_release(world, redis):
    """Broken: a rolling restart costs the holders their leases; or new ones are granted by a node that goes. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "10m"])
    api, other = pawld.api(), pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    assert other.healthz() == 200
    pawld.signal(signal.SIGTERM)
    until(pawld.refuses_connections, what="no new connections")
    status, error = other.acquire("new")
    assert (status, error["error"]) == (503, "draining") and error["lease_id"], error
    status, error, _ = other.call("GET", "/readyz")
    assert (status, error["error"]) == (503, "draining")
    assert api.must("renew", "held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert pawld.running()
    api.must("release", "held", lease_id=grant["lease_id"])
    assert pawld.wait() == 0, "nothing is left to wait for"
    assert not redis.holds("held") and not redis.holds("new")


def test_a_drain_ends_although_a_holder_stays(world, redis):
    """Broken: one holder that keeps its connection open keeps the old process for ever. (C18, P9)"""
    pawld = world.pawld(redis, ["--drain-timeout", "1s"])
    api = pawld.api()
    api.must("acquire", "held", ttl_ms=LONG_TTL)
    pawld.signal(signal.SIGTERM)
    assert pawld.wait() == 0
    assert redis.holds("held")


def test_sigint_is_like_sigterm(world, redis):
    """Broken: Ctrl-C in a terminal is not an orderly end."""
    pawld = world.pawld(redis)
    pawld.signal(signal.SIGINT)
    assert pawld.wait() == 0


def test_sigterm_lets_requests_in_flight_finish(world, redis):
    """Broken: a client whose request was accepted gets no answer; or new work is taken during the drain. (C18)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "30s", "--drain-timeout", "30s"])
    api = pawld.api()
    api.must("acquire", "warm")
    proxy.stall_down = True
    conns = [pawld.conn() for _ in range(20)]
    for i, conn in enumerate(conns):
        conn.send_request("POST", lock_path(f"d/{i}", "acquire"), {"ttl_ms": LONG_TTL})
    until(lambda: redis.holds("d/19") and redis.holds("d/0"), what="granted in Redis")
    pawld.signal(signal.SIGTERM)
    until(pawld.refuses_connections, what="no new connections")
    assert pawld.running()
    proxy.stall_down = False
    for i, conn in enumerate(conns):
        reply = conn.read_reply()
        assert reply.status in (200, 503), reply
        if reply.status == 200:
            assert redis.holds(f"d/{i}")
        else:
            assert reply.json()["error"] in ("draining", "store_unavailable")
            until(lambda i=i: not redis.holds(f"d/{i}"), what="a grant that was answered 503 is undone")
    pawld.close_clients()
    assert pawld.wait() == 0


def test_sigterm_in_the_midst_of_load(world, redis):
    """Broken: an answer is cut off half way, or a grant is lost, when the drain begins. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "1s"])
    problems, granted, lock = [], set(), threading.Lock()

    def client(seed):
        i = 0
        try:
            with Conn(pawld.address) as conn:
                while True:
                    i += 1
                    name = f"load/{seed}/{i}"
                    reply = conn.request("POST", lock_path(name, "acquire"), {"ttl_ms": LONG_TTL})
                    if reply.status == 200:
                        with lock:
                            granted.add(name)
                    else:
                        assert (reply.status, reply.json()["error"]) == (503, "draining"), reply
                    if reply.headers.get("connection", "").lower() == "close":
                        assert conn.at_eof()
                        return
        except (Closed, ConnectionError):
            return  # between two requests a close is clean
        except BaseException as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(granted) > 100, what="load")
    pawld.signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert pawld.wait() == 0
    assert problems == []
    held = {key.rpartition(":lock:")[2] for key in redis.keys("*:lock:load/*")}
    assert granted <= held, "a lease that was granted is gone"
    # at most the one request of each client whose answer was on its way may be held beyond those
    assert len(held - granted) <= 8, sorted(held - granted)


@pytest.mark.parametrize("redis_is", ["frozen", "down"])
def test_sigterm_while_redis_is_away(world, redis, redis_is):
    """Broken: the end waits for a Redis that does not come. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "2s"])
    conn = pawld.conn()
    if redis_is == "frozen":
        redis.sigstop()
    else:
        redis.stop()
    conn.send_request("POST", lock_path("l", "acquire"), {"ttl_ms": 1000})
    pawld.signal(signal.SIGTERM)
    assert pawld.wait(20) == 0
    redis.sigcont()


def test_a_drain_that_nobody_lets_end_is_ended(world, redis):
    """Broken: one client with half a request holds the end up for ever. (C18, P9)"""
    pawld = world.pawld(redis, ["--drain-timeout", "1s", "--request-timeout", "10m", "--body-timeout", "10m"])
    conn = pawld.conn()
    conn.send("POST /v1/locks/l/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    until(lambda: pawld.api().metrics()["pawl_connections"] >= 1, what="connection seen")
    pawld.signal(signal.SIGTERM)
    assert pawld.wait(20) == 0


def test_the_second_sigterm_ends_at_once(world, redis):
    """Broken: an impatient operator has to use kill -9. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "10m"])
    api = pawld.api()
    api.must("acquire", "held", ttl_ms=LONG_TTL)  # by a holder that is connected: the drain waits for it
    pawld.signal(signal.SIGTERM)
    until(pawld.refuses_connections, what="draining")
    always(pawld.running, 0.5, "the drain waits for the holder")
    pawld.expect_exit(1, -signal.SIGTERM, 128 + signal.SIGTERM)
    pawld.signal(signal.SIGTERM)
    pawld.wait(20)
    assert redis.holds("held")


def test_signals_that_mean_nothing(world, redis):
    """Broken: a client that resets its connection (SIGPIPE), a closed terminal (SIGHUP) or a stray signal ends the daemon."""
    pawld = world.pawld(redis)
    pawld.signal(signal.SIGPIPE)
    pawld.signal(signal.SIGHUP)
    until(lambda: pawld.log("reloading"), what="the HUP is seen")
    for i in range(50):
        conn = Conn(pawld.address)
        conn.send(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        conn.reset()
    assert pawld.api().healthz() == 200 and pawld.running()


def test_it_ends_by_itself_when_it_inherits_odd_signals(world, redis):
    """Broken: a pawld born with SIGTERM ignored or blocked can't be ended."""
    pawld = world.pawld(redis, prefix=["sh", "-c", "trap '' TERM INT PIPE CHLD; exec \"$@\"", "sh"])
    assert pawld.api().healthz() == 200
    assert pawld.stop() == 0


def test_kill9_and_start_again(world, redis):
    """Broken: after a kill the new process can't serve, or the old one's leases can't be renewed and released. (C50)"""
    pawld = world.pawld(redis)
    grants = {f"k/{i}": pawld.api().must("acquire", f"k/{i}", ttl_ms=LONG_TTL) for i in range(20)}
    pawld.kill9()
    pawld.start()
    api = pawld.api()
    for name, grant in grants.items():
        assert api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
        assert api.acquire(name)[0] == 409
        api.must("release", name, lease_id=grant["lease_id"])
    until(lambda: [key for key in residue(redis)] == [], what="nothing left")


# ---------------------------------------------------------------- frozen


def test_p5_frozen_past_the_ttl_a_grant_is_not_reported(world, redis, name):
    """Broken: a daemon that was stopped, or suspended, for longer than the ttl reports a grant that is long over. (P5)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "60s"])
    pawld.api().must("acquire", "warm", ttl_ms=1000)
    proxy.stall_down = True
    lease = new_id()
    with Conn(pawld.address, timeout_s=60) as conn:
        conn.send_request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": 2000})
        until(lambda: redis.holds(name), what="granted in Redis")
        pawld.sigstop()
        proxy.stall_down = False
        until(lambda: not redis.holds(name), what="the lease has run out in Redis")
        pawld.sigcont()
        reply = conn.read_reply()
    assert reply.status == 503 and reply.json()["lease_id"] == lease, reply
    until(lambda: pawld.api().acquire(name, ttl_ms=1000)[0] == 200, what="free")


def test_p5_frozen_for_a_part_of_the_ttl(world, redis, name):
    """Broken: the time that the daemon was frozen is not subtracted from the ttl in its reply. (P5)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "60s"])
    pawld.api().must("acquire", "warm", ttl_ms=1000)
    proxy.stall_down = True
    with Conn(pawld.address, timeout_s=60) as conn:
        conn.send_request("POST", lock_path(name, "acquire"), {"ttl_ms": 60_000})
        until(lambda: redis.holds(name), what="granted in Redis")
        pawld.sigstop()
        proxy.stall_down = False
        time.sleep(1.5)  # how long it is frozen
        pawld.sigcont()
        reply = conn.read_reply()
        read = time.monotonic()
        left = redis.pttl(name) + (time.monotonic() - read) * 1000
    assert reply.status == 200, reply
    assert reply.json()["ttl_ms"] <= 60_000 - 1_500
    # Redis began to count after pawld did, and has been asked after the reply was read
    assert reply.json()["ttl_ms"] <= left + 100, (reply, left)


def test_frozen_and_overtaken(world, redis, name):
    """Broken: a node that was frozen while another took the lock confirms its old lease. (C48 for the daemon)"""
    frozen, other = world.pawld(redis), world.pawld(redis)
    api = frozen.api()
    old = api.must("acquire", name, ttl_ms=1000)
    frozen.sigstop()
    new = until(lambda: _granted(other.api().acquire(name, ttl_ms=LONG_TTL)), what="the other node grants")
    assert new["token"] > old["token"]
    frozen.sigcont()
    for verb in ("renew", "release"):
        status, _ = until(lambda verb=verb: _settled(getattr(api, verb)(name, lease_id=old["lease_id"])), what="an answer")
        assert status == 410
    assert other.api().check(name, token=new["token"])[0] == 200


def _granted(answer):
    return answer[1] if answer[0] == 200 else None


def _settled(answer):
    return None if answer[0] == 503 else answer


# ---------------------------------------------------------------- --dev


def redis_of(pawld):
    """The pid of the private redis-server."""
    for pid in pawld.children():
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            if b"redis-server" in f.read():
                return pid
    return None


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.fixture
def dev(world):
    folder = world.folder()
    pawld = world.pawld(None, ["--dev"], env={"TMPDIR": folder})
    pawld.tmp = folder
    return pawld


def dev_folders(pawld):
    return [entry for entry in os.listdir(pawld.tmp) if entry.startswith("pawl-dev-")]


def test_dev_works_out_of_the_box(dev):
    """Broken: the first minute with pawl: one command, then a lock."""
    api = dev.api()
    grant = api.must("acquire", "hello", owner="me")
    assert api.acquire("hello")[0] == 409
    api.must("renew", "hello", lease_id=grant["lease_id"])
    api.must("release", "hello", lease_id=grant["lease_id"])
    assert api.must("acquire", "hello")["token"] > grant["token"]
    (folder,) = dev_folders(dev)
    assert os.stat(os.path.join(dev.tmp, folder)).st_mode & 0o777 == 0o700
    pid = redis_of(dev)
    assert pid and alive(pid)
    assert dev.stop() == 0
    until(lambda: not alive(pid), what="its redis is gone")
    assert dev_folders(dev) == []


def test_dev_killed_takes_its_redis_with_it(dev):
    """Broken: each kill -9 leaves a redis-server behind; or its folder, for ever."""
    pid = redis_of(dev)
    dev.kill9()
    until(lambda: not alive(pid), what="its redis is gone")
    dev.start()
    assert len(dev_folders(dev)) == 1, "the folder of the killed one is swept"
    dev.api().must("acquire", "l")


def test_dev_whose_redis_dies_says_so(dev):
    """Broken: after its private Redis has died it pretends to work."""
    os.kill(redis_of(dev), signal.SIGKILL)  # a child of the pawld that this test started
    api = Api(dev.address)
    try:
        status = until(lambda: _not_200(api, dev), what="noticed")
        assert status in (503, "ended")
    finally:
        api.close()
    dev.expect_exit(1)


def _not_200(api, dev):
    if not dev.running():
        return "ended"
    try:
        status = api.acquire("l", ttl_ms=1)[0]
    except (OSError, Closed, AssertionError):
        return None
    return status if status not in (200, 409) else None


def test_two_devs_side_by_side(world):
    """Broken: two pawld --dev share a socket, a folder or locks."""
    folder = world.folder()
    a, b = (world.pawld(None, ["--dev"], env={"TMPDIR": folder}) for _ in range(2))
    a.api().must("acquire", "l", ttl_ms=LONG_TTL)
    b.api().must("acquire", "l", ttl_ms=LONG_TTL)
    assert a.stop() == 0
    assert b.api().acquire("l")[0] == 409


def test_dev_without_a_redis_server(world):
    """Broken: without redis-server on PATH there is a hang, or no word of what is missing."""
    code, out, err = run("--dev", *MENU, env={"PATH": world.folder()})
    assert code > 0 and "redis-server" in err


def test_dev_refuses_a_life_with_other_nodes_in_it(world):
    """Broken: a node without a recovery window opens a new life of data that other nodes still have leases in."""
    redis = world.redis()
    redis.command("SET", "pawl:{0}:node:abcdef", "1", "PX", LONG_TTL)
    pawld = world.pawld(redis, wait="listening")
    assert pawld.api().readyz() == 503
    until(lambda: [line for line in pawld.log() if line["level"] in ("warn", "error")], what="the log says why")
    assert pawld.api().acquire("l")[0] == 503
    redis.command("DEL", "pawl:{0}:node:abcdef")
    pawld.wait_ready()


# ---------------------------------------------------------------- the window


def test_with_a_recovery_window_nothing_is_granted_until_it_closed(world, redis):
    """Broken: a fresh Redis, which can't be told from one that lost everything, grants at once. (P3)"""
    pawld = world.pawld(redis, ["--recovery-window", "4s"], wait="listening")
    api = pawld.api()
    until(lambda: redis.command("EXISTS", "pawl:{0}:recovery") == 1, what="the window is open")
    status, error = api.acquire("l")
    assert status == 503 and error["error"] in ("recovering", "store_unavailable"), error
    assert api.readyz() == 503
    pawld.wait_ready()
    assert redis.command("EXISTS", "pawl:{0}:recovery") == 0
    api.must("acquire", "l")


# ---------------------------------------------------------------- many clients


def test_c05_the_reply_is_lost_and_the_client_retries(world, redis, name):
    """Broken: the client that retries is blocked by its own lock, or gets a 5xx for what is done. (C05)"""
    pawld = world.pawld(redis)
    host, port = pawld.address.rsplit(":", 1)
    proxy = world.proxy((host, int(port)))
    lease = new_id()

    def lost(verb, params):
        proxy.lose_reply_to(lease)
        with Conn(proxy.http_address) as conn, pytest.raises((Closed, OSError, AssertionError)):
            conn.request("POST", lock_path(name, verb), params)
        assert proxy.reply_was_lost()

    api = pawld.api()
    for round_ in range(5):
        lost("acquire", {"lease_id": lease, "ttl_ms": LONG_TTL})
        first = api.must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)
        lost("acquire", {"lease_id": lease, "ttl_ms": LONG_TTL})
        assert api.must("acquire", name, lease_id=lease, ttl_ms=LONG_TTL)["token"] == first["token"]
        lost("renew", {"lease_id": lease, "ttl_ms": LONG_TTL})
        assert api.must("renew", name, lease_id=lease, ttl_ms=LONG_TTL)["token"] == first["token"]
        assert api.acquire(name, lease_id=new_id())[0] == 409
        lost("release", {"lease_id": lease})
        status, error = api.release(name, lease_id=lease)
        assert (status, error["error"]) == (410, "lease_lost")
        assert not redis.holds(name)
        lease = new_id()


def test_a_thousand_idle_connections(world, redis):
    """Broken: idle connections cost CPU or 8 KiB each, or hold up those who work. All are closed again and nothing of them is left."""
    pawld = world.pawld(redis, ["--idle-timeout", "10m"], env=FRUGAL)
    api = pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    fds, rss = pawld.fds(), pawld.rss()
    conns = []
    for i in range(1000):
        conns.append(Conn(pawld.address))
        if i % 2:
            conns[-1].send_request("GET", "/healthz")
    for i, conn in enumerate(conns):
        if i % 2:
            assert conn.read_reply().status == 200
    for conn in conns[::8]:  # what a large request that came in pieces needed is not kept either
        request = request_bytes("POST", lock_path("nobody", "check") + "?token=1", b" " * 60_000)
        conn.send(request[:40_000])
        assert api.healthz() == 200, "the first piece has been read"
        conn.send(request[40_000:])
        assert conn.read_reply().status == 410
    until(lambda: api.metrics()["pawl_connections"] >= 1001, what="all are accepted")
    assert pawld.rss() - rss < 1000 * 8 * 1024, "8 KiB each"
    cpu, start = pawld.cpu_s(), time.monotonic()
    time.sleep(2)  # idle is what is measured
    assert pawld.cpu_s() - cpu < 0.5 * (time.monotonic() - start)
    for i in range(100):
        assert api.must("renew", "held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert conns[500].request("POST", lock_path("mine", "acquire")).status == 200
    for conn in conns:
        conn.close()
    until(lambda: pawld.fds() <= fds + 5, what="descriptors are back")
    until(lambda: api.metrics()["pawl_connections"] <= 5, what="the gauge is back")


def test_c11_out_of_descriptors(world, redis):
    """Broken: accept fails at once, the loop spins, the log floods; or the leases of open connections can't be renewed. (C11)"""
    pawld = world.pawld(redis, prefix=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"])
    api = pawld.api()
    grant = api.must("acquire", "held", ttl_ms=LONG_TTL)
    conns = [Conn(pawld.address) for _ in range(200)]
    until(lambda: pawld.fds() >= 40, what="descriptors are used up")
    assert pawld.fds() <= 64
    cpu, lines, start = pawld.cpu_s(), len(pawld.log()), time.monotonic()
    time.sleep(3)  # the flood, if there is one
    took = time.monotonic() - start
    assert pawld.cpu_s() - cpu < 0.5 * took
    assert len(pawld.log()) - lines < 10 * took
    assert api.must("renew", "held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    until(lambda: api.renew("held", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)[0] == 200, what="the store's connection is made again")
    for conn in conns:
        conn.close()
    until(lambda: Api(pawld.address).healthz() == 200, what="served again")


@pytest.mark.deadline(600)
def test_c51_each_client_sees_only_its_own(world, redis):
    """Broken: an answer reaches the client that came after the one it was for, since descriptors are used again. (C51)"""
    proxy = world.proxy(redis.address)
    proxy.jitter_s = 0.05
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "10s"])
    rng, unanswered = random.Random(51), set()
    for round_ in range(50):
        crowd = []
        for i in range(64):
            conn, lease, name = Conn(pawld.address), new_id(), f"own/{round_}/{i}"
            conn.send_request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": LONG_TTL})
            crowd.append((conn, lease, name))
        rng.shuffle(crowd)
        for conn, _, name in crowd[:32]:  # these vanish with their requests in flight
            if not conn.answered():
                unanswered.add(redis.lock_key(name))
            (conn.reset if rng.random() < 0.5 else conn.close)()
        fresh = []
        for i in range(32):  # and these take over their descriptors
            conn, lease, name = Conn(pawld.address), new_id(), f"new/{round_}/{i}"
            conn.send_request("POST", lock_path(name, "acquire"), {"lease_id": lease, "ttl_ms": LONG_TTL})
            fresh.append((conn, lease, name))
        stayed = crowd[32:] + fresh
        for verb in ("acquire", "renew", "release"):
            for conn, lease, name in stayed:
                if verb != "acquire":
                    conn.send_request("POST", lock_path(name, verb), {"lease_id": lease})
            for conn, lease, name in stayed:
                reply = conn.read_reply()
                body = reply.json()
                assert (reply.status, body["name"], body.get("lease_id", lease)) == (200, name, lease), (verb, reply)
        for conn, _, _ in stayed:
            conn.close()
    proxy.jitter_s = 0.0
    # an answer that came between the last look and the leaving can't be told from one that was read; there can't be many of these
    until(lambda: len(unanswered & redis.keys()) <= len(unanswered) // 10, what="grants that nobody received are given back")


def test_two_nodes_see_the_same(world, redis):
    """Broken: what one node grants the other does not know. (C46, without waiting)"""
    a, b = world.pawld(redis).api(), world.pawld(redis).api()
    grant = a.must("acquire", "l", ttl_ms=LONG_TTL, owner="via-a")
    assert b.acquire("l")[1]["holder"]["owner"] == "via-a"
    assert b.inspect("l")[1]["token"] == grant["token"] and b.list_all()[0] == ["l"]
    assert b.must("renew", "l", lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert a.must("check", "l", token=grant["token"])
    b.must("release", "l", lease_id=grant["lease_id"])
    assert a.renew("l", lease_id=grant["lease_id"])[0] == 410
    assert b.must("acquire", "l")["token"] > grant["token"]
    until(lambda: a.metrics()["pawl_leases"] == 0, what="the first node forgets what the other released")


def test_log_lines_are_one_each(world, redis):
    """Broken: a name, owner or reason with control characters, or a broken request, forges a line of the log. (C34)"""
    pawld = world.pawld(redis, ["--log-level", "debug"])
    api = pawld.api()
    for evil in ("%0d%0a{\"event\":\"forged\"}", "a%0Ab", "%1b[31m", "%s%n%x", "x" * 3000):
        api.call("POST", f"/v1/locks/{evil}/acquire".replace('"', "%22").replace("{", "%7B").replace("}", "%7D").replace("%s%n%x",
            "%25s%25n"))
        api.acquire("l", owner=evil)
    api.call("POST", lock_path("l", "acquire"), b'{"owner": "x\n{\"event\":\"forged\"}\n')
    with Conn(pawld.address) as conn:
        conn.send(b"\x16\x03\x01\n{\"event\":\"forged\"}\n\r\n\r\n")
        assert conn.read_reply().status == 400
    grant = api.must("acquire", "own", owner="%s%n \u2028 \u202e é")
    api.must("brk", "own", reason="%s%n \u2028 é")
    until(lambda: any("%s%n" in json.dumps(line) for line in pawld.log()), what="the break is logged")
    assert not pawld.log("forged") and not pawld.stray
    assert all(len(json.dumps(line)) < 4096 for line in pawld.log())
    assert grant["lease_id"] not in pawld.stderr(), "a lease id is a secret"


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_standard_descriptors_that_are_closed_are_nobody_elses(world, redis, closed):
    """Broken: what pawld opens first gets the number of standard error, and lines of the log go there."""
    port = free_port()
    pawld = world.pawld(redis, listen=[f"127.0.0.1:{port}"], prefix=["sh", "-c", f'exec "$@" {closed}', "sh"], wait=None)
    until(lambda: serves(Api(f"127.0.0.1:{port}")), what="it serves")
    numbers = (0, 1, 2) if closed.startswith("<") else (2,)
    assert {os.readlink(f"/proc/{pawld.pid}/fd/{number}") for number in numbers} == {"/dev/null"}
    assert pawld.stop() == 0


def test_a_terminal_that_nobody_reads_stops_nobody(world, redis):
    """Broken: pawld's standard error is a terminal whose reader has stalled, which polls writable when it has room for a byte: pawld waits with the rest of a line, and
    all clients with it. (P9)"""
    path, kept = stalled.idle_terminal(world)
    port = free_port()
    pawld = world.pawld(redis, ["--log-level", "debug"], listen=[f"127.0.0.1:{port}"], prefix=["sh", "-c", f'exec "$@" 2>{path}', "sh"], wait=None)
    api = Api(f"127.0.0.1:{port}")
    until(lambda: serves(api), what="it serves")
    for i in range(500):  # each is a line or two
        lease = api.must("acquire", "l", ttl_ms=LONG_TTL, owner="o" * (i % 97))
        api.must("release", "l", lease_id=lease["lease_id"])
    api.close()
    assert pawld.stop() == 0
    stalled.close(kept)


def test_the_lease_id_is_not_logged_whole(world, redis):
    """Broken: whoever reads the logs can release everybody's locks."""
    pawld = world.pawld(redis, ["--log-level", "debug"])
    api = pawld.api()
    lease = new_id()
    api.must("acquire", "l", lease_id=lease)
    api.renew("l", lease_id=lease)
    api.call("POST", lock_path("l", "renew") + f"?lease_id={lease}&ttl=x")
    api.release("l", lease_id=lease)
    api.release("l", lease_id=lease)
    assert lease not in pawld.stderr()
