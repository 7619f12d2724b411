#!/bin/sh
# Faults by dice against several nodes, and a checker that judges what clients saw. One after the other: each run wants the machine for itself.
PAWL_TEST_JOBS=1
export PAWL_TEST_JOBS
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" chaos
