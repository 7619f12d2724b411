#!/bin/sh
# Debian's packages, from the tarball's files: built, judged by lintian, and lived with in a clean system. It takes minutes, root and a mirror, so it runs when it
# is asked for: PAWL_TEST_LONG=1, or ./dev deb --test.
set -eu
: "${TOP_SRCDIR:?}" "${TOP_BUILDDIR:?}"

skip() {
    echo "deb: 1 skipped: $1"
    exit 77
}

[ "${PAWL_TEST_LONG:-}" = 1 ] || skip "PAWL_TEST_LONG=1 runs it"
[ "$(id -u)" -eq 0 ] || skip "it needs root"
for program in debootstrap dpkg-buildpackage dh lintian unshare ip; do
    command -v "$program" >/dev/null || skip "$program is missing"
done
rm -rf "$TOP_BUILDDIR/deb"
mkdir "$TOP_BUILDDIR/deb"
make -C "$TOP_BUILDDIR" --no-print-directory distdir distdir=deb/source >"$TOP_BUILDDIR/deb/distdir.log" 2>&1
"$TOP_SRCDIR/packaging/deb/build" "$TOP_BUILDDIR/deb/source" "$TOP_BUILDDIR/deb/packages"
exec "$TOP_SRCDIR/packaging/deb/test" "$TOP_BUILDDIR/deb/packages"
