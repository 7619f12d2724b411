"""Events: who held it last and how did it end, read once and as a stream."""

import re
import signal
import socket
import time

import pytest

from pawltest.auth import AuthFile
from pawltest.events import EventStream, Ended
from pawltest.http import Conn, bearer, request_bytes
from pawltest.tls import server_arguments
from pawltest.wait import until
from pawltest.waiters import LONG_TTL, Waiter, new_id, standing

WINDOW = ["--recovery-window", "3s"]
SHOWN = 8  # characters of a lease id that may be shown


def events(api, query=""):
    status, value, _ = api.call("GET", "/v1/events" + query)
    assert status == 200, value
    ids = [event["id"] for event in value["events"]]
    assert ids == sorted(set(ids)), "ids rise"
    return value


def of(api, name):
    return events(api, f"?name={name}")["events"]


def kinds(api, name):
    return [event["event"] for event in of(api, name)]


# ---------------------------------------------------------------- what is told


def test_how_a_lease_ends_is_told(world, pawld, api, name):
    """Broken: an operator asks who held a lock last and how it ended, and nobody knows."""
    first = api.must("acquire", name, ttl_ms=LONG_TTL, owner="worker-1")
    api.must("release", name, lease_id=first["lease_id"])
    second = api.must("acquire", name, ttl_ms=50, owner="worker-2")
    until(lambda: kinds(api, name)[-1] == "expire", what="the expiry is told")
    third = api.must("acquire", name, ttl_ms=LONG_TTL, owner="worker-3")
    api.must("brk", name, reason='node "7" is <b>lost</b>')
    told = of(api, name)
    assert [(e["event"], e["owner"], e["token"]) for e in told] == [
        ("grant", "worker-1", first["token"]), ("release", "worker-1", first["token"]),
        ("grant", "worker-2", second["token"]), ("expire", "worker-2", second["token"]),
        ("grant", "worker-3", third["token"]), ("break", "worker-3", third["token"]),
    ]
    assert [e["lease"] for e in told] == [g["lease_id"][:SHOWN] for g in (first, first, second, second, third, third)]
    assert told[5]["reason"] == 'node "7" is <b>lost</b>'
    assert told[0]["waited_ms"] >= 0 and told[1]["held_ms"] >= 0 and told[3]["held_ms"] >= 50 and told[5]["held_ms"] >= 0
    assert all(abs(e["id"] / 1e6 - time.time()) < 60 for e in told), "an id is a time in microseconds"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e["time"]) for e in told)


def test_p4_no_event_shows_a_whole_lease_id(api, pawld, name):
    """Broken: who may read events may release other people's leases."""
    grants = [api.must("acquire", name, ttl_ms=LONG_TTL)]
    api.must("release", name, lease_id=grants[0]["lease_id"])
    grants.append(api.must("acquire", name, ttl_ms=30))
    until(lambda: kinds(api, name)[-1] == "expire", what="the expiry")
    reply = api.call("GET", "/v1/events?since=0")[2]
    with EventStream(pawld.address, "?since=0") as stream:
        stream.wait_for("expire")
        streamed = repr(stream.seen)
    for grant in grants:
        assert grant["lease_id"].encode() not in reply.body and grant["lease_id"] not in streamed
        assert grant["lease_id"][:SHOWN + 1].encode() not in reply.body


def test_a_waiter_that_is_granted_tells_how_long_it_waited(pawld, api, name):
    """Broken: waiting can't be seen afterwards."""
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    waiter = Waiter(pawld.address, name, 30_000)
    standing(api, name, 1)
    time.sleep(0.05)  # the wait that is told
    api.must("release", name, lease_id=grant["lease_id"])
    waiter.granted()
    told = of(api, name)
    assert [e["event"] for e in told] == ["grant", "release", "grant"] and told[2]["waited_ms"] >= 50
    waiter.release()
    waiter.close()


def test_a_grant_that_nobody_got_is_told_as_undone(pawld, api, name):
    """Broken: a grant without an end stands in the list, and nobody knows that it was taken back. (P8)"""
    grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    pawld.sigstop()  # release and leaving arrive together: the grant finds nobody
    waiter = None
    pawld.sigcont()
    for _ in range(50):
        waiter = Waiter(pawld.address, name, 30_000)
        standing(api, name, 1)
        pawld.sigstop()
        releaser = Conn(pawld.address)
        releaser.send_request("POST", f"/v1/locks/{name}/release", {"lease_id": grant["lease_id"]})
        waiter.leave("reset")
        pawld.sigcont()
        assert releaser.read_reply().status == 200
        releaser.close()
        until(lambda: not api.inspect(name)[1]["held"], what="nobody holds it")
        if "undone" in kinds(api, name):
            break
        grant = api.must("acquire", name, ttl_ms=LONG_TTL)
    told = kinds(api, name)
    for i, kind in enumerate(told):
        if kind == "undone":
            assert "grant" in told[:i]
    grants, ends = told.count("grant"), sum(told.count(end) for end in ("release", "expire", "undone"))
    assert grants <= ends, told


