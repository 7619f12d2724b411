"""One kind of loss, again and again, under load and with all nodes alive: no lock is granted twice, no token falls.

By default once each; with PAWL_TEST_LONG=1 as often as it takes to be believed (the numbers are in the tests' names). Nothing happens to the
nodes, so the only excuse for a double grant is a machine that did not let a node run; how many were excused so is printed with the rest.
"""

import os
import shutil

import pytest

from chaos import faults
from chaos.faults import Kind
from chaos.plays import LONG_S, losses


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


@pytest.mark.skipif(not shutil.which((os.environ.get("CC") or "cc").split()[0]), reason="no C compiler for the library that sets the clock")
@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_20_times_without_data_and_the_clock_set_back_an_hour():
    """Broken: the fence begins anew at a clock that is behind. (P1, P2, P3)"""
    verdict, count = losses(20, Kind(faults.redis_lose_back, 1, "all"))
    assert verdict.counts["losses"] == count
