/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Structs and prototypes of <xdp/xsk.h>, which includes this file. Generated (make headers): do not edit. */

#ifndef SLIPRING_XDP_XSK_GEN_H
#define SLIPRING_XDP_XSK_GEN_H

#include <stddef.h>
#include <stdint.h>
#include <linux/types.h>

struct xsk_umem;
struct xsk_socket;
struct xsk_socket_config;

/*
 * The program's side of a ring that the program produces into (fill, TX).
 *
 * Owned by the caller: read and written by the inline helpers, and written once by the call that makes the ring.
 */
struct xsk_ring_prod {
	/* Next entry to reserve. */
	__u32 cached_prod;
	/* The kernel's consumer index as last seen, plus size. */
	__u32 cached_cons;
	/* size - 1. */
	__u32 mask;
	/* Number of entries, a power of two. */
	__u32 size;
	/* Shared: entries handed over. */
	__u32 *producer;
	/* Shared: entries taken. */
	__u32 *consumer;
	/* Shared: the entries. */
	void *ring;
	/* Shared: XDP_RING_NEED_WAKEUP. */
	__u32 *flags;
};

/*
 * The program's side of a ring that the program consumes from (completion, RX).
 *
 * Owned by the caller, as xsk_ring_prod.
 */
struct xsk_ring_cons {
	/* The kernel's producer index as last seen. */
	__u32 cached_prod;
	/* Next entry to look at. */
	__u32 cached_cons;
	/* size - 1. */
	__u32 mask;
	/* Number of entries, a power of two. */
	__u32 size;
	/* Shared: entries handed over. */
	__u32 *producer;
	/* Shared: entries taken. */
	__u32 *consumer;
	/* Shared: the entries. */
	void *ring;
	/* Shared: flags word. */
	__u32 *flags;
};

/* UMEM parameters of xsk_umem__create and xsk_umem__create_with_fd. Zero stands for the default. */
struct xsk_umem_config {
	/* Entries of the fill ring; default 2048. */
	__u32 fill_size;
	/* Entries of the completion ring; default 2048. */
	__u32 comp_size;
	/* Bytes of a chunk; default 4096. */
	__u32 frame_size;
	/* Extra bytes left free before received data. */
	__u32 frame_headroom;
	/* XDP_UMEM_*. */
	__u32 flags;
};

/* UMEM parameters of xsk_umem__create_opts. A field counts if it lies wholly inside sz. */
struct xsk_umem_opts {
	/* sizeof this struct, as the caller knows it. */
	size_t sz;
	/* AF_XDP socket to use, owned by the library from then on; 0 or less: make one. */
	int32_t fd;
	/* Bytes of the area. */
	__u64 size;
	/* Entries of the fill ring; default 2048. */
	__u32 fill_size;
	/* Entries of the completion ring; default 2048. */
	__u32 comp_size;
	/* Bytes of a chunk; default 4096. */
	__u32 frame_size;
	/* Extra bytes left free before received data. */
	__u32 frame_headroom;
	/* XDP_UMEM_*. */
	__u32 flags;
	/* Bytes of TX metadata before a packet; counts only with XDP_UMEM_TX_METADATA_LEN. */
	__u32 tx_metadata_len;
};

/* Socket parameters of xsk_socket__create_opts. A field counts if it lies wholly inside sz. */
struct xsk_socket_opts {
	/* sizeof this struct, as the caller knows it. */
	size_t sz;
	/* RX ring to make, or NULL. */
	struct xsk_ring_cons *rx;
	/* TX ring to make, or NULL. */
	struct xsk_ring_prod *tx;
	/* Fill ring of this interface and queue; NULL together with comp: the UMEM's. */
	struct xsk_ring_prod *fill;
	/* Completion ring of this interface and queue. */
	struct xsk_ring_cons *comp;
	/* Entries of the RX ring; default 2048. */
	__u32 rx_size;
	/* Entries of the TX ring; default 2048. */
	__u32 tx_size;
	/* XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD. */
	__u32 libxdp_flags;
	/* XDP_FLAGS_*: mode of the default program. */
	__u32 xdp_flags;
	/* XDP_COPY, XDP_ZEROCOPY, XDP_USE_NEED_WAKEUP, XDP_USE_SG. */
	__u16 bind_flags;
	/*
	 * Zero. A member, so that an initialiser which does not name it clears it: bytes after the last known member must be
	 * zero, and padding need not be.
	 */
	__u16 reserved[3];
};

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Register a UMEM, size bytes at umem_area, and make its fill and completion ring.
 *
 * umem_area must be page aligned, size a multiple of the chunk size. fill and comp are filled in. config
 * is NULL for the defaults, for which 0 in a member stands too. *umem is written on success only. Delete with
 * xsk_umem__delete; until then the area must stay mapped.
 *
 * Returns 0, or -EFAULT: a NULL pointer; -EINVAL: alignment, sizes or flags; -EPERM: no CAP_NET_RAW; -ENOBUFS: more
 * memory than RLIMIT_MEMLOCK allows; -ENOMEM; or what the system call that failed gave. The log says which value was
 * wrong.
 */
