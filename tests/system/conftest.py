"""The system tests drive the built pawld (PAWLD) over real sockets, over a redis-server of each test's own.

    PAWLD=build/pawld python3 -m pytest tests/system            (add -n 4 to run four at a time)
    PAWL_TEST_LONG=1                                            full sizes where a test has a short one
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from pawltest.fixtures import *  # noqa: E402,F401,F403
