#!/bin/bash
# libxdp.so.1 as Slipring builds it: libxdp's names under libxdp's version nodes and nothing else under any, so that programs
# that were linked to libxdp and use xsk_* run with it by LD_LIBRARY_PATH; and what happens to those that use more.
# usage: variant.sh CASE LIBDIR     exit: 0, 1, 77 something is not there
set -u
case=$1 libdir=$(cd "$2" && pwd) here=$(cd "$(dirname "$0")" && pwd)
variant=$libdir/libxdp
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "FAILED: $*"; failed=1; }
need_libxdp() { pkg-config --exists libxdp || { echo "no libxdp here"; exit 77; }; }
names() { nm -D --defined-only --with-symbol-versions "$1" | awk '{ print $3 }' | sort; }

case $case in
symbols)
	{
		for name in libxdp_get_error libxdp_set_print libxdp_strerror; do echo "$name@@LIBXDP_1.0.0"; done
		for name in xsk_cons_nb_avail xsk_prod_nb_free xsk_ring_cons__cancel xsk_ring_cons__comp_addr \
			xsk_ring_cons__peek xsk_ring_cons__release xsk_ring_cons__rx_desc xsk_ring_prod__fill_addr \
			xsk_ring_prod__needs_wakeup xsk_ring_prod__reserve xsk_ring_prod__submit xsk_ring_prod__tx_desc \
			xsk_umem__add_offset_to_addr xsk_umem__extract_addr xsk_umem__extract_offset xsk_umem__get_data \
			xsk_setup_xdp_prog xsk_socket__create xsk_socket__create_shared xsk_socket__delete xsk_socket__fd \
			xsk_socket__update_xskmap xsk_umem__create xsk_umem__delete xsk_umem__fd; do
			echo "$name@@LIBXDP_1.2.0"
		done
		echo "xsk_umem__create_with_fd@@LIBXDP_1.4.0"
		for name in xsk_umem__create_opts xsk_socket__create_opts; do echo "$name@@LIBXDP_1.5.0"; done
		for node in 0 2 3 4 5 6; do echo "LIBXDP_1.$node.0"; done
	} | sort >"$work/wanted"
	[ "$(grep -c '^xsk_' "$work/wanted")" -eq 28 ] || complain "this list is not libxdp's"
	names "$variant/libxdp.so.1" | grep -E '@|^LIBXDP' | diff "$work/wanted" - || complain "names under nodes"
	# The rest (the C library's functions, our own additions) is what libslipring.so.0 exports, and without a node.
	names "$libdir/libslipring.so.0" >"$work/ours"
	names "$variant/libxdp.so.1" | sed 's/@.*//; /^LIBXDP_/d' | sort | diff "$work/ours" - || complain "names"
	for name in xsk_ring_prod__cancel poll sendto __poll_chk bpf_xdp_query free realloc slipring_version; do
		names "$variant/libxdp.so.1" | grep -qx "$name" || complain "$name is not without a node"
	done
	readelf -d "$variant/libxdp.so.1" >"$work/dynamic"
	grep -q 'SONAME.*\[libxdp\.so\.1\]' "$work/dynamic" || complain "the soname is not libxdp.so.1"
	grep -q 'FLAGS_1.*NODELETE' "$work/dynamic" || complain "not marked NODELETE"
	grep NEEDED "$work/dynamic" | grep -vE 'libc\.so|libgcc_s|ld-linux|libpthread|libdl|libm\.|librt' && complain "needs other libraries"
	# Each node has the one before it as its parent.
	readelf -V "$variant/libxdp.so.1" | awk '/Name: LIBXDP_/ { node = $NF } /Parent 1:/ { print node, $NF }' >"$work/chain"
	printf 'LIBXDP_1.%s.0 LIBXDP_1.%s.0\n' 2 0 3 2 4 3 5 4 6 5 | diff - "$work/chain" || complain "the chain of nodes"
	;;
