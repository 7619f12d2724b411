#!/bin/sh
# Turns the Lua scripts into C: embed-scripts.sh PRELUDE [--alone] SCRIPT... >redis_scripts.c
#
# Each script's body is the prelude followed by the script (after --alone: the script and no prelude), without what Redis has no use for: comment-only lines, blank lines, indentation and trailing
# blanks. The SHA1 is of that very body, so that EVALSHA finds it. The rows come in the order of the arguments, which is that of the enum in
# daemon/redis_script.h. Lines are handled one by one, so what spans lines in Lua (long brackets, a string continued by a backslash) is refused rather than
# mangled, and so is any byte that is not printable ASCII, outside of comments.
set -eu
LC_ALL=C
export LC_ALL
awk=${AWK:-awk}

if [ $# -lt 2 ]; then
    echo "usage: embed-scripts.sh PRELUDE [--alone] SCRIPT..." >&2
    exit 2
fi
prelude=$1
shift

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# FILE... -> the body on stdout
strip() {
    "$awk" '
        { gsub(/^[ \t]+/, ""); gsub(/[ \t]+$/, "") }
        /^--\[=*\[/ { refuse("a long comment") }
        $0 == "" || /^--/ { next }
        /\[=*\[/    { refuse("a long bracket") }
        /\\$/       { refuse("a string that goes on in the next line") }
        /[^ -~\t]/  { refuse("a byte that is not printable ASCII") }
                    { print }
        function refuse(what) {
            printf "%s:%d: %s, which embedding would mangle\n", FILENAME, FNR, what >"/dev/stderr"
            failed = 1
            exit 1
        }
        END { exit failed }
    ' "$@"
}

# body on stdin -> lines of a C string. Every '?' is escaped too: two of them could begin a trigraph.
tab=$(printf '\t')
literal() {
    sed -e 's/[\\"?]/\\&/g' -e "s/$tab/\\\\t/g" -e 's/^/    "/' -e 's/$/\\n"/'
}

echo '/* Made by build-aux/embed-scripts.sh from daemon/scripts/. Change those. */'
echo '#include "daemon/redis_script.h"'
rows=$tmp/rows
: >"$rows"
alone=
for script in "$@"; do
    if [ "$script" = --alone ]; then
        alone=yes
        continue
    fi
    name=$(basename "$script" .lua)
    case $name in
    '' | [!a-z]* | *[!a-z0-9_]*)
        echo "embed-scripts.sh: $script: a script's name is made of a-z, 0-9 and _" >&2
        exit 1
        ;;
    esac
    if [ -n "$alone" ]; then
        strip "$script" >"$tmp/body"
    else
        strip "$prelude" "$script" >"$tmp/body"
    fi
    alone=
    sha1=$(sha1sum <"$tmp/body")
    sha1=${sha1%% *}
    printf '\nstatic const char body_of_%s[] =\n' "$name"
    literal <"$tmp/body" >"$tmp/literal"
    sed '$ s/$/;/' "$tmp/literal"
    printf '    {"%s", "%s", body_of_%s, sizeof(body_of_%s) - 1},\n' "$name" "$sha1" "$name" "$name" >>"$rows"
done
printf '\nconst struct redis_script redis_scripts[] = {\n'
cat "$rows"
echo '};'
