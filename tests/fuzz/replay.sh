#!/bin/sh
# Feeds each fuzz target the seeds in tests/fuzz/corpus/NAME: what once broke it, or once taught it something, must go on being right.
#
# PAWL_FUZZERS: the names. A target without seeds is a failure, as is a target that lies in tests/fuzz but was not built. The same targets built with
# libFuzzer take -runs=0, which reads the whole of a folder and does nothing more.
set -u

top=${TOP_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
built=${TOP_BUILDDIR:-$top/build}
passed=0
failed=0

for source in "$top"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    name=${name#fuzz_}
    case " ${PAWL_FUZZERS:-} " in
    *" $name "*) ;;
    *)
        echo "$name: tests/fuzz/fuzz_$name.c is not in FUZZERS of tests/tests.am"
        failed=$((failed + 1))
        continue
        ;;
    esac
    seeds=$top/tests/fuzz/corpus/$name
    program=$built/tests/fuzz/fuzz_$name
    if [ -z "$(find "$seeds" -type f 2>/dev/null | head -n 1)" ]; then
        echo "$name: no seeds in tests/fuzz/corpus/$name"
        failed=$((failed + 1))
    elif "$program" -runs=0 "$seeds"; then
        passed=$((passed + 1))
    else
        echo "$name: ended with $?"
        failed=$((failed + 1))
    fi
done
echo "fuzz replay: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
