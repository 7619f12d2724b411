#!/bin/sh
# Turns files into C: embed-files.sh HEADER ARRAY FILE... >FILE.c
#
# ARRAY is declared in HEADER, as rows of a name, bytes and their number; the rows come in the order of the arguments. Any bytes will do, and they arrive as they are.
set -eu
LC_ALL=C
export LC_ALL

if [ $# -lt 3 ]; then
    echo "usage: embed-files.sh HEADER ARRAY FILE..." >&2
    exit 2
fi
header=$1
array=$2
shift 2

echo '/* Made by build-aux/embed-files.sh. Change the files that it was made from. */'
printf '#include "%s"\n' "$header"
n=0
for file in "$@"; do
    [ -s "$file" ] || {
        echo "embed-files.sh: $file: empty, or not there" >&2
        exit 1
    }
    printf '\nstatic const unsigned char file_%d[] = {\n' "$n"
    od -An -v -tx1 "$file" | sed -e 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
    echo '};'
    n=$((n + 1))
done
printf '\nconst struct page_file %s[] = {\n' "$array"
n=0
for file in "$@"; do
    printf '    {"%s", (const char *)file_%d, sizeof(file_%d)},\n' "$(basename "$file")" "$n" "$n"
    n=$((n + 1))
done
echo '};'