def test_expiry_is_told_by_the_node_that_granted(world, redis, name):
    """Broken: an expiry is told by nobody, or by every node. The node that renewed last is the one that knows."""
    a, b = world.pawld(redis), world.pawld(redis)
    grant = a.api().must("acquire", name, ttl_ms=LONG_TTL)
    b.api().must("renew", name, lease_id=grant["lease_id"], ttl_ms=300)
    until(lambda: kinds(b.api(), name) == ["expire"], what="the node that renewed tells it")
    assert kinds(a.api(), name) == ["grant"]


def test_a_holder_that_was_broken_elsewhere_is_told_as_lost_or_forgotten(world, redis, name):
    """Broken: the break through one node leaves the other with an expiry that never was."""
    a, b = world.pawld(redis), world.pawld(redis)
    a.api().must("acquire", name, ttl_ms=1500)
    b.api().must("brk", name, reason="elsewhere")
    assert of(b.api(), name)[-1]["event"] == "break"
    until(lambda: a.api().metrics()["pawl_leases"] == 0, what="the node forgets it")
    time.sleep(1.6)  # past its time
    assert kinds(a.api(), name) == ["grant"]


def test_a_lease_that_somebody_deleted_is_told_as_lost(world, redis, pawld, api, name):
    """Broken: a lease that went before its time counts as one that ran out."""
    grant = api.must("acquire", name, ttl_ms=LONG_TTL, owner="o")
    redis.command("DEL", redis.lock_key(name))
    assert api.renew(name, lease_id=grant["lease_id"])[0] == 410
    told = of(api, name)
    assert [e["event"] for e in told] == ["grant", "lost"] and told[1]["owner"] == "o" and told[1]["reason"]
    again = api.must("acquire", name, ttl_ms=LONG_TTL)
    redis.command("DEL", redis.lock_key(name))
    third = api.must("acquire", name, ttl_ms=LONG_TTL)
    assert kinds(api, name) == ["grant", "lost", "grant", "lost", "grant"]
    assert [e["token"] for e in of(api, name)][3:] == [again["token"], third["token"]]


def test_p3_a_loss_and_what_comes_back_of_it_are_told(world, redis, name):
    """Broken: after a night in which Redis lost its data, nobody can say what became of the leases."""
    pawld = world.pawld(redis, WINDOW)
    api = pawld.api()
    grant = api.must("acquire", name, ttl_ms=LONG_TTL, owner="holder")
    redis.kill9()
    pawld.wait_not_ready()
    redis.start()
    pawld.wait_ready()
    told = events(api)["events"]
    words = [e["event"] for e in told]
    assert words[:3] == ["attached", "window_closed", "grant"], words
    assert words[3] == "detached" and words[-1] == "window_closed" and words.count("recovered") >= 1, words
    assert "a new life" in [e for e in told if e["event"] == "attached"][-1]["reason"]
    back = next(e for e in told if e["event"] == "recovered")
    assert (back["name"], back["token"], back["owner"], back["lease"]) == (name, grant["token"], "holder", grant["lease_id"][:SHOWN])
    assert words.index("detached") < words.index("recovered") < len(words) - 1
    assert "attached" not in kinds(api, name), "what is about the store is left out by a filter"


# ---------------------------------------------------------------- reading them


def test_events_page_by_since_and_limit(api, name):
    """Broken: a reader that pages misses some, or is given some twice."""
    start = events(api)["last"]
    for i in range(25):
        grant = api.must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL)
        api.must("release", f"{name}/{i}", lease_id=grant["lease_id"])
    got, since, pages = [], start, 0
    while True:
        page = events(api, f"?since={since}&limit=7&prefix={name}/")
        if not page["events"]:
            break
        got += page["events"]
        since, pages = page["last"], pages + 1
        assert "missed" not in page and len(page["events"]) <= 7
    assert pages == 8 and [e["event"] for e in got] == ["grant", "release"] * 25
    assert [e["name"] for e in got[::2]] == [f"{name}/{i}" for i in range(25)]
    assert [e["id"] for e in events(api, f"?limit=3&prefix={name}/")["events"]] == [e["id"] for e in got[-3:]], "the newest"
    assert events(api, f"?name={name}/7")["events"] == [e for e in got if e["name"] == f"{name}/7"]
    assert events(api, f"?name={name}/7&prefix={name}/8")["events"] == []
    assert events(api, f"?since={got[-1]['id']}&prefix={name}/")["events"] == []


