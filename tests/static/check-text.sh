#!/bin/sh
# What no text in the tree may hold: check-text.sh [--self-test | FOLDER]
#
# Paths of somebody's machine, notes of unfinished work, blanks at line ends, carriage returns, tabs in sources that are indented by blanks, conflict markers, a last line without its end.
# Without an argument: first the self-test, in which each of them is planted and must be found, then the tree. Corpora and transcripts are bytes, not text.
set -eu
# shellcheck source=tests/static/verdict.sh
. "$(dirname "$0")/verdict.sh"
AWK=${AWK:-awk}

# The words are put together here, so that this file doesn't hold them.
unfinished="TO""DO|FIX""ME|XX""X"
machine="/wo""rk/|/ho""me/[a-z]|/ro""ot/|/Us""ers/[A-Za-z]"

# FOLDER -> breaches on stdout
scan() {
    (
        cd "$1"
        for place in proto daemon client tests docs build-aux packaging debian .ci; do
            if [ -d "$place" ]; then find "$place" \( -name corpus -o -name transcripts -o -name __pycache__ -o -name .pytest_cache \) -prune -o -type f ! -name '*.png' -print; fi
        done
        for place in dev configure.ac Makefile.am README.md CHANGELOG.md LICENSE; do
            if [ -f "$place" ]; then echo "$place"; fi
        done
    ) | grep -Ev '^build-aux/(ar-lib|compile|depcomp|install-sh|missing|test-driver)$|~$' | sort | while IFS= read -r f; do
        # these need the whole file
        if [ -s "$1/$f" ] && [ -n "$(tail -c 1 "$1/$f")" ]; then echo "$f: the last line has no end"; fi
        LC_ALL=C "$AWK" -v f="$f" -v unfinished="(^|[^A-Za-z0-9_])($unfinished)([^A-Za-z0-9_]|\$)" -v machine="(^|[^A-Za-z0-9_.])($machine)" '
            function breach(why) { printf "%s:%d: %s\n", f, FNR, why }
            /\r/                                       { breach("a carriage return") }
            /[ \t]$/                                   { breach("a blank at the end of the line") }
            f ~ /\.(c|h|lua|py|sh|yaml|md)$/ && /\t/   { breach("a tab") }
            /^(<<<<<<<|>>>>>>>) /                      { breach("a conflict marker") }
            $0 ~ unfinished                            { breach("a note of unfinished work") }
            $0 ~ machine                               { breach("a path of one machine") }
        ' "$1/$f"
    done
}

self_test() {
    begin_self_test
    # FILE WANTED FORMAT: is FORMAT, written to FILE, found as WANTED ("-": not at all)?
    try() {
        rm -rf "$tmp/tree"
        mkdir -p "$tmp/tree/$(dirname "$1")"
        # shellcheck disable=SC2059
        printf "$3" >"$tmp/tree/$1"
        found=$(scan "$tmp/tree")
        if { [ "$2" = - ] && [ -z "$found" ]; } || { [ "$2" != - ] && printf '%s\n' "$found" | grep -q "$2"; }; then
            passed=$((passed + 1))
        else
            echo "self-test: $1 with '$3': wanted '$2', found '$found'"
            failed=$((failed + 1))
        fi
    }
    try proto/a.c - 'int a; /* todo lists and https://example.org/homework/x are fine, and so is $TMPDIR or /tmp */\n'
    try proto/a.c 'end of the line' 'int a; \n'
    try docs/a.md 'end of the line' 'words\t\n'
    try daemon/a.c 'a tab' '\tint a;\n'
    try daemon/scripts/a.lua 'a tab' 'x =\t1\n'
    try daemon/daemon.am - 'all:\n\tmake\n'
    try Makefile.am - 'all:\n\tmake\n'
    try tests/http/test_a.py 'carriage' 'a = 1\r\n'
    try README.md 'no end' 'words'
    try daemon/a.h 'unfinished' '/* '"TO""DO"': more */\n'
    try dev 'unfinished' '# '"FIX""ME"'\n'
    try docs/a.md 'one machine' 'see /wo''rk/main\n'
    try tests/system/a.py 'one machine' 'x = "/ho''me/ann/pawl"\n'
    try configure.ac 'one machine' 'PATH=/ro''ot/bin\n'
    try CHANGELOG.md 'conflict' '<<<<<<< ours\n'
    try tests/fuzz/corpus/http_reader/a - 'GET / HTTP/1.1\r\n \r\n\r\n'
    end_self_test
}

verdict "${1:-}" "${TOP_SRCDIR:-$(dirname "$0")/../..}"
