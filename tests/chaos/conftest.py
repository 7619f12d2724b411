"""The chaos test: `python3 -m chaos.run` as tests, and what shows that it sees.

    PAWLD=build/pawld tests/run-pytest.sh chaos
    PAWL_CHAOS_SECONDS, PAWL_CHAOS_SEED     the length of the run (30) and its seed (by chance)
"""

import sys
from pathlib import Path

for folder in (Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[1] / "lib"):
    sys.path.insert(0, str(folder))

from pawltest.fixtures import pytest_configure, pytest_runtest_makereport, pytest_runtest_protocol, world  # noqa: E402,F401
