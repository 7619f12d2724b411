#!/bin/sh
# The built pawld has the hardening that configure promises: check-hardening.sh [--self-test | PROGRAM]
#
# PIE, full RELRO with every symbol bound at start, no executable stack, no writable code, the stack protector and FORTIFY in use. Read off the binary, not off the flags. Without
# an argument: first the self-test, in which a small program is built well, then once without each of them, and each lack must be found; then $PAWLD. Skipped (77) where the
# build was configured with --disable-hardening or the sanitizers, which take the place of some of it.
set -eu
# shellcheck source=tests/static/verdict.sh
. "$(dirname "$0")/verdict.sh"
fortify=${PAWL_FORTIFY:-yes}

# PROGRAM -> what it lacks, one word each, on stdout
lacks() {
    head=$(readelf -hW "$1")
    segments=$(readelf -lW "$1")
    dynamic=$(readelf -dW "$1")
    symbols=$(readelf --dyn-syms -W "$1")
    has() { printf '%s\n' "$1" | grep -Eq "$2"; }
    has "$head" 'Type:.*DYN' && has "$dynamic" 'FLAGS_1.*PIE' || echo PIE
    has "$segments" 'GNU_RELRO' || echo RELRO
    has "$dynamic" '\(BIND_NOW\)|FLAGS.*BIND_NOW|FLAGS_1.*NOW' || echo BIND_NOW
    has "$segments" 'GNU_STACK.* RW  *0x' || echo NX
    has "$segments" 'LOAD.* RWE ' && echo W_X
    has "$symbols" '__stack_chk_fail' || echo STACK_PROTECTOR
    if [ "$fortify" = yes ]; then
        has "$symbols" '__[a-z]+_chk(@|$| )' || echo FORTIFY
    fi
    has "$dynamic" 'RPATH|RUNPATH' && echo RPATH
    return 0
}

# PROGRAM -> breaches on stdout
scan() {
    lacking=$(lacks "$1")
    # shellcheck disable=SC2086 # one line of words
    [ -z "$lacking" ] || echo "$1 lacks:" $lacking
}

self_test() {
    begin_self_test
    fortify=yes
    cat >"$tmp/a.c" <<'EOC'
#include <stdio.h>
#include <string.h>
#ifdef WRITABLE_CODE
__asm__(".section .wx,\"awx\",@progbits\n.byte 0\n.previous");
#endif
int main(int argc, char **argv)
{
    char b[64];
    memset(b, argc, sizeof(b));
    strncpy(b, argv[0], (size_t)argc * 8);
    b[63] = 0;
    return printf("%s\n", b) < 0;
}
EOC
    # WANTED FLAG...: with these flags after the good ones, is WANTED what is found lacking?
    try() {
        wanted=$1
        shift
        # shellcheck disable=SC2086
        ${CC:-cc} -O2 -w -fPIE -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack "$@" -o "$tmp/a" "$tmp/a.c" 2>"$tmp/err" || {
            cat "$tmp/err"
            failed=$((failed + 1))
            return 0
        }
        found=$(lacks "$tmp/a" | tr '\n' ' ')
        if [ "$found" = "$wanted" ]; then
            passed=$((passed + 1))
        else
            echo "self-test: with '$*': wanted '$wanted', found '$found'"
            failed=$((failed + 1))
        fi
    }
    try ''
    try 'PIE ' -fno-pie -no-pie
    try 'RELRO ' -Wl,-z,norelro
    try 'BIND_NOW ' -Wl,-z,lazy
    try 'NX ' -Wl,-z,execstack
    try 'W_X ' -DWRITABLE_CODE
    try 'STACK_PROTECTOR ' -fno-stack-protector
    try 'FORTIFY ' -U_FORTIFY_SOURCE
    try 'RPATH ' -Wl,-rpath,/opt
    fortify=${PAWL_FORTIFY:-yes}
    end_self_test
}

if [ -z "${1:-}" ] && { [ "${PAWL_HARDENING:-yes}" != yes ] || [ "${PAWL_SANITIZERS:-no}" != no ]; }; then
    echo "$name: this build was configured without hardening or with sanitizers"
    exit 77
fi
verdict "${1:-}" "${PAWLD:-}"
