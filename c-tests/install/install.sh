#!/bin/bash
# What `make install` leaves behind works: one case a run, on an installation that the case make-install makes under PREFIX and
# the case make-uninstall takes away. An AF_XDP program (program.c) is built in each way that programs are, through pkg-config,
# and run.
# usage: install.sh CASE SOURCE_TREE PREFIX     exit: 0, 1, 77 something that the case needs is not there
set -u
case=$1 tree=$(cd "$2" && pwd) prefix=$3 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $*"; failed=1; }
make() { command make -s -C "$tree" --no-print-directory "$@" >>"$work/make.log" 2>&1 || { cat "$work/make.log"; exit 1; }; }
system_pkg_config() { env -u PKG_CONFIG_PATH pkg-config "$@"; }
need_libxdp() { system_pkg_config --exists libxdp || { echo "no libxdp here"; exit 77; }; }

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
as_libxdp=$prefix/lib/slipring
# Blanks separate the flags here, as they do on a command line.
dynamic=$(pkg-config --cflags --libs slipring 2>/dev/null)
static=$(pkg-config --static --cflags --libs slipring 2>/dev/null)
archive=${static/-lslipring/-l:libslipring.a}
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
try_shared() { try "$1" LD_LIBRARY_PATH="$prefix/lib"; }
needs() { readelf -d "$work/$1" | grep -q "NEEDED.*\[$2\]"; }
fully_static() { # NAME
	readelf -d "$work/$1" | grep -q NEEDED && complain "$1: needs shared libraries"
	grep -q warning "$work/build.log" && { complain "$1: the linker warns"; cat "$work/build.log"; }
}

case $case in
make-install)
	rm -rf "$prefix"
	make install PREFIX="$prefix"
	[ "$(pkg-config --modversion slipring)" = "$(sed -n 's/^version = "\(.*\)"/\1/p;/^version/q' "$tree/Cargo.toml")" ] || complain "version"
	"$prefix/bin/slipring" --version >/dev/null || complain "slipring --version"
	# Nothing where the system's libxdp has its files.
	for file in include/xdp include/bpf lib/libxdp.so lib/libxdp.so.1 lib/pkgconfig/libxdp.pc; do
		[ -e "$prefix/$file" ] && complain "installed over the system's $file"
	done
	;;
C63-shared)
	build shared cc $warnings "$here/program.c" $dynamic || exit 1
	needs shared libslipring.so.0 || complain "not linked to libslipring.so.0"
	try_shared shared
	;;
C63-no-undefined) build program cc $warnings "$here/program.c" $dynamic -Wl,--no-undefined && try_shared program ;;
C63-as-needed) build program cc $warnings -Wl,--as-needed "$here/program.c" $dynamic && try_shared program ;;
C63-c89) build program cc -std=gnu89 $warnings "$here/program.c" $dynamic && try_shared program ;;
C63-cplusplus) build program g++ -std=c++11 $warnings -x c++ "$here/program.c" $dynamic && try_shared program ;;
C63-bpf-xsk-h)
	# The header's old place, in a program from the time when libbpf had the functions.
	sed 's|<xdp/xsk.h>|<bpf/xsk.h>|' "$here/program.c" >"$work/old.c"
	build old cc $warnings "$work/old.c" $dynamic && try_shared old
	;;
C63-no-libbpf-headers)
	# The program sees the C library's and the kernel's headers, and ours.
	mkdir "$work/bare"
	for dir in $(cc -E -v -x c /dev/null 2>&1 | sed -n '/^#include </,/^End/s/^ //p'); do
		copy=$work/bare/$(echo "$dir" | tr / _)
		mkdir -p "$copy"
		for entry in "$dir"/*; do
			case ${entry##*/} in bpf | xdp) ;; *) ln -s "$entry" "$copy/" ;; esac
		done
		bare="${bare--nostdinc} -isystem $copy"
	done
	echo '#include <bpf/libbpf.h>' | cc $bare -E -x c - >/dev/null 2>&1 && complain "libbpf's header is in reach"
	build plain cc $warnings $bare "$here/program.c" $dynamic && try_shared plain
	;;
C63-private-libs)
	# As the flags come, the linker prefers the shared library; the private libraries must not be in the way.
	build private cc $warnings "$here/program.c" $static && try_shared private
	;;
C63-archive)
	[ "$archive" != "$static" ] || complain "no -lslipring among: $static"
	build archive cc $warnings "$here/program.c" $archive || exit 1
	needs archive libslipring.so.0 && complain "linked to the shared library all the same"
	try archive
	;;
C63-static)
	build static cc -static $warnings "$here/program.c" $static || exit 1
	fully_static static
	try static
	;;
C63-static-libbpf)
	# libbpf.a defines some of the names that the shared library interposes; the archive leaves them to it. In either order.
	bpf=$(system_pkg_config --static --libs libbpf 2>/dev/null) && echo 'int main(void) { return 0; }' |
		cc -static -x c - -x none $bpf -o /dev/null 2>/dev/null || { echo "no libbpf.a here"; exit 77; }
	whole="-Wl,--whole-archive -lbpf -Wl,--no-whole-archive"
	for order in "$static $bpf" "$bpf $static" "$static $whole $bpf"; do
		build both cc -static $warnings "$here/static-libbpf.c" $order || continue
		# getaddrinfo and the like in libelf's own libraries may warn; names defined twice are errors.
		SLIPRING_DEVICES='*=loop' "$work/both" || complain "exit $?: linked with $order"
	done
	;;
