"""Waiting: who is granted, when, and what becomes of those who leave, come back or wait in vain. P6, P7 and P8 for waiters.

Most tests run twice: holder and waiters on one node, and on two nodes over one Redis. PAWL_TEST_LONG=1 changes the two nodes over as well, which are
alike. The races are in test_races.py, a Redis that goes away meanwhile in test_waiting_faults.py, crowds of thousands in test_waiting_crowds.py.
"""

import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from pawltest.fixtures import LONG, World
from pawltest.http import Api, Closed, Conn, lock_path, request_bytes
from pawltest.pawld import PATIENT
from pawltest.residue import residue, until_clean
from pawltest.waiters import LONG_TTL, Waiter, close_all, gather, give_up, hold, in_line, look, new_id, position, standing
from pawltest.wait import always, until

SOON_S = 3.5  # "at once" on a busy machine; the poll that would cover for a lost wake-up comes after 4.5 s at the earliest
POLL_S = 5.5  # the slow poll, at the latest
HEARTBEAT_S = 4.0
WAYS = ["same_node", "a_to_b"] + (["b_to_a"] if LONG else [])


@pytest.fixture(scope="module")
def pair():
    """Two nodes over one Redis."""
    it = World()
    redis = it.redis()
    yield SimpleNamespace(redis=redis, nodes=[it.pawld(redis), it.pawld(redis)])
    it.close()


@pytest.fixture(params=WAYS)
def way(request, pair):
    """holder and waiter: the nodes that the holder and the waiters talk to; api and there: the calls of the two."""
    a, b = pair.nodes
    holder, waiter = {"same_node": (a, a), "a_to_b": (a, b), "b_to_a": (b, a)}[request.param]
    return SimpleNamespace(redis=pair.redis, holder=holder, waiter=waiter, api=holder.api(), there=waiter.api())


@pytest.fixture(params=WAYS)
def own_way(request, world, redis):
    """The same with nodes of the test's own, whose numbers it may count."""
    a, b = world.pawld(redis), world.pawld(redis)
    holder, waiter = {"same_node": (a, a), "a_to_b": (a, b), "b_to_a": (b, a)}[request.param]
    return SimpleNamespace(redis=redis, holder=holder, waiter=waiter, api=holder.api(), there=waiter.api())


def queue_up(api, name, addresses, count, wait_ms=60_000, **how):
    """Waiters on these nodes in turn, each in the queue before the next one asks: their order is known."""
    waiters = []
    for i in range(count):
        waiter = Waiter(addresses[i % len(addresses)], name, wait_ms, **how)
        waiters.append(in_line(api, waiter, i + 1))
    return waiters


def tokens_rise(waiters):
    tokens = [waiter.granted()["token"] for waiter in waiters]
    assert tokens == sorted(tokens) and len(set(tokens)) == len(tokens), tokens


# ---------------------------------------------------------------- the plain thing


def test_a_waiter_is_granted_when_the_holder_releases(way, name):
    """Broken: a wake-up does not reach the other node. (C46)"""
    grant = hold(way.api, name)
    waiter = Waiter(way.waiter.address, name, 20_000, ttl_ms=5000)
    standing(way.api, name, 1)
    assert look(way.there, name)["waiters"] == 1, "both nodes see the same queue"
    released = time.monotonic()
    way.api.must("release", name, lease_id=grant["lease_id"])
    value = waiter.granted()
    assert time.monotonic() - released < SOON_S
    assert value["token"] > grant["token"] and 0 <= value["waited_ms"] <= waiter.took_s * 1000 + 1
    shown = look(way.api, name)
    assert (shown["token"], shown["waiters"]) == (value["token"], 0)
    assert not waiter.answered(), "one answer"
    waiter.release()


def test_a_free_lock_is_granted_without_waiting(way, name):
    """Broken: an acquire that would wait is slower than one that would not."""
    waiter = Waiter(way.waiter.address, name, 20_000)
    assert waiter.granted()["waited_ms"] < 1000
    waiter.release()
    assert look(way.api, name)["waiters"] == 0


def test_held_after_a_wait_says_by_whom_and_how_long(way, name):
    """Broken: the answer at the end of a wait lacks what the answer without a wait has."""
    grant = hold(way.api, name)
    other = Waiter(way.waiter.address, name, 30_000)
    standing(way.api, name, 1)
    waiter = Waiter(way.waiter.address, name, 300)
    value = waiter.refused()
    assert value["name"] == name and value["waiters"] == 1, value
    assert 300 <= value["waited_ms"] <= waiter.took_s * 1000 + 1, value
    holder = value["holder"]
    assert (holder["owner"], holder["token"]) == ("holder", grant["token"])
    assert 0 < holder["ttl_ms"] < LONG_TTL and holder["held_ms"] >= 300
    asked = time.monotonic()
    status, tried = way.there.acquire(name)
    assert status == 409 and tried["waiters"] == 1 and tried["waited_ms"] <= (time.monotonic() - asked) * 1000 + 1, tried
    listed = [lock for lock in way.api.list(prefix=name)[1]["locks"] if lock["name"] == name]
    assert [lock["waiters"] for lock in listed] == [1]
    close_all([other])
    standing(way.api, name, 0)
    way.api.must("release", name, lease_id=grant["lease_id"])


def test_position(way, name):
    """Broken: a waiter can't learn its place."""
    grant = hold(way.api, name)
    waiters = queue_up(way.api, name, [way.holder.address, way.waiter.address], 4)
    for api in (way.api, way.there):
        assert [position(api, name, waiter.lease_id) for waiter in waiters] == [1, 2, 3, 4]
        assert "position" not in look(api, name), "who does not ask gets none"
        assert "position" not in look(api, name, new_id()), "a stranger has none"
        assert "position" not in look(api, name, grant["lease_id"]), "the holder waits no more"
    waiters[1].leave()
    standing(way.api, name, 3)
    assert [position(way.there, name, waiter.lease_id) for waiter in waiters] == [1, 0, 2, 3]
    way.api.must("release", name, lease_id=grant["lease_id"])
    waiters[0].granted()
    assert [position(way.there, name, waiter.lease_id) for waiter in waiters] == [0, 0, 1, 2]
    close_all(waiters)
    standing(way.api, name, 0)


def test_no_lease_id_is_shown_by_inspect_or_list(way, name):
    """Broken: a waiter's lease id, which will be the capability to release, is told to others."""
    grant = hold(way.api, name)
    waiter = queue_up(way.api, name, [way.waiter.address], 1)[0]
    for target in (lock_path(name), f"/v1/locks?prefix={name}"):
        body = way.there.call("GET", target)[2].body.decode()
        assert waiter.lease_id not in body and grant["lease_id"] not in body
    close_all([waiter])
    standing(way.api, name, 0)


def test_the_gauge_of_waiters_goes_up_and_down(world, redis, name):
    """Broken: pawl_waiters keeps counting those who left, or those of another node."""
    a, b = world.pawld(redis), world.pawld(redis)
    grant = hold(a.api(), name)

    def gauge(count):
        until(lambda: a.api().metrics()["pawl_waiters"] == count, what=f"{count} waiters on this node")
        assert b.api().metrics()["pawl_waiters"] == 0
        assert a.api().status()[1]["waiters"] == count

    gauge(0)
    waiters = queue_up(b.api(), name, [a.address], 5)
    gauge(5)
    waiters[4].leave("close")
    waiters[3].leave("reset")
    gauge(3)
    brief = Waiter(a.address, name, 50)
    brief.refused()
    gauge(3)
    b.api().must("release", name, lease_id=grant["lease_id"])
    waiters[0].granted()
    gauge(2)
    waiters[0].release()
    gather(waiters[1:3], release="once")
    gauge(0)
    until_clean(redis)


