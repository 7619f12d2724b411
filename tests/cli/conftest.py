"""The command `pawl` (PAWL) against a built pawld (PAWLD) and a redis-server of each test's own.

    PAWL=build/pawl PAWLD=build/pawld python3 -m pytest tests/cli
    PAWL_TEST_LONG=1                      200 rounds of "never two CMDs at once" instead of 20
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import pytest  # noqa: E402

from pawltest.cli import Runner  # noqa: E402
from pawltest.fixtures import *  # noqa: E402,F401,F403


@pytest.fixture
def runner(request, world):
    """Makes Runners and ends them all; a sanitizer's report in one fails the test."""
    made = []

    def make(*args, **how):
        made.append(Runner(*args, **how))
        return made[-1]

    yield make
    report = getattr(request.node, "pawl_report", None)
    failed = report is None or report.failed
    for it in reversed(made):
        if failed and it.child is not None:
            print(f"--- pawl of {it.tag} (pid {it.pid}), exit {it.child.poll()}:\n{it.stderr()[-2000:]}")
        it.kill9()
    try:
        for it in made:
            it.check()
    finally:
        for it in made:
            it.close()
