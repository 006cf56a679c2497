/* The ring helpers on a ring made by hand: every edge case that programs can see, C54 (indices beyond 2^32) among them.
 * Built three times: with our header's inline functions, with libxdp's (the oracle), and, with -DOUT_OF_LINE, with the
 * functions that the library exports for other languages. All three must agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OUT_OF_LINE
#include <linux/if_xdp.h>
#include <stdint.h>
#include <xdp/xsk_gen.h>
__u64 *xsk_ring_prod__fill_addr(struct xsk_ring_prod *fill, __u32 idx);
const __u64 *xsk_ring_cons__comp_addr(const struct xsk_ring_cons *comp, __u32 idx);
struct xdp_desc *xsk_ring_prod__tx_desc(struct xsk_ring_prod *tx, __u32 idx);
const struct xdp_desc *xsk_ring_cons__rx_desc(const struct xsk_ring_cons *rx, __u32 idx);
int xsk_ring_prod__needs_wakeup(const struct xsk_ring_prod *prod);
__u32 xsk_prod_nb_free(struct xsk_ring_prod *prod, __u32 nb);
__u32 xsk_cons_nb_avail(struct xsk_ring_cons *cons, __u32 nb);
__u32 xsk_ring_prod__reserve(struct xsk_ring_prod *prod, __u32 nb, __u32 *idx);
void xsk_ring_prod__cancel(struct xsk_ring_prod *prod, __u32 nb);
void xsk_ring_prod__submit(struct xsk_ring_prod *prod, __u32 nb);
__u32 xsk_ring_cons__peek(struct xsk_ring_cons *cons, __u32 nb, __u32 *idx);
void xsk_ring_cons__cancel(struct xsk_ring_cons *cons, __u32 nb);
void xsk_ring_cons__release(struct xsk_ring_cons *cons, __u32 nb);
void *xsk_umem__get_data(void *umem_area, __u64 addr);
__u64 xsk_umem__extract_addr(__u64 addr);
__u64 xsk_umem__extract_offset(__u64 addr);
__u64 xsk_umem__add_offset_to_addr(__u64 addr);
#define WITH_CANCEL
#else
#include <xdp/xsk.h>
#ifdef SLIPRING_XDP_XSK_GEN_H
#define WITH_CANCEL
#endif
#endif

#define CHECK(x)                                                                 \
	do {                                                                     \
		if (!(x)) {                                                      \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #x);  \
			exit(1);                                                 \
		}                                                                \
	} while (0)

#define UNTOUCHED 0xdeadbeefu
#define MAX_SIZE 64u

static struct {
	__u32 producer, consumer, flags;
	__u64 slots[2 * MAX_SIZE];
} ring;

static struct xsk_ring_prod prod;
static struct xsk_ring_cons cons;

static void make(__u32 size, __u32 start)
{
	memset(&ring, 0, sizeof(ring));
	ring.producer = ring.consumer = start;
	prod.cached_prod = start;
	prod.cached_cons = start + size;
	cons.cached_prod = cons.cached_cons = start;
	prod.mask = cons.mask = size - 1;
	prod.size = cons.size = size;
	prod.producer = cons.producer = &ring.producer;
	prod.consumer = cons.consumer = &ring.consumer;
	prod.flags = cons.flags = &ring.flags;
	prod.ring = cons.ring = ring.slots;
}

static void producers(void)
{
	__u32 idx, i;

	make(8, 0);
	idx = UNTOUCHED;
	CHECK(xsk_ring_prod__reserve(&prod, 9, &idx) == 0 && idx == UNTOUCHED);
	CHECK(xsk_ring_prod__reserve(&prod, 6, &idx) == 6 && idx == 0);
	idx = UNTOUCHED;
	CHECK(xsk_ring_prod__reserve(&prod, 3, &idx) == 0 && idx == UNTOUCHED);
	CHECK(xsk_ring_prod__reserve(&prod, 2, &idx) == 2 && idx == 6);
	CHECK(ring.producer == 0);
	xsk_ring_prod__submit(&prod, 8);
	CHECK(ring.producer == 8);

	/* Nothing asked for: nothing got, but the index is written, and the shared index is not looked at. */
	ring.consumer = 8;
	idx = UNTOUCHED;
	CHECK(xsk_ring_prod__reserve(&prod, 0, &idx) == 0 && idx == 8 && prod.cached_cons == 8);
	CHECK(xsk_prod_nb_free(&prod, 0) == 0 && prod.cached_cons == 8);
	CHECK(xsk_prod_nb_free(&prod, 1) == 8 && prod.cached_cons == 16);

	/* A count that suffices may be stale, and is never too high. */
	make(8, 0);
	CHECK(xsk_ring_prod__reserve(&prod, 5, &idx) == 5);
	xsk_ring_prod__submit(&prod, 5);
	ring.consumer = 4;
	CHECK(xsk_prod_nb_free(&prod, 3) == 3);
	CHECK(xsk_prod_nb_free(&prod, 4) == 7);

	/* Submitting does not look at what was reserved. */
	make(8, 0);
	xsk_ring_prod__submit(&prod, 0);
	CHECK(ring.producer == 0);
	xsk_ring_prod__submit(&prod, 3);
	CHECK(ring.producer == 3 && prod.cached_prod == 0);

	/* Over 2^32. */
	make(8, 0xfffffffd);
	CHECK(xsk_ring_prod__reserve(&prod, 6, &idx) == 6 && idx == 0xfffffffd);
	for (i = 0; i < 6; i++) {
		static const unsigned int slot[] = { 5, 6, 7, 0, 1, 2 };

		CHECK(xsk_ring_prod__fill_addr(&prod, idx + i) == &ring.slots[slot[i]]);
		CHECK((void *)xsk_ring_prod__tx_desc(&prod, idx + i) == (void *)&ring.slots[2 * slot[i]]);
	}
	xsk_ring_prod__submit(&prod, 6);
	CHECK(ring.producer == 3);
	ring.consumer = 3;
	CHECK(xsk_ring_prod__reserve(&prod, 8, &idx) == 8 && idx == 3);

	/* Sizes 1 and 2 (C55). */
	for (i = 1; i <= 2; i++) {
		make(i, 0xffffffff);
		CHECK(xsk_ring_prod__reserve(&prod, i + 1, &idx) == 0);
		CHECK(xsk_ring_prod__reserve(&prod, i, &idx) == i && idx == 0xffffffff);
		CHECK(xsk_ring_prod__reserve(&prod, 1, &idx) == 0);
	}
}