# ---------------------------------------------------------------- C01: a second request behind the one that waits


@pytest.mark.parametrize("end", ["granted", "over", "gone"])
@pytest.mark.parametrize("second", ["later", "together", "half"])
def test_c01_a_second_request_on_a_waiting_connection(way, name, second, end):
    """Broken: the second request takes the broker down, is answered first, or hides that the client left. (C01)"""
    grant = hold(way.api, name)
    lease = new_id()
    wait_ms = 800 if end == "over" else 20_000
    waiting = request_bytes("POST", lock_path(name, "acquire"), {"wait_ms": wait_ms, "ttl_ms": LONG_TTL, "lease_id": lease})
    behind = request_bytes("GET", lock_path(name))
    conn = Conn(way.waiter.address)
    if second == "later":
        conn.send(waiting)
        if end != "over":
            standing(way.api, name, 1)
        conn.send(behind)
    else:
        conn.send(waiting + (behind if second == "together" else behind[:20]))
    if end != "over":
        standing(way.api, name, 1)
        assert not conn.answered(), "the answers come in order"
    for i in range(5):  # the others are served meanwhile
        other = way.there.must("acquire", f"{name}/{i}", ttl_ms=LONG_TTL)
        way.there.must("release", f"{name}/{i}", lease_id=other["lease_id"])
    if end == "gone":
        conn.close()
        standing(way.api, name, 0)
        way.api.must("release", name, lease_id=grant["lease_id"])
        assert not look(way.api, name)["held"]
        return
    if end == "granted":
        way.api.must("release", name, lease_id=grant["lease_id"])
    reply = conn.read_reply()
    assert (reply.status, reply.json()["lease_id"]) == (200 if end == "granted" else 409, lease), reply
    if second == "half":
        conn.send(behind[20:])
    shown = conn.read_reply().json()
    assert (shown["name"], shown["held"], shown["waiters"]) == (name, True, 0), shown
    assert shown["token"] == (reply.json()["token"] if end == "granted" else grant["token"])
    conn.close()
    way.api.must("release", name, lease_id=lease if end == "granted" else grant["lease_id"])


def test_c01_a_thousand_requests_behind_one_that_waits(way, name):
    """Broken: what is pipelined behind a wait is lost, or more of it than may be kept is kept. (C01)"""
    grant = hold(way.api, name)
    conn = Conn(way.waiter.address)
    short = request_bytes("GET", "/healthz")
    count = 16_000 // len(short)
    conn.send(request_bytes("POST", lock_path(name, "acquire"), {"wait_ms": 20_000, "ttl_ms": 1000}) + short * count)
    standing(way.api, name, 1)
    way.api.must("release", name, lease_id=grant["lease_id"])
    assert [conn.read_reply().status for _ in range(count + 1)] == [200] * (count + 1)
    conn.close()
    until(lambda: not look(way.api, name)["held"], what="the short lease is over")
    # more than the limit: the client is cut off and its place is free
    grant = hold(way.api, name)
    conn = Conn(way.waiter.address)
    conn.send(request_bytes("POST", lock_path(name, "acquire"), {"wait_ms": 20_000}))
    standing(way.api, name, 1)
    try:
        conn.send(short * 2000)
    except OSError:
        pass
    standing(way.api, name, 0)
    conn.close()
    way.api.must("release", name, lease_id=grant["lease_id"])
    assert not look(way.api, name)["held"]


# ---------------------------------------------------------------- C02: the client has gone


def killed_client(address, name):
    """A process that waits for the lock; kill() it."""
    text = "import socket, sys\ns = socket.create_connection((sys.argv[1], int(sys.argv[2])))\ns.sendall(sys.argv[3].encode())\ns.recv(1)\n"
    host, _, port = address.rpartition(":")
    body = request_bytes("POST", lock_path(name, "acquire"), {"wait_ms": 30_000, "ttl_ms": 60_000}).decode()
    return subprocess.Popen([sys.executable, "-c", text, host, port, body])


@pytest.mark.parametrize("how", ["close", "reset", "killed"])
def test_c02_a_waiter_that_left_is_never_granted(way, name, how):
    """Broken: a client that has gone is granted the lock and keeps it from the others for the whole ttl. (C02, P8)"""
    grant = hold(way.api, name, 60_000)
    if how == "killed":
        process = killed_client(way.waiter.address, name)
    else:
        gone = Waiter(way.waiter.address, name, 30_000, ttl_ms=60_000)
    standing(way.api, name, 1)
    live = Waiter(way.waiter.address, name, 30_000)
    standing(way.api, name, 2)
    if how == "killed":
        process.kill()
        process.wait()
    else:
        gone.leave(how)
    standing(way.api, name, 1, SOON_S)
    assert position(way.api, name, live.lease_id) == 1
    way.api.must("release", name, lease_id=grant["lease_id"])
    released = time.monotonic()
    value = live.granted()
    assert time.monotonic() - released < SOON_S
    shown = look(way.api, name)
    assert (shown["token"], shown["waiters"]) == (value["token"], 0)
    live.release()
    assert not look(way.api, name)["held"]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_c02_gone_before_the_request_reached_redis(world, redis, name, how):
    """Broken: an acquire whose client left while it was on its way takes a place, or the lock, for nobody. (C02, P8)"""
    proxy = world.proxy(redis.address)
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "20s"])
    direct = world.pawld(redis)
    api = direct.api()
    for free in (True, False):
        lock = f"{name}/{free}"
        grant = None if free else hold(api, lock)
        proxy.stall_up = True
        gone = Waiter(pawld.address, lock, 30_000)
        pending = pawld.api().metrics  # served without Redis
        until(lambda: pending()["pawl_store_pending"] >= 1 and pending()["pawl_waiters"] == 1, what="the call is on its way")
        gone.leave(how)
        until(lambda: pending()["pawl_waiters"] == 0, what="the leaving was noticed")
        proxy.stall_up = False
        if grant:
            until(lambda: pending()["pawl_store_pending"] == 0, what="Redis has answered")
            standing(api, lock, 0)
            api.must("release", lock, lease_id=grant["lease_id"])
        until(lambda: api.acquire(lock, ttl_ms=200)[0] == 200, what="the lock can be had")
    until_clean(redis)


def test_p1_a_client_that_reads_its_grant_and_closes_hard_keeps_it(own_way, name):
    """Broken: a reset is taken as the proof that a grant was not read, and the lock goes to another while its holder works. (P1, P8)"""
    count = 10
    seen = own_way.there.metrics
    for i in range(count):
        look(own_way.api, name)
        open_before = seen()["pawl_connections"]
        conn = Conn(own_way.waiter.address)
        for _ in range(40):  # its kernel has stopped to acknowledge each reply at once
            assert conn.request("GET", "/healthz").status == 200
        conn.send_request("POST", lock_path(f"{name}/{i}", "acquire"), {"ttl_ms": LONG_TTL})
        told = conn.read_reply()
        conn.reset()  # mostly before the reply has been acknowledged
        assert told.status == 200, told
        until(lambda n=open_before: seen()["pawl_connections"] == n, what="the reset was seen")
        shown = look(own_way.api, f"{name}/{i}")
        assert shown["held"] and shown["token"] == told.json()["token"], shown
        own_way.api.must("release", f"{name}/{i}", lease_id=told.json()["lease_id"])
    assert 0 < seen()["pawl_http_unproven_replies_total"] <= count


