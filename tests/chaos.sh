#!/bin/sh
# Faults by dice against several nodes, and a checker that judges what clients saw. Two at a time at most, each file as a whole: a run wants room.
PAWL_TEST_JOBS=${PAWL_TEST_JOBS:-2}
if [ "$PAWL_TEST_JOBS" -gt 2 ]; then PAWL_TEST_JOBS=2; fi
export PAWL_TEST_JOBS
if [ "$PAWL_TEST_JOBS" -gt 1 ] && "${PYTHON_PYTEST:-/usr/bin/python3}" -c 'import xdist' 2>/dev/null; then
    set -- --dist loadfile "$@"
fi
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" chaos "$@"