def test_p9_only_so_many_are_kept_and_a_gap_is_told(world, redis):
    """Broken: memory grows with the events, or a reader takes what is left for all there was. (P9)"""
    pawld = world.pawld(redis, ["--events", "10"])
    api = pawld.api()
    start = events(api)["last"]
    assert "missed" not in events(api, f"?since={start}")
    for i in range(8):
        grant = api.must("acquire", "x", ttl_ms=LONG_TTL)
        api.must("release", "x", lease_id=grant["lease_id"])
    page = events(api, "?since=%d" % start)
    assert len(page["events"]) == 10 and page["missed"] is True
    assert "missed" not in events(api, f"?since={page['events'][0]['id']}")
    with EventStream(pawld.address, f"?since={start}") as stream:
        assert stream.next()[1] == "missed"
        assert [stream.next()[0] for _ in range(10)] == [e["id"] for e in page["events"]]


@pytest.mark.parametrize("query, named", [
    ("?since=x", "since"), ("?since=-1", "since"), ("?since=9007199254740992", "since"), ("?limit=0", "limit"), ("?limit=1001", "limit"),
    ("?name=", "name"), ("?name=a//b", "name"), ("?prefix=a//", "prefix"), ("?cursor=0", "cursor"), ("?since=1&since=2", "since"),
])
@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/stream"])
def test_bad_parameters_are_named(broker, path, query, named):
    """Broken: a typo becomes a default."""
    status, value, _ = broker.api.call("GET", path + query)
    assert status == 400 and value["message"].startswith(named), value


def test_the_stream_takes_no_limit_and_a_bad_last_event_id_is_refused(broker):
    """Broken: what makes no sense is ignored."""
    assert broker.api.call("GET", "/v1/events/stream?limit=5")[1]["message"].startswith("limit")
    for bad in ("x", "", "1 2", "-5", "99999999999999999999"):
        status, value, _ = broker.api.call("GET", "/v1/events/stream", headers=[("Last-Event-ID", bad)])
        assert status == 400 and "Last-Event-ID" in value["message"], (bad, value)


# ---------------------------------------------------------------- streams


@pytest.mark.parametrize("http", ["1.1", "1.0"])
def test_a_stream_tells_events_as_they_happen(pawld, api, name, http):
    """Broken: a watcher sees less than a reader, or something else."""
    with EventStream(pawld.address, http=http) as stream:
        until(lambda: api.metrics()["pawl_event_streams"] == 1, what="it is open")
        grant = api.must("acquire", name, ttl_ms=LONG_TTL, owner="w")
        assert stream.wait_for("grant")["name"] == name
        api.must("release", name, lease_id=grant["lease_id"])
        stream.wait_for("release")
        assert [value for _, _, value in stream.seen] == of(api, name)
        assert [id_ for id_, _, _ in stream.seen] == [e["id"] for e in of(api, name)]


def test_a_stream_is_resumed_where_it_broke(pawld, api, name):
    """Broken: what happened while the connection was gone is never told, or told twice."""
    api.must("acquire", name, ttl_ms=LONG_TTL)
    with EventStream(pawld.address, f"?since=0&name={name}") as stream:
        last = stream.wait_for("grant")["id"]
    api.must("brk", name, reason="meanwhile")
    api.must("acquire", name, ttl_ms=LONG_TTL)
    with EventStream(pawld.address, f"?since=0&name={name}", headers={"Last-Event-ID": str(last)}) as stream:
        assert [stream.next()[1] for _ in range(2)] == ["break", "grant"]


