"""Failovers to a replica that lags, again and again, under load and with all nodes alive: see test_counted.py. In a file of its own, since whole files are
what may run beside each other."""

import pytest

from chaos import faults
from chaos.faults import Kind
from chaos.plays import LONG_S, losses


@pytest.mark.deadline(LONG_S + 300)
def test_p1_p2_50_failovers_to_a_replica_that_lags():
    """Broken: what the replica had not been sent is granted again, or its tokens. (P1, P2, P3)"""
    verdict, count = losses(50, Kind(faults.failover_lagging, 1, "redis"), house="sentinel")
    assert verdict.counts["switches"] >= count
