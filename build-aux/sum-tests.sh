#!/bin/sh
# Adds up what `make check` did: sum-tests.sh BUILDDIR... -> "N passed, N failed, N skipped", and exit 1 unless there were tests and none failed.
#
# Each test program leaves a .log (what it said) and a .trs (how automake took it). The counts come from the last line of the log that has any: Check's
# "100%: Checks: 12, Failures: 0, Errors: 0", pytest's "3 failed, 12 passed in 2.5s", a script's "NAME: 3 passed, 0 failed". A program that says nothing of the kind
# counts as one, and one that failed while its counts say otherwise (it crashed, or ran out of time) as one failure more.
set -eu

if [ $# -eq 0 ]; then
    echo "usage: sum-tests.sh BUILDDIR..." >&2
    exit 2
fi
# What failed is named again here, with what it said: this is the end of a long output.
find "$@" -name '*.trs' -exec grep -lE '^:global-test-result: *(FAIL|ERROR|XPASS)' {} + | sort | while IFS= read -r trs; do
    log=${trs%.trs}.log
    echo "failed: $log"
    { grep -aE '^(FAILED|ERROR) |:[EF]:|^E  ' "$log" || true; } | cut -c 1-400 | head -n 60
done
find "$@" -name '*.trs' -print | sort | {
    while IFS= read -r trs; do
        printf '%s ' "$(sed -n 's/^:global-test-result: *//p' "$trs")"
        { grep -aE '^[0-9]+%: Checks: [0-9]+|(^|[ :,=])[0-9]+ (passed|failed|errors?|skipped)' "${trs%.trs}.log" || true; } | tail -n 1
    done
    echo END
} | awk '
    # the number before a word, or 0
    function count(word) {
        return match($0, "[0-9]+ " word) ? substr($0, RSTART, RLENGTH) + 0 : 0
    }
    $1 == "END" { next }
    NF == 0     { next }
    {
        result = $1
        p = f = s = 0
        if (match($0, /Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/)) {
            split(substr($0, RSTART, RLENGTH), part, /[^0-9]+/)
            f = part[3] + part[4]
            p = part[2] - f
        } else {
            p = count("passed")
            f = count("failed") + count("error")
            s = count("skipped")
        }
        if (result == "SKIP")
            s += (p + f + s == 0)
        else if (result == "PASS")
            p += (p + f + s == 0)
        else
            f += (f == 0)
        passed += p
        failed += f
        skipped += s
    }
    END {
        printf "%d passed, %d failed", passed, failed
        if (skipped > 0)
            printf ", %d skipped", skipped
        printf "\n"
        exit !(passed > 0 && failed == 0)
    }'
