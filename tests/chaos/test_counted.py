"""One kind of loss, again and again, under load and with all nodes alive: no lock is granted twice, no token falls.

By default once or twice each; with PAWL_TEST_LONG=1 as often as it takes to be believed (the numbers are in the tests' names). Nothing happens to the
nodes, so the only excuse for a double grant is a machine that did not let a node run; how many were excused so is printed with the rest.
"""

import pytest

from chaos import faults
from chaos.faults import Kind
from chaos.plays import SEED, breaks_no_promise
from chaos.run import Run
from pawltest.fixtures import LONG

LONG_S = 3600
RESTS_S = (0.3, 2.0, 4.5, 6.0, 8.0)  # a recovery is met by the next loss at times, and at times it ends


def losses(count, kind, **how):
    """Loses data so often, and wants leases to have been at stake each time on average."""
    count = count if LONG else 1
    run = Run(LONG_S, SEED, kinds=[kind], rests=RESTS_S, count=count, **how)
    verdict = breaks_no_promise(run)
    assert run.counts[kind.act.__name__] == count
    assert verdict.counts["leases told before a loss and live after it"] >= count, "too little was at stake"
    return verdict, count


@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_100_times_kill_9_of_a_redis_without_persistence():
    """Broken: what is put back comes too late, or not under its own token. (P1, P2, P3)"""
    verdict, count = losses(100, Kind(faults.redis_lose, 1, "redis"))
    assert verdict.counts["losses"] == count


@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_100_times_flushall():
    """Broken: a loss under connections that stand is not noticed in time. (P1, P2, P3)"""
    verdict, count = losses(100, Kind(faults.redis_flush, 1, "redis"))
    assert verdict.counts["losses"] == count


@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_50_failovers_to_a_replica_that_lags():
    """Broken: what the replica had not been sent is granted again, or its tokens. (P1, P2, P3)"""
    verdict, count = losses(50, Kind(faults.failover_lagging, 1, "redis"), house="sentinel")
    assert verdict.counts["switches"] >= count


@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_20_times_without_data_and_the_clock_set_back_an_hour():
    """Broken: the fence begins anew at a clock that is behind. (P1, P2, P3)"""
    verdict, count = losses(20, Kind(faults.redis_lose_back, 1, "all"))
    assert verdict.counts["losses"] == count
