#!/bin/sh
# The guards of client/guards on the real databases, each started for the suite alone, and the mission's scenario over the built pawld.
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" guards
