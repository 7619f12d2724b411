#!/bin/sh
# The HTTP front, byte by byte.
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" http