@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_c02_c45_the_only_waiter_leaves_and_the_lock_is_free_at_once(way, name, how):
    """Broken: the queue of a lock whose only waiter left stands in the way of the next one. (C02, C45)"""
    grant = hold(way.api, name)
    gone = Waiter(way.waiter.address, name, 30_000)
    standing(way.api, name, 1)
    if how == "half_close":
        gone.conn.half_close()
        reply = gone.conn.read_reply()  # the documented rule: it counts as leaving, and is told so
        assert reply.status == 400 and reply.json()["error"] == "bad_request", reply
        assert gone.conn.at_eof()
        gone.close()
    else:
        gone.leave(how)
    standing(way.api, name, 0, SOON_S)
    way.api.must("release", name, lease_id=grant["lease_id"])
    again = hold(way.there, name)
    way.there.must("release", name, lease_id=again["lease_id"])
    assert way.redis.keys(f"*{name}*") == set()


def test_c45_half_closed_before_the_wait_began(way, name):
    """Broken: a sending side that was closed together with the request leaves the lock taken. (C45)"""
    for free in (True, False):
        grant = None if free else hold(way.api, name)
        conn = Conn(way.waiter.address)
        conn.send_request("POST", lock_path(name, "acquire"), {"wait_ms": 20_000, "ttl_ms": LONG_TTL})
        conn.half_close()
        reply = conn.read_reply()
        # the request may have been answered before the end was seen
        assert reply.status == 400 or (free and reply.status == 200), reply
        if reply.status == 200:
            way.there.must("release", name, lease_id=reply.json()["lease_id"])
        conn.close()
        until(lambda: way.waiter.api().metrics()["pawl_store_pending"] == 0, what="what it asked for has been dealt with")
        standing(way.api, name, 0)
        if grant:
            way.api.must("release", name, lease_id=grant["lease_id"])
        until(lambda: not look(way.api, name)["held"], SOON_S, "no lock is left taken")


# ---------------------------------------------------------------- C03: a wait ends at its time


def waits_end_in_time(address, api, name, waits_s, slack_s):
    grants = [hold(api, f"{name}/{i}") for i in range(len(waits_s))]
    waiters = [Waiter(address, f"{name}/{i}", int(wait * 1000)) for i, wait in enumerate(waits_s)]
    gather(waiters, max(waits_s) + 30)
    for wait, waiter, grant in zip(waits_s, waiters, grants):
        value = waiter.refused()
        assert wait <= waiter.took_s < wait + slack_s, (wait, waiter.took_s)
        assert wait * 1000 <= value["waited_ms"] <= waiter.took_s * 1000 + 1
        assert value["holder"]["token"] == grant["token"] and value["waiters"] == 0
        api.must("release", waiter.name, lease_id=grant["lease_id"])
    close_all(waiters)


def test_c03_no_timeout_of_the_transport_cuts_a_wait(world, redis, name):
    """Broken: a wait that is longer than a timeout for idle or slow clients ends as a broken connection. (C03)"""
    short = ["--idle-timeout", "300ms", "--request-timeout", "300ms", "--body-timeout", "300ms", "--store-timeout", "200ms"]
    a, b = world.pawld(redis), world.pawld(redis, short + ["--max-wait", "3s"])
    waits_end_in_time(b.address, a.api(), name, [1, 2, 3], 1.5)


def test_c03_a_wait_above_the_maximum_is_refused(world, redis, name):
    """Broken: a wait that can't be kept is cut short in silence. (C03)"""
    pawld = world.pawld(redis, ["--max-wait", "3s"])
    api = pawld.api()
    for status, error, target, params in [
        (200, None, lock_path(name, "acquire"), {"wait_ms": 3000, "ttl_ms": 500}),
        (400, "bad_request", lock_path(name, "acquire"), {"wait_ms": 3001}),
        (400, "bad_request", lock_path(name, "acquire") + "?wait=3001ms", None),
        (400, "bad_request", lock_path(name, "acquire") + "?wait=1h", None),
    ]:
        got, value = api.call("POST", target, params)[:2]
        assert (got, value.get("error")) == (status, error), value
        assert status == 200 or value["message"].startswith("wait"), value
    assert api.acquire(name, wait_ms=600_001)[0] == 400
    default = world.pawld(redis)
    assert default.api().acquire(name, wait_ms=600_001)[0] == 400
    assert default.api().acquire(name, wait_ms=600_000, ttl_ms=500)[0] == 200


@pytest.mark.deadline(180)
def test_c03_waits_of_a_minute(world, redis, name):
    """Broken: the default timeouts of the transport cut a legal wait. (C03)"""
    if not LONG:
        pytest.skip("takes 65 s: PAWL_TEST_LONG=1")
    a, b = world.pawld(redis), world.pawld(redis)
    waits_end_in_time(b.address, a.api(), name, [55, 65, 78], 1.5)


# ---------------------------------------------------------------- C05, P7: the client comes back


def test_c05_the_grant_after_a_wait_is_lost_and_the_client_retries(world, redis, name):
    """Broken: a client whose grant was lost on the way is blocked by its own lock. (C05, P7)"""
    a, b = world.pawld(redis), world.pawld(redis)
    host, _, port = b.address.rpartition(":")
    proxy = world.proxy((host, int(port)))
    api = a.api()
    for i, retry_at in enumerate([b.address, a.address]):
        lock, lease = f"{name}/{i}", new_id()
        grant = hold(api, lock)
        first = Waiter(proxy.http_address, lock, 20_000, lease_id=lease)
        standing(api, lock, 1)
        until(lambda: proxy.open_connections() >= 1, what="the waiter's connection")
        proxy.stall_down = True
        api.must("release", lock, lease_id=grant["lease_id"])
        until(lambda: look(api, lock).get("token", 0) > grant["token"], what="granted to the waiter")
        token = look(api, lock)["token"]
        retry = Waiter(retry_at, lock, 20_000, lease_id=lease)
        assert retry.granted(SOON_S)["token"] == token
        stranger = Api(retry_at)
        assert stranger.acquire(lock, lease_id=new_id())[1]["error"] == "held", "another id is refused"
        proxy.cut()
        proxy.stall_down = False
        first.close()
        always(lambda lock=lock, token=token: look(api, lock).get("token") == token, 0.7, "what the retry was told stands")
        retry.release()
        assert stranger.release(lock, lease_id=lease)[0] == 410, "a release that worked, repeated"
        stranger.close()
    until_clean(redis)


