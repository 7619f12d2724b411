#!/bin/sh
# libpawl with eight threads under ThreadSanitizer: run-tsan.sh SOURCES... (make tsan-check)
#
# Builds the library and its threads test anew, since all of a program must be built for it, and runs it. Any report is a failure.
# Environment: CC, TOP_SRCDIR, PAWLD, TSAN_FLAGS (what else to compile with), TSAN_LIBS.
set -eu

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
cd "$TOP_SRCDIR"
# shellcheck disable=SC2086 # lists of words
"${CC:-cc}" -std=gnu11 -g -O1 -fsanitize=thread -D_GNU_SOURCE -DPACKAGE_VERSION='"tsan"' -I. ${TSAN_FLAGS:-} "$@" -o "$tmp/threads" ${TSAN_LIBS:-} -pthread
CK_FORK=no PAWL_TEST_ROUNDS=${PAWL_TEST_ROUNDS:-20} TSAN_OPTIONS=halt_on_error=0:exitcode=66 "$tmp/threads"
echo "tsan: 1 passed, 0 failed"
