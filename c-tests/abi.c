/* The layouts, constants and signatures that programs are compiled with, as numbers. Compiled against our header and against
 * the system's libxdp header, C and C++: both must hold them. src/abi/types.rs asserts the same numbers from the other side.
 * x86-64 and, of what differs there, i386. There is nothing to run. */
#include <stddef.h>
#include <xdp/xsk.h>

#ifdef __cplusplus
#define ASSERT(x) static_assert(x, #x)
#else
#define ASSERT(x) _Static_assert(x, #x)
#endif
#define LAYOUT(type, size, align) ASSERT(sizeof(type) == (size)); ASSERT(__alignof__(type) == (align))
#define AT(type, member, offset, bytes)                          \
	ASSERT(offsetof(struct type, member) == (offset));       \
	ASSERT(sizeof(((struct type *)0)->member) == (bytes))

LAYOUT(struct xsk_umem_config, 20, 4);
AT(xsk_umem_config, fill_size, 0, 4);
AT(xsk_umem_config, comp_size, 4, 4);
AT(xsk_umem_config, frame_size, 8, 4);
AT(xsk_umem_config, frame_headroom, 12, 4);
AT(xsk_umem_config, flags, 16, 4);

LAYOUT(struct xsk_socket_config, 20, 4);
AT(xsk_socket_config, rx_size, 0, 4);
AT(xsk_socket_config, tx_size, 4, 4);
AT(xsk_socket_config, libbpf_flags, 8, 4);
AT(xsk_socket_config, libxdp_flags, 8, 4);
AT(xsk_socket_config, xdp_flags, 12, 4);
AT(xsk_socket_config, bind_flags, 16, 2);

AT(xdp_desc, addr, 0, 8);
AT(xdp_desc, len, 8, 4);
AT(xdp_desc, options, 12, 4);

#if defined(__x86_64__) && !defined(__ILP32__)

#define RING(type)                     \
	LAYOUT(struct type, 48, 8);    \
	AT(type, cached_prod, 0, 4);   \
	AT(type, cached_cons, 4, 4);   \
	AT(type, mask, 8, 4);          \
	AT(type, size, 12, 4);         \
	AT(type, producer, 16, 8);     \
	AT(type, consumer, 24, 8);     \
	AT(type, ring, 32, 8);         \
	AT(type, flags, 40, 8)

RING(xsk_ring_prod);
RING(xsk_ring_cons);

LAYOUT(struct xdp_desc, 16, 8);

#ifdef XSK_UMEM__DEFAULT_TX_METADATA_LEN /* libxdp 1.5 and later */
LAYOUT(struct xsk_umem_opts, 48, 8);
AT(xsk_umem_opts, sz, 0, 8);
AT(xsk_umem_opts, fd, 8, 4);
AT(xsk_umem_opts, size, 16, 8);
AT(xsk_umem_opts, fill_size, 24, 4);
AT(xsk_umem_opts, comp_size, 28, 4);
AT(xsk_umem_opts, frame_size, 32, 4);
AT(xsk_umem_opts, frame_headroom, 36, 4);
AT(xsk_umem_opts, flags, 40, 4);
AT(xsk_umem_opts, tx_metadata_len, 44, 4);

LAYOUT(struct xsk_socket_opts, 64, 8);
AT(xsk_socket_opts, sz, 0, 8);
AT(xsk_socket_opts, rx, 8, 8);
AT(xsk_socket_opts, tx, 16, 8);
AT(xsk_socket_opts, fill, 24, 8);
AT(xsk_socket_opts, comp, 32, 8);
AT(xsk_socket_opts, rx_size, 40, 4);
AT(xsk_socket_opts, tx_size, 44, 4);
AT(xsk_socket_opts, libxdp_flags, 48, 4);
AT(xsk_socket_opts, xdp_flags, 52, 4);
AT(xsk_socket_opts, bind_flags, 56, 2);
#ifdef EXPECT_ALL
/* Libxdp has padding here, which must be zero: as a member it is, wherever the struct has an initialiser. */
AT(xsk_socket_opts, reserved, 58, 6);
#endif
#elif defined(EXPECT_ALL)
#error "the header lacks the options structs"
#endif

#elif defined(__i386__)

#define RING(type)                     \
	LAYOUT(struct type, 32, 4);    \
	AT(type, cached_prod, 0, 4);   \
	AT(type, cached_cons, 4, 4);   \
	AT(type, mask, 8, 4);          \
	AT(type, size, 12, 4);         \
	AT(type, producer, 16, 4);     \
	AT(type, consumer, 20, 4);     \
	AT(type, ring, 24, 4);         \
	AT(type, flags, 28, 4)

RING(xsk_ring_prod);
RING(xsk_ring_cons);

/* 64-bit members lie at any multiple of four there. */
LAYOUT(struct xdp_desc, 16, 4);

#ifdef XSK_UMEM__DEFAULT_TX_METADATA_LEN
AT(xsk_umem_opts, sz, 0, 4);
AT(xsk_umem_opts, fd, 4, 4);
AT(xsk_umem_opts, size, 8, 8);
AT(xsk_umem_opts, fill_size, 16, 4);
AT(xsk_umem_opts, tx_metadata_len, 36, 4);
AT(xsk_socket_opts, sz, 0, 4);
AT(xsk_socket_opts, rx, 4, 4);
AT(xsk_socket_opts, comp, 16, 4);
AT(xsk_socket_opts, rx_size, 20, 4);
AT(xsk_socket_opts, bind_flags, 36, 2);
#elif defined(EXPECT_ALL)
#error "the header lacks the options structs"
#endif