@pytest.mark.parametrize("back_to", ["same", "other"])
def test_p7_a_client_that_comes_back_keeps_its_place(own_way, name, back_to):
    """Broken: who lost its connection and asks again with its lease id goes to the end of the queue, or loses its place when the old
    connection's end is noticed. (P6, P7)"""
    way = own_way
    grant = hold(way.api, name)
    first, second, third = queue_up(way.api, name, [way.waiter.address], 3)
    other = way.holder if way.holder is not way.waiter else None
    if back_to == "other" and other is None:
        pytest.skip("one node only")
    back = Waiter((way.waiter if back_to == "same" else other).address, name, 60_000, lease_id=first.lease_id)
    # it has asked when an inspect sent after it over its own node is answered
    look(way.there if back_to == "same" else way.api, name)
    first.leave("reset")
    noticed = 3 if back_to == "same" else 2
    until(lambda: way.there.metrics()["pawl_waiters"] == noticed, what="the old connection's end was noticed")
    always(lambda: position(way.api, name, back.lease_id) == 1, 0.5, "the place is kept")
    assert look(way.api, name)["waiters"] == 3, "one place for both"
    way.api.must("release", name, lease_id=grant["lease_id"])
    assert gather([back, second, third], release="once") == [back, second, third]
    tokens_rise([back, second, third])
    assert not look(way.api, name)["held"]


def test_p7_a_client_whose_leaving_was_noticed_finds_its_place_again(way, name):
    """Broken: who lost its connection for a moment goes to the end of the queue, or keeps others waiting while it is gone. (P6, P7)"""
    grant = hold(way.api, name)
    first, second = queue_up(way.api, name, [way.waiter.address], 2)
    first.leave()
    standing(way.api, name, 1)
    assert position(way.api, name, second.lease_id) == 1, "meanwhile the next one is first"
    back = in_line(way.api, Waiter(way.waiter.address, name, 60_000, lease_id=first.lease_id), 1)
    assert position(way.api, name, second.lease_id) == 2
    way.api.must("release", name, lease_id=grant["lease_id"])
    assert gather([back, second], release="once") == [back, second]
    tokens_rise([back, second])


@pytest.mark.parametrize("first_back", [True, False])
def test_p7_a_client_that_comes_back_while_its_old_connection_ends(world, redis, name, first_back):
    """Broken: the old connection's end, noticed while the new request is on its way to Redis, takes the place away from the new one: those
    behind pass it, and nobody wakes it. (P6, P7)"""
    proxy = world.proxy(redis.address)
    a, b = world.pawld(redis), world.pawld(proxy.redis_url)
    api = a.api()
    locks = [f"{name}/{i}" for i in range(10)]
    grants = [hold(api, lock) for lock in locks]
    firsts, seconds = [], []
    for lock in locks:
        firsts.append(in_line(api, Waiter(b.address, lock, 60_000), 1))
        seconds.append(in_line(api, Waiter(b.address, lock, 60_000), 2))
    proxy.delay_up_s = proxy.delay_down_s = 0.1
    backs = []
    for first in firsts:
        if first_back:
            backs.append(Waiter(b.address, first.name, 60_000, lease_id=first.lease_id))
            first.leave()
        else:
            first.leave()
            backs.append(Waiter(b.address, first.name, 60_000, lease_id=first.lease_id))
    until(lambda: b.api().metrics()["pawl_waiters"] == 20, what="old ones gone, new ones there")
    for back in backs:
        if first_back:
            in_line(api, back, 1)
        else:  # the leaving was seen first
            until(lambda back=back: position(api, back.name, back.lease_id) in (1, 2), what="a place in the queue")
    until(lambda: b.api().metrics()["pawl_store_pending"] == 0, what="all is settled")
    lost = [back.name for back in backs if position(api, back.name, back.lease_id) == 0]
    for lock, grant in zip(locks, grants):
        api.must("release", lock, lease_id=grant["lease_id"])
    gather(backs + seconds, release="once")
    passed = [back.name for back, second in zip(backs, seconds) if first_back and back.token > second.token]
    assert (lost, passed) == ([], []), "waiters that lost their place"
    until_clean(redis)


def test_p7_two_live_requests_with_one_lease_id(way, name):
    """Broken: the two stand in the queue twice, or one of them hangs when the other is granted. (P7)"""
    grant = hold(way.api, name)
    lease = new_id()
    one = in_line(way.api, Waiter(way.holder.address, name, 30_000, lease_id=lease), 1)
    two = Waiter(way.waiter.address, name, 30_000, lease_id=lease)
    behind = in_line(way.api, Waiter(way.waiter.address, name, 30_000), 2)
    assert look(way.api, name)["waiters"] == 2, "one place for both"
    way.api.must("release", name, lease_id=grant["lease_id"])
    # on two nodes the second to learn of it does so by the slow poll
    tokens = {waiter.granted(POLL_S + SOON_S)["token"] for waiter in (one, two)}
    assert len(tokens) == 1
    assert look(way.api, name)["token"] in tokens and not behind.answered()
    two.release()
    assert way.api.release(name, lease_id=lease)[0] == 410
    behind.granted(SOON_S)
    behind.release()
    assert not look(way.api, name)["held"]


def test_p7_one_of_two_with_one_lease_id_leaves(own_way, name):
    """Broken: the place of both goes with the first of them that leaves. (P7)"""
    way = own_way
    grant = hold(way.api, name)
    lease = new_id()
    one = in_line(way.api, Waiter(way.holder.address, name, 30_000, lease_id=lease), 1)
    two = Waiter(way.waiter.address, name, 30_000, lease_id=lease)
    behind = in_line(way.api, Waiter(way.waiter.address, name, 30_000), 2)
    two.leave()
    until(lambda: way.there.metrics()["pawl_waiters"] == (2 if way.there.address == way.api.address else 1), what="its leaving was noticed")
    until(lambda: way.there.metrics()["pawl_store_pending"] == 0, what="and dealt with")
    way.api.must("release", name, lease_id=grant["lease_id"])
    assert gather([one, behind], release="once") == [one, behind]
    tokens_rise([one, behind])
    assert one.took_s is not None and not look(way.api, name)["held"]


def test_p7_the_wait_of_one_of_two_with_one_lease_id_ends_after_the_other_was_granted(way, name):
    """Broken: a request is told that the lock is held by another while its own lease id holds it. (P7)"""
    grant = hold(way.api, name)
    lease = new_id()
    brief = in_line(way.api, Waiter(way.holder.address, name, 2500, lease_id=lease), 1)
    patient = Waiter(way.waiter.address, name, 30_000, lease_id=lease)
    look(way.there, name)
    way.api.must("release", name, lease_id=grant["lease_id"])
    token = patient.granted(SOON_S + POLL_S)["token"]
    assert brief.granted(SOON_S + POLL_S)["token"] == token
    patient.release()


# ---------------------------------------------------------------- C13: the holder never releases


@pytest.mark.parametrize("ttl_ms", [1, 2, 10, 999, 1000, 1001, 1500] if LONG else [1, 2, 1000, 1500])
def test_c13_a_waiter_wakes_when_the_lease_runs_out(way, name, ttl_ms):
    """Broken: nobody says that a lease ran out, so waiters sleep far too long, or are granted too early. (C13)"""
    count = 20
    taken, until_s = [], []
    waiters = []
    for i in range(count):
        taken.append(time.monotonic())
        status, value = way.api.acquire(f"{name}/{i}", ttl_ms=ttl_ms)
        # so short a lease may be over before it could be told; then it is given back, which wakes the waiter all the same
        assert status == 200 or (ttl_ms <= 10 and status == 503), value
        until_s.append(time.monotonic() + ttl_ms / 1000)
        waiters.append(Waiter(way.waiter.address, f"{name}/{i}", 20_000, ttl_ms=5000))
    gather(waiters)
    for i, waiter in enumerate(waiters):
        waiter.granted()
        at = waiter.sent + waiter.took_s
        assert at - taken[i] >= ttl_ms / 1000 or ttl_ms <= 10, "never before the lease is over"
        assert at - until_s[i] < 1.5, f"woken {at - until_s[i]:.3f} s late"
        waiter.release()


