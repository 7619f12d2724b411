#!/bin/sh
# The recipes of docs/recipes, each on its real runtime over the built pawld, held to one behaviour. Most of them wait most of the time.
PAWL_TEST_JOBS=${PAWL_TEST_JOBS:-8}
export PAWL_TEST_JOBS
exec "${TOP_SRCDIR:-$(dirname "$0")/..}/tests/run-pytest.sh" recipes
