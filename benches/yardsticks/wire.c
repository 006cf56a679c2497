/*
 * How fast can two processes pass frames over shared memory? The yardstick for the device `wire`.
 *
 * usage: wire COPIES LEN SECONDS CPU_TX CPU_RX
 *   COPIES 1  the sender copies each frame straight into a chunk that the receiver offered (a fill ring and an RX ring)
 *   COPIES 2  the sender copies into a slot of the ring, the receiver copies it out into a chunk of its own
 *   LEN       bytes of a frame, 8 to 2048
 *
 * One producer, one consumer, no check of anything, no system call: what is left is memory. Indices are published once a
 * batch of 64, as a batch of descriptors is in AF_XDP. The receiving program reads the first line of each frame.
 * Prints one line: received frames a second, in millions.
 */
#define _GNU_SOURCE
#include "two.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHUNK = 2048,	/* bytes of a chunk */
	POOL = 2048,	/* chunks of each side */
	RING = 1024,	/* entries of each ring */
	BATCH = 64,
};

struct shared {
	OWN_LINES _Atomic uint32_t rx_prod;
	OWN_LINES _Atomic uint32_t rx_cons;
	OWN_LINES _Atomic uint32_t fill_prod;
	OWN_LINES _Atomic uint32_t ready;
	OWN_LINES _Atomic uint32_t stop;
	OWN_LINES _Atomic uint64_t received;
	OWN_LINES struct desc rx[RING];
	OWN_LINES uint64_t fill[RING];
};

static struct shared *shared;
static unsigned char *tx_chunks, *rx_chunks, *slots;
static uint32_t len;
static volatile uint64_t sink;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* The sender's own state: its producer index, what it last saw of the other side, the next frame to send. */
struct sender {
	uint32_t prod, cons_seen, fill_cons, fill_seen, next;
};

static inline const unsigned char *next_frame(struct sender *s)
{
	const unsigned char *frame = tx_chunks + (size_t)s->next * CHUNK;

	s->next = (s->next + 1) % POOL;
	return frame;
}

static uint32_t send_into_chunks(struct sender *s)
{
	if (s->fill_seen - s->fill_cons < BATCH) {
		s->fill_seen = atomic_load_explicit(&shared->fill_prod, memory_order_acquire);
		if (s->fill_seen - s->fill_cons < BATCH)
			return 0;
	}
	for (uint32_t i = 0; i < BATCH; i++) {
		uint64_t addr = shared->fill[(s->fill_cons + i) % RING];
		struct desc *d = &shared->rx[(s->prod + i) % RING];

		memcpy(rx_chunks + addr, next_frame(s), len);
		d->addr = addr;
		d->len = len;
		d->options = 0;
	}
	s->fill_cons += BATCH;
	s->prod += BATCH;
	atomic_store_explicit(&shared->rx_prod, s->prod, memory_order_release);
	return BATCH;
}

static uint32_t send_into_slots(struct sender *s)
{
	if (RING - (s->prod - s->cons_seen) < BATCH) {
		s->cons_seen = atomic_load_explicit(&shared->rx_cons, memory_order_acquire);
		if (RING - (s->prod - s->cons_seen) < BATCH)
			return 0;
	}
	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t at = (s->prod + i) % RING;

		memcpy(slots + (size_t)at * CHUNK, next_frame(s), len);
		shared->rx[at].len = len;
	}
	s->prod += BATCH;
	atomic_store_explicit(&shared->rx_prod, s->prod, memory_order_release);
	return BATCH;
}

struct receiver {
	uint32_t cons, prod_seen, fill_prod, next;
};

/* How many entries wait, at most a batch. */
static inline uint32_t waiting(struct receiver *r)
{
	uint32_t n;

	if (r->prod_seen == r->cons)
		r->prod_seen = atomic_load_explicit(&shared->rx_prod, memory_order_acquire);
	n = r->prod_seen - r->cons;
	return n > BATCH ? BATCH : n;
}

static inline void read_frame(const unsigned char *frame)
{
	sink += *(const volatile uint64_t *)frame;
}

static uint32_t receive_from_chunks(struct receiver *r)
{
	uint32_t n = waiting(r);

	for (uint32_t i = 0; i < n; i++) {
		struct desc *d = &shared->rx[(r->cons + i) % RING];

		read_frame(rx_chunks + d->addr);
		shared->fill[(r->fill_prod + i) % RING] = d->addr;
	}
	if (n) {
		r->cons += n;
		r->fill_prod += n;
		atomic_store_explicit(&shared->rx_cons, r->cons, memory_order_release);
		atomic_store_explicit(&shared->fill_prod, r->fill_prod, memory_order_release);
	}
	return n;
}

static uint32_t receive_from_slots(struct receiver *r)
{
	uint32_t n = waiting(r);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (r->cons + i) % RING;
		unsigned char *chunk = rx_chunks + (size_t)r->next * CHUNK;

		memcpy(chunk, slots + (size_t)at * CHUNK, shared->rx[at].len);
		read_frame(chunk);
		r->next = (r->next + 1) % POOL;
	}
	if (n) {
		r->cons += n;
		atomic_store_explicit(&shared->rx_cons, r->cons, memory_order_release);
	}
	return n;
}

static void receive(int copies, int cpu)
{
	struct receiver r = { .fill_prod = RING };
	uint64_t received = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(cpu);
	atomic_store(&shared->ready, 1);
	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		uint32_t n = copies == 1 ? receive_from_chunks(&r) : receive_from_slots(&r);

		if (!n)
			relax();
		received += n;
	}
	atomic_store(&shared->received, received);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sender s = { .fill_seen = RING };
	uint64_t start, end;
	uint32_t turn = 0;
	int copies, status;
	double seconds;
	pid_t child;

	copies = argc == 6 ? atoi(argv[1]) : 0;
	len = argc == 6 ? (uint32_t)atoi(argv[2]) : 0;
	seconds = argc == 6 ? atof(argv[3]) : 0;
	if (copies < 1 || copies > 2 || len < 8 || len > CHUNK || seconds <= 0) {
		fprintf(stderr, "usage: wire 1|2 LEN SECONDS CPU_TX CPU_RX\n");
		return 2;
	}
	shared = shared_memory(sizeof(*shared));
	tx_chunks = shared_memory((size_t)POOL * CHUNK);
	rx_chunks = shared_memory((size_t)POOL * CHUNK);
	slots = shared_memory((size_t)RING * CHUNK);
	memset(tx_chunks, 1, (size_t)POOL * CHUNK);
	memset(rx_chunks, 1, (size_t)POOL * CHUNK);
	memset(slots, 1, (size_t)RING * CHUNK);
	for (uint32_t i = 0; i < RING; i++)
		shared->fill[i] = (uint64_t)i * CHUNK;
	atomic_store(&shared->fill_prod, RING);

	child = fork();
	if (child < 0)
		die("fork");
	if (!child)
		receive(copies, atoi(argv[5]));
	pin(atoi(argv[4]));
	while (!atomic_load(&shared->ready))
		if (waitpid(child, &status, WNOHANG) == child)
			return 1;

	start = now_ns();
	end = start + (uint64_t)(seconds * 1e9);
	for (;;) {
		uint32_t n = copies == 1 ? send_into_chunks(&s) : send_into_slots(&s);

		if (!n)
			relax();
		if (++turn % 256 == 0 && now_ns() >= end)
			break;
	}
	end = now_ns();
	atomic_store(&shared->stop, 1);
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	printf("%.3f\n", (double)atomic_load(&shared->received) * 1e3 / (double)(end - start));
	return 0;
}