static void consumers(void)
{
	__u32 idx, i;

	make(8, 0);
	idx = UNTOUCHED;
	CHECK(xsk_ring_cons__peek(&cons, 4, &idx) == 0 && idx == UNTOUCHED);
	ring.producer = 3;
	CHECK(xsk_ring_cons__peek(&cons, 2, &idx) == 2 && idx == 0);

	/* What the last look brought is used up before the next one. */
	ring.producer = 7;
	CHECK(xsk_ring_cons__peek(&cons, 8, &idx) == 1 && idx == 2);
	CHECK(xsk_ring_cons__peek(&cons, 0xffffffff, &idx) == 4 && idx == 3);
	CHECK(ring.consumer == 0);
	xsk_ring_cons__release(&cons, 7);
	CHECK(ring.consumer == 7);
	xsk_ring_cons__release(&cons, 0);
	CHECK(ring.consumer == 7);

	/* Nothing asked for: nothing got, index left, but there may be a look. */
	make(8, 0);
	ring.producer = 5;
	idx = UNTOUCHED;
	CHECK(xsk_ring_cons__peek(&cons, 0, &idx) == 0 && idx == UNTOUCHED);
	CHECK(cons.cached_prod == 5 && cons.cached_cons == 0);
	CHECK(xsk_cons_nb_avail(&cons, 0) == 0 && xsk_cons_nb_avail(&cons, 3) == 3);
	CHECK(xsk_cons_nb_avail(&cons, 0xffffffff) == 5);

	/* Over 2^32, with entries put back. */
	make(8, 0xfffffffe);
	ring.producer = 3;
	CHECK(xsk_ring_cons__peek(&cons, 8, &idx) == 5 && idx == 0xfffffffe);
	xsk_ring_cons__cancel(&cons, 4);
	CHECK(xsk_ring_cons__peek(&cons, 8, &idx) == 4 && idx == 0xffffffff);
	for (i = 0; i < 4; i++) {
		static const unsigned int slot[] = { 7, 0, 1, 2 };

		CHECK(xsk_ring_cons__comp_addr(&cons, idx + i) == &ring.slots[slot[i]]);
		CHECK((const void *)xsk_ring_cons__rx_desc(&cons, idx + i) == (void *)&ring.slots[2 * slot[i]]);
	}
	xsk_ring_cons__release(&cons, 5);
	CHECK(ring.consumer == 3);
}

