#!/bin/sh
# The manual pages of pawld say what the rows of its options say: check-man.sh [--self-test | --write | FOLDER]. What is compared is told in check-man.py.
set -eu
python=${PYTHON_PYTEST:-/usr/bin/python3}
exec "$python" "$(dirname "$0")/check-man.py" "$@"