def test_streams_filter_by_name_and_prefix(pawld, api, name):
    """Broken: who watches one lock is told of all of them."""
    with EventStream(pawld.address, f"?name={name}/a") as one, EventStream(pawld.address, f"?prefix={name}/") as some:
        until(lambda: api.metrics()["pawl_event_streams"] == 2, what="both are open")
        for lock in ("other", f"{name}/b", f"{name}/ab", f"{name}/a"):
            api.must("acquire", lock, ttl_ms=LONG_TTL)
        assert one.wait_for("grant")["name"] == f"{name}/a"
        assert [some.wait_for("grant")["name"] for _ in range(3)] == [f"{name}/b", f"{name}/ab", f"{name}/a"]
        assert len(one.seen) == 1


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_watcher_that_leaves_is_noticed(pawld, api, how):
    """Broken: streams of clients that are gone stay open until something happens to be sent. (P9)"""
    stream = EventStream(pawld.address)
    until(lambda: api.metrics()["pawl_event_streams"] == 1, what="it is open")
    getattr(stream.conn, how)()
    until(lambda: api.metrics()["pawl_event_streams"] == 0, what="it is noticed")
    stream.close()


def test_p9_a_watcher_that_does_not_read_is_dropped_with_a_reason(world, redis):
    """Broken: one client that doesn't read makes the node keep everything for it. (P9)"""
    path = f"unix:{world.folder()}/s"
    pawld = world.pawld(redis, ["--events", "1000"], listen=["127.0.0.1:0", path])
    api = pawld.api()
    with EventStream(path) as slow, EventStream(pawld.address) as quick:
        until(lambda: api.metrics()["pawl_event_streams"] == 2, what="both are open")

        def busy():
            for i in range(100):
                grant = api.must("acquire", "x" * 200, ttl_ms=LONG_TTL, owner="o" * 250)
                api.must("release", "x" * 200, lease_id=grant["lease_id"])
            while quick.seen == [] or quick.seen[-1][1] != "release" or quick.seen[-1][0] < events(api)["last"]:
                quick.next()
            return api.metrics()["pawl_event_streams_dropped_total"] == 1

        until(busy, 90, "the slow one is dropped", every_s=0)
        assert api.metrics()["pawl_event_streams"] == 1, "and only that one"
        with pytest.raises(Ended):
            while True:
                slow.next()
        assert slow.seen[-1][1:] == ("end", {"reason": "too_slow"}) and slow.whole
        assert not [event for event in quick.seen if event[1] == "missed"]
    dropped = until(lambda: pawld.log("event_stream_dropped"), what="the log says so")
    assert dropped[0]["reason"] == "too_slow" and dropped[0]["peer"].startswith("unix")


def test_p9_streams_are_limited_in_number(world, redis):
    """Broken: watchers take all that the node has. (P9)"""
    pawld = world.pawld(redis, ["--max-streams", "2"])
    api = pawld.api()
    with EventStream(pawld.address), EventStream(pawld.address) as second:
        until(lambda: api.metrics()["pawl_event_streams"] == 2, what="both are open")
        status, value, reply = api.call("GET", "/v1/events/stream")
        assert (status, value["error"]) == (429, "too_many_streams")
        assert "connection" not in reply.headers, "the refusal is a reply like any other"
        second.close()
        until(lambda: api.metrics()["pawl_event_streams"] == 1, what="one has left")
        with EventStream(pawld.address, "?since=0") as third:
            third.wait_for("attached")


def test_a_drain_ends_streams_and_does_not_wait_for_them(world, redis):
    """Broken: a watcher keeps a node from stopping, or takes a planned stop for a crash."""
    pawld = world.pawld(redis, ["--drain-timeout", "30s"])
    with EventStream(pawld.address) as stream:
        until(lambda: pawld.api().metrics()["pawl_event_streams"] == 1, what="it is open")
        pawld.close_clients()
        begun = time.monotonic()
        pawld.stop()
        assert time.monotonic() - begun < 20
        with pytest.raises(Ended):
            while True:
                stream.next()
        assert stream.seen[-1][1:] == ("end", {"reason": "draining"}) and stream.whole


def test_head_and_pipelined_requests_on_a_stream(pawld, api):
    """Broken: HEAD of a stream never ends; bytes behind a stream's request are read as something."""
    with Conn(pawld.address) as conn:
        conn.send(request_bytes("HEAD", "/v1/events/stream"))
        head = b""
        while chunk := conn.sock.recv(65536):
            head += chunk
        assert head.startswith(b"HTTP/1.1 200 ") and head.endswith(b"\r\n\r\n") and b"text/event-stream" in head
    with EventStream(pawld.address) as stream:
        stream.conn.send(request_bytes("GET", "/healthz"))
        grant = api.must("acquire", "p", ttl_ms=LONG_TTL)
        assert stream.wait_for("grant")["token"] == grant["token"]
        stream.conn.send(b"x" * 20_000)  # more than may stand behind a request that is open
        until(lambda: api.metrics()["pawl_event_streams"] == 0, what="it is cut off")


