"""The HTTP API, row by row (DESIGN.md section 3), and what it makes of parameters that are wrong: a typo must never become a default.

How bytes become requests (chunks, lengths, limits, timing) is tested in tests/http.
"""

import json
import time
import uuid
from types import SimpleNamespace

import pytest

from pawltest.fixtures import World
from pawltest.http import Conn, lock_path
from pawltest.residue import residue
from pawltest.wait import until

LONG_TTL = 600_000
DAY = 86_400_000
ID = "c0ffee00-0000-4000-8000-000000000001"


def new_id():
    return str(uuid.uuid4())


def keys_of(redis, name):
    return [key for key in redis.keys() if name in key]


def short(value):
    return value if len(value) < 40 else f"{value[:4]}..{len(value)}"


def is_uuid(text):
    return str(uuid.UUID(text)) == text


# ---------------------------------------------------------------- one test per row


def test_acquire(broker, name):
    """Broken: a field of the grant is missing, or not what Redis has."""
    before = broker.api.must("acquire", name + ".before")["token"]
    grant = broker.api.must("acquire", name, ttl_ms=60_000, owner="billing-7")
    assert set(grant) == {"name", "lease_id", "token", "ttl_ms", "owner", "waited_ms"}
    assert grant["name"] == name and grant["owner"] == "billing-7" and is_uuid(grant["lease_id"])
    assert type(grant["token"]) is int and grant["token"] > before
    assert 0 < grant["ttl_ms"] <= 60_000 and type(grant["ttl_ms"]) is int
    assert type(grant["waited_ms"]) is int and grant["waited_ms"] >= 0
    assert 0 < broker.redis.pttl(name) <= 60_000


def test_acquire_with_nothing_said(broker, name):
    """Broken: an empty body, an absent one or {} is refused; the default ttl is not 30 s; two callers get one lease id."""
    ids = set()
    for i, body in enumerate((None, b"", b"  \n", {})):
        status, grant, _ = broker.api.call("POST", lock_path(f"{name}.{i}", "acquire"), body)
        assert status == 200 and 0 < grant["ttl_ms"] <= 30_000, grant
        assert broker.redis.pttl(f"{name}.{i}") > 1_000
        assert not grant["owner"]
        ids.add(grant["lease_id"])
    assert len(ids) == 4


def test_acquire_a_held_lock(broker, name):
    """Broken: the refused caller does not learn who holds it, until when, or under which lease id to try again."""
    grant = broker.api.must("acquire", name, ttl_ms=60_000, owner="first")
    mine = new_id()
    status, held = broker.api.acquire(name, lease_id=mine, owner="second")
    assert (status, held["error"]) == (409, "held")
    assert held["lease_id"] == mine and held["waiters"] == 0 and held["waited_ms"] >= 0
    holder = held["holder"]
    assert set(holder) == {"owner", "token", "ttl_ms", "held_ms"}
    assert (holder["owner"], holder["token"]) == ("first", grant["token"])
    assert 0 < holder["ttl_ms"] <= 60_000 and holder["held_ms"] >= 0
    assert grant["lease_id"] not in json.dumps(held)
    status, held = broker.api.acquire(name)
    assert status == 409 and is_uuid(held["lease_id"]) and held["lease_id"] != grant["lease_id"]


def test_renew(broker, name):
    """Broken: a renewal changes the token, or does not set the ttl that was asked for. (C41)"""
    grant = broker.api.must("acquire", name, ttl_ms=60_000, owner="me")
    longer = broker.api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=300_000)
    assert set(longer) == {"name", "lease_id", "token", "ttl_ms", "owner"}
    assert (longer["name"], longer["lease_id"], longer["token"], longer["owner"]) == (name, grant["lease_id"], grant["token"], "me")
    assert 200_000 < longer["ttl_ms"] <= 300_000 and 200_000 < broker.redis.pttl(name) <= 300_000
    plain = broker.api.must("renew", name, lease_id=grant["lease_id"])
    assert 0 < plain["ttl_ms"] <= 30_000, "without ttl_ms: the default"
    assert broker.redis.pttl(name) <= 30_000, "a renewal to a shorter time shortens"


def test_release(broker, name):
    """Broken: the lock is not free after it, or something stays in Redis."""
    grant = broker.api.must("acquire", name, ttl_ms=LONG_TTL)
    reply = broker.api.must("release", name, lease_id=grant["lease_id"])
    assert reply == {"name": name, "released": True, "token": grant["token"]}
    assert keys_of(broker.redis, name) == []
    status, error = broker.api.release(name, lease_id=grant["lease_id"])
    assert (status, error["error"]) == (410, "lease_lost")


def test_check(broker, name):
    """Broken: a guard that asks about a token gets a yes for one that is not the holder's."""
    grant = broker.api.must("acquire", name, ttl_ms=60_000)
    reply = broker.api.must("check", name, token=grant["token"])
    assert set(reply) == {"name", "token", "ttl_ms"}
    assert (reply["name"], reply["token"]) == (name, grant["token"]) and 0 < reply["ttl_ms"] <= 60_000
    for token in (grant["token"] - 1, grant["token"] + 1, 1, 2**53 - 1):
        status, error = broker.api.check(name, token=token)
        assert (status, error["error"]) == (410, "lease_lost")
    assert broker.api.check("free-" + name, token=grant["token"])[0] == 410


def test_break(broker, name):
    """Broken: an operator can't free a lock, does not learn whose it was, or the break is not in the log."""
    grant = broker.api.must("acquire", name, ttl_ms=LONG_TTL, owner="stuck")
    reply = broker.api.must("brk", name, reason="node on fire")
    assert set(reply) == {"name", "broken", "holder"} and reply["name"] == name and reply["broken"] is True
    assert (reply["holder"]["owner"], reply["holder"]["token"]) == ("stuck", grant["token"])
    assert grant["lease_id"] not in json.dumps(reply)
    assert keys_of(broker.redis, name) == []
    until(lambda: any("node on fire" in json.dumps(line) and name in json.dumps(line) for line in broker.pawld.log()),
        what="the reason is logged")
    status, error = broker.api.brk(name, reason="again")
    assert (status, error["error"]) == (404, "not_held")
    assert broker.api.must("acquire", name)["token"] > grant["token"]


