#!/bin/sh
# Nothing lies in the tree that the build doesn't know: check-lists.sh [--self-test | FOLDER]
#
# A source that no list names is not built, a test that no list names is not run, a page that no list names is not in the tarball; none of them would be
# missed. So each must stand, as a whole word, in Makefile.am or a fragment of it; the Lua scripts must stand there in the order of the enum in daemon/redis_script.h;
# and what a list names must be there.
set -eu
# shellcheck source=tests/static/verdict.sh
. "$(dirname "$0")/verdict.sh"
AWK=${AWK:-awk}

# FOLDER -> breaches on stdout
scan() {
    (
        cd "$1"
        # every word of the build files, comments aside
        words=$(find . -maxdepth 3 -name '*.am' ! -path './build*' -print | sort | xargs sed -e '/^#/d' | tr -s '=+ \t\\()' '\n')
        {
            for place in proto daemon client docs; do
                if [ -d "$place" ]; then find "$place" -name '*.[ch]' -o -name '*.lua' -o -name '*.md' -o -name '*.yaml' -o -name '*.pml'; fi
            done
            for place in tests/lib tests/sim tests/store; do
                if [ -d "$place" ]; then find "$place" -name '*.[ch]' ! -name 'test_*.c'; fi
            done
            for place in daemon/page share docs/images; do
                if [ -d "$place" ]; then find "$place" -type f ! -name '*.am'; fi
            done
            if [ -d tests/bench ]; then find tests/bench -name '*.[ch]' -o -name '*.py'; fi
            if [ -d tests/static ]; then find tests/static -name '*.sh' -o -name '*.py'; fi
            for place in packaging debian; do
                # what a build of the packages leaves there is debhelper's
                if [ -d "$place" ]; then
                    find "$place" -type f ! -path 'debian/.debhelper/*' ! -path 'debian/tmp/*' ! -name '*debhelper*' ! -name 'autoreconf.*' ! -name '*.substvars' \
                        ! -path debian/files
                fi
            done
            if [ -d docs/recipes ]; then find docs/recipes -type f; fi
            # programs of the tests stand there without their .c
            for place in tests/unit tests/sim tests/store; do
                if [ -d "$place" ]; then find "$place" -name 'test_*.c' | sed 's/\.c$//'; fi
            done
            if [ -d tests/fuzz ]; then find tests/fuzz -name '*.c'; fi
        } | sort | {
            while IFS= read -r f; do
                printf '%s\n' "$words" | grep -Fxq -e "$f" || echo "$f: no list in a .am file names it"
            done
        }
        printf '%s\n' "$words" | grep -E '^(proto|daemon|client|tests|docs)/[^$*]*\.(c|h|lua|md|yaml|pml|sh|py)$' | grep -Fxv -e daemon/redis_scripts.c -e daemon/page_files.c | sort -u | {
            while IFS= read -r f; do
                [ -f "$f" ] || echo "$f: a list names it and it isn't there"
            done
        }
        if [ -f daemon/redis_script.h ]; then
            enum=$(sed -n 's/^ *SCRIPT_\([A-Z0-9_]*\),.*/\1/p' daemon/redis_script.h | grep -vx COUNT | tr -d _ | tr 'A-Z\n' 'a-z ')
            included=$(sed -n 's/^-- include \([a-z0-9_]*\)\.lua$/\1/p' daemon/scripts/*.lua | sort -u)
            list=$(printf '%s\n' "$words" | sed -n 's/^daemon\/scripts\/\([a-z0-9_]*\)\.lua$/\1/p' | grep -Fxv -e "$included" | tr -d _ | tr '\n' ' ')
            [ "$enum" = "$list" ] || echo "daemon/daemon.am: scripts ($list) are not those of the enum ($enum)"
        fi
    )
}

self_test() {
    begin_self_test
    # WHAT WANTED: is what was done to a sound tree found as WANTED ("-": nothing)?
    try() {
        found=$(scan "$tmp/tree")
        if { [ "$2" = - ] && [ -z "$found" ]; } || { [ "$2" != - ] && printf '%s\n' "$found" | grep -q "$2"; }; then
            passed=$((passed + 1))
        else
            echo "self-test: $1: wanted '$2', found '$found'"
            failed=$((failed + 1))
        fi
        sound
    }
    sound() {
        rm -rf "$tmp/tree"
        mkdir -p "$tmp/tree/daemon/scripts" "$tmp/tree/tests/unit" "$tmp/tree/docs"
        : >"$tmp/tree/Makefile.am"
        printf 'x_SOURCES = \\\n\tdaemon/a.c daemon/a.h\n# daemon/b.c\nS = daemon/scripts/shared.lua daemon/scripts/one.lua daemon/redis_script.h\nLUA = \\\n\tdaemon/scripts/two.lua\nTESTS = tests/unit/test_a\nD = docs/a.md\n' \
            >"$tmp/tree/daemon/daemon.am"
        printf 'enum x {\n    SCRIPT_ONE,\n    SCRIPT_TWO,\n    SCRIPT_COUNT\n};\n' >"$tmp/tree/daemon/redis_script.h"
        for f in daemon/a.c daemon/a.h daemon/scripts/one.lua daemon/scripts/two.lua tests/unit/test_a.c docs/a.md daemon/scripts/shared.lua; do : >"$tmp/tree/$f"; done
        echo '-- include shared.lua' >"$tmp/tree/daemon/scripts/two.lua"
    }
    sound
    try 'nothing' -
    : >"$tmp/tree/daemon/b.c"
    try 'a source that only a comment names' '^daemon/b.c: no list'
    : >"$tmp/tree/daemon/aa.c"
    try 'a source whose name is part of a listed one' '^daemon/aa.c: no list'
    : >"$tmp/tree/tests/unit/test_b.c"
    try 'a test' '^tests/unit/test_b: no list'
    : >"$tmp/tree/docs/b.md"
    try 'a page' '^docs/b.md: no list'
    mkdir "$tmp/tree/docs/model"
    : >"$tmp/tree/docs/model/a.pml"
    try 'a model' '^docs/model/a.pml: no list'
    mkdir "$tmp/tree/docs/recipes"
    : >"$tmp/tree/docs/recipes/a.rb"
    try 'a recipe' '^docs/recipes/a.rb: no list'
    mkdir "$tmp/tree/daemon/page"
    : >"$tmp/tree/daemon/page/a.css"
    try 'a file of the page' '^daemon/page/a.css: no list'
    : >"$tmp/tree/daemon/scripts/three.lua"
    try 'a script' '^daemon/scripts/three.lua: no list'
    mkdir "$tmp/tree/debian"
    : >"$tmp/tree/debian/rules"
    try 'a file of the packages' '^debian/rules: no list'
    rm "$tmp/tree/daemon/a.h"
    try 'a header that is gone' "^daemon/a.h: a list names it"
    printf 'enum x {\n    SCRIPT_TWO,\n    SCRIPT_ONE,\n    SCRIPT_COUNT\n};\n' >"$tmp/tree/daemon/redis_script.h"
    try 'another order of scripts' '^daemon/daemon.am: scripts'
    end_self_test
}

verdict "${1:-}" "${TOP_SRCDIR:-$(dirname "$0")/../..}"
