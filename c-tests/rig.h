/* One AF_XDP socket with its UMEM, as the tests use it, and the test frame. Plain libxdp interface. */
#ifndef RIG_H
#define RIG_H

#include "harness.h"

#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/xsk.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif
/* Newer than some installed kernel headers. */
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

#define HEADROOM 256u /* what the kernel puts before each received frame */
#define FRAME_LEN 100u

struct rig_options {
	enum port port;
	uint32_t queue;
	uint32_t chunk, chunks, headroom, umem_flags; /* 0: 4096 bytes, 256 of them */
	uint32_t fill, comp, rx, tx;                  /* 0: 256 entries */
	bool no_rx, no_tx;
	bool no_program;     /* also without it a socket that only sends gets none */
	uint32_t xdp_flags;
	uint16_t bind_flags; /* 0: XDP_COPY */
};

struct rig {
	struct rig_options opt;
	uint8_t *area;
	uint64_t size;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
};

static inline struct rig_options rig_defaults(struct rig_options opt)
{
	opt.chunk = opt.chunk ? opt.chunk : 4096;
	opt.chunks = opt.chunks ? opt.chunks : 256;
	opt.fill = opt.fill ? opt.fill : 256;
	opt.comp = opt.comp ? opt.comp : 256;
	opt.rx = opt.rx ? opt.rx : 256;
	opt.tx = opt.tx ? opt.tx : 256;
	opt.bind_flags = opt.bind_flags ? opt.bind_flags : XDP_COPY;
	return opt;
}

static inline uint8_t *map_area(uint64_t size)
{
	void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(area != MAP_FAILED, "mmap of %llu bytes: %s", (unsigned long long)size, strerror(errno));
	return area;
}

static inline int rig_umem(struct rig *r)
{
	struct xsk_umem_config config = {
		.fill_size = r->opt.fill,
		.comp_size = r->opt.comp,
		.frame_size = r->opt.chunk,
		.frame_headroom = r->opt.headroom,
		.flags = r->opt.umem_flags,
	};

	return xsk_umem__create(&r->umem, r->area, r->size, &r->fill, &r->comp, &config);
}

static inline struct xsk_socket_config rig_config(const struct rig_options *opt)
{
	struct xsk_socket_config config = {
		.rx_size = opt->rx,
		.tx_size = opt->tx,
		/* A socket that only sends needs no program; without one, creating it is the same on all providers. */
		.libbpf_flags = opt->no_rx || opt->no_program ? XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD : 0,
		.xdp_flags = opt->xdp_flags,
		.bind_flags = opt->bind_flags,
	};

	return config;
}

/* libxdp hands the kernel's "busy" on for some 20 ms after a socket on the queue was closed. */
#define BUSY_RETRY(call)                                                            \
	({                                                                          \
		int ret_ = (call);                                                  \
		for (int i_ = 0; i_ < 60 && ret_ == -EBUSY && on_kernel(); i_++) {  \
			sleep_ms(5);                                                \
			ret_ = (call);                                              \
		}                                                                   \
		ret_;                                                               \
	})

/* The UMEM alone. */
static inline void rig_open_umem(struct rig *r, struct rig_options opt)
{
	memset(r, 0, sizeof(*r));
	r->opt = rig_defaults(opt);
	r->size = (uint64_t)r->opt.chunk * r->opt.chunks;
	r->area = map_area(r->size);
	EQ(rig_umem(r), 0, "xsk_umem__create");
}

/* Its first socket, as the options say. Returns what xsk_socket__create returns. */
static inline int rig_socket(struct rig *r)
{
	struct xsk_socket_config config = rig_config(&r->opt);

	return xsk_socket__create(&r->xsk, ifname_of(r->opt.port), r->opt.queue, r->umem, r->opt.no_rx ? NULL : &r->rx,
				  r->opt.no_tx ? NULL : &r->tx, &config);
}

static inline void rig_open(struct rig *r, struct rig_options opt)
{
	rig_open_umem(r, opt);
	EQ(BUSY_RETRY(rig_socket(r)), 0, "xsk_socket__create");
}

static inline int rig_fd(const struct rig *r)
{
	return xsk_socket__fd(r->xsk);
}

static inline void rig_close_umem(struct rig *r)
{
	EQ(xsk_umem__delete(r->umem), 0, "xsk_umem__delete");
	EQ(munmap(r->area, r->size), 0, "munmap of the UMEM");
}

static inline void rig_close(struct rig *r)
{
	xsk_socket__delete(r->xsk);
	rig_close_umem(r);
}

/* The test frame: the addresses, ethertype 0x88b5, then its number, then bytes that follow from both. */
static inline void make_frame(uint8_t *at, uint32_t len, uint32_t id)
{
	static const uint8_t head[14] = { 2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa, 0x88, 0xb5 };

	memcpy(at, head, 14);
	memcpy(at + 14, &id, 4);
	for (uint32_t i = 18; i < len; i++)
		at[i] = (uint8_t)(id * 31 + i);
}

