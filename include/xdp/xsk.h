/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * AF_XDP sockets with libxdp's interface (Slipring).
 *
 * A program written for libxdp's <xdp/xsk.h> compiles with this header unchanged. One function is added,
 * xsk_ring_prod__cancel().
 *
 * Objects
 *   UMEM    a page-aligned area of the program's memory, cut into chunks ("frames"). xsk_umem__create() registers it.
 *   socket  one queue of one interface. xsk_socket__create() makes it over a UMEM; several sockets may share one.
 *   rings   TX and RX belong to a socket and hold struct xdp_desc; fill and completion belong to the UMEM together with
 *           an interface and a queue, and hold addresses of chunks (offsets into the UMEM).
 *
 * A chunk is in one place at a time: with the program, in the fill ring (free for reception), in an RX ring (received),
 * in a TX ring (to be sent) or in the completion ring (sent; the program's again once it is read).
 *
 * Returns
 *   Functions that return int give 0 or a negative error number, and set errno to it. Functions that return a pointer
 *   give NULL and set errno. On success errno means nothing.
 *
 * Threads
 *   Create, delete and the other functions of <xdp/xsk_gen.h> may be called from any thread. The helpers below are not
 *   locked: at any time one thread for the program's side of one ring. Different rings, also of one socket, may be
 *   used by different threads, and sockets that share a UMEM may send at the same time.
 *
 * Lifetime
 *   The area and the ring structs must live until the sockets and the UMEM that use them are deleted. Sockets go before
 *   their UMEM: xsk_umem__delete() answers -EBUSY while one is left. File descriptors are borrowed: never close them.
 */
#ifndef __LIBBPF_XSK_H
#define __LIBBPF_XSK_H

/* As a library's header in a system directory has it: the warnings that a program turns on are for its own text. */
#if defined(__GNUC__) && !defined(SLIPRING_HEADER_WARNINGS)
#pragma GCC system_header
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <linux/types.h>
#include <linux/if_xdp.h>

/* Programs count on libxdp's header for libbpf's declarations. They are not needed here, so they may be missing. */
#ifdef __has_include
#if __has_include(<bpf/libbpf.h>)
#include <bpf/libbpf.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What kernel headers older than the library lack. */
#ifndef XDP_USE_NEED_WAKEUP
#define XDP_USE_NEED_WAKEUP (1 << 3)
#endif
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_UMEM_UNALIGNED_CHUNK_FLAG
#define XDP_UMEM_UNALIGNED_CHUNK_FLAG (1 << 0)
#endif
#ifndef XDP_RING_NEED_WAKEUP
#define XDP_RING_NEED_WAKEUP (1 << 0)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif
#ifndef XSK_UNALIGNED_BUF_OFFSET_SHIFT
#define XSK_UNALIGNED_BUF_OFFSET_SHIFT 48
#endif
#ifndef XSK_UNALIGNED_BUF_ADDR_MASK
#define XSK_UNALIGNED_BUF_ADDR_MASK (((__u64)1 << XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1)
#endif

/* Defaults: what a size of 0, or no configuration at all, stands for. */
#define XSK_RING_CONS__DEFAULT_NUM_DESCS 2048
#define XSK_RING_PROD__DEFAULT_NUM_DESCS 2048
#define XSK_UMEM__DEFAULT_FRAME_SHIFT 12
#define XSK_UMEM__DEFAULT_FRAME_SIZE (1 << XSK_UMEM__DEFAULT_FRAME_SHIFT)
#define XSK_UMEM__DEFAULT_FRAME_HEADROOM 0
#define XSK_UMEM__DEFAULT_FLAGS 0
#define XSK_UMEM__DEFAULT_TX_METADATA_LEN 0

/* libxdp_flags: load no XDP program; the program directs packets to the socket (xsk_socket__update_xskmap()). */
#define XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD (1 << 0)
/* The same under the name that libbpf gave it. */
#define XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD

/*
 * Parameters of xsk_socket__create() and xsk_socket__create_shared(). Set every member: 0 stands for the default, what
 * is left uninitialised does not.
 */
struct xsk_socket_config {
	__u32 rx_size;				/* entries of the RX ring, a power of two; default 2048 */
	__u32 tx_size;				/* entries of the TX ring, a power of two; default 2048 */
	__extension__ union {
		__u32 libbpf_flags;		/* the older name */
		__u32 libxdp_flags;		/* XSK_LIBXDP_FLAGS__* */
	};
	__u32 xdp_flags;			/* XDP_FLAGS_* of <linux/if_link.h>: how the default program is attached */
	__u16 bind_flags;			/* XDP_COPY, XDP_ZEROCOPY, XDP_USE_NEED_WAKEUP, XDP_USE_SG */
};

#ifdef __cplusplus
}
#endif

