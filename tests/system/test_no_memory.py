"""Allocations that fail, one after the other: each costs a call or a connection, and never the process, a lease that stands in Redis, or the truth."""

import threading

import pytest

from pawltest.fixtures import LONG
from pawltest.http import Api, Closed, lock_path
from pawltest.memory import Shortage
from pawltest.pawld import binary
from pawltest.residue import residue
from pawltest.wait import until
from pawltest.waiters import LONG_TTL, new_id

ALLOCATIONS = 250  # more than the calls below make
TTL_MS = 3000


@pytest.fixture
def shortage(world):
    return Shortage(world, binary())


def asked(api, verb, *args, **params):
    """(status, reply); nothing when the connection was closed without an answer."""
    try:
        status, value = getattr(api, verb)(*args, **params)[:2]
    except (Closed, OSError):
        return None, {}
    assert status in (200, 409, 410, 429, 503), f"that is not what a lack of memory is: {status} {value}"
    return status, value


def in_redis(redis, name, lease_id):
    return (redis.command("GET", redis.lock_key(name)) or "").startswith(lease_id)


def a_lease_and_its_next(pawld, redis, name, calls):
    """Acquires, lets another wait, renews, asks, and hands over. What is told must be so."""
    one, two = Api(pawld.address), Api(pawld.address)
    first, second = new_id(), new_id()
    told = []

    def wait():
        told.append(asked(two, "acquire", name, ttl_ms=TTL_MS, wait_ms=1000, lease_id=second)[0])

    granted = asked(one, "acquire", name, ttl_ms=TTL_MS, owner="somebody with a name", lease_id=first)[0] == 200
    assert not granted or in_redis(redis, name, first), "told of a lease that is not in Redis"
    waiter = threading.Thread(target=wait)
    waiter.start()
    calls(one)
    status = asked(one, "renew", name, ttl_ms=TTL_MS, lease_id=first)[0]
    assert not granted or status != 410, "told that it is lost"
    assert status != 200 or in_redis(redis, name, first), "told of a renewal that is not in Redis"
    asked(one, "release", name, lease_id=first)
    waiter.join()
    if told == [200]:
        assert in_redis(redis, name, second), "told of a lease that is not in Redis"
        asked(two, "release", name, lease_id=second)
    one.close()
    two.close()


def well(pawld, name):
    """It serves new clients."""
    api = Api(pawld.address)
    try:
        status, lease = api.acquire(name, ttl_ms=TTL_MS)
        return status == 200 and api.release(name, lease_id=lease["lease_id"])[0] == 200
    except (Closed, OSError):
        return False
    finally:
        api.close()


def other_calls(api):
    asked(api, "inspect", "other")
    asked(api, "list", prefix="o")
    try:
        status, value, _ = api.call("POST", "/v1/renew", {"leases": [{"name": "o" * 40, "lease_id": new_id()}], "ttl_ms": TTL_MS})
    except (Closed, OSError):
        return
    assert status in (200, 429, 503), value


@pytest.mark.deadline(1200)
@pytest.mark.parametrize("what", ["calls", "the connection to Redis is lost"])
def test_p9_an_allocation_that_fails_costs_a_call_or_a_connection_and_nothing_else(world, redis, shortage, what):
    """Broken: without memory for one thing pawld ends, hangs, tells of a lease that isn't there or of a mistake that the client did not make, or leaves something
    behind. (P1, P8, P9)"""
    proxy = world.proxy((redis.host, redis.port))
    pawld = world.pawld(proxy.redis_url, ["--store-timeout", "3s"], env=shortage.env)
    for count in (1, 40) if LONG else (1,):
        for granted in range(0, ALLOCATIONS, 1 if LONG else 16):
            shortage.of_memory(granted, count)
            a_lease_and_its_next(pawld, redis, f"l{granted}", other_calls if what == "calls" else lambda api: proxy.cut())
            shortage.over()
            assert pawld.running(), (granted, count)
            until(lambda at=granted: well(pawld, f"after{at}"), 60, f"it is well again after {granted}")
    assert shortage.failed >= ALLOCATIONS // 16 // 2
    assert not [line for line in pawld.log("store_link_down") if "protocol" in line["problem"]]
    until(lambda: not residue(redis), 60, "all that was left has ended")
    samples = pawld.api().metrics()
    assert (samples["pawl_waiters"], samples["pawl_store_pending"], samples["pawl_store_waiting"]) == (0, 0, 0)


@pytest.mark.deadline(600)
def test_p9_a_start_without_memory_fails_with_a_sentence_or_not_at_all(world, redis, shortage):
    """Broken: a pawld that could not be put together goes on without a part of it, or ends without a word. (P9)"""
    for granted in range(0, 160, 1 if LONG else 19):
        pawld = world.pawld(redis, start=False, env=shortage.env)
        shortage.of_memory(granted)
        pawld.start(wait=None)
        until(lambda it=pawld: not it.running() or (it.addresses() and well(it, "start")), 60, "it has started, or not")
        shortage.over()
        if pawld.running():
            assert pawld.stop() == 0
        else:
            pawld.expect_exit(1, 2)
            assert "memory" in pawld.stderr() or "problem" in pawld.stderr(), pawld.stderr()
        pawld.check()


def test_p9_a_connection_to_redis_that_the_loop_does_not_watch_is_given_up(world, shortage):
    """Broken: when the kernel has no memory for watching it, the connection stays, and its answers are found when a deadline looks for them. (P9)"""
    redis = world.redis(unix=True)
    pawld = world.pawld(redis, ["--store-timeout", "20s"], env=shortage.env)
    api = pawld.api()
    conns = [pawld.conn() for _ in range(250)]
    for conn in conns:
        assert conn.request("GET", "/healthz").status == 200
    redis.sigstop()
    before = shortage.failed
    for i, conn in enumerate(conns):  # more than the socket takes: the rest waits for room
        conn.send_request("POST", lock_path(f"{i:n>255}", "acquire"), {"ttl_ms": LONG_TTL, "wait_ms": 60000, "owner": "o" * 255})
    until(lambda: api.metrics()["pawl_store_pending"] >= 250, what="all are sent")
    shortage.of_watches(0, 1)
    redis.sigcont()
    until(lambda: shortage.failed > before, what="nothing waits for room any more")
    until(lambda: well(pawld, "after"), what="it is well")
    assert min(api.cycle_s("after") for _ in range(5)) < 5
