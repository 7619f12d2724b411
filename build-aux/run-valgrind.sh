#!/bin/sh
# Runs each program it is given under valgrind: any error and any lost byte is a failure. What is still reachable at the end is not lost.
set -u

suppressions=$(dirname "$0")/valgrind.supp
passed=0
failed=0
CK_FORK=no
CK_DEFAULT_TIMEOUT=600
export CK_FORK CK_DEFAULT_TIMEOUT
for program in "$@"; do
    echo "$program"
    started=$(date +%s)
    if "${VALGRIND:-valgrind}" --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=99 --suppressions="$suppressions" "./$program"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    echo "$(($(date +%s) - started)) s"
done
echo "valgrind: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
