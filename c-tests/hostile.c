/* A program that writes nonsense into its rings and descriptors: the library neither crashes nor hangs, touches nothing
 * outside the rings and the UMEM, and the rest of the process goes on. */
#include "peer.h"

#include <pthread.h>

/* A rig whose UMEM lies between two pages that nobody may touch. */
static void open_guarded(struct rig *r, struct rig_options opt)
{
	struct xsk_socket_config config;
	uint8_t *all;

	memset(r, 0, sizeof(*r));
	r->opt = rig_defaults(opt);
	r->size = (uint64_t)r->opt.chunk * r->opt.chunks;
	all = map_area(r->size + 8192);
	EQ(mprotect(all, 4096, PROT_NONE), 0, "mprotect");
	EQ(mprotect(all + 4096 + r->size, 4096, PROT_NONE), 0, "mprotect");
	r->area = all + 4096;
	EQ(rig_umem(r), 0, "xsk_umem__create");
	config = rig_config(&r->opt);
	EQ(xsk_socket__create(&r->xsk, ifname_of(r->opt.port), r->opt.queue, r->umem, &r->rx, &r->tx, &config), 0,
	   "xsk_socket__create");
}

/* Everything a program may do with the socket, a few times. */
static void use(struct rig *r, struct peer *p)
{
	uint8_t frame[4096]; /* whatever the bad descriptors let out */

	for (int i = 0; i < 6; i++) {
		rig_kick(r);
		recvfrom(rig_fd(r), NULL, 0, MSG_DONTWAIT, NULL, NULL);
		poll(&(struct pollfd){ .fd = rig_fd(r), .events = POLLIN | POLLOUT }, 1, 0);
		peer_send(p, FRAME_LEN, (uint32_t)i);
		while (peer_receive_bytes(p, frame, sizeof(frame), 0) >= 0)
			;
		rig_statistics(rig_fd(r));
	}
}

/* Another wire of the same process still works. */
static void others_live(void)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ .port = C });
	peer_open_on(&p, D);
	rig_fill(&r, 0, 4);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "another wire does not receive");
	rig_queue(&r, 100, 1);
	EQ(rig_kick(&r), 0, "kick on another wire");
	EQ(peer_receive(&p, FRAME_LEN), 100, "frame on another wire");
	peer_close(&p);
	rig_close(&r);
}

/* C09. The cached counters are zeroed between rounds: the program's ring is in disorder, the library is not. */
TEST(C09_cached_counters_zeroed)
{
	struct rig r;
	struct peer p;
	uint64_t addrs[256];
	uint32_t n;

	open_guarded(&r, (struct rig_options){ 0 });
	peer_open(&p);
	for (uint32_t i = 0; i < 179; i++) {
		rig_queue(&r, i, 1);
		EQ(rig_kick(&r), 0, "kick");
		take_completions(&r.comp, NULL, 256);
	}
	r.tx.cached_prod = 0;
	r.tx.cached_cons = r.tx.size;
	for (uint32_t i = 0; i < 179; i++) {
		rig_queue(&r, i, 1);
		rig_kick(&r);
		n = take_completions(&r.comp, addrs, 256);
		for (uint32_t k = 0; k < n; k++)
			CHECK(addrs[k] % 4096 == 0 && addrs[k] < r.size, "completion of 0x%llx", (unsigned long long)addrs[k]);
	}
	use(&r, &p);
	peer_close(&p);
	rig_close(&r);
	others_live();
}

static const uint32_t wild[] = { 1, 5, 255, 256, 257, 511, 1000, 0x7fffffff, 0x80000000, 0x80000001, 0xffffff00, 0xffffffff };

#define WILD (sizeof(wild) / sizeof(wild[0]))

/* One word of one ring gets a wild value, counted from what is there; which word is chosen by `pick`. */
static void wild_index(uint32_t *(*pick)(struct rig *))
{
	struct rig r;
	struct peer p;

	open_guarded(&r, (struct rig_options){ .comp = 64 });
	peer_open(&p);
	for (size_t i = 0; i < WILD; i++) {
		uint32_t *word = pick(&r);

		rig_kick(&r);
		__atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) + wild[i], __ATOMIC_RELEASE);
		use(&r, &p);
		__atomic_store_n(word, wild[i], __ATOMIC_RELEASE);
		use(&r, &p);
	}
	peer_close(&p);
	xsk_socket__delete(r.xsk);
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	others_live();
}

