"""The library's own tests: python3 -m pytest tests/lib. They need redis-server and no pawld."""

from pawltest.fixtures import *  # noqa: F401,F403