@pytest.mark.deadline(120)
def test_a_quiet_stream_has_a_heartbeat(pawld):
    """Broken: proxies close a stream on which nothing happens, and a dead watcher is never found."""
    with EventStream(pawld.address) as stream:
        stream.conn.sock.settimeout(60)
        while stream.comments == 0:
            assert stream.feed()
            stream._next()
    assert stream.seen == []


def test_metrics_do_not_count_a_stream_twice(pawld, api):
    """Broken: requests of streams are not counted, or not by their own name."""
    with EventStream(pawld.address):
        until(lambda: api.metrics().get('pawl_requests_total{call="event_stream",code="200"}') == 1, what="it is counted")


def test_an_event_stream_over_a_socket_that_dies_with_it(pawld, api):
    """Broken: a stream whose connection fails while it is sent to is freed twice, or never."""
    streams = [EventStream(pawld.address) for _ in range(20)]
    until(lambda: api.metrics()["pawl_event_streams"] == 20, what="all are open")
    pawld.sigstop()
    for stream in streams[:10]:
        stream.conn.reset()
    conn = Conn(pawld.address)
    conn.send_request("POST", "/v1/locks/dies/acquire", {"ttl_ms": LONG_TTL, "lease_id": new_id()})
    for stream in streams[10:15]:
        stream.conn.sock.shutdown(socket.SHUT_RDWR)
    pawld.sigcont()
    assert conn.read_reply().status == 200
    conn.close()
    assert streams[19].wait_for("grant")["name"] == "dies"
    until(lambda: api.metrics()["pawl_event_streams"] == 5, what="the rest is there")
    for stream in streams:
        stream.close()


# ---------------------------------------------------------------- who may watch


def test_events_of_locks_that_a_caller_may_not_read_are_not_told(world, redis):
    """Broken: who may read nothing of the billing learns from events who holds its locks. (P4)"""
    auth = AuthFile(world.folder())
    ops, billing, blind = auth.rule("ops", [""], ["admin"]), auth.rule("billing", ["billing/"], ["read"]), auth.rule("blind", [""], ["acquire"])
    auth.write()
    pawld = world.pawld(redis, auth.args)
    admin, reader = pawld.api(token=ops), pawld.api(token=billing)
    assert reader.call("GET", "/v1/events/stream?prefix=other/")[0] == 403
    for api in (pawld.api(token=blind), pawld.api()):
        for path in ("/v1/events", "/v1/events/stream"):
            assert api.call("GET", path)[0] in (401, 403), path
    with EventStream(pawld.address, headers=bearer(billing)) as some, EventStream(pawld.address, headers=bearer(ops)) as every:
        until(lambda: admin.metrics()["pawl_event_streams"] == 2, what="both are open")
        for name in ("other/a", "billing/a", "billing", "other/b"):
            admin.must("acquire", name, ttl_ms=LONG_TTL)
        assert [every.wait_for("grant")["name"] for _ in range(4)] == ["other/a", "billing/a", "billing", "other/b"]
        assert some.wait_for("grant")["name"] == "billing/a"
        told = events(reader)["events"]
        assert [e.get("name") for e in told if "name" in e] == ["billing/a"] and told[0]["event"] == "attached"
        assert events(reader, "?name=other/a")["events"] == []

        auth.write()
        pawld.signal(signal.SIGHUP)
        for stream in (some, every):
            assert stream.wait_for("end") == {"reason": "rules_changed"}
        assert len([e for e in some.seen if e[1] == "grant"]) == 1
    with EventStream(pawld.address, "?since=0", headers=bearer(billing)) as again:
        assert again.wait_for("grant")["name"] == "billing/a"


def test_streams_over_tls(world, redis, name):
    """Broken: over TLS a stream stalls, or a watcher that leaves is not noticed."""
    pawld = world.pawld(redis, server_arguments(), listen=["127.0.0.1:0", "tls:127.0.0.1:0"])
    api = pawld.api()
    secure = next(address for address in pawld.addresses() if address.startswith("tls:"))
    stream = EventStream(secure)
    until(lambda: api.metrics()["pawl_event_streams"] == 1, what="it is open")
    for i in range(300):
        grant = api.must("acquire", name, ttl_ms=LONG_TTL, owner="o" * 200)
        api.must("release", name, lease_id=grant["lease_id"])
    kinds_told = []
    while len(kinds_told) < 600:
        kinds_told.append(stream.next()[1])
    assert kinds_told == ["grant", "release"] * 300
    stream.close()
    until(lambda: api.metrics()["pawl_event_streams"] == 0, what="it is noticed")
