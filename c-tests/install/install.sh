#!/bin/bash
# make install and what follows from it: an AF_XDP program builds through pkg-config and runs, against the shared library,
# with the archive and a dynamic C library, and fully static; as C and C++; with libbpf's old header name; the system's
# libxdp headers stay as they are; the installed command finds the installed library; uninstall leaves nothing.
# usage: install.sh SOURCE_TREE
set -u
tree=$(cd "$1" && pwd) here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $*"; failed=1; }
make() { command make -s -C "$tree" --no-print-directory "$@" >>"$work/make.log" 2>&1 || { cat "$work/make.log"; exit 1; }; }

prefix=$work/usr
make install PREFIX="$prefix"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[ "$(pkg-config --modversion slipring)" = "$(sed -n 's/^version = "\(.*\)"/\1/p;/^version/q' "$tree/Cargo.toml")" ] || complain "version"

# Blanks separate the flags here, as they do on a command line.
dynamic=$(pkg-config --cflags --libs slipring)
static=$(pkg-config --static --cflags --libs slipring)
archive=${static/-lslipring/-l:libslipring.a}
[ "$archive" != "$static" ] || complain "no -lslipring among: $static"
warnings="-Wall -Wextra -Werror -O2"

build() { # NAME COMMAND...
	local name=$1
	shift
	"$@" -o "$work/$name" >"$work/build.log" 2>&1 && return
	complain "building $name: $*"
	cat "$work/build.log"
	return 1
}
try() { # NAME [VARIABLE=VALUE...]
	local name=$1
	shift
	env "$@" SLIPRING_DEVICES=lo0=loop "$work/$name" lo0 >"$work/run.log" 2>&1 && return
	complain "running $name: exit $?"
	cat "$work/run.log"
}
needs_slipring() { readelf -d "$work/$1" | grep -q 'NEEDED.*libslipring.so.0'; }

if build shared cc $warnings "$here/program.c" $dynamic -Wl,--no-undefined; then
	needs_slipring shared || complain "shared: not linked to libslipring.so.0"
	try shared LD_LIBRARY_PATH="$prefix/lib"
fi
build c89 cc -std=gnu89 $warnings "$here/program.c" $dynamic && try c89 LD_LIBRARY_PATH="$prefix/lib"
build cplusplus g++ -std=c++11 $warnings -x c++ "$here/program.c" $dynamic && try cplusplus LD_LIBRARY_PATH="$prefix/lib"
build asneeded cc $warnings -Wl,--as-needed "$here/program.c" $dynamic && try asneeded LD_LIBRARY_PATH="$prefix/lib"
# As the flags come, the linker prefers the shared library; the private libraries must not be in the way.
build private cc $warnings "$here/program.c" $static && try private LD_LIBRARY_PATH="$prefix/lib"
if build archive cc $warnings "$here/program.c" $archive; then
	needs_slipring archive && complain "archive: linked to the shared library all the same"
	try archive
fi
if build static cc -static $warnings "$here/program.c" $static; then
	readelf -d "$work/static" | grep -q NEEDED && complain "static: needs shared libraries"
	grep -q warning "$work/build.log" && { complain "static: the linker warns"; cat "$work/build.log"; }
	try static
fi
# C63: the header's old place, in a program from the time when libbpf had the functions.
sed 's|<xdp/xsk.h>|<bpf/xsk.h>|' "$here/program.c" >"$work/old.c"
build old cc $warnings "$work/old.c" $dynamic && try old LD_LIBRARY_PATH="$prefix/lib"

# Compiled with libxdp's header, relinked to us.
if pkg-config --exists libxdp; then
	build relinked cc $warnings "$here/program.c" $(pkg-config --cflags libxdp) -L"$prefix/lib" -lslipring &&
		try relinked LD_LIBRARY_PATH="$prefix/lib"
	# And linked to libxdp, with us preloaded; through the installed command the same.
	if build preloaded cc $warnings "$here/program.c" $(pkg-config --cflags --libs libxdp); then
		try preloaded LD_PRELOAD="$prefix/lib/libslipring.so.0"
		"$prefix/bin/slipring" run --dev lo0=loop -- "$work/preloaded" lo0 >"$work/run.log" 2>&1 ||
			{ complain "slipring run"; cat "$work/run.log"; }
	fi
fi
"$prefix/bin/slipring" --version >/dev/null || complain "slipring --version"

[ -e "$prefix/include/xdp" ] && complain "installed into the system's xdp/"
make uninstall PREFIX="$prefix"
left=$(find "$prefix" ! -type d)
[ -z "$left" ] || complain "uninstall left $left"

# A package builder's way.
make install DESTDIR="$work/root" PREFIX=/usr libdir=/usr/lib/somewhere includedir=/usr/include bindir=/usr/bin
for file in usr/bin/slipring usr/lib/somewhere/libslipring.so.0 usr/lib/somewhere/libslipring.a \
	usr/lib/somewhere/pkgconfig/slipring.pc usr/include/slipring/xdp/xsk.h usr/include/slipring/bpf/xsk.h; do
	[ -e "$work/root/$file" ] || complain "not in DESTDIR: $file"
done
grep -q "^libdir=/usr/lib/somewhere$" "$work/root/usr/lib/somewhere/pkgconfig/slipring.pc" || complain "libdir in slipring.pc"
grep -rq "$work" "$work/root/usr/lib/somewhere/pkgconfig" && complain "DESTDIR in slipring.pc"
make uninstall DESTDIR="$work/root" PREFIX=/usr libdir=/usr/lib/somewhere includedir=/usr/include bindir=/usr/bin
left=$(find "$work/root" ! -type d)
[ -z "$left" ] || complain "uninstall left $left"
exit $failed
