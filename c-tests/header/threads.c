/* A producer and a consumer thread on one ring, through the inline helpers. Built with -fsanitize=thread: a helper that
 * publishes without release, or reads the other side without acquire, is reported as a race on the slots. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <xdp/xsk.h>

#define SIZE 8u
#define ENTRIES 20000u

static __u32 producer = 0xfffffff0, consumer = 0xfffffff0, flags;
static __u64 slots[SIZE];

static void *produce(void *unused)
{
	struct xsk_ring_prod prod = { producer, producer + SIZE, SIZE - 1, SIZE, &producer, &consumer, slots, &flags };
	__u32 idx, sent = 0, batch, i;

	(void)unused;
	while (sent < ENTRIES) {
		batch = 1 + sent % 3;
		if (!xsk_ring_prod__reserve(&prod, batch, &idx)) {
			sched_yield();
			continue;
		}
		for (i = 0; i < batch; i++)
			*xsk_ring_prod__fill_addr(&prod, idx + i) = sent++;
		xsk_ring_prod__submit(&prod, batch);
	}
	return NULL;
}

int main(void)
{
	struct xsk_ring_cons cons = { consumer, consumer, SIZE - 1, SIZE, &producer, &consumer, slots, &flags };
	__u32 idx, got, received = 0, i;
	pthread_t thread;

	if (pthread_create(&thread, NULL, produce, NULL))
		return 1;
	while (received < ENTRIES) {
		got = xsk_ring_cons__peek(&cons, 4, &idx);
		if (!got)
			sched_yield();
		for (i = 0; i < got; i++, received++) {
			if (*xsk_ring_cons__comp_addr(&cons, idx + i) != received) {
				fprintf(stderr, "entry %u is out of order\n", received);
				return 1;
			}
		}
		xsk_ring_cons__release(&cons, got);
	}
	pthread_join(thread, NULL);
	return 0;
}
