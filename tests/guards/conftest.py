"""The guards of client/guards, on the real servers, and the mission's scenario over the built pawld (PAWLD).

    PAWLD=build/pawld python3 -m pytest tests/guards            (add -n 2 to run two files at a time)
    PAWL_TEST_LONG=1                                            more rounds of racing
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
pytest.register_assert_rewrite("sql_suite")

from pawltest.fixtures import *  # noqa: E402,F401,F403


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """With several workers (pytest-xdist), a file stays on one of them: each file has a server of its own, which is dear to start."""
    if getattr(config.option, "numprocesses", None) and getattr(config.option, "dist", None) == "no":
        config.option.dist = "loadfile"