int xsk_umem__create(struct xsk_umem **umem,
		     void *umem_area,
		     __u64 size,
		     struct xsk_ring_prod *fill,
		     struct xsk_ring_cons *comp,
		     const struct xsk_umem_config *config);

/*
 * As xsk_umem__create, on the AF_XDP socket fd, so that the caller needs no privilege.
 *
 * The library owns fd from then on and closes it in xsk_umem__delete, and also when the kernel refuses the UMEM;
 * not when a pointer is NULL. Below 0, or 0 where that is no AF_XDP socket: the library makes a socket.
 */
int xsk_umem__create_with_fd(struct xsk_umem **umem,
			     int fd,
			     void *umem_area,
			     __u64 size,
			     struct xsk_ring_prod *fill,
			     struct xsk_ring_cons *comp,
			     const struct xsk_umem_config *config);

/*
 * As xsk_umem__create_with_fd, with the size and everything else in opts; opts->size cannot be left out.
 *
 * Returns the UMEM, or NULL with errno set.
 */
struct xsk_umem *xsk_umem__create_opts(void *umem_area,
				       struct xsk_ring_prod *fill,
				       struct xsk_ring_cons *comp,
				       struct xsk_umem_opts *opts);

/*
 * Take a UMEM down and close its descriptor. Returns 0, also for NULL; -EBUSY, and does nothing, while it has
 * sockets.
 */
int xsk_umem__delete(struct xsk_umem *umem);

/* The UMEM's descriptor, which stays the library's; -EINVAL for NULL. */
int xsk_umem__fd(const struct xsk_umem *umem);

/*
 * Make a socket on queue queue_id of interface ifname, with the fill and completion ring of its UMEM.
 *
 * rx or tx may be NULL, not both; what is given is filled in. The UMEM's first socket settles where its fill and
 * completion ring are used: a second socket there shares them, one on another interface or queue needs its own
 * (xsk_socket__create_shared). bind_flags count for the first socket of an interface and queue only. config is
 * NULL for the defaults. *xsk is written on success only. Delete with xsk_socket__delete, before the UMEM.
 *
 * Unless XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD is set, the default XDP program is on the interface and directs the
 * queue's packets to the socket when this returns.
 *
 * Returns 0, or -EFAULT: a NULL pointer, or no fill and completion ring for this queue; -EINVAL: queue, sizes or
 * flags; -ENODEV: no such interface; -EBUSY: the queue is taken, or another XDP program is on the interface;
 * -EOPNOTSUPP: no such mode here; -EPERM; -ENOMEM; or what the system call that failed gave. The log says what was
 * wrong.
 */
int xsk_socket__create(struct xsk_socket **xsk,
		       const char *ifname,
		       __u32 queue_id,
		       struct xsk_umem *umem,
		       struct xsk_ring_cons *rx,
		       struct xsk_ring_prod *tx,
		       const struct xsk_socket_config *config);

/*
 * As xsk_socket__create, with a fill and a completion ring for this interface and queue. They are made by the
 * UMEM's first socket there; later ones find them made. Both structs are filled in either way.
 */
int xsk_socket__create_shared(struct xsk_socket **xsk,
			      const char *ifname,
			      __u32 queue_id,
			      struct xsk_umem *umem,
			      struct xsk_ring_cons *rx,
			      struct xsk_ring_prod *tx,
			      struct xsk_ring_prod *fill,
			      struct xsk_ring_cons *comp,
			      const struct xsk_socket_config *config);

/*
 * As xsk_socket__create_shared, with everything else in opts.
 *
 * Returns the socket, or NULL with errno set.
 */
struct xsk_socket *xsk_socket__create_opts(const char *ifname,
					   __u32 queue_id,
					   struct xsk_umem *umem,
					   struct xsk_socket_opts *opts);

/*
 * Take a socket down: its rings, its share of the default program, and its descriptor unless that is the UMEM's.
 * NULL is nothing. The UMEM's first socket's queue stays taken until xsk_umem__delete.
 */
void xsk_socket__delete(struct xsk_socket *xsk);

/*
 * The socket's descriptor, for sendto(), poll(), getsockopt() and the like; it stays the library's. -EINVAL for
 * NULL.
 */
int xsk_socket__fd(const struct xsk_socket *xsk);

/*
 * Store the socket under its queue in the XSKMAP fd, which stays the caller's. Returns 0, or the map update's
 * negative error number.
 */
int xsk_socket__update_xskmap(struct xsk_socket *xsk, int fd);

/*
 * See that the default XDP program is on interface number ifindex, for good, and store a new descriptor of its
 * XSKMAP, which the caller closes. xsks_map_fd may be NULL. Returns 0, or a negative error number.
 */
int xsk_setup_xdp_prog(int ifindex, int *xsks_map_fd);

#ifdef __cplusplus
}
#endif

#endif  /* SLIPRING_XDP_XSK_GEN_H */
