#!/bin/bash
# The exported names of the shared library, read back: libxdp's 28, the additions, all without a version, so that programs
# built against LIBXDP_1.x and LIBBPF_0.0.x find them alike; and none of the library's private names.
# usage: symbols.sh LIBRARY
set -u
library=$1 failed=0
complain() { echo "$*"; failed=1; }

names=$(nm -D --defined-only --with-symbol-versions "$library" | awk '{ print $3 }') || exit 1
wanted='xsk_cons_nb_avail xsk_prod_nb_free xsk_ring_cons__cancel xsk_ring_cons__comp_addr xsk_ring_cons__peek
xsk_ring_cons__release xsk_ring_cons__rx_desc xsk_ring_prod__fill_addr xsk_ring_prod__needs_wakeup
xsk_ring_prod__reserve xsk_ring_prod__submit xsk_ring_prod__tx_desc xsk_umem__add_offset_to_addr
xsk_umem__extract_addr xsk_umem__extract_offset xsk_umem__get_data
xsk_setup_xdp_prog xsk_socket__create xsk_socket__create_shared xsk_socket__delete xsk_socket__fd
xsk_socket__update_xskmap xsk_umem__create xsk_umem__delete xsk_umem__fd
xsk_umem__create_with_fd xsk_umem__create_opts xsk_socket__create_opts'
[ "$(wc -w <<<"$wanted")" -eq 28 ] || complain "this list is not libxdp's"
for name in $wanted xsk_ring_prod__cancel libxdp_get_error libxdp_strerror libxdp_set_print slipring_version slipring_set_print slipring_umem_create_tx; do
	grep -qx "$name" <<<"$names" || complain "not exported: $name"
done
for name in $(grep -E '@|^(_R|_ZN|rust_|__rust|slipring__)' <<<"$names"); do
	complain "exported with a version, or private: $name"
done
for name in $(grep -E '^(xsk|libxdp|slipring)_' <<<"$names"); do
	grep -qw "$name" <<<"$wanted xsk_ring_prod__cancel libxdp_get_error libxdp_strerror libxdp_set_print slipring_version slipring_set_print slipring_umem_create_tx" ||
		complain "exported but in no header: $name"
done
readelf -d "$library" | grep -q 'SONAME.*\[libslipring\.so\.0\]' || complain "the soname is not libslipring.so.0"
# The program's calls go through the library: dlclose must not take it away.
readelf -d "$library" | grep -q 'FLAGS_1.*NODELETE' || complain "not marked NODELETE"
readelf -d "$library" | grep -E 'NEEDED' | grep -vE 'libc\.so|libgcc_s|ld-linux|libpthread|libdl|libm\.|librt' && complain "needs other libraries"
exit $failed