/* C54: 64 and many more operations from just below 2^32 on, random batches, values checked. */
static void both(void)
{
	__u32 seed = 1, idx = 0, n, got, i;
	__u64 in = 0, out = 0;

	make(16, 0xfffffff0);
	while (in < 100000) {
		seed = seed * 1664525 + 1013904223;
		n = seed >> 27;
		got = xsk_ring_prod__reserve(&prod, n, &idx);
		CHECK(got == n || got == 0);
		for (i = 0; i < got; i++)
			*xsk_ring_prod__fill_addr(&prod, idx + i) = in++;
		xsk_ring_prod__submit(&prod, got);
		seed = seed * 1664525 + 1013904223;
		n = seed >> 27;
		got = xsk_ring_cons__peek(&cons, n, &idx);
		CHECK(got <= n && got <= 16);
		for (i = 0; i < got; i++)
			CHECK(*xsk_ring_cons__comp_addr(&cons, idx + i) == out++);
		xsk_ring_cons__release(&cons, got);
		CHECK(in - out <= 16);
	}
}

#ifdef WITH_CANCEL
/* C08: slots that were reserved and are not wanted go back. */
static void cancel(void)
{
	__u32 idx, expected = (__u32)-200, i;

	make(64, expected);
	for (i = 0; i < 100; i++) {
		CHECK(xsk_ring_prod__reserve(&prod, 64, &idx) == 64 && idx == expected);
		xsk_ring_prod__cancel(&prod, 13);
		xsk_ring_prod__submit(&prod, 51);
		expected += 51;
		CHECK(ring.producer == expected && prod.cached_prod == expected);
		ring.consumer = expected;
	}
	xsk_ring_prod__cancel(&prod, 0);
	CHECK(prod.cached_prod == expected);
	CHECK(sizeof(struct xsk_ring_prod) == 48 || sizeof(void *) != 8);
}
#endif

static void others(void)
{
	static const __u32 flags[] = { 0, 1, 2, 0xffffffff, 0xfffffffe };
	static char area[8];
	unsigned int i;

	make(8, 0);
	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		ring.flags = flags[i];
		CHECK(xsk_ring_prod__needs_wakeup(&prod) == (int)(flags[i] & 1));
	}
	CHECK(xsk_umem__get_data(area, 0) == area && xsk_umem__get_data(area, 5) == area + 5);
	CHECK(xsk_umem__extract_addr(0x0123456789abcdef) == 0x456789abcdef);
	CHECK(xsk_umem__extract_offset(0x0123456789abcdef) == 0x0123);
	CHECK(xsk_umem__add_offset_to_addr(0x0123456789abcdef) == 0x456789abcdef + 0x0123);
	CHECK(xsk_umem__add_offset_to_addr((__u64)-1) == 0x100000000fffe);
}

int main(void)
{
	producers();
	consumers();
	both();
#ifdef WITH_CANCEL
	cancel();
#endif
	others();
	return 0;
}
