#!/bin/sh
# The generator of daemon/redis_scripts.c: what comes out of the compiled C is byte for byte what should go to Redis, and its SHA1 is the one that Redis computes.
#
# A script full of what C and awk could mangle is embedded, compiled and printed again. Then the scripts of the tree: every body must have its own SHA1 and length, and must
# hold what its source holds, counted in code lines; and it opens with its keys, arguments, answers and invariants. What the generator can't carry over it must refuse.
set -eu

top=$(cd "${TOP_SRCDIR:-$(dirname "$0")/../..}" && pwd)
embed=$top/build-aux/embed-scripts.sh
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0
failed=0

expect() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        printf '%s\n--- wanted:\n%s\n--- got:\n%s\n' "$1" "$2" "$3"
        failed=$((failed + 1))
    fi
}

cat >"$tmp/main.c" <<'EOC'
#include "daemon/redis_script.h"
#include <stdio.h>
#include <stdlib.h>
/* dump N: the Nth body on stdout, "name sha1 length" on stderr */
int main(int argc, char **argv)
{
    const struct redis_script *s = &redis_scripts[argc > 1 ? atoi(argv[1]) : 0];
    fwrite(s->body, 1, s->body_len, stdout);
    fprintf(stderr, "%s %s %zu %d\n", s->name, s->sha1, s->body_len, s->body[s->body_len]);
    return 0;
}
EOC
# FILE of C -> the program "dump"; the sanitizer of the build has no part in it
compile() {
    ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -I"$top" -o "$tmp/dump" "$tmp/main.c" "$1"
}
# INDEX NAME: name, SHA1 and length are those of the bytes
sound() {
    "$tmp/dump" "$1" >"$tmp/out" 2>"$tmp/row"
    sha1=$(sha1sum <"$tmp/out")
    expect "row $1" "$2 ${sha1%% *} $(($(wc -c <"$tmp/out"))) 0" "$(cat "$tmp/row")"
}

# 1. two scripts of awkward text, and what one of them includes
cat >"$tmp/shared.lua" <<'EOL'
-- a story of "two
--   lines" \
local a = "x"
EOL
{
    printf '%s\n' '-- head' '-- include shared.lua' '' '    local q, b = "a\"b", '"'"'c\\d'"'"'   ' '  --not code' 'local t = "??= ??/ %s %.0f & \1 \0"'
    printf 'local tab =\t1 -- kept\n-- \303\244\303\266\nreturn "\\n" .. t[q[1]]'
} >"$tmp/first.lua"
printf '    return 1\n' >"$tmp/second.lua"
sh "$embed" "$tmp/first.lua" "$tmp/second.lua" >"$tmp/scripts.c"
compile "$tmp/scripts.c"
sound 0 first
expect 'first script' "$(printf '%s\n' 'local a = "x"' 'local q, b = "a\"b", '"'"'c\\d'"'"'' 'local t = "??= ??/ %s %.0f & \1 \0"'; printf 'local tab =\t1 -- kept\nreturn "\\n" .. t[q[1]]')" \
    "$(cat "$tmp/out")"
sound 1 second
expect 'a script that includes nothing' 'return 1' "$(cat "$tmp/out")"

# 2. what it must refuse
refuses() {
    printf '%b\n' "$2" >"$tmp/bad.lua"
    if sh "$embed" "$tmp/bad.lua" >/dev/null 2>"$tmp/err"; then
        expect "$1" refused taken
    else
        expect "$1" 1 "$(grep -c 'bad.lua:2: ' "$tmp/err")"
    fi
}
refuses 'a long string' 'local a = 1\nlocal b = [[two]]'
refuses 'a long string of level 1' 'local a = 1\nlocal b = [=[two]=]'
refuses 'a long comment' 'local a = 1\n--[[ two\n]]'
refuses 'a string over two lines' 'local a = 1\nlocal b = "x\0134'
refuses 'bytes that are not ASCII' 'local a = 1\nlocal b = "\0303\0244"'
refuses 'an include of what is not there' 'local a = 1\n-- include none.lua'
refuses 'an include of two' 'local a = 1\n-- include shared.lua shared.lua'
refuses 'an include from elsewhere' 'local a = 1\n-- include ../shared.lua'
cp "$tmp/second.lua" "$tmp/a-b.lua"
if sh "$embed" "$tmp/a-b.lua" >/dev/null 2>&1; then expect 'a name that is none in C' refused taken; else passed=$((passed + 1)); fi
if sh "$embed" "$tmp/none.lua" >/dev/null 2>&1; then expect 'a script that is not there' refused taken; else passed=$((passed + 1)); fi

# 3. the ones of the tree
if [ -f "${TOP_BUILDDIR:-$top/build}/daemon/redis_scripts.c" ]; then
    compile "${TOP_BUILDDIR:-$top/build}/daemon/redis_scripts.c"
    index=0
    sed -n 's/^    {"\([a-z0-9_]*\)", .*/\1/p' "${TOP_BUILDDIR:-$top/build}/daemon/redis_scripts.c" >"$tmp/names"
    while IFS= read -r name; do
        sound "$index" "$name"
        # the script and what it includes
        {
            echo "$name.lua"
            sed -n 's/^-- include //p' "$top/daemon/scripts/$name.lua"
        } >"$tmp/files"
        lines=$(while IFS= read -r f; do cat "$top/daemon/scripts/$f"; done <"$tmp/files" | grep -Evc '^[[:blank:]]*(--.*)?$' || true)
        expect "$name: lines of code" "$lines" "$(($(wc -l <"$tmp/out")))"
        # it opens with what it is called with, what it answers and what it keeps to
        sed '/^--/!q' "$top/daemon/scripts/$name.lua" >"$tmp/story"
        for part in '-- KEYS ' 'ARGV ' '-- Answer' '-- Invariant'; do
            expect "$name: opens with its $part" found "$(grep -q -e "$part" "$tmp/story" && echo found)"
        done
        index=$((index + 1))
    done <"$tmp/names"
    sed -n 's/^-- include //p' "$top"/daemon/scripts/*.lua | sort -u >"$tmp/shared"
    expect 'every script is there' "$(find "$top/daemon/scripts" -name '*.lua' | sed 's/.*\///' | grep -Fxvc -f "$tmp/shared")" "$index"
else
    expect 'daemon/redis_scripts.c' built missing
fi

echo "check-embed: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
