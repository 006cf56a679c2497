#!/bin/bash
# Every public header, compiled alone and twice in one file, by one compiler: all language versions that it knows, with and
# without libbpf's headers in reach, with the kernel headers of this machine and with the oldest that know AF_XDP, as the
# library header that it is (no warnings of its own) and, strictly, as if it were the program's own text.
# usage: matrix.sh COMPILER INCLUDE_DIR [-m32]     exit: 0, 1 a combination failed, 77 no such compiler
set -u
compiler=$1 include=$2 mode=${3-} here=$(cd "$(dirname "$0")" && pwd)
command -v "$compiler" >/dev/null || { echo "no $compiler here"; exit 77; }
echo '#include <stdio.h>' | "$compiler" $mode -x c -c - -o /dev/null 2>/dev/null ||
	{ echo "$compiler $mode finds no C library's headers here (Debian: gcc-multilib)"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

warnings="-Wall -Wextra -pedantic -Werror -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align -Wundef"
own="-DSLIPRING_HEADER_WARNINGS"
case $compiler in
*++*) language=c++ versions="c++11 c++14 c++17 c++20 c++2b gnu++17" quiet="-Wold-style-cast" ;;
*) language=c versions="c89 gnu89 c99 c11 c17 gnu17 c2x gnu2x" quiet="-Wmissing-prototypes" own="$own -Wstrict-prototypes" ;;
esac

# The system's headers without libbpf's and libxdp's.
mkdir "$work/bare"
default=$("$compiler" $mode -x $language -E -v /dev/null 2>&1 | sed -n '/^#include </,/^End/s/^ //p')
bare="-nostdinc"
for dir in $default; do
	copy=$work/bare/$(echo "$dir" | tr / _)
	mkdir -p "$copy"
	for entry in "$dir"/*; do
		case ${entry##*/} in bpf | xdp) ;; *) ln -s "$entry" "$copy/" ;; esac
	done
	bare="$bare -isystem $copy"
done

ran=0 failed=0
try() { # name, then the compiler's arguments; the source on stdin
	local name=$1
	shift
	cat >"$work/t.$language"
	ran=$((ran + 1))
	"$compiler" $mode -x $language "$@" -I"$include" -c "$work/t.$language" -o "$work/t.o" >"$work/out" 2>&1 && return
	failed=$((failed + 1))
	echo "FAILED: $compiler $name"
	sed 's/^/    /;6q' "$work/out"
}

try "the bare tree hides libbpf" $bare <<'END'
#if __has_include(<bpf/libbpf.h>) || !__has_include(<linux/if_xdp.h>)
#error "not bare"
#endif
END
for version in $versions; do
	echo 'int x;' | "$compiler" -x $language -std=$version -c - -o "$work/t.o" 2>/dev/null || { echo "$compiler does not know $version"; continue; }
	strict=$own
	# Our one variadic macro is an extension in C89, which only -pedantic minds.
	case $version in *89) strict="$own -Wno-variadic-macros" ;; esac
	for header in xdp/xsk.h xdp/xsk_gen.h xdp/libxdp.h bpf/xsk.h slipring.h; do
		source="#include <$header>
#include <$header>
int translation_unit_is_not_empty;"
		for reach in "" "$bare"; do
			label="$version $header${reach:+ without libbpf}"
			try "$label" -std=$version $warnings $quiet $reach <<<"$source"
			# libxdp.h cannot be strict: #include_next is no standard C.
			[ $header = xdp/libxdp.h ] || try "$label, strict" -std=$version $strict $warnings $reach <<<"$source"
		done
	done
	try "$version kernel 4.18" -std=$version $warnings -I"$here/kernel-4.18" <<'END'
#include <xdp/xsk.h>
#ifdef XDP_STATISTICS
#error "not the old header"
#endif
int flags = XDP_USE_NEED_WAKEUP | XDP_USE_SG | XDP_RING_NEED_WAKEUP | XDP_PKT_CONTD | XDP_UMEM_UNALIGNED_CHUNK_FLAG;
END
	for order in "xdp/xsk.h xdp/libxdp.h" "xdp/libxdp.h xdp/xsk.h" "bpf/xsk.h xdp/xsk.h slipring.h"; do
		for reach in "" "$bare"; do
			{
				for header in $order; do echo "#include <$header>"; done
				echo 'int *translation_unit_is_not_empty;'
				case $order in *libxdp*) echo 'extern libxdp_print_fn_t print; long e(void); long e(void) { return libxdp_get_error(0); }' ;; esac
			} | try "$version $order${reach:+ without libbpf}" -std=$version $warnings $reach
		done
	done
done
# Options with and without members, with the comma that programs leave at the end.
case $language in c) options="c99 gnu89 gnu2x" ;; *) options="gnu++17 c++20" ;; esac
for version in $options; do
	for header in xdp/xsk.h xdp/libxdp.h; do
		for reach in "" "$bare"; do
			try "options in $version, $header${reach:+ without libbpf}" -std=$version -Wall -Werror $reach <<END
#include <$header>
#include <xdp/xsk.h>
struct xsk_umem *make(void *area, struct xsk_ring_prod *fill, struct xsk_ring_cons *comp);
struct xsk_umem *make(void *area, struct xsk_ring_prod *fill, struct xsk_ring_cons *comp)
{
	DECLARE_LIBXDP_OPTS(xsk_umem_opts, opts, .size = 1 << 20, .frame_size = 2048,);
	DECLARE_LIBXDP_OPTS(xsk_socket_opts, none);
	opts.fill_size = (__u32)none.sz;
	return xsk_umem__create_opts(area, fill, comp, &opts);
}
END
		done
	done
done
echo "$compiler: $((ran - failed)) of $ran combinations compile"
[ $failed -eq 0 ] && [ $ran -gt 100 ]
