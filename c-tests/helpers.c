/* The ring helpers of the header, on rings made by hand, and their copies in the library. No socket is involved. */
#include "rig.h"

#define SIZE 16u
#define START 0xfffffff0u

/* The memory that a producer and a consumer of one ring share. */
struct memory {
	uint32_t producer, consumer, flags;
	struct xdp_desc desc[SIZE];
};

static struct xsk_ring_prod producer_on(struct memory *m, uint32_t start)
{
	m->producer = m->consumer = start;
	return (struct xsk_ring_prod){ .cached_prod = start, .cached_cons = start + SIZE, .mask = SIZE - 1, .size = SIZE,
				       .producer = &m->producer, .consumer = &m->consumer, .ring = m->desc, .flags = &m->flags };
}

static struct xsk_ring_cons consumer_on(struct memory *m, uint32_t start)
{
	return (struct xsk_ring_cons){ .cached_prod = start, .cached_cons = start, .mask = SIZE - 1, .size = SIZE,
				       .producer = &m->producer, .consumer = &m->consumer, .ring = m->desc, .flags = &m->flags };
}

/* C54. The counters run over 2^32: nothing is lost, the slots go on in turn. */
TEST(C54_counters_wrap)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, START);
	struct xsk_ring_cons cons = consumer_on(&m, START);
	uint32_t put = 0, got = 0, idx = 0;

	while (got < 64) {
		uint32_t n = 1 + put % 5;

		if (put < 64 && xsk_ring_prod__reserve(&prod, n, &idx) == n) {
			EQ(idx, START + put, "index");
			for (uint32_t i = 0; i < n; i++)
				xsk_ring_prod__tx_desc(&prod, idx + i)->addr = put++;
			xsk_ring_prod__submit(&prod, n);
			EQ(m.producer, START + put, "producer");
		} else {
			n = xsk_ring_cons__peek(&cons, 7, &idx);
			EQ(idx, START + got, "index");
			for (uint32_t i = 0; i < n; i++)
				EQ(xsk_ring_cons__rx_desc(&cons, idx + i)->addr, got++, "entry");
			xsk_ring_cons__release(&cons, n);
			EQ(m.consumer, START + got, "consumer");
		}
	}
	CHECK(m.producer < START, "the counters did not wrap");
}

TEST(reserve_across_the_wrap)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, 0xfffffffd);
	uint32_t idx = 0;

	EQ(xsk_ring_prod__reserve(&prod, 6, &idx), 6, "reserve");
	EQ(idx, 0xfffffffd, "index");
	for (uint32_t i = 0; i < 6; i++)
		EQ(xsk_ring_prod__tx_desc(&prod, idx + i) - m.desc, (13 + i) % 16, "slot");
	xsk_ring_prod__submit(&prod, 6);
	EQ(m.producer, 3, "producer");
}

/* All or nothing; zero is no error; more than the ring holds never fits. */
TEST(reserve_edges)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, 5);
	uint32_t idx = 99;

	EQ(xsk_ring_prod__reserve(&prod, 17, &idx), 0, "more than the size");
	EQ(idx, 99, "index untouched");
	EQ(xsk_ring_prod__reserve(&prod, 0xffffffff, &idx), 0, "2^32 - 1");
	EQ(xsk_ring_prod__reserve(&prod, 0, &idx), 0, "none");
	EQ(idx, 5, "index written for none");
	EQ(xsk_ring_prod__reserve(&prod, 16, &idx), 16, "all");
	EQ(xsk_ring_prod__reserve(&prod, 1, &idx), 0, "one too many");
	xsk_ring_prod__submit(&prod, 16);
	EQ(m.producer, 21, "producer");
	m.consumer = 8;
	EQ(xsk_prod_nb_free(&prod, 1), 3, "free");
	EQ(xsk_prod_nb_free(&prod, 0), 3, "free, not refreshed");
	m.consumer = 21;
	EQ(xsk_prod_nb_free(&prod, 3), 3, "stale, but enough");
	EQ(xsk_prod_nb_free(&prod, 4), 16, "refreshed");
}

/* Leftovers of the last look are used up before the ring is looked at again. */
TEST(peek_edges)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, 0);
	struct xsk_ring_cons cons = consumer_on(&m, 0);
	uint32_t idx = 99;

	EQ(xsk_ring_cons__peek(&cons, 4, &idx), 0, "empty");
	EQ(idx, 99, "index untouched");
	xsk_ring_prod__submit(&prod, 3);
	EQ(xsk_ring_cons__peek(&cons, 2, &idx), 2, "two of three");
	EQ(idx, 0, "index");
	xsk_ring_prod__submit(&prod, 5);
	EQ(xsk_ring_cons__peek(&cons, 8, &idx), 1, "the leftover alone");
	EQ(xsk_ring_cons__peek(&cons, 0xffffffff, &idx), 5, "the rest, as Knot asks");
	EQ(idx, 3, "index");
	xsk_ring_cons__cancel(&cons, 2);
	EQ(xsk_ring_cons__peek(&cons, 8, &idx), 2, "cancelled ones again");
	EQ(idx, 6, "index");
	EQ(m.consumer, 0, "nothing released yet");
	xsk_ring_cons__release(&cons, 8);
	EQ(m.consumer, 8, "released");
	EQ(xsk_cons_nb_avail(&cons, 4), 0, "none left");
}

TEST(addresses)
{
	uint8_t area[8];

	CHECK(xsk_umem__get_data(area, 5) == area + 5, "get_data");
	EQ(xsk_umem__extract_addr(0x1234000000005678), 0x5678, "extract_addr");
	EQ(xsk_umem__extract_offset(0x1234000000005678), 0x1234, "extract_offset");
	EQ(xsk_umem__add_offset_to_addr(0x0100000000005678), 0x5778, "add_offset_to_addr");
	EQ(xsk_umem__add_offset_to_addr(UINT64_MAX), 0x100000000fffe, "all ones");
}

TEST(needs_wakeup)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, 0);

	m.flags = 0;
	EQ(xsk_ring_prod__needs_wakeup(&prod), 0, "flag clear");
	m.flags = 1;
	EQ(xsk_ring_prod__needs_wakeup(&prod), 1, "flag set");
	m.flags = 0xfffffffe;
	EQ(xsk_ring_prod__needs_wakeup(&prod), 0, "other bits");
}

#ifdef HAVE_PROD_CANCEL
TEST(C08_cancel_on_a_ring)
{
	struct memory m;
	struct xsk_ring_prod prod = producer_on(&m, 0xfffffff8);
	uint32_t idx = 0;

	for (int round = 0; round < 20; round++) {
		EQ(xsk_ring_prod__reserve(&prod, 16, &idx), 16, "all");
		xsk_ring_prod__cancel(&prod, 11);
		xsk_ring_prod__submit(&prod, 5);
		m.consumer = m.producer;
	}
	EQ(m.producer, 0xfffffff8 + 100, "producer");
	EQ(prod.cached_prod, m.producer, "cached_prod");
}
#endif

/* The struct layouts are ABI, whichever header this is compiled with. */
_Static_assert(sizeof(struct xsk_ring_prod) == 48 && sizeof(struct xsk_ring_cons) == 48, "rings");
_Static_assert(sizeof(struct xsk_umem_config) == 20 && sizeof(struct xsk_socket_config) == 20, "configurations");
_Static_assert(sizeof(struct xdp_desc) == 16 && sizeof(struct xdp_statistics) == 48, "kernel structs");
