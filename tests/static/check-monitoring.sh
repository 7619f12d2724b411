#!/bin/sh
# Alert rules and the dashboard ask for metrics that exist: check-monitoring.sh [--self-test | FOLDER]. What is compared is told in check-monitoring.py.
set -eu
python=${PYTHON_PYTEST:-/usr/bin/python3}
exec "$python" "$(dirname "$0")/check-monitoring.py" "$@"
