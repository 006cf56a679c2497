/*
 * How long does one frame take to another process and back over shared memory, when both ends are awake? The yardstick for
 * the round trips of the device `wire`.
 *
 * usage: roundtrip LEN SECONDS CPU_A CPU_B
 *   LEN  bytes of a frame, 8 to 2048
 *
 * A direction is an RX ring and chunks of its receiver: the sender copies the frame into a chunk, writes a descriptor and
 * publishes the index. Both ends spin, nothing is checked, and each end sends from a chunk of its own. One frame is under way,
 * so nobody has to offer chunks. The receiver reads the first line of the frame.
 * Prints one line: the round trip in microseconds that 50, 99 and 99.9 of a hundred do not exceed.
 */
#define _GNU_SOURCE
#include "two.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHUNK = 2048,	/* bytes of a chunk */
	RING = 1024,	/* entries of a ring, and chunks of an end */
	MOST = 8 << 20,	/* round trips that are kept */
};

struct direction {
	OWN_LINES _Atomic uint32_t prod;
	OWN_LINES struct desc rx[RING];
};

struct shared {
	struct direction there, back;
	OWN_LINES _Atomic uint32_t ready;
	OWN_LINES _Atomic uint32_t stop;
};

static struct shared *shared;
static uint32_t len;
static volatile uint64_t sink;

static void *memory(size_t size)
{
	void *p = shared_memory(size);

	memset(p, 1, size);
	return p;
}

/* The n-th frame of a direction, into the chunks of its receiver. */
static inline void send_frame(struct direction *d, unsigned char *chunks, const unsigned char *frame, uint32_t n)
{
	uint32_t at = n % RING;

	memcpy(chunks + (size_t)at * CHUNK, frame, len);
	d->rx[at] = (struct desc){ .addr = (uint64_t)at * CHUNK, .len = len };
	atomic_store_explicit(&d->prod, n + 1, memory_order_release);
}

/* Wait for the n-th frame; 0: the other end has stopped. */
static inline int receive_frame(struct direction *d, const unsigned char *chunks, uint32_t n)
{
	while (atomic_load_explicit(&d->prod, memory_order_acquire) == n)
		if (atomic_load_explicit(&shared->stop, memory_order_relaxed))
			return 0;
	sink += *(const volatile uint64_t *)(chunks + d->rx[n % RING].addr);
	return 1;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	unsigned char *chunks_a, *chunks_b, *own;
	uint64_t end, before, after;
	uint32_t *trips, n = 0;
	double seconds;
	pid_t child;
	int status;

	len = argc == 5 ? (uint32_t)atoi(argv[1]) : 0;
	seconds = argc == 5 ? atof(argv[2]) : 0;
	if (len < 8 || len > CHUNK || seconds <= 0) {
		fprintf(stderr, "usage: roundtrip LEN SECONDS CPU_A CPU_B\n");
		return 2;
	}
	shared = memory(sizeof(*shared));
	memset(shared, 0, sizeof(*shared));
	chunks_a = memory((size_t)RING * CHUNK);
	chunks_b = memory((size_t)RING * CHUNK);
	trips = malloc(MOST * sizeof(*trips));
	if (!trips)
		die("malloc");

	child = fork();
	if (child < 0)
		die("fork");
	own = memory(CHUNK);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(atoi(argv[4]));
		atomic_store(&shared->ready, 1);
		for (; receive_frame(&shared->there, chunks_b, n); n++)
			send_frame(&shared->back, chunks_a, own, n);
		_exit(0);
	}
	pin(atoi(argv[3]));
	while (!atomic_load(&shared->ready))
		if (waitpid(child, &status, WNOHANG) == child)
			return 1;

	before = now_ns();
	end = before + (uint64_t)(seconds * 1e9);
	do {
		send_frame(&shared->there, chunks_b, own, n);
		receive_frame(&shared->back, chunks_a, n);
		after = now_ns();
		trips[n++] = (uint32_t)(after - before);
		before = after;
	} while (before < end && n < MOST);
	atomic_store(&shared->stop, 1);
	if (waitpid(child, &status, 0) != child || status)
		return 1;
	qsort(trips, n, sizeof(*trips), compare);
	printf("%.3f %.3f %.3f\n", trips[n / 2] / 1e3, trips[(uint64_t)n * 99 / 100] / 1e3,
	       trips[(uint64_t)n * 999 / 1000] / 1e3);
	return 0;
}
