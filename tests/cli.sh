#!/bin/sh
# The command `pawl`, with real processes, signals and terminals.
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" cli