C63-static-libxdp)
	# xsk_* from ours, xdp_* from libxdp.a behind it, which then also has the functions for messages and errors.
	xdp=$(system_pkg_config --static --libs libxdp 2>/dev/null) && echo 'int main(void) { return 0; }' |
		cc -static -x c - -x none $xdp -o /dev/null 2>/dev/null || { echo "no libxdp.a here"; exit 77; }
	cat >"$work/more.c" <<'END'
struct xdp_program;
void xdp_program__close(struct xdp_program *program);
void __attribute__((constructor)) more(void);
void more(void)
{
	xdp_program__close(0);
}
END
	build both cc -static $warnings "$here/program.c" "$work/more.c" $static $xdp || exit 1
	nm "$work/both" | grep -q ' T xdp_program__close' || complain "xdp_* is not libxdp's"
	nm "$work/both" | grep -q '__xsk_setup_xdp_prog' && complain "libxdp's xsk_* is in the program"
	try both
	;;
C63-libxdp-pc)
	# A build that asks pkg-config for libxdp gets Slipring by PKG_CONFIG_PATH alone.
	export PKG_CONFIG_PATH=$as_libxdp/pkgconfig
	pkg-config --exists 'libxdp >= 1.4.0' || complain "QEMU asks for libxdp >= 1.4.0"
	[ "$(pkg-config --variable=libdir libxdp)" = "$prefix/lib" ] || complain "this is another libxdp.pc"
	cat >"$work/Makefile" <<END
CFLAGS += \$(shell pkg-config --cflags libxdp)
LDLIBS += \$(shell pkg-config --libs libxdp)
program: $here/program.c
	\$(CC) \$(CFLAGS) \$< -o \$@ \$(LDLIBS)
END
	CFLAGS=$warnings command make -s -C "$work" program || exit 1
	needs program libslipring.so.0 || complain "not linked to libslipring.so.0"
	needs program libxdp.so.1 && complain "linked to libxdp.so.1"
	try_shared program
	build static cc -static $warnings "$here/program.c" $(pkg-config --static --cflags --libs libxdp) || exit 1
	fully_static static
	try static
	;;
C63-libxdp-so)
	# Linked to the system's libxdp, or with -lxdp to the variant; run on the variant.
	if system_pkg_config --exists libxdp && build foreign cc $warnings "$here/program.c" $(system_pkg_config --cflags --libs libxdp); then
		try foreign LD_LIBRARY_PATH="$as_libxdp"
	fi
	build own cc $warnings "$here/program.c" $(pkg-config --cflags slipring) -L"$as_libxdp" -lxdp || exit 1
	needs own libxdp.so.1 || complain "not linked to libxdp.so.1"
	readelf -V "$work/own" | grep -q 'Name: LIBXDP_1.2.0' || complain "records no version"
	try own LD_LIBRARY_PATH="$as_libxdp"
	;;
C63-relinked)
	# Compiled with libxdp's header, linked to us.
	need_libxdp
	build relinked cc $warnings "$here/program.c" $(system_pkg_config --cflags libxdp) -L"$prefix/lib" -lslipring && try_shared relinked
	;;
C63-preloaded)
	# Linked to libxdp, with us preloaded; through the installed command the same.
	need_libxdp
	build preloaded cc $warnings "$here/program.c" $(system_pkg_config --cflags --libs libxdp) || exit 1
	try preloaded LD_PRELOAD="$prefix/lib/libslipring.so.0"
	"$prefix/bin/slipring" run --dev lo0=loop -- "$work/preloaded" lo0 >"$work/run.log" 2>&1 ||
		{ complain "slipring run"; cat "$work/run.log"; }
	;;
make-uninstall)
	make uninstall PREFIX="$prefix"
	left=$(find "$prefix" ! -type d -o -path "*slipring*")
	[ -z "$left" ] || complain "uninstall left $left"
	rm -rf "$prefix"
	;;
destdir)
	# A package builder's way. The system's own libxdp is there already.
	mkdir -p "$work/root/usr/lib/somewhere/pkgconfig" "$work/root/usr/include/xdp"
	theirs="usr/lib/somewhere/libxdp.so.1 usr/lib/somewhere/libxdp.so usr/lib/somewhere/pkgconfig/libxdp.pc usr/include/xdp/xsk.h"
	for file in $theirs; do echo theirs >"$work/root/$file"; done
	make install DESTDIR="$work/root" PREFIX=/usr libdir=/usr/lib/somewhere includedir=/usr/include bindir=/usr/bin
	for file in usr/bin/slipring usr/lib/somewhere/libslipring.so.0 usr/lib/somewhere/libslipring.a \
		usr/lib/somewhere/pkgconfig/slipring.pc usr/include/slipring/xdp/xsk.h usr/include/slipring/bpf/xsk.h \
		usr/lib/somewhere/slipring/libxdp.so.1 usr/lib/somewhere/slipring/pkgconfig/libxdp.pc; do
		[ -e "$work/root/$file" ] || complain "not in DESTDIR: $file"
	done
	for pc in pkgconfig/slipring.pc slipring/pkgconfig/libxdp.pc; do
		grep -q "^libdir=/usr/lib/somewhere$" "$work/root/usr/lib/somewhere/$pc" || complain "libdir in $pc"
		grep -q "$work" "$work/root/usr/lib/somewhere/$pc" && complain "DESTDIR in $pc"
	done
	make uninstall DESTDIR="$work/root" PREFIX=/usr libdir=/usr/lib/somewhere includedir=/usr/include bindir=/usr/bin
	for file in $theirs; do
		grep -qx theirs "$work/root/$file" || complain "the system's $file was replaced"
		rm -f "$work/root/$file"
	done
	left=$(find "$work/root" ! -type d)
	[ -z "$left" ] || complain "uninstall left $left"
	;;
*)
	complain "no such case: $case"
	;;
esac
exit $failed
