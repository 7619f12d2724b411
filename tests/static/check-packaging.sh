#!/bin/sh
# What packages, the image and the manifests say of pawl is so: check-packaging.sh [--self-test | FOLDER]. What is compared is told in check-packaging.py.
set -eu
python=${PYTHON_PYTEST:-/usr/bin/python3}
exec "$python" "$(dirname "$0")/check-packaging.py" "$@"