#include "xsk_gen.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An options struct on the stack, everything unset, with the given members:
 *
 *	DECLARE_LIBXDP_OPTS(xsk_umem_opts, opts, .size = area_size, .frame_size = 2048);
 */
#ifndef DECLARE_LIBXDP_OPTS
#define DECLARE_LIBXDP_OPTS(TYPE, NAME, ...) struct TYPE NAME = { .sz = sizeof(struct TYPE), __VA_ARGS__ }
#endif

/*
 * Ring helpers.
 *
 * Indices run freely over 32 bits; entry `idx` of a ring is in slot `idx & mask`. cached_prod and cached_cons are the
 * program's own; a producer keeps cached_cons `size` ahead of the kernel's consumer index, so that
 * cached_cons - cached_prod is the room it knows of. The other side's index is read with acquire, the own one is
 * published with release: what was written to a slot before submit is seen by who reads the index, and a slot that was
 * released is free for who writes it next.
 *
 * The library exports each of them as a function too, for languages that cannot use inline functions.
 */

/* The slot of fill-ring entry `idx`: write the address of a free chunk to it. */
static __inline__ __u64 *xsk_ring_prod__fill_addr(struct xsk_ring_prod *fill, __u32 idx)
{
	__u64 *addrs = (__u64 *)fill->ring;

	return &addrs[idx & fill->mask];
}

/* The slot of completion-ring entry `idx`: the address of a frame that was sent, as the TX descriptor had it. */
static __inline__ const __u64 *xsk_ring_cons__comp_addr(const struct xsk_ring_cons *comp, __u32 idx)
{
	const __u64 *addrs = (const __u64 *)comp->ring;

	return &addrs[idx & comp->mask];
}

/* The slot of TX-ring entry `idx`: write address, length and options of a frame to it. Set options, also to 0. */
static __inline__ struct xdp_desc *xsk_ring_prod__tx_desc(struct xsk_ring_prod *tx, __u32 idx)
{
	struct xdp_desc *descs = (struct xdp_desc *)tx->ring;

	return &descs[idx & tx->mask];
}

/* The slot of RX-ring entry `idx`: address, length and options of a frame that was received. */
static __inline__ const struct xdp_desc *xsk_ring_cons__rx_desc(const struct xsk_ring_cons *rx, __u32 idx)
{
	const struct xdp_desc *descs = (const struct xdp_desc *)rx->ring;

	return &descs[idx & rx->mask];
}

/*
 * 1: the other side of the ring sleeps and wants a system call, sendto() for TX and recvfrom() or poll() for fill.
 * 0: it does not. In copy mode, as on every Slipring device, TX always wants one.
 */