def test_inspect(broker, name):
    """Broken: a free lock is shown as held or the other way round; the lease id, the holder's secret, is shown."""
    status, free = broker.api.inspect(name)
    assert status == 200 and free["name"] == name and free["held"] is False and free["waiters"] == 0
    assert not free.get("owner") and not free.get("token") and not free.get("ttl_ms")
    grant = broker.api.must("acquire", name, ttl_ms=60_000, owner="me")
    status, held = broker.api.inspect(name)
    assert {"name", "held", "owner", "token", "ttl_ms", "held_ms", "waiters"} <= set(held)
    assert held["held"] is True and (held["owner"], held["token"]) == ("me", grant["token"])
    assert 0 < held["ttl_ms"] <= 60_000 and held["held_ms"] >= 0 and held["waiters"] == 0
    assert grant["lease_id"] not in json.dumps(held) and grant["lease_id"][:8] not in json.dumps(held)


def test_list(broker, name):
    """Broken: a held lock is missing from the list, a free one is in it, or a lease id is shown."""
    grants = [broker.api.must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL, owner=f"o{i}") for i in range(5)]
    broker.api.must("release", f"{name}/4", lease_id=grants[4]["lease_id"])
    status, page = broker.api.list(prefix=name + "/")
    assert status == 200 and set(page) >= {"locks", "cursor"}
    assert sorted(lock["name"] for lock in page["locks"]) == [f"{name}/{i}" for i in range(4)]
    for lock in page["locks"]:
        i = int(lock["name"][-1])
        assert (lock["owner"], lock["token"]) == (f"o{i}", grants[i]["token"]) and 0 < lock["ttl_ms"] <= LONG_TTL
    assert not any(grant["lease_id"] in json.dumps(page) for grant in grants)


def test_list_in_pages(world, redis):
    """Broken: a page that ends early loses locks, the cursor never ends, or the limit is ignored."""
    api = world.pawld(redis).api()
    wanted = {f"page/{i}" for i in range(2500)}
    for name in sorted(wanted):
        api.must("acquire", name, ttl_ms=LONG_TTL)
    for i in range(50):
        api.must("acquire", f"rage/{i}", ttl_ms=LONG_TTL)
    for limit in (1, 100, 1000):
        if limit > 1:
            names, pages = api.list_all(prefix="page/", limit=limit)
            assert set(names) == wanted and pages >= 2, (limit, pages, len(names))
        status, page = api.list(prefix="page/", limit=limit)
        # Redis hands keys out in groups of about a thousand, so a page may hold more than was asked for, never without bound
        assert status == 200 and len(page["locks"]) <= limit + 1100
    names, _ = api.list_all()
    assert set(names) == wanted | {f"rage/{i}" for i in range(50)}
    assert api.list_all(prefix="none/")[0] == []


@pytest.mark.parametrize("prefix", ["a*", "a?", "a[b]", "a\\", "a b", "a%", "é", "a\x7f"])
def test_list_prefix_is_text_and_no_pattern(broker, prefix):
    """Broken: a prefix is handed to Redis as a glob and shows other locks, or costs a scan with a pattern that never ends."""
    status, error = broker.api.list(prefix=prefix)
    assert (status, error["error"]) == (400, "bad_request") and "prefix" in error["message"]


@pytest.mark.parametrize("query, field", [
    ("limit=0", "limit"), ("limit=-1", "limit"), ("limit=1001", "limit"), ("limit=1.5", "limit"), ("limit=", "limit"), ("limit=x", "limit"),
    ("limit=1&limit=1", "limit"), ("limit=99999999999999999999", "limit"), ("cursor=x", "cursor"), ("cursor=-1", "cursor"),
    ("cursor=18446744073709551616", "cursor"), ("cursor=123456789012345678901", "cursor"), ("ttl=5s", "ttl"), ("nonsense=1", "nonsense"),
    ("prefix=" + "p" * 256, "prefix"), ("prefix=a&prefix=b", "prefix"), ("Limit=5", "Limit"), ("limit", "limit"),
])
def test_list_refuses_bad_parameters(broker, query, field):
    """Broken: a bad limit or cursor becomes a default and the list looks complete."""
    status, error, _ = broker.api.call("GET", f"/v1/locks?{query}")
    assert (status, error["error"]) == (400, "bad_request") and field in error["message"], error


@pytest.mark.parametrize("query", ["a=1&&b=2", "&", "limit=5&"])
def test_list_refuses_an_empty_pair(broker, query):
    """Broken: half a query is understood and the rest dropped."""
    assert broker.api.call("GET", f"/v1/locks?{query}")[0] == 400


# ---------------------------------------------------------------- status, health, metrics


def test_status(broker, name):
    """Broken: an operator can't see which Redis, which life of the data and which node it is; or sees a secret."""
    grant = broker.api.must("acquire", name)
    status, seen = broker.api.status()
    assert status == 200
    text = json.dumps(seen)
    assert {"version", "node", "redis", "incarnation", "fence", "recovering", "leases", "waiters", "connections"} <= set(seen), seen
    assert seen["version"] and seen["node"] and seen["recovering"] is False and seen["leases"] >= 1 and seen["waiters"] == 0
    assert seen["fence"] >= grant["token"]
    assert f"127.0.0.1:{broker.redis.port}" in seen["redis"]["address"] and seen["redis"]["role"] == "master"
    assert grant["lease_id"] not in text and grant["lease_id"][:8] not in text


def test_status_says_when_redis_is_away(world, redis):
    """Broken: the status call itself needs Redis, and fails when it is needed most."""
    pawld = world.pawld(redis)
    redis.stop()
    pawld.wait_not_ready()
    api = pawld.api()
    start = time.monotonic()
    status, seen = api.status()
    assert status == 200 and "version" in seen
    assert time.monotonic() - start < 10


