"""P1, P2, P4, P5, P10, P11 and a guarded register under faults by dice, over one Redis."""

import pytest

from chaos.plays import SECONDS, SEED, breaks_no_promise, sabotage_is_found
from chaos.run import SABOTAGE, Run


@pytest.mark.deadline(SECONDS + 300)
def test_chaos_breaks_no_promise():
    """Broken: two holders at once, a token that falls, a lease renewed by who doesn't hold it, a stale write taken. (P1 to P5, P8)"""
    breaks_no_promise(Run(SECONDS, SEED))


@pytest.mark.parametrize("sabotage", sorted(name for house, name in SABOTAGE if house == "single"))
@pytest.mark.deadline(300)
def test_sabotage_is_found(sabotage):
    """Broken: the chaos test passes whatever pawl does."""
    sabotage_is_found("single", sabotage, 8)
