#!/bin/sh
# The whole of pawld, over sockets, with a Redis of its own per test.
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" system
