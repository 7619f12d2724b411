"""What the chaos tests of all houses do: play a run and want nothing, or something, to be found in it."""

import os
import random

from chaos.run import Run
from pawltest.fixtures import LONG

SECONDS = float(os.environ.get("PAWL_CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("PAWL_CHAOS_SEED") or random.SystemRandom().randrange(1 << 31))

LONG_S = 3600
RESTS_S = (0.3, 2.0, 4.5, 6.0, 8.0)  # a recovery is met by the next loss at times, and at times it ends


def breaks_no_promise(run):
    """Plays it. A failure names its seed, its history and its logs, which stay."""
    good = run.go()
    assert good, f"seed {run.seed}, history {run.path}\n" + "\n".join(run.problems) + "\n" + (run.verdict.report() if run.verdict else "")
    print(run.verdict.report())
    assert run.verdict.counts["acquire 200"] > 0, "nothing was granted: nothing was tried"
    return run.verdict


def sabotage_is_found(house, sabotage, seconds):
    """Where chance was kind, it is given another chance. On a machine that starved the nodes, two holders at once may be seen and yet excused."""
    excused = []
    for seed in range(SEED, SEED + 4):
        run = Run(seconds, seed, sabotage, house)
        found = not run.go()
        assert not run.problems, run.problems
        run.discard()
        if found:
            assert "P1" in {promise for promise, _, _ in run.verdict.violations}, run.verdict.report()
            return
        if run.starved:
            excused += [what for what in run.verdict.excused if what.startswith("P1")]
    assert excused, f"{sabotage} was not found with seeds {SEED} to {seed}"


def losses(count, kind, **how):
    """Loses data so often, and wants leases to have been at stake each time on average. Where chance kept a single loss without any, it is given another."""
    count = count if LONG else 1
    for seed in range(SEED, SEED + (1 if LONG else 4)):
        run = Run(LONG_S, seed, kinds=[kind], rests=RESTS_S, count=count, **how)
        verdict = breaks_no_promise(run)
        assert run.counts[kind.act.__name__] == count
        if verdict.counts["leases told before a loss and live after it"] >= count:
            return verdict, count
    raise AssertionError("too little was at stake")
