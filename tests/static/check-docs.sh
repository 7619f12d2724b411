#!/bin/sh
# The documents say what the tables in the code say: check-docs.sh [--self-test | FOLDER]. What is compared is told in check-docs.py.
set -eu
python=${PYTHON_PYTEST:-/usr/bin/python3}
exec "$python" "$(dirname "$0")/check-docs.py" "$@"