/* The frame's number; fails when a byte is not what it must be. */
static inline uint32_t frame_id(const uint8_t *at, uint32_t len)
{
	uint8_t want[4096];
	uint32_t id;

	CHECK(len >= 18 && len <= sizeof(want), "a frame of %u bytes", len);
	memcpy(&id, at + 14, 4);
	make_frame(want, len, id);
	for (uint32_t i = 0; i < len; i++)
		CHECK(at[i] == want[i], "frame %u: byte %u of %u is 0x%02x, not 0x%02x", id, i, len, at[i], want[i]);
	return id;
}

/* Give chunks first .. first+n-1 to the fill ring. */
static inline void rig_fill(struct rig *r, uint32_t first, uint32_t n)
{
	uint32_t idx = 0;

	EQ(xsk_ring_prod__reserve(&r->fill, n, &idx), n, "room in the fill ring");
	for (uint32_t i = 0; i < n; i++)
		*xsk_ring_prod__fill_addr(&r->fill, idx + i) = (uint64_t)(first + i) * r->opt.chunk;
	xsk_ring_prod__submit(&r->fill, n);
}

static inline void rig_queue_at(struct rig *r, uint64_t addr, uint32_t len, uint32_t options)
{
	uint32_t idx = 0;

	EQ(xsk_ring_prod__reserve(&r->tx, 1, &idx), 1, "room in the TX ring");
	*xsk_ring_prod__tx_desc(&r->tx, idx) = (struct xdp_desc){ .addr = addr, .len = len, .options = options };
	xsk_ring_prod__submit(&r->tx, 1);
}

/* Put n frames, from chunk `first` on, numbered from `first`, on the TX ring. No kick. */
static inline void rig_queue(struct rig *r, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		make_frame(r->area + (uint64_t)i * r->opt.chunk, FRAME_LEN, i);
		rig_queue_at(r, (uint64_t)i * r->opt.chunk, FRAME_LEN, 0);
	}
}

/* 0 or the errno. */
static inline int kick_fd(int fd)
{
	return sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
}

static inline int rig_kick(struct rig *r)
{
	return kick_fd(rig_fd(r));
}

/* Descriptors that wait on the TX ring. */
static inline uint32_t ring_pending(const struct xsk_ring_prod *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

/* Entries that are in a consumer ring now. (xsk_cons_nb_avail looks again only when it knows of none.) */
static inline uint32_t ring_entries(const struct xsk_ring_cons *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

static inline uint32_t take_completions(struct xsk_ring_cons *comp, uint64_t *addrs, uint32_t max)
{
	uint32_t idx = 0, n = xsk_ring_cons__peek(comp, max, &idx);

	for (uint32_t i = 0; i < n && addrs; i++)
		addrs[i] = *xsk_ring_cons__comp_addr(comp, idx + i);
	if (n)
		xsk_ring_cons__release(comp, n);
	return n;
}

/* Kicks and drains until n completions are here. */
static inline void rig_complete(struct rig *r, uint32_t n)
{
	uint64_t end = now_ms() + 3000;
	uint32_t got = 0;

	while ((got += take_completions(&r->comp, NULL, n - got)) < n) {
		CHECK(now_ms() < end, "%u completions of %u within 3 s", got, n);
		rig_kick(r);
	}
}

/* Take one received frame off the ring into *d; false when none came within ms. */
static inline bool rig_receive(struct rig *r, struct xdp_desc *d, unsigned ms)
{
	uint64_t end = now_ms() + ms;
	uint32_t idx = 0;

	while (!xsk_ring_cons__peek(&r->rx, 1, &idx)) {
		if (now_ms() >= end)
			return false;
		sleep_ms(1);
	}
	*d = *xsk_ring_cons__rx_desc(&r->rx, idx);
	xsk_ring_cons__release(&r->rx, 1);
	return true;
}

/* One more socket over a rig's umem. */
struct more {
	struct xsk_socket *xsk;
	struct xsk_ring_cons rx, comp;
	struct xsk_ring_prod tx, fill;
};

static inline struct xsk_socket_config no_program(const struct rig *r)
{
	struct xsk_socket_config config = rig_config(&r->opt);

	config.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD;
	return config;
}

/* Send one chunk of the rig's by a socket's TX ring. */
static inline void send_one(struct rig *r, struct xsk_ring_prod *tx, int fd, uint32_t chunk)
{
	uint32_t idx = 0;

	make_frame(r->area + (uint64_t)chunk * r->opt.chunk, FRAME_LEN, chunk);
	EQ(xsk_ring_prod__reserve(tx, 1, &idx), 1, "room in the TX ring");
	*xsk_ring_prod__tx_desc(tx, idx) = (struct xdp_desc){ .addr = (uint64_t)chunk * r->opt.chunk, .len = FRAME_LEN };
	xsk_ring_prod__submit(tx, 1);
	EQ(kick_fd(fd), 0, "kick");
}

static inline struct xdp_statistics rig_statistics(int fd)
{
	struct xdp_statistics s;
	socklen_t len = sizeof(s);

	memset(&s, 0xff, sizeof(s));
	EQ(getsockopt(fd, SOL_XDP, XDP_STATISTICS, &s, &len), 0, "getsockopt(XDP_STATISTICS)");
	EQ(len, sizeof(s), "length of XDP_STATISTICS");
	return s;
}

#endif