def test_c13_a_renewal_puts_the_waiter_off(way, name):
    """Broken: the waiter is granted at the old end, or never armed again for the new one. (C13)"""
    for i in range(5):
        lock = f"{name}/{i}"
        grant = hold(way.api, lock, 1500)
        waiter = Waiter(way.waiter.address, lock, 20_000)
        until(lambda lock=lock: look(way.api, lock).get("ttl_ms", 0) < 250, what="the lease is about to end", every_s=0.005)
        asked = time.monotonic()
        status, _ = way.api.renew(lock, lease_id=grant["lease_id"], ttl_ms=3000)
        if status == 200:
            break
        waiter.answer()
        waiter.release()
    else:
        pytest.fail("never renewed in time")
    renewed = time.monotonic()
    value = waiter.granted()
    at = waiter.sent + waiter.took_s
    assert at - asked >= 3.0 and at - renewed < 3.0 + 1.5, (at - asked, at - renewed)
    assert value["token"] > grant["token"]
    waiter.release()


def test_c13_a_shorter_renewal_or_a_key_deleted_by_hand(way, name):
    """Broken: what ends a lease without a word is found by nobody. The bound is the slow poll. (C13)"""
    short = hold(way.api, f"{name}/renew")
    hold(way.api, f"{name}/del")
    waiters = [Waiter(way.waiter.address, f"{name}/{what}", 30_000) for what in ("renew", "del")]
    for waiter in waiters:
        standing(way.api, waiter.name, 1)
    way.api.must("renew", f"{name}/renew", lease_id=short["lease_id"], ttl_ms=300)
    way.redis.command("DEL", way.redis.lock_key(f"{name}/del"))
    start = time.monotonic()
    gather(waiters)
    for waiter in waiters:
        waiter.granted()
        assert waiter.sent + waiter.took_s - start < POLL_S + SOON_S
        waiter.release()


@pytest.mark.parametrize("delay_s", [0.0, 0.03])
def test_c13_the_first_waiter_goes_as_the_lease_runs_out(world, redis, name, delay_s):
    """Broken: the timer of the lease finds only the first waiter, which is just going (its wait is over, or its client left), and the next
    one sleeps on a free lock. (C04, C13)"""
    proxy = world.proxy(redis.address)
    proxy.delay_up_s = proxy.delay_down_s = delay_s
    a, b = world.pawld(redis), world.pawld(proxy.redis_url)
    api = a.api()
    ttl_ms, count, late = 1500, 60, []
    first, second = [], []
    for i in range(count):
        lock = f"{name}/{i}"
        taken = time.monotonic()
        hold(api, lock, ttl_ms)
        # the wait of the first ends from 60 ms before to 15 ms after the lease
        end = taken + (ttl_ms - 60 + 75 * i / count) / 1000
        first.append(Waiter(b.address, lock, max(1, int((end - time.monotonic()) * 1000)), ttl_ms=LONG_TTL))
        second.append(Waiter(b.address, lock, 20_000, ttl_ms=LONG_TTL))
        second[-1].until = taken + ttl_ms / 1000
    gather(first + second, release="once")
    for waiter in second:
        waiter.granted()
        after = waiter.sent + waiter.took_s - waiter.until
        if after > SOON_S:
            late.append(round(after, 3))
    assert late == [], f"{len(late)} of {count} slept on a free lock for so many seconds"
    until_clean(redis)


# ---------------------------------------------------------------- C35, P6: order


def test_p6_waiters_are_granted_in_the_order_they_came(way, name):
    """Broken: on two nodes the queue is two queues. (P6)"""
    grant = hold(way.api, name)
    waiters = queue_up(way.api, name, [way.holder.address, way.waiter.address], 40)
    # each fourth leaves, one way or the other
    for i in range(3, 40, 4):
        waiters[i].leave("close" if i % 8 == 3 else "reset")
    live = [waiter for i, waiter in enumerate(waiters) if i % 4 != 3]
    standing(way.api, name, len(live))
    assert [position(way.there, name, waiter.lease_id) for waiter in live] == list(range(1, len(live) + 1))
    way.api.must("release", name, lease_id=grant["lease_id"])
    order = gather(live, release="once")
    tokens_rise(live)
    assert all(waiter.status == 200 for waiter in order)
    assert not look(way.api, name)["held"] and look(way.api, name)["waiters"] == 0
    close_all(live)


def test_c35_nobody_barges_past_a_waiter(pair, name):
    """Broken: those who ask again and again overtake those who wait. (C35, P6)"""
    a, b = pair.nodes
    api = a.api()
    grant = hold(api, name)
    stop, hammered, problems = threading.Event(), [], []

    def hammer(address):
        with_conns = [Api(address) for _ in range(5)]
        try:
            while not stop.is_set():
                for client in with_conns:
                    status, value = client.acquire(name, ttl_ms=LONG_TTL)
                    if status == 200:
                        hammered.append(value["token"])
                        time.sleep(0.002)
                        client.must("release", name, lease_id=value["lease_id"])
        except BaseException as error:
            problems.append(repr(error))
        finally:
            for client in with_conns:
                client.close()

    threads = [threading.Thread(target=hammer, args=(pair.nodes[i % 2].address,)) for i in range(10)]
    for thread in threads:
        thread.start()
    try:
        waiters = queue_up(api, name, [a.address, b.address], 20, wait_ms=60_000)
        api.must("release", name, lease_id=grant["lease_id"])
        for waiter in waiters:  # each holds it for a while
            waiter.granted()
            time.sleep(0.01)
            waiter.release()
        until(lambda: len(hammered) > 20 or problems, what="then the others have their turn")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []
    tokens_rise(waiters)
    barged = [token for token in hammered if token < waiters[-1].token]
    assert barged == [], f"{len(barged)} were granted before the last waiter"
    until(lambda: not look(api, name)["held"], what="all is over")


def test_c35_a_hundred_killed_waiters_hold_nobody_up(way, name):
    """Broken: each waiter that vanished adds a delay. (C35)"""
    grant = hold(way.api, name)
    text = ("import socket, sys, time\ns = []\nfor _ in range(100):\n"
            "    s.append(socket.create_connection((sys.argv[1], int(sys.argv[2]))))\n"
            "    s[-1].sendall(sys.argv[3].encode())\ntime.sleep(600)\n")
    host, _, port = way.waiter.address.rpartition(":")
    body = request_bytes("POST", lock_path(name, "acquire"), {"wait_ms": 600_000, "ttl_ms": LONG_TTL}).decode()
    crowd = subprocess.Popen([sys.executable, "-c", text, host, port, body])
    try:
        standing(way.api, name, 100)
        live = in_line(way.api, Waiter(way.waiter.address, name, 60_000), 101)
    finally:
        crowd.kill()
        crowd.wait()
    way.api.must("release", name, lease_id=grant["lease_id"])
    released = time.monotonic()
    live.granted()
    assert time.monotonic() - released < SOON_S
    assert look(way.api, name)["waiters"] == 0
    live.release()


