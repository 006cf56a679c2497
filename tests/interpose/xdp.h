/* An AF_XDP socket by the kernel's own interface, without libxdp: one queue of one interface, 64 entries a ring. The
 * interface is an engine `loop` in these tests: what is sent comes back. */
#ifndef INTERPOSE_XDP_H
#define INTERPOSE_XDP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct xdp {
	int fd;
	uint8_t *area;
	struct ring rx, tx, fill, comp;
};

enum { ENTRIES = 64, CHUNK = 4096, CHUNKS = 128 };

static inline struct ring xdp_ring(int fd, int option, off_t page, const struct xdp_ring_offset *offset, size_t entry)
{
	uint32_t entries = ENTRIES;
	struct ring ring;
	char *base;

	CHECK(setsockopt(fd, SOL_XDP, option, &entries, sizeof(entries)) == 0);
	base = mmap(NULL, offset->desc + ENTRIES * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);
	CHECK(base != MAP_FAILED);
	ring.producer = (uint32_t *)(base + offset->producer);
	ring.consumer = (uint32_t *)(base + offset->consumer);
	ring.entries = base + offset->desc;
	return ring;
}

/* Chunks 64 to 127 are in the fill ring, the others are for sending. */
static inline void xdp_open(struct xdp *x, const char *interface)
{
	struct xdp_umem_reg reg = { .len = (uint64_t)CHUNKS * CHUNK, .chunk_size = CHUNK };
	struct sockaddr_xdp addr = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY };
	struct xdp_mmap_offsets off;
	socklen_t len = sizeof(off);

	x->area = mmap(NULL, reg.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(x->area != MAP_FAILED);
	x->fd = socket(AF_XDP, SOCK_RAW, 0);
	CHECK(x->fd >= 0);
	reg.addr = (uintptr_t)x->area;
	CHECK(setsockopt(x->fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)) == 0);
	CHECK(getsockopt(x->fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len) == 0 && len == sizeof(off));
	x->fill = xdp_ring(x->fd, XDP_UMEM_FILL_RING, 0x100000000, &off.fr, 8);
	x->comp = xdp_ring(x->fd, XDP_UMEM_COMPLETION_RING, 0x180000000, &off.cr, 8);
	x->rx = xdp_ring(x->fd, XDP_RX_RING, 0, &off.rx, 16);
	x->tx = xdp_ring(x->fd, XDP_TX_RING, 0x80000000, &off.tx, 16);
	for (uint32_t i = 0; i < ENTRIES; i++)
		((uint64_t *)x->fill.entries)[i] = (uint64_t)(64 + i) * CHUNK;
	__atomic_store_n(x->fill.producer, ENTRIES, __ATOMIC_RELEASE);
	addr.sxdp_ifindex = if_nametoindex(interface);
	CHECK(addr.sxdp_ifindex != 0);
	CHECK(bind(x->fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
}

/* Put frames into the TX ring, without a call. */
static inline void xdp_queue(struct xdp *x, uint32_t n)
{
	uint32_t producer = *x->tx.producer;

	for (uint32_t i = 0; i < n; i++, producer++)
		((struct xdp_desc *)x->tx.entries)[producer % ENTRIES] =
			(struct xdp_desc){ .addr = (producer % ENTRIES) * CHUNK, .len = 60 };
	__atomic_store_n(x->tx.producer, producer, __ATOMIC_RELEASE);
}

static inline int xdp_kick(struct xdp *x)
{
	return (int)sendto(x->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

/* Send frames, which come back. */
static inline void xdp_send(struct xdp *x, uint32_t n)
{
	xdp_queue(x, n);
	CHECK(xdp_kick(x) == 0);
}

static inline uint32_t xdp_pending(const struct ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

/* Take received frames, give their chunks back to the fill ring, and empty the completion ring. */
static inline uint32_t xdp_take(struct xdp *x, uint32_t most)
{
	uint32_t n = xdp_pending(&x->rx), consumer = *x->rx.consumer, fill = *x->fill.producer;

	if (n > most)
		n = most;
	for (uint32_t i = 0; i < n; i++)
		((uint64_t *)x->fill.entries)[fill++ % ENTRIES] =
			((struct xdp_desc *)x->rx.entries)[(consumer + i) % ENTRIES].addr;
	__atomic_store_n(x->fill.producer, fill, __ATOMIC_RELEASE);
	__atomic_store_n(x->rx.consumer, consumer + n, __ATOMIC_RELEASE);
	__atomic_store_n(x->comp.consumer, __atomic_load_n(x->comp.producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
	return n;
}

static inline double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

#endif
