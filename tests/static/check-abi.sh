#!/bin/sh
# What libpawl shows is what its header promises: check-abi.sh
#
# The functions that client/pawl.h declares, those of client/libpawl.map, those that the built libpawl.so exports and those that libpawl.a gives to a
# program are the same; the shared library has its soname and needs no executable stack; and a C++ program compiles against the header without a
# warning, links with either library, and runs (skipped, with a word, where there is no C++ compiler). The program that pawl(3) shows compiles and links.
set -eu

top=${TOP_SRCDIR:-$(dirname "$0")/../..}
build=${TOP_BUILDDIR:-$top/build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0
failed=0

# WHAT FILE: is FILE the list of functions in the header?
same() {
    if cmp -s "$tmp/header" "$2" && [ -s "$2" ]; then
        passed=$((passed + 1))
    else
        echo "check-abi: $1 is not what pawl.h declares:"
        diff "$tmp/header" "$2" || true
        failed=$((failed + 1))
    fi
}

check() {
    what=$1
    shift
    if "$@" >"$tmp/said" 2>&1; then
        passed=$((passed + 1))
    else
        echo "check-abi: $what"
        cat "$tmp/said"
        failed=$((failed + 1))
    fi
}

# declarations begin at the margin; a name is followed by its parameters
sed -n 's/^[a-z].*[ *]\(pawl_[a-z_]*\)(.*/\1/p' "$top/client/pawl.h" | grep -v '_fn$' | LC_ALL=C sort >"$tmp/header"
sed -n 's/^ *\(pawl_[a-z_]*\);$/\1/p' "$top/client/libpawl.map" | LC_ALL=C sort >"$tmp/map"
nm -D --defined-only "$build/libpawl.so.0.0.0" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort >"$tmp/shared"
nm -g --defined-only "$build/libpawl.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[TDBRV]/ { print $3 }' | grep -v '^__odr_asan\|^__asan\|^__ubsan\|^__llvm\|^__gcov' | LC_ALL=C sort >"$tmp/static"
same 'client/libpawl.map' "$tmp/map"
same 'what libpawl.so exports' "$tmp/shared"
same 'what libpawl.a gives' "$tmp/static"
readelf -dW "$build/libpawl.so.0.0.0" >"$tmp/dynamic"
check 'the soname is not libpawl.so.0' grep -Eq 'SONAME.*\[libpawl\.so\.0\]' "$tmp/dynamic"
check 'libpawl.so has an RPATH' sh -c '! grep -Eq "RPATH|RUNPATH" "$0"' "$tmp/dynamic"
check 'libpawl.so has relocations in its code' sh -c '! grep -q TEXTREL "$0"' "$tmp/dynamic"

# what pawl(3) shows for copying; CC may be several words
sed -n '/^\.SH EXAMPLE/,/^\.fi/ { /^\./d; s/\\e/\\/g; s/\\-/-/g; p; }' "$top/docs/man/pawl.3" >"$tmp/example.c"
check 'pawl(3) has no whole program' grep -q '^int main' "$tmp/example.c"
# shellcheck disable=SC2086
check 'compiling the program in pawl(3)' ${CC:-cc} -Wall -Wextra -Werror -I"$top/client" -c -o "$tmp/example.o" "$tmp/example.c"
if [ "${PAWL_SANITIZERS:-no}" != yes ]; then
    # shellcheck disable=SC2086
    check 'linking the program in pawl(3)' ${CC:-cc} -o "$tmp/example" "$tmp/example.o" -L"$build" -lpawl
fi

cat >"$tmp/a.cc" <<'EOC'
#include <pawl.h>

#include <cstdio>
#include <cstring>

static void on_event(void *, pawl_lease *, pawl_event, const pawl_problem *) {}
static int each(void *, const pawl_lock *) { return 0; }

int main()
{
    pawl *client = nullptr;
    pawl_lease *lease = nullptr;
    pawl_problem problem{};
    pawl_acquire_options want{};
    pawl_keep_alive_options keep{};

    keep.on_event = on_event;
    if (pawl_open("unix:/nonexistent/s", &client, &problem) != 0)
        return 1;
    pawl_set_retry_budget(client, 0);
    if (pawl_acquire(client, "a", &want, &lease, &problem) != PAWL_ERR_UNAVAILABLE || problem.code != PAWL_ERR_UNAVAILABLE)
        return 2;
    if (pawl_list(client, nullptr, each, nullptr, nullptr, nullptr) != PAWL_ERR_UNAVAILABLE)
        return 3;
    pawl_close(client);
    std::printf("%s\n", pawl_code_name(PAWL_ERR_HELD));
    return keep.on_event != on_event || std::strcmp(pawl_code_name(0), "ok") != 0;
}
EOC

cxx=${CXX:-c++}
if [ "${PAWL_SANITIZERS:-no}" = yes ]; then
    echo "check-abi: the C++ program is not built here: the libraries hold the sanitizers' code"
elif ! command -v "$cxx" >/dev/null 2>&1; then
    echo "check-abi: the C++ program is not built: there is no $cxx (Debian: g++)"
else
    libs=$(pkg-config --libs libcurl jansson uuid)
    for standard in c++11 c++17; do
        check "pawl.h in $standard" "$cxx" -std=$standard -Wall -Wextra -Wpedantic -Werror -I"$top/client" -c -o "$tmp/a.o" "$tmp/a.cc"
    done
    check 'linking C++ with libpawl.so' "$cxx" -o "$tmp/shared.out" "$tmp/a.o" -L"$build" -lpawl
    check 'running C++ with libpawl.so' env LD_LIBRARY_PATH="$build" "$tmp/shared.out"
    # shellcheck disable=SC2086
    check 'linking C++ with libpawl.a' "$cxx" -o "$tmp/static.out" "$tmp/a.o" "$build/libpawl.a" $libs -pthread
    check 'running C++ with libpawl.a' "$tmp/static.out"
fi
echo "check-abi: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
