/* What the first kernel with AF_XDP had of linux/if_xdp.h, in our words: no flags word in the ring offsets, no wake-up flag,
 * no unaligned chunks, no multi-buffer packets. Programs are still built with headers of that kind. */
#ifndef _LINUX_IF_XDP_H
#define _LINUX_IF_XDP_H

#include <linux/types.h>

#define XDP_SHARED_UMEM (1 << 0)
#define XDP_COPY (1 << 1)
#define XDP_ZEROCOPY (1 << 2)

struct sockaddr_xdp {
	__u16 sxdp_family;
	__u16 sxdp_flags;
	__u32 sxdp_ifindex;
	__u32 sxdp_queue_id;
	__u32 sxdp_shared_umem_fd;
};

struct xdp_ring_offset {
	__u64 producer;
	__u64 consumer;
	__u64 desc;
};

struct xdp_desc {
	__u64 addr;
	__u32 len;
	__u32 options;
};

#endif
