#!/bin/sh
# The whole of pawld, over sockets, with a Redis of its own per test. Most tests wait for something.
PAWL_TEST_JOBS=${PAWL_TEST_JOBS:-5}
export PAWL_TEST_JOBS
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" system
