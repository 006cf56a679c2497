/* Faults on purpose: a sanitizer must report each of them, or its silence about the other tests means nothing. Built and run
 * by scripts/sanitize, against a library with the feature planted-faults. */
#include "peer.h"

#include <pthread.h>

/* src/abi/planted.rs */
void slipring_planted_overflow(uint8_t *block, size_t len);
void slipring_planted_leak(size_t len);
uint32_t slipring_planted_race(void);

/* AddressSanitizer: Rust code writes past a block of C's. */
TEST(overflow)
{
	uint8_t *block = malloc(24);

	CHECK(block, "malloc");
	slipring_planted_overflow(block, 24);
	free(block);
}

/* LeakSanitizer: Rust code forgets a block. */
TEST(leak)
{
	for (size_t len = 100; len < 110; len++)
		slipring_planted_leak(len);
}

static void *bump(void *arg)
{
	for (int i = 0; i < 1000; i++)
		slipring_planted_race();
	return arg;
}

/* ThreadSanitizer: two threads write one variable of Rust's. */
TEST(race)
{
	pthread_t other;

	EQ(pthread_create(&other, NULL, bump, NULL), 0, "pthread_create");
	bump(NULL);
	pthread_join(other, NULL);
}

/* What follows shows that ThreadSanitizer sees what the engine does with the program's memory, and that nothing but the
 * orderings of the rings' indices makes the other tests clean. In each, a thread of the program and the engine, on the main
 * thread, work on the same bytes. `word` passes from one to the other, but orders nothing, except where `order` says so. */
struct careless {
	struct rig rig;
	uint32_t len;
	int order; /* of the store by which the thread publishes */
	_Atomic uint32_t word;
};

static uint32_t relaxed(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void *send_carelessly(void *arg)
{
	struct careless *c = arg;
	uint32_t idx = 0;

	make_frame(c->rig.area, c->len, 7);
	EQ(xsk_ring_prod__reserve(&c->rig.tx, 1, &idx), 1, "room");
	*xsk_ring_prod__tx_desc(&c->rig.tx, idx) = (struct xdp_desc){ .addr = 0, .len = c->len };
	if (c->order == __ATOMIC_RELEASE)
		__atomic_store_n(c->rig.tx.producer, 1, __ATOMIC_RELEASE);
	else
		__atomic_store_n(c->rig.tx.producer, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void send_from_a_thread(int order)
{
	struct careless c = { .len = FRAME_LEN, .order = order };
	pthread_t thread;
	struct peer p;

	rig_open(&c.rig, (struct rig_options){ 0 });
	peer_open(&p);
	EQ(pthread_create(&thread, NULL, send_carelessly, &c), 0, "pthread_create");
	while (relaxed(c.rig.tx.producer) != 1)
		sleep_ms(1);
	EQ(rig_kick(&c.rig), 0, "kick");
	EQ(peer_receive(&p, FRAME_LEN), 7, "frame");
	pthread_join(thread, NULL);
	peer_close(&p);
	rig_close(&c.rig);
}

/* A program that publishes without release: the engine's reading of descriptor and frame races with the writing. */
TEST(published_relaxed)
{
	send_from_a_thread(__ATOMIC_RELAXED);
}

/* The same with release: no report. */
TEST(published_properly)
{
	send_from_a_thread(__ATOMIC_RELEASE);
}

static void *write_to_a_chunk(void *arg)
{
	struct careless *c = arg;

	make_frame(c->rig.area, c->len, 7);
	__atomic_store_n(&c->word, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* A thread writes to a frame that another one sends. */
static void written_while_sent(uint32_t len)
{
	struct careless c = { .len = len };
	pthread_t thread;
	struct peer p;

	rig_open(&c.rig, (struct rig_options){ 0 });
	peer_open(&p);
	EQ(pthread_create(&thread, NULL, write_to_a_chunk, &c), 0, "pthread_create");
	while (__atomic_load_n(&c.word, __ATOMIC_RELAXED) != 1)
		sleep_ms(1);
	rig_queue_at(&c.rig, 0, len, 0);
	EQ(rig_kick(&c.rig), 0, "kick");
	pthread_join(thread, NULL);
	peer_close(&p);
	rig_close(&c.rig);
}

/* The engine copies short frames itself and long ones through memmove. */
TEST(short_frame_written_while_sent)
{
	written_while_sent(100);
}

TEST(long_frame_written_while_sent)
{
	written_while_sent(1000);
}

static void *read_too_early(void *arg)
{
	struct careless *c = arg;

	while (relaxed(c->rig.rx.producer) != 1)
		sleep_ms(1);
	c->word = c->rig.area[HEADROOM + 20];
	return NULL;
}

/* A thread reads a received frame, having looked at the ring without acquire. */
TEST(received_relaxed)
{
	struct careless c = { 0 };
	pthread_t thread;
	struct peer p;

	rig_open(&c.rig, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&c.rig, 0, 1);
	EQ(pthread_create(&thread, NULL, read_too_early, &c), 0, "pthread_create");
	peer_send(&p, FRAME_LEN, 7);
	pthread_join(thread, NULL);
	peer_close(&p);
	rig_close(&c.rig);
}
