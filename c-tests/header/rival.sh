#!/bin/bash
# Where another xsk_* wins over a preloaded Slipring, one line says so, at the first AF_XDP socket; everywhere else none does.
# usage: rival.sh LIBRARY
set -u
library=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $*"; failed=1; }

build() { # NAME FLAGS...
	local name=$1
	shift
	cc -Wall -Werror "$here/rival.c" "$@" -o "$work/$name" || exit 1
}
says() { # LINES WHOSE PRELOAD PROGRAM ARGS...
	local lines=$1 whose=$2 preload=$3 devices
	shift 3
	# With and without engine interfaces: it is about the program, not about the device.
	for devices in 'zz0=null' ''; do
		env LD_PRELOAD="$preload" ${devices:+SLIPRING_DEVICES="$devices"} "$@" >"$work/out" 2>&1
		[ "$(grep -c '^slipring: ' "$work/out")" -eq "$lines" ] || complain "not $lines line(s): $*: $(cat "$work/out")"
		[ "$lines" -eq 0 ] || grep -qF "those of $whose, not Slipring's" "$work/out" || complain "$whose is not named: $(cat "$work/out")"
	done
}

build exported -DCOPY -rdynamic
build hidden -DCOPY
build plain
build other.so -DCOPY -DLIBRARY -shared -fPIC
says 1 "$work/exported" "$library" "$work/exported" 1
says 1 "$work/exported" "$library" "$work/exported" 3
says 0 - "$library" "$work/exported" 0
# Not in the dynamic table: cannot be told from a program that makes the system calls itself.
says 0 - "$library" "$work/hidden" 1
says 0 - "$library" "$work/plain" 1
# Another preload before ours, and behind it.
says 1 "$work/other.so" "$work/other.so $library" "$work/plain" 2
says 0 - "$work/other.so $library" "$work/plain" 0
says 0 - "$library $work/other.so" "$work/plain" 2
# A program linked to a library with xsk_* is what a preload is for; also where it takes a function's address, which in a
# program at a fixed place lies in the program itself.
for kind in "-no-pie -fno-pie" "-pie -fPIE"; do
	build linked -DPOINTER $kind "$work/other.so" -Wl,-rpath,"$work"
	says 0 - "$library" "$work/linked" 1
done
# Linked to Slipring, and another one comes first.
build ours -DPOINTER "$library" -Wl,-rpath,"$(dirname "$library")"
says 0 - "" "$work/ours" 1
says 1 "$work/other.so" "$work/other.so" "$work/ours" 1
# Every command under a preload: silent.
says 0 - "$work/other.so $library" sh -c 'true; ls / >/dev/null'
exit $failed