static __inline__ int xsk_ring_prod__needs_wakeup(const struct xsk_ring_prod *prod)
{
	return (__atomic_load_n(prod->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP) != 0;
}

/* How many entries can be reserved, at least. The shared index is read only if fewer than `nb` are known of. */
static __inline__ __u32 xsk_prod_nb_free(struct xsk_ring_prod *prod, __u32 nb)
{
	__u32 room = prod->cached_cons - prod->cached_prod;

	if (room < nb) {
		prod->cached_cons = __atomic_load_n(prod->consumer, __ATOMIC_ACQUIRE) + prod->size;
		room = prod->cached_cons - prod->cached_prod;
	}
	return room;
}

/* How many entries can be peeked at, at most `nb`. The shared index is read only if none is known of. */
static __inline__ __u32 xsk_cons_nb_avail(struct xsk_ring_cons *cons, __u32 nb)
{
	__u32 entries = cons->cached_prod - cons->cached_cons;

	if (entries == 0) {
		cons->cached_prod = __atomic_load_n(cons->producer, __ATOMIC_ACQUIRE);
		entries = cons->cached_prod - cons->cached_cons;
	}
	return entries < nb ? entries : nb;
}

/*
 * Reserve exactly `nb` entries of a fill or TX ring; *idx becomes the first one's index. Returns `nb`, or 0 (and leaves
 * *idx) when there is no room for all of them. Then write the slots and submit.
 */
static __inline__ __u32 xsk_ring_prod__reserve(struct xsk_ring_prod *prod, __u32 nb, __u32 *idx)
{
	if (xsk_prod_nb_free(prod, nb) < nb)
		return 0;
	*idx = prod->cached_prod;
	prod->cached_prod += nb;
	return nb;
}

/*
 * Give back the last `nb` entries that were reserved and not submitted. (Not in libxdp.) `nb` is not checked: more than
 * that makes the ring unusable.
 */
static __inline__ void xsk_ring_prod__cancel(struct xsk_ring_prod *prod, __u32 nb)
{
	prod->cached_prod -= nb;
}

/* Hand the first `nb` reserved entries to the other side. Their slots must be written. */
static __inline__ void xsk_ring_prod__submit(struct xsk_ring_prod *prod, __u32 nb)
{
	__u32 own = __atomic_load_n(prod->producer, __ATOMIC_RELAXED);

	__atomic_store_n(prod->producer, own + nb, __ATOMIC_RELEASE);
}

/*
 * Take a look at up to `nb` entries of an RX or completion ring; *idx becomes the first one's index. Returns how many:
 * possibly fewer than there are, 0 (and *idx is left) when there is none. Read the slots, then release.
 */
static __inline__ __u32 xsk_ring_cons__peek(struct xsk_ring_cons *cons, __u32 nb, __u32 *idx)
{
	__u32 entries = xsk_cons_nb_avail(cons, nb);

	if (entries > 0) {
		*idx = cons->cached_cons;
		cons->cached_cons += entries;
	}
	return entries;
}

/* Put back the last `nb` entries that were peeked at and not released: the next peek gives them again. */
static __inline__ void xsk_ring_cons__cancel(struct xsk_ring_cons *cons, __u32 nb)
{
	cons->cached_cons -= nb;
}

/* Hand the first `nb` entries that were peeked at back to the other side. Their slots must not be read any more. */
static __inline__ void xsk_ring_cons__release(struct xsk_ring_cons *cons, __u32 nb)
{
	__u32 own = __atomic_load_n(cons->consumer, __ATOMIC_RELAXED);

	__atomic_store_n(cons->consumer, own + nb, __ATOMIC_RELEASE);
}

/* The bytes at address `addr` of a UMEM's area. `addr` is not checked. */
static __inline__ void *xsk_umem__get_data(void *umem_area, __u64 addr)
{
	return (char *)umem_area + addr;
}

/* Unaligned chunks: the address of the chunk, without the offset in the top 16 bits. */
static __inline__ __u64 xsk_umem__extract_addr(__u64 addr)
{
	return addr & (((__u64)1 << XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1);
}

/* Unaligned chunks: the offset of the data from the address of the chunk. */
static __inline__ __u64 xsk_umem__extract_offset(__u64 addr)
{
	return addr >> XSK_UNALIGNED_BUF_OFFSET_SHIFT;
}

/* Unaligned chunks: the address of the data. */
static __inline__ __u64 xsk_umem__add_offset_to_addr(__u64 addr)
{
	return xsk_umem__extract_addr(addr) + xsk_umem__extract_offset(addr);
}

#ifdef __cplusplus
}
#endif

#endif