#endif

ASSERT(XSK_RING_CONS__DEFAULT_NUM_DESCS == 2048);
ASSERT(XSK_RING_PROD__DEFAULT_NUM_DESCS == 2048);
ASSERT(XSK_UMEM__DEFAULT_FRAME_SHIFT == 12);
ASSERT(XSK_UMEM__DEFAULT_FRAME_SIZE == 4096);
ASSERT(XSK_UMEM__DEFAULT_FRAME_HEADROOM == 0);
ASSERT(XSK_UMEM__DEFAULT_FLAGS == 0);
ASSERT(XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD == 1);
ASSERT(XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD == 1);
ASSERT(XDP_SHARED_UMEM == 1 && XDP_COPY == 2 && XDP_ZEROCOPY == 4 && XDP_USE_NEED_WAKEUP == 8);
ASSERT(XDP_RING_NEED_WAKEUP == 1 && XDP_UMEM_UNALIGNED_CHUNK_FLAG == 1 && XSK_UNALIGNED_BUF_OFFSET_SHIFT == 48);
#ifdef EXPECT_ALL
ASSERT(XSK_UMEM__DEFAULT_TX_METADATA_LEN == 0 && XDP_USE_SG == 16 && XDP_PKT_CONTD == 1);
#endif

#ifndef __LIBBPF_XSK_H
#error "the include guard is not the one that libbpf's and libxdp's headers have"
#endif

/* Exactly these types: an initialiser of another type does not compile. */
#define SIGNATURE(name, ret, ...) extern ret (*const check_##name)(__VA_ARGS__); ret (*const check_##name)(__VA_ARGS__) = name

SIGNATURE(xsk_ring_prod__fill_addr, __u64 *, struct xsk_ring_prod *, __u32);
SIGNATURE(xsk_ring_cons__comp_addr, const __u64 *, const struct xsk_ring_cons *, __u32);
SIGNATURE(xsk_ring_prod__tx_desc, struct xdp_desc *, struct xsk_ring_prod *, __u32);
SIGNATURE(xsk_ring_cons__rx_desc, const struct xdp_desc *, const struct xsk_ring_cons *, __u32);
SIGNATURE(xsk_ring_prod__needs_wakeup, int, const struct xsk_ring_prod *);
SIGNATURE(xsk_prod_nb_free, __u32, struct xsk_ring_prod *, __u32);
SIGNATURE(xsk_cons_nb_avail, __u32, struct xsk_ring_cons *, __u32);
SIGNATURE(xsk_ring_prod__reserve, __u32, struct xsk_ring_prod *, __u32, __u32 *);
SIGNATURE(xsk_ring_prod__submit, void, struct xsk_ring_prod *, __u32);
SIGNATURE(xsk_ring_cons__peek, __u32, struct xsk_ring_cons *, __u32, __u32 *);
SIGNATURE(xsk_ring_cons__cancel, void, struct xsk_ring_cons *, __u32);
SIGNATURE(xsk_ring_cons__release, void, struct xsk_ring_cons *, __u32);
SIGNATURE(xsk_umem__get_data, void *, void *, __u64);
SIGNATURE(xsk_umem__extract_addr, __u64, __u64);
SIGNATURE(xsk_umem__extract_offset, __u64, __u64);
SIGNATURE(xsk_umem__add_offset_to_addr, __u64, __u64);

SIGNATURE(xsk_umem__create, int, struct xsk_umem **, void *, __u64, struct xsk_ring_prod *, struct xsk_ring_cons *,
	  const struct xsk_umem_config *);
SIGNATURE(xsk_umem__delete, int, struct xsk_umem *);
SIGNATURE(xsk_umem__fd, int, const struct xsk_umem *);
SIGNATURE(xsk_socket__create, int, struct xsk_socket **, const char *, __u32, struct xsk_umem *, struct xsk_ring_cons *,
	  struct xsk_ring_prod *, const struct xsk_socket_config *);
SIGNATURE(xsk_socket__create_shared, int, struct xsk_socket **, const char *, __u32, struct xsk_umem *,
	  struct xsk_ring_cons *, struct xsk_ring_prod *, struct xsk_ring_prod *, struct xsk_ring_cons *,
	  const struct xsk_socket_config *);
SIGNATURE(xsk_socket__delete, void, struct xsk_socket *);
SIGNATURE(xsk_socket__fd, int, const struct xsk_socket *);
SIGNATURE(xsk_socket__update_xskmap, int, struct xsk_socket *, int);
SIGNATURE(xsk_setup_xdp_prog, int, int, int *);
#ifdef XSK_UMEM__DEFAULT_TX_METADATA_LEN
SIGNATURE(xsk_umem__create_with_fd, int, struct xsk_umem **, int, void *, __u64, struct xsk_ring_prod *,
	  struct xsk_ring_cons *, const struct xsk_umem_config *);
SIGNATURE(xsk_umem__create_opts, struct xsk_umem *, void *, struct xsk_ring_prod *, struct xsk_ring_cons *,
	  struct xsk_umem_opts *);
SIGNATURE(xsk_socket__create_opts, struct xsk_socket *, const char *, __u32, struct xsk_umem *, struct xsk_socket_opts *);
#endif
#ifdef EXPECT_ALL
SIGNATURE(xsk_ring_prod__cancel, void, struct xsk_ring_prod *, __u32);
#endif