def test_c35_waiters_older_than_any_timer_inside_are_served(pair, name):
    """Broken: a waiter that stands longer than a heartbeat, a poll or a ttl is taken for dead. (C35)"""
    a, b = pair.nodes
    api = a.api()
    grant = hold(api, name)
    waiters = queue_up(api, name, [b.address, a.address], 4, ttl_ms=1000)
    always(lambda: look(api, name)["waiters"] == 4, 8, "they stand there", every_s=0.2)
    api.must("release", name, lease_id=grant["lease_id"])
    gather(waiters, release="once")
    tokens_rise(waiters)
    assert all(waiter.value["ttl_ms"] > 500 for waiter in waiters), "the time to live starts at the grant"


# ---------------------------------------------------------------- C38: stale wake-ups, forced release


def test_c38_a_waiter_really_waits_after_others_gave_up(way, name):
    """Broken: the wake-up of a waiter whose time ran out lets the next one pass while a new holder is in. (C38)"""
    grant = hold(way.api, name)
    for _ in range(3):
        Waiter(way.waiter.address, name, 100).refused()
    way.api.must("release", name, lease_id=grant["lease_id"])
    grant = hold(way.api, name)
    waiter = in_line(way.api, Waiter(way.waiter.address, name, 30_000), 1)
    always(lambda: not waiter.answered(), 1.0, "it waits")
    way.api.must("release", name, lease_id=grant["lease_id"])
    waiter.granted(SOON_S)
    waiter.release()


def test_c38_a_forced_release_wakes_exactly_the_next(way, name):
    """Broken: an operator's break wakes nobody, or everybody. (C38)"""
    grant = hold(way.api, name)
    waiters = queue_up(way.api, name, [way.waiter.address], 3)
    for i, waiter in enumerate(waiters):
        broken = way.api.must("brk", name, reason="test")
        assert broken["holder"]["token"] == (waiters[i - 1].token if i else grant["token"])
        waiter.granted(SOON_S)
        always(lambda rest=waiters[i + 1:]: not any(other.answered() for other in rest), 0.3, "the others go on waiting")
        assert look(way.api, name)["waiters"] == 2 - i
    assert way.api.release(name, lease_id=grant["lease_id"])[0] == 410
    tokens_rise(waiters)
    waiters[2].release()


def test_a_stranger_can_not_take_a_waiters_place(way, name):
    """Broken: a release with a waiter's lease id, or a renewal, counts as the holder's."""
    grant = hold(way.api, name)
    waiter = in_line(way.api, Waiter(way.waiter.address, name, 30_000), 1)
    for call in (way.there.release, way.there.renew):
        assert call(name, lease_id=waiter.lease_id)[0] == 410
    assert look(way.api, name)["token"] == grant["token"]
    assert position(way.api, name, waiter.lease_id) == 1
    way.api.must("release", name, lease_id=grant["lease_id"])
    waiter.granted(SOON_S)
    waiter.release()


# ---------------------------------------------------------------- C39: the lease starts at the grant


def test_c39_the_lease_starts_at_the_grant(way, name):
    """Broken: the time to live is counted from the request, so the lease is short or over when it is granted. (C39, P5)"""
    grant = hold(way.api, name)
    waiter = in_line(way.api, Waiter(way.waiter.address, name, 20_000, ttl_ms=2000), 1)
    always(lambda: not waiter.answered(), 2.5, "it waits for longer than its own ttl")
    before = time.monotonic()
    way.api.must("release", name, lease_id=grant["lease_id"])
    value = waiter.granted()
    left = way.redis.pttl(name)
    spent_ms = (time.monotonic() - before) * 1000
    assert 2000 - spent_ms - 5 <= value["ttl_ms"] <= 2000, (value, spent_ms)
    assert left <= 2000 and left >= 2000 - spent_ms - 5
    assert value["waited_ms"] >= 2500


def test_c39_time_in_a_slow_redis_is_subtracted(world, redis, name):
    """Broken: the ttl told after a wait is more than Redis has left. (C39, P5)"""
    proxy = world.proxy(redis.address)
    a, b = world.pawld(redis), world.pawld(proxy.redis_url, ["--store-timeout", "10s"])
    api = a.api()
    grant = hold(api, name)
    waiter = in_line(api, Waiter(b.address, name, 20_000, ttl_ms=4000), 1)
    proxy.delay_down_s = 0.5
    api.must("release", name, lease_id=grant["lease_id"])
    value = waiter.granted()
    left = redis.pttl(name)
    assert value["ttl_ms"] <= 4000 - 400, value
    assert left <= value["ttl_ms"] + 20 or left <= 4000 - 400
    assert redis.holds(name)
    # so short a lease that it is over before it could be told is given back, not told
    late = Waiter(b.address, name, 6000, ttl_ms=300)
    assert late.answer()[0] != 200, late.value


# ---------------------------------------------------------------- C46: two nodes


def test_c46_the_holders_node_is_killed(world, redis, name):
    """Broken: a lease or a waiter is lost with the node of the holder. (C46)"""
    a, b = world.pawld(redis), world.pawld(redis)
    grant = hold(a.api(), name)
    api = b.api()
    waiter = in_line(api, Waiter(b.address, name, 30_000), 1)
    a.kill9()
    assert [lock["token"] for lock in api.list(prefix=name)[1]["locks"]] == [grant["token"]]
    assert api.must("renew", name, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)["token"] == grant["token"]
    assert not waiter.answered()
    api.must("release", name, lease_id=grant["lease_id"])
    waiter.granted(SOON_S)
    waiter.release()
    until_clean(redis)


@pytest.mark.parametrize("dead", [1, 100])
def test_p6_waiters_of_a_killed_node_hold_nobody_up(world, redis, name, dead):
    """Broken: a dead node's waiters stand at the head of the queue until their waits would have been over. (P6, C35)"""
    a, b = world.pawld(redis), world.pawld(redis)
    api = b.api()
    grant = hold(api, name)
    gone = [Waiter(a.address, name, 600_000) for _ in range(dead)]
    standing(api, name, dead)
    live = in_line(api, Waiter(b.address, name, 60_000), dead + 1)
    behind = in_line(api, Waiter(b.address, name, 60_000), dead + 2)
    a.kill9()
    killed = time.monotonic()
    for waiter in gone:  # they see a close
        with pytest.raises((Closed, AssertionError)):
            waiter.answer()
    api.must("release", name, lease_id=grant["lease_id"])
    live.granted()
    assert time.monotonic() - killed < HEARTBEAT_S + SOON_S
    assert look(api, name)["waiters"] == 1
    live.release()
    behind.granted(SOON_S)
    behind.release()
    until_clean(redis)
    close_all(gone)


@pytest.mark.parametrize("dead", [100, 300])
def test_p6_a_long_dead_crowd_holds_nobody_up(world, redis, name, dead):
    """Broken: a release that finds more dead waiters than it may clear away in one go wakes nobody. (P6)"""
    a, b = world.pawld(redis), world.pawld(redis)
    api = b.api()
    grant = hold(api, name)
    gone = [Waiter(a.address, name, 600_000) for _ in range(dead)]
    standing(api, name, dead)
    live = in_line(api, Waiter(b.address, name, 60_000), dead + 1)
    a.kill9()
    until(lambda: len(redis.keys("*:node:*")) == 1, what="the dead node's key is gone")
    api.must("release", name, lease_id=grant["lease_id"])
    released = time.monotonic()
    live.granted()
    late = time.monotonic() - released
    live.release()
    close_all(gone)
    until_clean(redis)
    assert late < SOON_S, f"woken {late:.1f} s after the release"


