"""A Redis whose wall clock is set, one step at a time: what the dice of the chaos test do among other things. The rows of docs/guarantees.md on clocks."""

import pytest

from chaos.house import Clock, ClockedRedis
from pawltest.wait import always, until

LONG_TTL = 600_000
WINDOW = ["--recovery-window", "3s"]
HOUR_S = 3600


@pytest.fixture
def clocked(world):
    clock = Clock(world.folder())
    if clock.env is None:
        pytest.skip("no C compiler: the clock of Redis can't be set")
    return world.keep(ClockedRedis(clock)).start()


def test_p2_a_clock_set_forward_ends_leases_early_and_their_holders_are_told(world, clocked):
    """Broken: a holder whose lease Redis ended early goes on being confirmed, or the next holder's token is not greater."""
    pawld = world.pawld(clocked, WINDOW)
    api = pawld.api()
    grant = api.must("acquire", "l", ttl_ms=LONG_TTL)
    other = api.must("acquire", "other", ttl_ms=LONG_TTL)
    clocked.clock.shift(HOUR_S)
    until(lambda: api.inspect("l")[1]["held"] is False, 20, "the lease has ended")
    taken = api.must("acquire", "l", ttl_ms=LONG_TTL)
    assert taken["token"] > grant["token"]
    assert api.renew("l", lease_id=grant["lease_id"])[1]["error"] == "lease_lost"
    assert api.release("other", lease_id=other["lease_id"])[1]["error"] == "lease_lost"
    assert api.check("l", token=grant["token"])[1]["error"] == "lease_lost"


def test_p1_a_clock_set_back_lets_leases_last_longer_and_no_less(world, clocked):
    """Broken: a lease ends before its time, or its ttl in replies is more than was asked for. (P1, P5)"""
    pawld = world.pawld(clocked, WINDOW)
    api = pawld.api()
    grant = api.must("acquire", "l", ttl_ms=2000)
    clocked.clock.shift(-HOUR_S)
    always(lambda: api.acquire("l")[1]["error"] == "held", 3, "held for longer than its time")
    renewed = api.must("renew", "l", lease_id=grant["lease_id"], ttl_ms=500)
    assert renewed["ttl_ms"] <= 500 and renewed["token"] == grant["token"]
    until(lambda: api.acquire("l", ttl_ms=LONG_TTL)[0] == 200, 20, "a renewal sets its end by the new time")


def test_p2_p3_a_loss_of_all_data_with_the_clock_an_hour_behind(world, clocked):
    """Broken: Redis comes back without its data and with an earlier time, and a token falls or a lease is granted twice."""
    a, b = world.pawld(clocked, WINDOW), world.pawld(clocked, WINDOW)
    grant = a.api().must("acquire", "l", ttl_ms=LONG_TTL)
    greatest = b.api().must("acquire", "m", ttl_ms=LONG_TTL)["token"]
    clocked.kill9()
    clocked.clock.shift(-HOUR_S)
    clocked.start()
    for node in (a, b):
        until(lambda node=node: node.api().metrics()["pawl_store_attaches_total"] >= 2, 30, "attached anew")
        node.wait_ready()
    assert b.api().acquire("l")[1]["error"] == "held"
    assert a.api().renew("l", lease_id=grant["lease_id"])[1]["token"] == grant["token"]
    assert b.api().must("acquire", "new")["token"] > greatest
