#!/bin/sh
# Runs the pytest suite tests/NAME against a built pawld: run-pytest.sh NAME [PYTEST ARGUMENTS]
#
# Environment, all of it set by `make check` and found when run by hand: PAWLD and PAWL the programs under test, TOP_SRCDIR the sources, PYTHON_PYTEST the Python.
# PAWL_TEST_JOBS: how many workers (4, or what the suite's script says; most tests wait for something), where pytest-xdist is there. PAWL_SUITE_TIMEOUT: after how many seconds the suite is
# ended and has failed (1200, with PAWL_TEST_LONG=1 14400).
set -eu

suite=$1
shift
TOP_SRCDIR=$(cd "${TOP_SRCDIR:-$(dirname "$0")/..}" && pwd)
PAWLD=${PAWLD:-$TOP_SRCDIR/build/pawld}
PAWL=${PAWL:-$TOP_SRCDIR/build/pawl}
python=${PYTHON_PYTEST:-/usr/bin/python3}
jobs=${PAWL_TEST_JOBS:-4}

if [ ! -x "$PAWLD" ]; then
    echo "$suite: there is no program at $PAWLD; build it, or set PAWLD" >&2
    exit 1
fi
if ! "$python" -c 'import pytest' 2>/dev/null; then
    echo "$suite: $python has no pytest (Debian: apt-get install python3-pytest)" >&2
    exit 1
fi
if [ "$jobs" -gt 1 ] && "$python" -c 'import xdist' 2>/dev/null; then
    set -- -n "$jobs" "$@"
fi

# The sources may be read-only (make distcheck), so nothing is written beside them.
PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$TOP_SRCDIR/tests/lib:$TOP_SRCDIR/tests${PYTHONPATH:+:$PYTHONPATH}
export TOP_SRCDIR PAWLD PAWL PYTHONDONTWRITEBYTECODE PYTHONPATH
# Everything that is called is on this machine, and no proxy knows the way there.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
if [ "${PAWL_TEST_LONG:-}" = 1 ]; then limit=14400; else limit=1200; fi
exec timeout --kill-after=20 "${PAWL_SUITE_TIMEOUT:-$limit}" \
    "$python" -m pytest -p no:cacheprovider --rootdir="$TOP_SRCDIR/tests" --color=no -q -ra "$@" "$TOP_SRCDIR/tests/$suite"
