#!/bin/sh
# Memory that has to go back to the system: a matter of the C library's heap, which AddressSanitizer replaces. So it is skipped (77) in a build with the sanitizers, and ./dev test runs it
# in the optimised one.
if [ "${PAWL_SANITIZERS:-no}" != no ]; then
    echo "memory: this build has the sanitizers in it, whose memory is another"
    exit 77
fi
PAWL_TEST_JOBS=1
export PAWL_TEST_JOBS
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" system -k memory_of_a_crowd