bind-now)
	need_libxdp
	cc -Wall -Werror "$here/program.c" $(pkg-config --cflags --libs libxdp) -Wl,-z,now -o "$work/program" || exit 1
	readelf -V "$work/program" | grep -q 'Name: LIBXDP_1.2.0' || complain "the program asks for no node of libxdp"
	export LD_LIBRARY_PATH=$variant
	ldd "$work/program" | grep -q "libxdp.so.1 => $variant/libxdp.so.1" || complain "another libxdp is found"
	SLIPRING_DEVICES=lo0=loop "$work/program" lo0 >"$work/out" 2>&1 || complain "exit $?: $(cat "$work/out")"
	grep -q 'no version information' "$work/out" && complain "$(cat "$work/out")"
	;;
xdp-functions)
	# By design: who needs xdp_* keeps libxdp and takes the preload. The loader names what is missing.
	need_libxdp
	cat >"$work/x.c" <<'END'
struct xdp_program;
void xdp_program__close(struct xdp_program *program);
int main(void)
{
	xdp_program__close(0);
	return 0;
}
END
	for mode in lazy now; do
		cc "$work/x.c" $(pkg-config --libs libxdp) -Wl,-z,$mode -o "$work/x" || exit 1
		"$work/x" || complain "$mode: fails on libxdp itself"
		LD_LIBRARY_PATH=$variant "$work/x" >"$work/out" 2>&1
		[ $? -eq 127 ] || complain "$mode: the loader does not refuse it"
		grep -q 'undefined symbol: xdp_program__close' "$work/out" || complain "$mode: $(cat "$work/out")"
		LD_PRELOAD=$libdir/libslipring.so.0 "$work/x" || complain "$mode: preloaded, exit $?"
	done
	;;
beside-preload)
	# Both in one process: the preload serves, nothing is asked twice or for ever.
	need_libxdp
	cc -Wall -Werror "$here/program.c" $(pkg-config --cflags --libs libxdp) -o "$work/program" || exit 1
	LD_LIBRARY_PATH=$variant LD_PRELOAD=$libdir/libslipring.so.0 SLIPRING_DEVICES=lo0=loop \
		"$work/program" lo0 >"$work/out" 2>&1 || complain "exit $?: $(cat "$work/out")"
	# Its own error text, through both copies of libxdp_strerror.
	LD_LIBRARY_PATH=$variant LD_PRELOAD=$libdir/libslipring.so.0 SLIPRING_DEVICES='lo0=loop?queues=x' \
		"$work/program" lo0 >"$work/out" 2>&1 && complain "a bad device is taken"
	grep -q '^xsk_socket__create: Invalid argument' "$work/out" || complain "$(cat "$work/out")"
	;;
nodes)
	# xsk_* were libbpf's first, under these nodes; a preloaded library without nodes serves them all.
	for node in LIBBPF_0.0.1 LIBBPF_0.0.2 LIBBPF_0.0.3 LIBBPF_0.0.4 LIBBPF_0.0.5 LIBBPF_0.0.6 LIBBPF_0.0.7 LIBBPF_0.0.8 \
		LIBBPF_0.0.9 LIBBPF_0.1.0 LIBBPF_0.2.0 LIBBPF_0.3.0 LIBBPF_0.7.0; do
		echo "$node { global: xsk_*; local: *; };" >"$work/map"
		cc -shared -fPIC "$here/../libbpf-stub.c" -Wl,-soname,libbpf.so.0 -Wl,--version-script="$work/map" -o "$work/libbpf.so.0" || exit 1
		# libxdp_strerror is not the stub's; the preload has it.
		cc -Wall -Werror -I"$here/../../include" "$here/program.c" "$work/libbpf.so.0" -Wl,-z,now \
			-Wl,--unresolved-symbols=ignore-in-object-files -o "$work/program" || exit 1
		readelf -V "$work/program" | grep -q "Name: $node" || complain "the program does not ask for $node"
		export LD_LIBRARY_PATH=$work
		LD_PRELOAD=$libdir/libslipring.so.0 SLIPRING_DEVICES=lo0=loop "$work/program" lo0 >"$work/out" 2>&1 ||
			complain "$node: exit $?: $(cat "$work/out")"
		unset LD_LIBRARY_PATH
	done
	;;
*)
	complain "no such case: $case"
	;;
esac
exit $failed
