/* One receiving socket with a UMEM of its own that checks every frame. Its fill ring is refilled with each batch, and
 * with all its chunks, so that on a lossless wire it never is the reason for a loss. Used by multisend and sendrecv,
 * by one thread. */
#ifndef PROGRAMS_RECEIVER_H
#define PROGRAMS_RECEIVER_H

#include "common.h"
#include "frame.h"

#include <poll.h>
#include <sched.h>

enum wait_kind { WAIT_POLL, WAIT_SPIN, WAIT_RECVFROM };

struct receiver {
	const char *ifname;
	uint32_t queue, chunk, chunks, batch;
	uint32_t xdp_flags, libxdp_flags;
	uint16_t bind_flags;
	enum wait_kind wait;

	void *area;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	struct xsk_ring_cons rx;

	struct checker checker;
	uint64_t wakeups, first_ns, last_ns;
	_Atomic uint64_t unique; /* a copy for other threads */
};

static inline int receiver_open(struct receiver *r)
{
	struct xsk_umem_config umem_config = {
		.fill_size = r->chunks,
		.comp_size = 64,
		.frame_size = r->chunk,
	};
	struct xsk_socket_config config = {
		.rx_size = r->chunks,
		.libbpf_flags = r->libxdp_flags,
		.xdp_flags = r->xdp_flags,
		.bind_flags = r->bind_flags,
	};
	uint32_t idx;
	int ret;

	config.tx_size = 64;
	r->area = packet_memory((uint64_t)r->chunks * r->chunk);
	ret = xsk_umem__create(&r->umem, r->area, (uint64_t)r->chunks * r->chunk, &r->fill, &r->comp, &umem_config);
	if (ret) {
		failed("xsk_umem__create for the receiver", r->ifname, ret);
		return ret;
	}
	if (xsk_ring_prod__reserve(&r->fill, r->chunks, &idx) != r->chunks) {
		fprintf(stderr, "the new fill ring on %s has no room for %u entries\n", r->ifname, r->chunks);
		return -EIO;
	}
	for (uint32_t i = 0; i < r->chunks; i++)
		*xsk_ring_prod__fill_addr(&r->fill, idx + i) = (uint64_t)i * r->chunk;
	xsk_ring_prod__submit(&r->fill, r->chunks);
	ret = create_socket(&r->xsk, r->ifname, r->queue, r->umem, &r->rx, NULL, &config);
	if (ret)
		failed("xsk_socket__create for the receiver", r->ifname, ret);
	return ret;
}

/* Takes one batch if there is one; returns the number of frames. */
static inline uint32_t receiver_step(struct receiver *r)
{
	uint32_t idx = 0, fill_idx = 0;
	uint32_t n = xsk_ring_cons__peek(&r->rx, r->batch, &idx);

	if (!n)
		return 0;
	r->last_ns = now_ns();
	if (!r->first_ns)
		r->first_ns = r->last_ns;
	/* Every chunk that is not in the fill ring is in our hands or on its way here: there is room for these. */
	while (xsk_ring_prod__reserve(&r->fill, n, &fill_idx) != n) {
		if (stopping())
			return 0;
		sched_yield();
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&r->rx, idx + i);

		check_frame(&r->checker, xsk_umem__get_data(r->area, d->addr), d->len);
		*xsk_ring_prod__fill_addr(&r->fill, fill_idx + i) = d->addr;
	}
	xsk_ring_cons__release(&r->rx, n);
	xsk_ring_prod__submit(&r->fill, n);
	atomic_store_explicit(&r->unique, r->checker.unique, memory_order_relaxed);
	return n;
}

/* What to do when the ring was empty `empty` times in a row. */
static inline void receiver_wait(struct receiver *r, uint32_t empty)
{
	struct pollfd pfd = { .fd = xsk_socket__fd(r->xsk), .events = POLLIN };

	if (r->wait == WAIT_RECVFROM) {
		r->wakeups++;
		recvfrom(pfd.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
		sched_yield();
	} else if (r->wait == WAIT_SPIN || empty < 64) {
		if (xsk_ring_prod__needs_wakeup(&r->fill))
			recvfrom(pfd.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
		if (empty % 16 == 15)
			sched_yield();
	} else {
		r->wakeups++;
		poll(&pfd, 1, 20);
	}
}

static inline void receiver_close(struct receiver *r)
{
	int ret;

	xsk_socket__delete(r->xsk);
	ret = xsk_umem__delete(r->umem);
	if (ret)
		failed("xsk_umem__delete for the receiver", r->ifname, ret);
	if (r->area)
		munmap(r->area, (uint64_t)r->chunks * r->chunk);
	checker_free(&r->checker);
}

#endif