#define WILD_INDEX(name, word)                           \
	static uint32_t *pick_##name(struct rig *r)      \
	{                                                \
		return word;                             \
	}                                                \
	TEST(wild_##name)                                \
	{                                                \
		wild_index(pick_##name);                 \
	}

WILD_INDEX(tx_producer, r->tx.producer)
WILD_INDEX(tx_consumer, r->tx.consumer)
WILD_INDEX(tx_flags, r->tx.flags)
WILD_INDEX(fill_producer, r->fill.producer)
WILD_INDEX(fill_consumer, r->fill.consumer)
WILD_INDEX(rx_producer, r->rx.producer)
WILD_INDEX(rx_consumer, r->rx.consumer)
WILD_INDEX(comp_producer, r->comp.producer)
WILD_INDEX(comp_consumer, r->comp.consumer)

/* With a consumer index that cannot be, the completion ring counts as full: nothing leaves, EAGAIN; set right, it goes on. */
TEST(broken_completion_consumer_mends)
{
	struct rig r;
	struct peer p;
	uint32_t right;

	engine_only("the kernel believes the index");
	open_guarded(&r, (struct rig_options){ .comp = 16 });
	peer_open(&p);
	rig_queue(&r, 0, 4);
	EQ(rig_kick(&r), 0, "kick");
	right = *r.comp.consumer;
	__atomic_store_n(r.comp.consumer, right + 5, __ATOMIC_RELEASE); /* ahead of the producer */
	rig_queue(&r, 4, 4);
	EQ(rig_kick(&r), EAGAIN, "kick with a broken ring");
	EQ(ring_pending(&r.tx), 4, "frames that wait");
	__atomic_store_n(r.comp.consumer, right, __ATOMIC_RELEASE);
	EQ(rig_kick(&r), 0, "kick with the ring set right");
	EQ(take_completions(&r.comp, NULL, 16), 8, "completions");
	EQ(peer_count(&p, 50), 8, "frames at the peer");
	peer_close(&p);
	rig_close(&r);
}

/* Descriptors and fill addresses at random. */
TEST(random_descriptors)
{
	uint32_t random = 77;
	struct rig r;
	struct peer p;

	open_guarded(&r, (struct rig_options){ .comp = 64 });
	peer_open(&p);
	for (int round = 0; round < 3000; round++) {
		uint64_t addr = ((uint64_t)next_random(&random) << 32 | next_random(&random)) >> (next_random(&random) % 64);
		uint32_t len = next_random(&random) >> (next_random(&random) % 32), idx = 0;
		uint8_t frame[4096];

		if (xsk_ring_prod__reserve(&r.tx, 1, &idx)) {
			*xsk_ring_prod__tx_desc(&r.tx, idx) = (struct xdp_desc){ addr, len, round % 4 ? 0 : next_random(&random) & ~2u };
			xsk_ring_prod__submit(&r.tx, 1);
		}
		if (xsk_ring_prod__reserve(&r.fill, 1, &idx)) {
			*xsk_ring_prod__fill_addr(&r.fill, idx) = addr;
			xsk_ring_prod__submit(&r.fill, 1);
		}
		rig_kick(&r);
		take_completions(&r.comp, NULL, 64);
		peer_send(&p, 60 + round % 1000, (uint32_t)round);
		while (xsk_ring_cons__peek(&r.rx, 1, &idx)) {
			struct xdp_desc d = *xsk_ring_cons__rx_desc(&r.rx, idx);

			CHECK(d.addr < r.size && d.addr + d.len <= r.size, "received at 0x%llx", (unsigned long long)d.addr);
			xsk_ring_cons__release(&r.rx, 1);
		}
		while (peer_receive_bytes(&p, frame, sizeof(frame), 0) >= 0)
			;
	}
	peer_close(&p);
	xsk_socket__delete(r.xsk);
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	others_live();
}

/* A thread writes all ring words at random while another sends and receives. */
struct vandal {
	struct rig *rig;
	_Atomic bool stop;
};

static void *scribble(void *arg)
{
	struct vandal *v = arg;
	struct rig *r = v->rig;
	uint32_t *words[] = { r->tx.producer, r->tx.consumer, r->fill.producer, r->fill.consumer, r->rx.producer,
			      r->rx.consumer, r->comp.producer, r->comp.consumer, r->tx.flags, r->fill.flags };
	uint32_t random = 4711;

	while (!v->stop) {
		uint32_t value = next_random(&random);

		__atomic_store_n(words[value % 10], next_random(&random) >> (next_random(&random) % 32), __ATOMIC_RELAXED);
		for (int i = 0; i < 4; i++) {
			__atomic_store_n((uint64_t *)r->fill.ring + next_random(&random) % r->fill.size, next_random(&random) % r->size,
					 __ATOMIC_RELAXED);
			((struct xdp_desc *)r->tx.ring)[next_random(&random) % r->tx.size] =
				(struct xdp_desc){ next_random(&random) % r->size, next_random(&random) % 2048, 0 };
		}
	}
	return NULL;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

TEST(rings_scribbled_while_in_use)
{
#ifdef __SANITIZE_THREAD__
	skip("ThreadSanitizer: races are the point of this test");
#endif
	static struct vandal v;
	pthread_t thread;
	struct rig r;
	struct peer p;
	uint64_t end;

	open_guarded(&r, (struct rig_options){ .comp = 64 });
	peer_open(&p);
	v.rig = &r;
	EQ(pthread_create(&thread, NULL, scribble, &v), 0, "pthread_create");
	for (end = now_ms() + 1000; now_ms() < end;)
		use(&r, &p);
	v.stop = true;
	pthread_join(thread, NULL);
	peer_close(&p);
	xsk_socket__delete(r.xsk);
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	others_live();
}