@pytest.mark.parametrize("dead", [1, 300])
def test_p8_nothing_stays_of_a_killed_nodes_waiters(world, redis, name, dead):
    """Broken: when the node dies last, or nobody else waits, the queue stays in Redis for ever and is counted as waiters. (P8)"""
    a, b = world.pawld(redis), world.pawld(redis)
    api = b.api()
    grant = hold(api, name)
    gone = [Waiter(a.address, name, 600_000) for _ in range(dead)]
    standing(api, name, dead)
    a.kill9()
    until(lambda: len(redis.keys("*:node:*")) == 1, what="the dead node's key is gone")
    api.must("release", name, lease_id=grant["lease_id"])
    close_all(gone)
    until(lambda: look(api, name)["waiters"] == 0, 20, "the queue of a free lock is empty")
    until_clean(redis, 20)


def test_p8_the_count_of_waiters_comes_down_when_their_node_died(world, redis, name):
    """Broken: dead waiters behind a live one are counted, and fill the queue, for as long as the lock is held. (P8, P9)"""
    a, b = world.pawld(redis), world.pawld(redis, ["--max-waiters-per-lock", "5"])
    api = b.api()
    grant = hold(api, name)
    live = in_line(api, Waiter(b.address, name, 120_000), 1)
    gone = queue_up_behind(api, name, a.address, 4)
    a.kill9()
    until(lambda: len(redis.keys("*:node:*")) == 1, what="the dead node's key is gone")
    close_all(gone)
    standing(api, name, 1, 20)
    in_line(api, Waiter(b.address, name, 120_000), 2)
    api.must("release", name, lease_id=grant["lease_id"])
    live.granted(SOON_S)


def queue_up_behind(api, name, address, count):
    start = look(api, name)["waiters"]
    return [in_line(api, Waiter(address, name, 120_000), start + 1 + i) for i in range(count)]


# ---------------------------------------------------------------- P9: limits


def too_many(address, name, **how):
    waiter = Waiter(address, name, 30_000, **how)
    status, value = waiter.answer(SOON_S)
    assert (status, value["error"]) == (429, "too_many_waiters"), value
    assert waiter.took_s < SOON_S and value["lease_id"] == waiter.lease_id
    waiter.close()


def test_p9_the_most_waiters_of_a_node(world, redis, name):
    """Broken: a node takes on more waiters than it may have, or counts those that left. (P9)"""
    a, b = world.pawld(redis, ["--max-waiters", "3"]), world.pawld(redis)
    api = b.api()
    for i in range(5):
        hold(api, f"{name}/{i}")
    waiters = [in_line(api, Waiter(a.address, f"{name}/{i}", 30_000), 1) for i in range(3)]
    for _ in range(20):
        too_many(a.address, f"{name}/3")
    assert look(api, f"{name}/3")["waiters"] == 0, "a refused one leaves nothing in the queue"
    assert a.api().acquire(f"{name}/3")[0] == 409, "who doesn't wait is not refused"
    assert a.api().acquire(f"{name}/free", ttl_ms=500)[0] == 200
    other = in_line(api, Waiter(b.address, f"{name}/3", 30_000), 1)  # the other node has room
    waiters[1].leave()
    standing(api, f"{name}/1", 0)
    waiters[1] = in_line(api, Waiter(a.address, f"{name}/4", 30_000), 1)
    too_many(a.address, f"{name}/1")
    close_all(waiters + [other])
    until(lambda: a.api().metrics()["pawl_waiters"] == 0, what="all have left")


def test_p9_the_most_waiters_of_a_lock(world, redis, name):
    """Broken: the queue of a lock grows beyond its limit, or a limit of one node binds the other's. (P9)"""
    limit = ["--max-waiters-per-lock", "2"]
    a, b = world.pawld(redis, limit), world.pawld(redis, limit)
    api = a.api()
    grant = hold(api, name)
    hold(api, f"{name}/other")
    first, second = queue_up(api, name, [a.address, b.address], 2)
    too_many(a.address, name)
    too_many(b.address, name)
    assert look(api, name)["waiters"] == 2
    assert b.api().acquire(name)[0] == 409
    other = in_line(api, Waiter(a.address, f"{name}/other", 30_000), 1)
    # who has a place already is not counted twice
    again = Waiter(b.address, name, 30_000, lease_id=second.lease_id)
    look(b.api(), name)
    always(lambda: not again.answered(), 0.3, "a repeated acquire shares its place")
    first.leave()
    standing(api, name, 1)
    third = in_line(api, Waiter(a.address, name, 30_000), 2)
    too_many(b.address, name)
    api.must("release", name, lease_id=grant["lease_id"])
    tokens = {second.granted()["token"], again.granted()["token"]}
    assert len(tokens) == 1
    second.release()
    third.granted(SOON_S)
    third.release()
    close_all([other, again])


# ---------------------------------------------------------------- C18, C50: the node goes


@pytest.mark.parametrize("redis_is", ["there", "dead", "frozen"])
def test_c18_sigterm_with_waiters(world, redis, redis_is):
    """Broken: the drain hangs on waiters, cuts them off without an answer, or grants a lock to one that it told to go. (C18)"""
    # b only looks on, and may wait for its turn on a busy machine; a's drain lasts as long as it may, since its client holds "own"
    a, b = world.pawld(redis, ["--drain-timeout", "5s", "--store-timeout", "2s"]), world.pawld(redis, PATIENT)
    api = b.api()
    grants = {f"d/{i}": hold(api, f"d/{i}") for i in range(10)}
    own = hold(a.api(), "own")
    waiters = [Waiter(a.address, f"d/{i % 10}", 60_000) for i in range(50)]
    idle = [Conn(a.address) for _ in range(10)]
    assert all(conn.request("GET", "/healthz").status == 200 for conn in idle)
    gone = [Waiter(a.address, f"d/{i}", 60_000) for i in range(5)]
    until(lambda: sum(look(api, lock)["waiters"] for lock in grants) == 55, what="all wait")
    close_all(gone)
    if redis_is == "dead":
        redis.kill9()
    elif redis_is == "frozen":
        redis.sigstop()
    a.signal(signal.SIGTERM)
    start = time.monotonic()
    told = gather(waiters, 20)
    for waiter in told:
        assert (waiter.status, waiter.value["error"]) == (503, "draining"), waiter.value
        assert waiter.conn.at_eof(), "one answer, then the end"
    a.expect_exit(0)
    code = a.wait(20)
    took = time.monotonic() - start
    assert code == 0 and took < 5 + 2 * SOON_S, (code, took)
    assert a.refuses_connections()
    for conn in idle:
        assert conn.at_eof()
    if redis_is == "frozen":
        redis.sigcont()
        until(lambda: all(api.inspect(lock)[0] == 200 for lock in grants), 20, "the other node has Redis again")
    if redis_is != "dead":
        for lock, grant in grants.items():
            shown = look(api, lock)
            assert (shown["token"], shown["held"]) == (grant["token"], True), "leases of others are untouched"
        if redis_is == "there":
            until(lambda: sum(look(api, lock)["waiters"] for lock in grants) == 0, 20, "nobody waits any more")
        assert redis.holds("own"), "the drained node's leases stand too"
        for lock, grant in grants.items():
            api.must("release", lock, lease_id=grant["lease_id"])
            again = api.must("acquire", lock, ttl_ms=500, wait_ms=10_000)
            assert again["token"] > grant["token"]
    else:
        redis.start()
    assert own["token"] > 0


