#!/bin/sh
# Turns the Lua scripts into C: embed-scripts.sh SCRIPT... >redis_scripts.c
#
# A line "-- include FILE" stands for the file of that name in the script's folder. A body is a script without what Redis has no use for:
# comment-only lines, blank lines, indentation and trailing blanks. The SHA1 is of that very body, so that EVALSHA finds it. The rows come in the order of the arguments, which is that of the enum in
# daemon/redis_script.h. Lines are handled one by one, so what spans lines in Lua (long brackets, a string continued by a backslash) is refused rather than
# mangled, and so is any byte that is not printable ASCII, outside of comments.
set -eu
LC_ALL=C
export LC_ALL
awk=${AWK:-awk}

if [ $# -lt 1 ]; then
    echo "usage: embed-scripts.sh SCRIPT..." >&2
    exit 2
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# FILE -> the file with its includes put in, on stdout
expand() {
    "$awk" '
        /^-- include / {
            if ($3 !~ /^[a-z_]+[.]lua$/ || NF != 3) {
                printf "%s:%d: not the name of a file to include\n", FILENAME, FNR >"/dev/stderr"
                exit 1
            }
            file = FILENAME
            sub(/[^\/]*$/, "", file)
            file = file $3
            lines = 0
            while ((got = (getline line < file)) > 0) {
                print line
                lines++
            }
            close(file)
            if (got < 0 || lines == 0) {
                printf "%s:%d: %s cannot be read\n", FILENAME, FNR, file >"/dev/stderr"
                exit 1
            }
            next
        }
        { print }
    ' "$1"
}

# FILE NAME -> the body on stdout; faults are told of NAME, in lines of the script with its includes put in
strip() {
    "$awk" -v name="$2" '
        { gsub(/^[ \t]+/, ""); gsub(/[ \t]+$/, "") }
        /^--\[=*\[/ { refuse("a long comment") }
        $0 == "" || /^--/ { next }
        /\[=*\[/    { refuse("a long bracket") }
        /\\$/       { refuse("a string that goes on in the next line") }
        /[^ -~\t]/  { refuse("a byte that is not printable ASCII") }
                    { print }
        function refuse(what) {
            printf "%s:%d: %s, which embedding would mangle\n", name, FNR, what >"/dev/stderr"
            failed = 1
            exit 1
        }
        END { exit failed }
    ' "$1"
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
for script in "$@"; do
    name=$(basename "$script" .lua)
    case $name in
    '' | [!a-z]* | *[!a-z0-9_]*)
        echo "embed-scripts.sh: $script: a script's name is made of a-z, 0-9 and _" >&2
        exit 1
        ;;
    esac
    expand "$script" >"$tmp/whole"
    strip "$tmp/whole" "$script" >"$tmp/body"
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
