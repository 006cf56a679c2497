/* Ring sides in different threads: one produces while others make the engine consume. What orders their accesses is the rings'
 * indices alone, so that ThreadSanitizer sees when the library publishes one of them too weakly (scripts/sanitize). */
#include "peer.h"

#include <pthread.h>
#include <sched.h>

#define FRAMES 20000u

/* Reserve one place, however long that takes. */
static uint32_t reserve_one(struct xsk_ring_prod *ring)
{
	uint64_t end = now_ms() + 15000;
	uint32_t idx = 0;

	while (!xsk_ring_prod__reserve(ring, 1, &idx)) {
		CHECK(now_ms() < end, "no place for 15 s");
		sched_yield();
	}
	return idx;
}

static void *queue_only(void *arg)
{
	struct rig *r = arg;

	for (uint32_t i = 0; i < FRAMES; i++) {
		*xsk_ring_prod__tx_desc(&r->tx, reserve_one(&r->tx)) = (struct xdp_desc){ .addr = 4096 * (i % 8), .len = FRAME_LEN };
		xsk_ring_prod__submit(&r->tx, 1);
	}
	return NULL;
}

/* One thread fills the TX ring and does nothing else; another kicks and takes the completions. The ring is short, so that each
 * place is used again and again. */
TEST(one_queues_another_kicks)
{
	uint64_t addrs[64], end = now_ms() + 15000;
	uint32_t completed = 0;
	pthread_t thread;
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true, .tx = 16 });
	for (uint32_t i = 0; i < 8; i++)
		make_frame(r.area + 4096 * i, FRAME_LEN, i);
	EQ(pthread_create(&thread, NULL, queue_only, &r), 0, "pthread_create");
	while (completed < FRAMES) {
		uint32_t n;

		rig_kick(&r);
		n = take_completions(&r.comp, addrs, 64);
		for (uint32_t i = 0; i < n; i++)
			EQ(addrs[i], 4096 * ((completed + i) % 8), "address completed");
		completed += n;
		CHECK(now_ms() < end, "%u of %u frames within 15 s", completed, FRAMES);
		sched_yield();
	}
	pthread_join(thread, NULL);
	EQ(completed, FRAMES, "completions");
	rig_close(&r);
}

struct filler {
	struct rig *rig;
	_Atomic bool stop;
};

/* Gives all chunks again and again: nothing but the fill ring's indices tells it when. A chunk is given again long after its last
 * frame was taken, since the RX ring has fewer places than there are chunks. */
static void *refill_only(void *arg)
{
	struct filler *f = arg;
	uint32_t idx = 0;

	for (uint32_t i = 0; !f->stop; i++) {
		while (!xsk_ring_prod__reserve(&f->rig->fill, 1, &idx)) {
			if (f->stop)
				return NULL;
			sched_yield();
		}
		*xsk_ring_prod__fill_addr(&f->rig->fill, idx) = 4096 * (i % 256);
		xsk_ring_prod__submit(&f->rig->fill, 1);
	}
	return NULL;
}

struct sender {
	struct rig *rig;
	_Atomic bool done;
};

static void *send_only(void *arg)
{
	struct sender *s = arg;
	struct rig *r = s->rig;
	uint64_t end = now_ms() + 15000;

	for (uint32_t i = 0; i < FRAMES; i++) {
		*xsk_ring_prod__tx_desc(&r->tx, reserve_one(&r->tx)) = (struct xdp_desc){ .addr = 0, .len = FRAME_LEN };
		xsk_ring_prod__submit(&r->tx, 1);
		while (rig_kick(r) == EAGAIN && ring_pending(&r->tx) > 0)
			CHECK(now_ms() < end, "%u of %u frames within 15 s", i, FRAMES);
	}
	s->done = true;
	return NULL;
}

/* One thread delivers, another refills the fill ring, and a third takes the frames and the sender's completions. One that delivers,
 * not two: then each reads entries that the other may have claimed, which is a race by design (src/ring/fill.rs) and the business
 * of the model checker. */
TEST(one_refills_another_delivers)
{
	struct sender s = { 0 };
	struct filler f = { 0 };
	pthread_t threads[2];
	struct xdp_desc d;
	struct rig r, far;
	uint32_t received = 0;

	engine_only("on veth the kernel delivers");
	rig_open(&r, (struct rig_options){ .fill = 16, .rx = 64, .no_tx = true });
	rig_open(&far, (struct rig_options){ .port = B, .no_rx = true });
	make_frame(far.area, FRAME_LEN, 0);
	f.rig = &r;
	s.rig = &far;
	EQ(pthread_create(&threads[0], NULL, refill_only, &f), 0, "pthread_create");
	EQ(pthread_create(&threads[1], NULL, send_only, &s), 0, "pthread_create");
	while (!s.done) {
		take_completions(&far.comp, NULL, 64);
		while (rig_receive(&r, &d, 0)) {
			EQ(d.len, FRAME_LEN, "length");
			received++;
		}
		sched_yield();
	}
	f.stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(received > 0, "nothing was received");
	rig_close(&far);
	rig_close(&r);
}
