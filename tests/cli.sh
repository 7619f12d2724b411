#!/bin/sh
# The command `pawl`, with real processes, signals and terminals. Most tests wait for a lease to end.
PAWL_TEST_JOBS=${PAWL_TEST_JOBS:-6}
export PAWL_TEST_JOBS
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" cli