def test_c18_a_release_during_the_drain_grants_nothing_to_who_was_told_to_go(world, redis, name):
    """Broken: the lock goes to a waiter that was answered 503. (C18, P7)"""
    for i in range(15):
        pawld, other = world.pawld(redis), world.pawld(redis) if i == 0 else other
        api = other.api()
        lock = f"{name}/{i}"
        grant = hold(api, lock)
        waiters = [Waiter(pawld.address, lock, 60_000) for _ in range(5)]
        standing(api, lock, 5)
        threading.Timer(i * 0.0005, pawld.signal, [signal.SIGTERM]).start()
        api.must("release", lock, lease_id=grant["lease_id"])
        granted = [w for w in gather(waiters, 20) if w.status == 200]
        assert all(w.status == 200 or w.value["error"] == "draining" for w in waiters), [w.value for w in waiters]
        assert len(granted) <= 1
        if granted:
            assert look(api, lock)["token"] == granted[0].token
            api.must("release", lock, lease_id=granted[0].lease_id)
        assert pawld.wait(30) == 0
        again = Waiter(other.address, lock, 10_000)
        again.granted(SOON_S)
        again.release()
        close_all(waiters)


def test_c18_the_second_sigterm_with_waiters(world, redis):
    """Broken: the second SIGTERM waits for the first one's drain. (C18)"""
    pawld = world.pawld(redis, ["--drain-timeout", "60s", "--store-timeout", "30s"])
    hold(pawld.api(), "x")
    waiters = [Waiter(pawld.address, "x", 60_000) for _ in range(20)]
    standing(pawld.api(), "x", 20)
    redis.sigstop()
    pawld.signal(signal.SIGTERM)
    until(pawld.refuses_connections, what="the drain has begun")
    pawld.expect_exit(0, 1, -signal.SIGTERM, 128 + signal.SIGTERM)
    pawld.signal(signal.SIGTERM)
    start = time.monotonic()
    pawld.wait(20)
    assert time.monotonic() - start < SOON_S + 2
    redis.sigcont()
    close_all(waiters)


@pytest.mark.parametrize("how", ["sigterm", "kill9"])
def test_c50_restart_with_waiters_and_holders(world, redis, name, how):
    """Broken: a restart costs a holder its lease, or leaves its waiters hanging or in the queue. (C50)"""
    old, stays = world.pawld(redis), world.pawld(redis)
    held = {f"{name}/{i}": hold(old.api(), f"{name}/{i}") for i in range(20)}
    waiters = [Waiter(old.address, lock, 60_000) for lock in held for _ in range(3)]
    api = stays.api()
    for lock in held:
        standing(api, lock, 3)
    if how == "sigterm":
        old.signal(signal.SIGTERM)
        for waiter in gather(waiters):
            assert (waiter.status, waiter.value["error"]) == (503, "draining")
        assert old.wait() == 0
    else:
        old.kill9()
        for waiter in waiters:
            with pytest.raises(Closed):
                waiter.answer()
    close_all(waiters)
    old.start()
    for lock, grant in held.items():
        shown = old.api().must("renew", lock, lease_id=grant["lease_id"], ttl_ms=LONG_TTL)
        assert shown["token"] == grant["token"], "no gap, the same token"
    # they come back, and are served in time, whatever the dead left in the queue
    retries = [Waiter(old.address, waiter.name, 60_000, lease_id=waiter.lease_id) for waiter in waiters]
    for retry in retries:
        until(lambda retry=retry: position(api, retry.name, retry.lease_id) > 0, what="back in the queue")
    for lock, grant in held.items():
        old.api().must("release", lock, lease_id=grant["lease_id"])
    released = time.monotonic()
    gather(retries, release="once")
    assert all(retry.status == 200 for retry in retries)
    assert time.monotonic() - released < HEARTBEAT_S + 2 * SOON_S
    until_clean(redis)


def test_kill9_with_waiters_leaves_a_clean_queue(world, redis, name):
    """Broken: clients of a killed node hang, or its waiters stay in the queue. (P8)"""
    a, b = world.pawld(redis), world.pawld(redis)
    api = b.api()
    grant = hold(api, name)
    gone = [Waiter(a.address, name, 600_000) for _ in range(20)]
    standing(api, name, 20)
    a.kill9()
    for waiter in gone:
        with pytest.raises(Closed):
            waiter.answer()
    api.must("release", name, lease_id=grant["lease_id"])
    next_one = Waiter(b.address, name, 30_000)
    next_one.granted(HEARTBEAT_S + SOON_S)
    assert look(api, name)["waiters"] == 0
    next_one.release()
    until_clean(redis)
    assert residue(redis) == []
    close_all(gone)


def test_every_answer_of_a_waiter_is_given_once(pair, name):
    """Broken: a request that was woken, timed out and left at the same time is answered twice, or not at all."""
    a, b = pair.nodes
    api = a.api()
    conns = [Conn(node.address) for node in (a, b) for _ in range(10)]
    grant = hold(api, name)
    for _ in range(10):
        waiters = [Waiter(conn, name, 20 + i, conn=conn) for i, conn in enumerate(conns)]
        gather(waiters)
        assert all(waiter.status == 409 for waiter in waiters)
    for conn in conns:
        assert not conn.answered()
        assert conn.request("GET", "/healthz").status == 200
        conn.close()
    give_up(api, name, grant["lease_id"])


# ---------------------------------------------------------------- awake for a hand-over


def polls(api):
    return api.metrics()["pawl_store_busy_polls_total"]


def test_a_hand_over_and_nothing_else_keeps_the_loop_awake(world, redis, name):
    """Broken: --busy-poll does nothing, or what is no hand-over keeps a core busy. (C46)"""
    nodes = [world.pawld(redis, ["--busy-poll", microseconds]) for microseconds in ("1000", "0")]
    apis = [node.api() for node in nodes]

    def hand_over(holder, waiting):
        grant = hold(apis[holder], name)
        waiter = Waiter(nodes[waiting].address, name, 20_000, ttl_ms=5000)
        standing(apis[holder], name, 1)
        apis[holder].must("release", name, lease_id=grant["lease_id"])
        waiter.granted()
        waiter.release()
        return polls(apis[0])

    for i in range(50):
        apis[0].must("release", name, lease_id=hold(apis[0], name)["lease_id"])
        apis[0].must("release", f"{name}/{i}", lease_id=hold(apis[0], f"{name}/{i}")["lease_id"])
    assert polls(apis[0]) == 0, "nobody waited"
    until(lambda: hand_over(0, 0) > 0, deadline_s=60, what="awake for a hand-over within the node")
    seen = polls(apis[0])
    until(lambda: hand_over(1, 0) > seen, deadline_s=60, what="awake after another node's message")
    hand_over(1, 1)
    assert polls(apis[1]) == 0 and apis[1].metrics()["pawl_store_vain_busy_polls_total"] == 0