def test_health_and_readiness(world):
    """Broken: the process that can't grant calls itself ready, or an orchestrator kills it for what is Redis' fault."""
    redis = world.redis(start=False, port=None)
    redis.start()
    pawld = world.pawld(redis)
    api = pawld.api()
    assert api.healthz() == 200 and api.readyz() == 200
    redis.stop()
    pawld.wait_not_ready()
    status, error, reply = api.call("GET", "/readyz")
    assert status == 503 and error["error"] in ("store_unavailable", "recovering") and "retry-after" in reply.headers
    assert api.healthz() == 200
    redis.start()
    pawld.wait_ready()


def test_metrics_count_what_was_done(world, redis):
    """Broken: the counters an operator watches do not move, or move for something else; or a lock's name becomes a label. (C37)"""
    pawld = world.pawld(redis)
    api = pawld.api()
    grant = api.must("acquire", "secret-name", ttl_ms=LONG_TTL, owner="secret-owner")
    api.must("acquire", "secret-name", lease_id=grant["lease_id"])
    api.acquire("secret-name")
    api.must("renew", "secret-name", lease_id=grant["lease_id"])
    api.renew("secret-name", lease_id=new_id())
    api.must("release", "secret-name", lease_id=grant["lease_id"])
    api.must("acquire", "secret-name")
    api.must("brk", "secret-name", reason="secret-reason")
    api.call("POST", lock_path("secret-name", "acquire"), b"{")
    seen = api.metrics()
    expected = {
        "pawl_grants_total": 2, "pawl_repeated_acquires_total": 1, "pawl_refusals_total": 1, "pawl_renewals_total": 1,
        "pawl_releases_total": 1,
        "pawl_breaks_total": 1, "pawl_lease_lost_total": 1, "pawl_undone_grants_total": 0, "pawl_ready": 1, "pawl_waiters": 0,
        "pawl_leases": 0,
        'pawl_requests_total{call="acquire",code="200"}': 3, 'pawl_requests_total{call="acquire",code="409"}': 1,
        'pawl_requests_total{call="acquire",code="400"}': 1, 'pawl_requests_total{call="renew",code="410"}': 1,
    }
    assert {key: seen.get(key) for key in expected} == expected
    assert seen["pawl_store_roundtrip_seconds_count"] >= 7 and seen['pawl_store_roundtrip_seconds_bucket{le="+Inf"}'] >= 7
    assert seen["pawl_hold_seconds_count"] >= 1
    assert seen["pawl_connections"] >= 1 and seen["pawl_connections_accepted_total"] >= 2
    with Conn(pawld.address) as conn:
        reply = conn.request("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    text = reply.body.decode()
    assert "secret" not in text and 'pawl_build_info{version="' in text
    assert text.count("# TYPE pawl_grants_total counter") == 1 and text.count("# HELP pawl_grants_total ") == 1


# ---------------------------------------------------------------- methods, paths, origins


@pytest.mark.parametrize("method, target, allow", [
    ("POST", "/v1/status", {"GET", "HEAD"}), ("POST", "/healthz", {"GET", "HEAD"}), ("DELETE", "/readyz", {"GET", "HEAD"}),
    ("PUT", "/metrics", {"GET", "HEAD"}), ("DELETE", "/v1/locks", {"GET", "HEAD"}), ("PUT", "/v1/locks/x", {"GET", "HEAD"}),
    ("DELETE", "/v1/locks/x", {"GET", "HEAD"}), ("PATCH", "/v1/locks/x/acquire", {"POST"}), ("DELETE", "/v1/locks/x/release", {"POST"}),
    ("PUT", "/v1/locks/x/renew", {"POST"}),
])
def test_method_not_allowed(broker, method, target, allow):
    """Broken: a wrong method is a 404, a 500 or does something; or the reply does not say which would be right. (C33)"""
    status, error, reply = broker.api.call(method, target)
    assert (status, error["error"]) == (405, "method_not_allowed")
    assert allow <= {word.strip() for word in reply.headers["allow"].split(",")}, reply
    assert reply.headers["allow"] in error["message"], "curl -s doesn't show the header"


@pytest.mark.parametrize("verb, query", [
    ("acquire", ""), ("acquire", "?ttl=30s"), ("release", "?lease_id=11111111-2222-4333-8444-555555555555"),
    ("renew", "?ttl=30s&lease_id=11111111-2222-4333-8444-555555555555"), ("check", "?token=1"),
])
def test_a_get_of_a_call_says_that_it_is_none(broker, name, verb, query):
    """Broken: who forgets the -X POST is told what reads like an answer to the call, and nothing more."""
    status, reply, _ = broker.api.call("GET", lock_path(name, verb) + query)
    if query == "" or verb == "release":
        assert status == 200 and not reply["held"] and reply["name"] == f"{name}/{verb}"
        assert reply["hint"].startswith(f"a GET only looks, here at a lock of this name; {verb} is a POST")
    else:
        assert status == 400 and reply["message"].endswith(f" of this call; {verb} is a POST, and this is a GET"), reply
    assert residue_named(broker.redis, name) == []


def test_a_hint_is_not_in_the_way(broker, name):
    """Broken: a lock whose name ends like a call, and that is in use, is talked about as a mistake."""
    broker.api.must("acquire", f"{name}/check", ttl_ms=LONG_TTL)
    assert "hint" not in broker.api.inspect(f"{name}/check")[1]
    assert "hint" not in broker.api.inspect(f"{name}/checks")[1]
    assert "hint" not in broker.api.inspect("check")[1]


@pytest.mark.parametrize("target", ["//", "/v1", "/v1/", "/v2/locks/x/acquire", "/v1/lock/x/acquire", "/healthz/x", "/metricsx", "/V1/locks",
    "/v1/statuss"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_unknown_paths(broker, method, target):
    """Broken: a path that does not exist is served by something that looks alike."""
    status, error, _ = broker.api.call(method, target)
    assert (status, error["error"]) == (404, "not_found")


@pytest.mark.parametrize("target", ["/v1/locks/x", "/v1/locks/x/steal", "/v1/locks/x/ACQUIRE", "/v1/locks/x/acquire%20"])
def test_post_without_a_verb(broker, target):
    """Broken: a POST whose last segment is no verb takes a lock or is served as something else."""
    status, error, _ = broker.api.call("POST", target, {})
    assert status in (400, 404, 405), error
    assert residue_named(broker.redis, "x") == []


def residue_named(redis, name):
    return [key for key in residue(redis) if key.endswith(":lock:" + name) or f":lock:{name}/" in key]


def test_head_works_where_get_does(broker, name):
    """Broken: the body of a HEAD is read as the start of the next reply. (C12)"""
    broker.api.must("acquire", name)
    with Conn(broker.pawld.address) as conn:
        for target in ("/healthz", "/readyz", "/v1/status", "/metrics", "/v1/locks", lock_path(name), "/nowhere", "/v1/locks?limit=x"):
            head = conn.request("HEAD", target)
            get = conn.request("GET", target)
            assert head.status == get.status and head.headers["content-type"] == get.headers["content-type"]
            assert int(head.headers["content-length"]) > 0
            if target not in ("/metrics", "/v1/status", "/v1/locks", lock_path(name)):
                assert head.headers["content-length"] == get.headers["content-length"]
        assert conn.request("HEAD", lock_path(name, "acquire")).status in (200, 405)
        assert conn.request("GET", "/healthz").status == 200


def test_requests_with_an_origin_are_refused(broker, name):
    """Broken: a web page takes or breaks locks through a sidecar on localhost."""
    grant = broker.api.must("acquire", name, ttl_ms=LONG_TTL)
    for origin in ("http://evil.example", "null", "", "http://127.0.0.1:1", "http://pawl.test.evil.example", "https://pawl.test:1"):
        for method, target, body in (
            ("POST", lock_path(name, "break"), {"reason": "x"}), ("POST", lock_path(name, "release"), {"lease_id": grant["lease_id"]}),
            ("GET", lock_path(name), None), ("GET", "/v1/status", None), ("POST", lock_path(name, "acquire"), {}),
        ):
            status, error, reply = broker.api.call(method, target, body, [("Origin", origin)])
            assert (status, error["error"]) == (403, "forbidden"), (origin, target)
            assert "access-control-allow-origin" not in reply.headers
    assert broker.api.inspect(name)[1]["token"] == grant["token"]


def test_allowed_origins(world, redis):
    """Broken: --allow-origin lets all of them in, or none; or a page whose name was pointed at the daemon (rebinding) counts as its own."""
    pawld = world.pawld(redis, ["--allow-origin", "https://ops.example", "--allow-origin", "http://two.example:8080"])
    with Conn(pawld.address) as conn:
        def status(origin, host=None):
            conn.send(f"GET /v1/status HTTP/1.1\r\nHost: {host or pawld.address}\r\nOrigin: {origin}\r\n\r\n")
            return conn.read_reply().status

        assert status("https://ops.example") == 200
        assert status("http://two.example:8080") == 200
        assert status("http://evil.example", "evil.example") == 403
        for origin in ("http://ops.example", "https://ops.example:8080", "https://ops.example.evil", "http://two.example",
            "https://xops.example"):
            assert status(origin) == 403, origin


def test_replies_carry_what_they_should(broker, name):
    """Broken: a reply is no single line of JSON, or lets a cache keep it."""
    for method, target in (("GET", lock_path(name)), ("POST", lock_path(name, "acquire")), ("POST", lock_path(name, "acquire")),
        ("GET", "/nowhere"),
                           ("GET", "/v1/locks"), ("GET", "/v1/status"), ("GET", "/healthz"), ("GET", "/readyz")):
        _, _, reply = broker.api.call(method, target)
        assert reply.headers["content-type"] == "application/json"
        assert reply.body.endswith(b"}\n") and reply.body.count(b"\n") == 1


# ---------------------------------------------------------------- parameters: query and body


def test_query_parameters(broker, name):
    """Broken: what a shell sends in the query is not what a program sends in JSON."""
    status, grant, _ = broker.api.call("POST", lock_path(name, "acquire") + f"?ttl=90s&owner=cron%20job&lease_id={ID}")
    assert status == 200 and grant["owner"] == "cron job" and grant["lease_id"] == ID and 60_000 < grant["ttl_ms"] <= 90_000
    status, renewed, _ = broker.api.call("POST", lock_path(name, "renew") + f"?lease_id={ID}&ttl=5m")
    assert status == 200 and 240_000 < renewed["ttl_ms"] <= 300_000
    assert broker.api.call("POST", lock_path(name, "check") + f"?token={grant['token']}")[0] == 200
    assert broker.api.call("POST", lock_path(name, "release") + f"?lease_id={ID}")[0] == 200
    assert broker.api.call("POST", lock_path(name, "acquire") + "?owner=a+b")[1]["owner"] == "a+b"
    assert broker.api.call("POST", lock_path(name, "break") + "?reason=why%20not")[0] == 200


@pytest.mark.parametrize("text, ms", [("500ms", 500), ("1s", 1_000), ("2m", 120_000), ("12h", 43_200_000), ("1d", DAY), ("86400000ms", DAY),
    ("007s", 7_000)])
def test_query_durations(broker, name, text, ms):
    """Broken: a unit is taken for another."""
    status, grant, _ = broker.api.call("POST", lock_path(name, "acquire") + f"?ttl={text}")
    if text == "007s" and status == 400:
        return  # leading zeros may be refused; they must not become octal
    assert status == 200 and ms - 60_000 < grant["ttl_ms"] <= ms, grant
    assert 0 < broker.redis.pttl(name) <= ms


BAD_QUERY_TTL = [
    "", "30", "-1s", "+5s", "1.5s", "1e3ms", "0x10s", "30 s", "30%20s", "%2030s", "30S", "30sec", "1h30m", "s", "ms", "30%00s", "0", "0s",
    "0ms",
    "2d", "86400001ms", "9223372036854775807ms", "9223372036854775808ms", "9223372036854775s", "9223372036854776s",
    "18446744073709551617ms",
    "106751991167d", "106751991168d", "307445734561825861m", "99999999999999999999d", "1e400ms", "NaN", "infs", "٣s",
]


@pytest.mark.parametrize("text", BAD_QUERY_TTL)
@pytest.mark.parametrize("verb", ["acquire", "renew"])
def test_c07_c08_bad_durations_in_the_query(broker, name, verb, text):
    """Broken: a huge or odd duration wraps, is cut, or becomes a default. (C07, C08)"""
    grant = broker.api.must("acquire", name, ttl_ms=LONG_TTL) if verb == "renew" else None
    raw = "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in text).replace(" ", "%20")
    target = lock_path(name, verb) + f"?ttl={raw}" + (f"&lease_id={grant['lease_id']}" if grant else "")
    status, error, _ = broker.api.call("POST", target)
    assert (status, error["error"]) == (400, "bad_request") and "ttl" in error["message"], error
    if grant:
        assert broker.redis.pttl(name) > LONG_TTL - 120_000 and broker.api.inspect(name)[1]["token"] == grant["token"]
    else:
        assert not broker.redis.holds(name)


def test_a_parameter_given_twice(broker, name):
    """Broken: of two values one silently wins."""
    for query, body in (
        ("?ttl=5s", {"ttl_ms": 5000}), ("?ttl=5s&ttl=5s", None), ("?owner=a", {"owner": "a"}), (f"?lease_id={ID}", {"lease_id": ID}),
        ("?ttl=5s&tt%6C=6s", None),
    ):
        status, error, _ = broker.api.call("POST", lock_path(name, "acquire") + query, body)
        assert (status, error["error"]) == (400, "bad_request"), (query, body)
    assert not broker.redis.holds(name)


def test_query_and_body_may_be_mixed(broker, name):
    """Broken: one of the two is dropped."""
    status, grant, _ = broker.api.call("POST", lock_path(name, "acquire") + "?ttl=90s", {"owner": "me", "lease_id": ID})
    assert status == 200 and grant["owner"] == "me" and grant["lease_id"] == ID and 60_000 < grant["ttl_ms"] <= 90_000


def test_json_spelling_in_the_query_and_the_other_way_round(broker, name):
    """Broken: ttl_ms in the query, or ttl in the body, is taken for an unknown that may be ignored."""
    for target, body, field in (
        (lock_path(name, "acquire") + "?ttl_ms=5000", None, "ttl_ms"), (lock_path(name, "acquire"), {"ttl": "5s"}, "ttl"),
        (lock_path(name, "acquire"), {"ttl": 5}, "ttl"), (lock_path(name, "acquire") + "?wait_ms=5", None, "wait_ms"),
    ):
        status, error, _ = broker.api.call("POST", target, body)
        assert status == 400 and field in error["message"], error
    assert not broker.redis.holds(name)


ALLOWED = {
    "acquire": {"ttl_ms", "wait_ms", "owner", "lease_id"},
    "renew": {"lease_id", "ttl_ms"},
    "release": {"lease_id"},
    "check": {"token"},
    "break": {"reason"},
}
GOOD = {"ttl_ms": 1000, "wait_ms": 0, "owner": "o", "lease_id": ID, "token": 7, "reason": "r", "prefix": "p", "limit": 5, "cursor": "0"}
REQUIRED = {"renew": "lease_id", "release": "lease_id", "check": "token", "break": "reason"}


@pytest.mark.parametrize("verb", sorted(ALLOWED))
@pytest.mark.parametrize("field", sorted(GOOD) + ["unknown", "", "TTL_MS", "ttl_ms ", "lease-id"])
def test_each_call_takes_its_own_parameters_only(broker, name, verb, field):
    """Broken: a parameter that a call does not know is dropped, so a typo becomes a default."""
    if field in ALLOWED[verb]:
        return
    body = {key: GOOD[key] for key in ALLOWED[verb]}
    body[field] = GOOD.get(field, 1)
    status, error, _ = broker.api.call("POST", lock_path(name, verb), body)
    assert (status, error["error"]) == (400, "bad_request"), error
    assert field in error["message"], error
    assert not broker.redis.holds(name)


@pytest.mark.parametrize("verb", sorted(REQUIRED))
def test_required_parameters(broker, name, verb):
    """Broken: a call without its required parameter does something by default. (C29)"""
    broker.api.must("acquire", name, ttl_ms=LONG_TTL)
    for body in (None, {}, b""):
        status, error, _ = broker.api.call("POST", lock_path(name, verb), body)
        assert (status, error["error"]) == (400, "bad_request") and REQUIRED[verb] in error["message"], error
    assert broker.redis.pttl(name) > LONG_TTL - 120_000


@pytest.mark.parametrize("reason", ["", "a\nb", "a\x1b[31m", "\x7f", "x" * 256])
def test_a_reason_must_be_a_label(broker, name, reason):
    """Broken: the audit line of a break is empty, forged or endless. (C34)"""
    broker.api.must("acquire", name, ttl_ms=LONG_TTL)
    status, error = broker.api.brk(name, reason=reason)
    assert (status, error["error"]) == (400, "bad_request") and "reason" in error["message"]
    assert broker.redis.holds(name)


@pytest.mark.parametrize("owner", ["a\nb", "a\r\nb", "\x00", "a\x1b[31mb", "\x7f", "\x85", "x" * 256, "é" * 128])
def test_owners_that_are_refused(broker, name, owner):
    """Broken: an owner brings line breaks or terminal codes into logs and pages. (C34)"""
    status, error = broker.api.acquire(name, owner=owner)
    assert (status, error["error"]) == (400, "bad_request") and "owner" in error["message"]
    assert not broker.redis.holds(name)


@pytest.mark.parametrize("owner", ["", "é" * 127, "x" * 255, "%s%n%d", "a b", "日本語 🔒", '"quoted" \\ back', "<script>",
    "released 5", "a 1 2 3 4 b"])
def test_owners_come_back_as_they_were(broker, name, owner):
    """Broken: an owner is cut, unescaped, or read as part of what Redis keeps beside it."""
    grant = broker.api.must("acquire", name, owner=owner, ttl_ms=LONG_TTL)
    assert (grant["owner"] or "") == owner
    assert (broker.api.inspect(name)[1]["owner"] or "") == owner
    assert (broker.api.acquire(name)[1]["holder"]["owner"] or "") == owner
    assert (broker.api.must("renew", name, lease_id=grant["lease_id"])["owner"] or "") == owner


def test_c47_two_clients_with_one_owner_name(broker, name):
    """Broken: ownership hangs on the display name, and both "cron"s run. (C47)"""
    grant = broker.api.must("acquire", name, owner="cron", ttl_ms=LONG_TTL)
    status, held = broker.api.acquire(name, owner="cron")
    assert status == 409 and held["lease_id"] != grant["lease_id"]
    assert broker.api.release(name, lease_id=held["lease_id"])[0] == 410
    assert broker.api.inspect(name)[1]["token"] == grant["token"]


# ---------------------------------------------------------------- C07, C08: numbers in JSON


@pytest.fixture(scope="module")
def year():
    """A broker that takes a ttl of up to a year."""
    it = World()
    redis = it.redis()
    pawld = it.pawld(redis, ["--max-ttl", "365d"])
    yield SimpleNamespace(redis=redis, pawld=pawld, api=pawld.api())
    it.close()


TTLS_ACCEPTED = [1, 2, 1000, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 365 * DAY]
TTLS_REFUSED = ["0", "-1", "-0", str(365 * DAY + 1), str(2**53), str(2**53 + 1), str(2**63 - 1), str(2**63), str(2**64 + 1000), "1e18",
    "1e400",
                "-1e400", "1" + "0" * 400, "-9223372036854775808", "-9223372036854775809"]
TTLS_MISTYPED = ["0.4", "1.5", "1e3", "1E3", "1000.0", '"30"', '""', '"30s"', "true", "false", "null", "{}", "[]", "[1000]", '{"ms":1000}']
NOT_JSON = ["+1", "01", "1_000", "0x10", "NaN", "Infinity", ".5", "1."]


def names_its_field(text):
    """What is no JSON at all ends the reading before there is a field to name. A number that fits no 64 bits, or no double, is one all the same."""
    return text not in NOT_JSON


@pytest.mark.parametrize("ttl", TTLS_ACCEPTED)
def test_c07_large_ttls_are_kept_whole(year, name, ttl):
    """Broken: a large ttl wraps to a short or a negative one, and the lease is gone at once. (C07)"""
    grant = year.api.must("acquire", name, ttl_ms=ttl) if ttl > 2 else None
    if grant is None:  # too short to be told about: undone or granted, but never a long lease
        status, reply = year.api.acquire(name, ttl_ms=ttl)
        assert status in (200, 503) and reply.get("ttl_ms", 0) <= ttl and year.redis.pttl(name) <= ttl
        return
    assert ttl - 60_000 < grant["ttl_ms"] <= ttl
    if ttl > 60_000:
        assert ttl - 60_000 < year.redis.pttl(name) <= ttl
        assert ttl - 60_000 < year.api.inspect(name)[1]["ttl_ms"] <= ttl
        renewed = year.api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=ttl)
        assert ttl - 60_000 < renewed["ttl_ms"] <= ttl and ttl - 60_000 < year.redis.pttl(name) <= ttl
        again = year.api.must("acquire", name, lease_id=grant["lease_id"], ttl_ms=ttl)
        assert ttl - 60_000 < again["ttl_ms"] <= ttl


@pytest.mark.parametrize("text", TTLS_REFUSED + TTLS_MISTYPED + NOT_JSON, ids=short)
@pytest.mark.parametrize("verb", ["acquire", "renew"])
def test_c07_c08_ttls_that_are_refused(year, name, verb, text):
    """Broken: zero, negative, fractional, huge or mistyped becomes a lease of some length; or a refused call changes something. (C07,
    C08)"""
    grant = year.api.must("acquire", name, ttl_ms=LONG_TTL) if verb == "renew" else None
    body = '{"lease_id": "%s", "ttl_ms": %s}' % (grant["lease_id"] if grant else ID, text)
    status, error, _ = year.api.call("POST", lock_path(name, verb), body.encode())
    assert (status, error["error"]) == (400, "bad_request"), error
    if names_its_field(text):
        assert "ttl_ms" in error["message"], error
    if grant:
        assert LONG_TTL - 120_000 < year.redis.pttl(name) <= LONG_TTL
        assert year.api.inspect(name)[1]["token"] == grant["token"]
    else:
        assert not year.redis.holds(name)


@pytest.mark.parametrize("text", ["-1", "0.5", "1e3", '"1"', "null", "true", "[]", "{}", str(2**53), str(2**63), "1e400", "600001"])
def test_c07_c08_waits_that_are_refused(broker, name, text):
    """Broken: a wait of the wrong kind or size becomes none, or endless. (C07, C08)"""
    status, error, _ = broker.api.call("POST", lock_path(name, "acquire"), ('{"wait_ms": %s}' % text).encode())
    assert (status, error["error"]) == (400, "bad_request"), error
    if names_its_field(text):
        assert "wait_ms" in error["message"], error
    assert not broker.redis.holds(name)


@pytest.mark.parametrize("text", ["0", "-1", "1.0", '"1"', "null", "true", "[]", "{}", str(2**53), str(2**63), str(2**64 + 1), "1e400"])
def test_tokens_that_are_refused(broker, name, text):
    """Broken: a token that can't be one is compared after it was bent into shape."""
    status, error, _ = broker.api.call("POST", lock_path(name, "check"), ('{"token": %s}' % text).encode())
    assert (status, error["error"]) == (400, "bad_request") and "token" in error["message"], error


def test_the_bounds_of_ttl_are_the_options(world, redis):
    """Broken: --min-ttl, --max-ttl or --default-ttl is not what decides."""
    api = world.pawld(redis, ["--min-ttl", "1s", "--default-ttl", "5s", "--max-ttl", "10s"]).api()
    for ttl, status in ((999, 400), (1000, 200), (10_000, 200), (10_001, 400)):
        got, reply = api.acquire(f"t{ttl}", ttl_ms=ttl)
        assert got == status and (status == 200 or "ttl_ms" in reply["message"]), reply
    assert 0 < api.must("acquire", "default")["ttl_ms"] <= 5_000
    status, error, _ = api.call("POST", lock_path("q", "acquire") + "?ttl=11s")
    assert status == 400 and "ttl" in error["message"]


# ---------------------------------------------------------------- C28, C42: names


def path_raw(raw, verb):
    return f"/v1/locks/{raw}/{verb}" if verb else f"/v1/locks/{raw}"


GOOD_NAMES = {
    "a/b": "a/b", "a%2Fb": "a/b", "a%2fb": "a/b", "a+b": "a+b", "a%2Bb": "a+b", "a:b@c=d,e~f-g_h.i": "a:b@c=d,e~f-g_h.i", "%61": "a",
    "...": "...",
    "a..b": "a..b", ".a": ".a", "acquire": "acquire", "x/acquire": "x/acquire", "a%3Ab": "a:b", "x:fence": "x:fence", "x:queue": "x:queue",
    "fence": "fence", "node:1": "node:1", "x" * 255: "x" * 255, "%78" * 255: "x" * 255, "X": "X", "x": "x", "0": "0",
    "a/b/c/d/e/f": "a/b/c/d/e/f",
}


@pytest.mark.parametrize("raw", sorted(GOOD_NAMES), ids=short)
def test_c28_each_spelling_is_one_lock_in_every_call(broker, name, raw):
    """Broken: a name is decoded in one call and not in another, so acquire, inspect, list and release speak of different locks. (C28)"""
    api, real = broker.api, GOOD_NAMES[raw]
    status, grant, _ = api.call("POST", path_raw(raw, "acquire"), {"ttl_ms": LONG_TTL})
    assert status == 200 and grant["name"] == real, grant
    try:
        assert broker.redis.holds(real)
        shown = api.call("GET", path_raw(raw, None))[1]
        assert (shown["name"], shown["held"], shown["token"]) == (real, True, grant["token"])
        assert api.inspect(real)[1]["token"] == grant["token"]
        assert real in api.list_all()[0] and real in api.list_all(prefix=real)[0]
        assert api.call("POST", path_raw(raw, "check"), {"token": grant["token"]})[0] == 200
        assert api.call("POST", path_raw(raw, "renew"), {"lease_id": grant["lease_id"]})[0] == 200
    finally:
        assert api.call("POST", path_raw(raw, "release"), {"lease_id": grant["lease_id"]})[0] == 200
    assert not broker.redis.holds(real)


BAD_NAMES = [
    "a%00b", "%00", "a%", "a%2", "a%zz", "%", "a%252Fb", "a%20b", "%20", "a%3Bb", "a;b", "a%3Fb", "a%23b", "..", ".", "a/../b", "a/./b",
    "%2E%2E", "a/%2e",
    "a//b", "%2Fa", "a%2F", "a%2F%2Fb", "/a", "a/", "%C3%A9", "e%CC%81", "%F0%9F%94%92", "%FF", "%C0%AF", "a%0D%0Ab", "a%1Bb", "a%7Fb",
    "a%22b", "a%27b",
    "a%2Ab", "a*b", "a(b)", "a!b", "a$b", "a&b", "a'b", "a[b]", "a|b", "a%5Cb", "x" * 256, "%78" * 256, "x" * 4000, "a%u0041", "a%%41",
]


@pytest.mark.parametrize("raw", BAD_NAMES, ids=short)
def test_c28_names_that_are_refused(broker, raw):
    """Broken: a name is cut at a NUL, tidied up, or taken although a proxy on the way would rewrite it. (C28, C42)"""
    before = broker.redis.keys("*:lock:*")
    for verb, body in (("acquire", {}), ("renew", {"lease_id": ID}), ("release", {"lease_id": ID}), ("check", {"token": 1}),
        ("break", {"reason": "r"}),
                       (None, None)):
        method = "POST" if verb else "GET"
        status, error, _ = broker.api.call(method, path_raw(raw, verb), body)
        assert (status, error["error"]) == (400, "bad_request"), (verb, error)
    assert broker.redis.keys("*:lock:*") <= before
    if len(raw) >= 256:
        assert "255" in error["message"], error


@pytest.mark.parametrize("raw", ["", "a\xffb", "a b", "é", "a\tb", "a\x00b", "a#b"])
def test_c28_raw_bytes_in_the_target(broker, raw):
    """Broken: bytes that no target may hold reach a name. (C28)"""
    with Conn(broker.pawld.address) as conn:
        conn.send(f"POST /v1/locks/{raw}/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
        reply = conn.read_reply()
        assert reply.status in (400, 404), reply
        assert reply.json()["error"] in ("bad_request", "not_found")


def test_c28_a_query_mark_ends_the_name(broker, name):
    """Broken: what follows the question mark becomes part of the name, or is dropped. (C28: a;b?c)"""
    status, error, _ = broker.api.call("POST", f"/v1/locks/{name}/acquire?c")
    assert status == 400 and "c" in error["message"]
    assert not broker.redis.holds(name)


def test_c42_long_names_and_shared_prefixes(broker):
    """Broken: a long name is cut, so two locks become one; or a name that starts with another's, or looks like a key of pawl's own, meets
    it. (C42)"""
    names = ["y" * 254 + "a", "y" * 254 + "b", "y" * 254, "y" * 253, "y", "q", "q:fence", "q:queue", "q:lock", "fence", "incarnation",
        "recovery",
             "node", "lock", "q/lock:q", "{0}".replace("{", "").replace("}", ""), "queue:q", "lock:q"]
    grants = {n: broker.api.must("acquire", n, ttl_ms=LONG_TTL, owner=n[:8]) for n in names}
    assert len({g["token"] for g in grants.values()}) == len(names)
    for n in names:
        assert broker.api.inspect(n)[1]["token"] == grants[n]["token"]
        assert broker.api.acquire(n)[0] == 409
    for n in names:
        broker.api.must("release", n, lease_id=grants[n]["lease_id"])
        for other in names[names.index(n) + 1:]:
            assert broker.redis.holds(other), f"releasing {n[:20]} freed {other[:20]}"


def test_c42_a_megabyte_of_name(broker):
    """Broken: a target without bound is buffered, or ends in a reset without an answer. (C42, P9)"""
    with Conn(broker.pawld.address) as conn:
        try:
            conn.send(b"POST /v1/locks/" + b"x" * 1_000_000 + b"/acquire HTTP/1.1\r\nHost: x\r\n\r\n")
        except OSError:
            pass  # it may stop reading early; the answer must be readable all the same
        reply = conn.read_reply()
        assert (reply.status, reply.json()["error"]) in ((414, "uri_too_long"), (431, "headers_too_large"))


# ---------------------------------------------------------------- C29, C30: shapes of JSON


SHAPES = [
    b"null", b"[]", b'"x"', b"5", b"true", b"{", b"}", b"{}x", b"{}{}", b"{} 1", b"{}\x00", b"\x00{}", b"\xef\xbb\xbf{}", b'{"ttl_ms":5',
    b"{'ttl_ms':5}",
    b'{"ttl_ms":5,}', b"ttl_ms=5", b"ttl_ms=5&owner=x", b'{"owner":"\xff"}', b'{"owner":"\\ud800"}', b'{"owner":"a\\u0000b"}',
    b'{"own\\u0000er":"x"}',
    b'{"owner":' * 9 + b"1" + b"}" * 9, b"[" * 3000, b'{"a":' * 3000, b"// c\n{}", b"{}//", b"\xff\xfe{\x00}\x00", b'{"owner":"a\nb"}',
    b"nul", b"-", b'{"":1}',
]


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("verb", sorted(ALLOWED))
def test_c29_bodies_of_the_wrong_shape(broker, name, verb, shape):
    """Broken: a body that is no object of known parameters crashes, is a 500, or counts as an empty one. (C29)"""
    grant = broker.api.must("acquire", name, ttl_ms=LONG_TTL)
    status, error, _ = broker.api.call("POST", lock_path(name, verb), SHAPES[shape])
    assert (status, error["error"]) == (400, "bad_request"), error
    assert broker.redis.pttl(name) > LONG_TTL - 120_000 and broker.api.inspect(name)[1]["token"] == grant["token"]
    assert broker.api.healthz() == 200


OTHER_TYPES = {"null": "null", "bool": "true", "number": "5", "real": "5.5", "string": '"x"', "list": "[]", "object": "{}"}
RIGHT_TYPE = {"ttl_ms": "number", "wait_ms": "number", "token": "number", "owner": "string", "reason": "string", "lease_id": ""}


@pytest.mark.parametrize("verb, field", [(verb, field) for verb in sorted(ALLOWED) for field in sorted(ALLOWED[verb])])
def test_c29_each_field_of_each_other_type(broker, name, verb, field):
    """Broken: a field of the wrong type counts as absent. (C29)"""
    for kind, text in OTHER_TYPES.items():
        if kind == RIGHT_TYPE[field]:
            continue
        fields = {key: json.dumps(GOOD[key]) for key in ALLOWED[verb]} | {field: text}
        body = "{" + ", ".join(f'"{key}": {value}' for key, value in fields.items()) + "}"
        status, error, _ = broker.api.call("POST", lock_path(name, verb), body.encode())
        assert (status, error["error"]) == (400, "bad_request") and field in error["message"], (kind, error)
    assert not broker.redis.holds(name)


def test_c29_a_form_is_told_what_to_do(broker, name):
    """Broken: curl -d ttl=5s is answered with a parser's complaint. (C29)"""
    _, error, _ = broker.api.call("POST", lock_path(name, "acquire"), b"ttl_ms=5000&owner=x",
        [("Content-Type", "application/x-www-form-urlencoded")])
    assert "JSON" in error["message"] and "query" in error["message"], error


@pytest.mark.parametrize("verb, body", [
    ("acquire", b'{"ttl_ms": 5000, "ttl_ms": 5000}'), ("acquire", b'{"ttl_ms": 5000, "\\u0074tl_ms": 6000}'),
    ("acquire", b'{"owner": "a", "owner": "b"}'),
    ("acquire", b'{"owner": "a", "\\u006fwner": "b"}'), ("acquire", b'{"lease_id": "%s", "lease_id": "%s"}' % (ID.encode(), ID.encode())),
    ("renew", b'{"lease_id": "%s", "ttl_ms": 5, "ttl_ms": 5000}' % ID.encode()),
    ("release", b'{"lease_id": "%s", "lease_i\\u0064": "%s"}' % (ID.encode(), ID.encode())),
    ("check", b'{"token": 1, "token": 2}'), ("break", b'{"reason": "a", "reason": "a"}'),
])
def test_c30_duplicate_keys(broker, name, verb, body):
    """Broken: the last of two values wins, so a proxy that checks and the broker that acts disagree. (C30)"""
    grant = broker.api.must("acquire", name, lease_id=new_id(), ttl_ms=LONG_TTL)
    status, error, _ = broker.api.call("POST", lock_path(name, verb), body)
    assert (status, error["error"]) == (400, "bad_request"), error
    assert broker.api.inspect(name)[1]["token"] == grant["token"]


def test_every_error_of_an_acquire_carries_its_lease_id(world, redis, name):
    """Broken: after an error the caller has nothing to retry or release with. (P7)"""
    pawld = world.pawld(redis, ["--store-timeout", "300ms"])
    api = pawld.api()
    status, error, _ = api.call("POST", lock_path(name, "acquire"), ('{"lease_id": "%s", "ttl_ms": "x"}' % ID).encode())
    assert status == 400 and error["lease_id"] == ID
    status, error, _ = api.call("POST", lock_path(name, "acquire") + f"?lease_id={ID}&ttl=x")
    assert status == 400 and error["lease_id"] == ID
    api.must("acquire", name, ttl_ms=LONG_TTL)
    assert api.acquire(name, lease_id=ID)[1]["lease_id"] == ID
    redis.sigstop()
    status, error = api.acquire(name + ".2", lease_id=ID)
    assert status == 503 and error["lease_id"] == ID
    status, error = api.acquire(name + ".3")
    assert status == 503 and is_uuid(error["lease_id"])
    redis.sigcont()


def test_content_type_is_not_asked_for(broker, name):
    """Broken: curl -d '{...}' needs a header to be understood."""
    for i, kind in enumerate(("application/json", "application/x-www-form-urlencoded", "text/plain", "")):
        status, grant, _ = broker.api.call("POST", lock_path(f"{name}.{i}", "acquire"), {"owner": "curl"}, [("Content-Type", kind)])
        assert status == 200 and grant["owner"] == "curl"
