/* Several sockets over one umem: on one queue, on several queues, on several interfaces; in every order of deletion. */
#include "peer.h"

/* Three sockets on one queue, deleted in each of the six orders: those that are left go on sending, the fill and
 * completion ring live until the last one is gone, and then nothing is left. */
TEST(every_order_of_deletion)
{
	static const uint8_t orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	struct footprint before = { 0, 0 };

	for (int round = 0; round < 7; round++) {
		const uint8_t *order = orders[round % 6];
		struct xsk_ring_prod tx[3];
		struct xsk_socket *xsk[3];
		struct xsk_socket_config config;
		struct rig r;
		struct peer p;
		uint64_t addr;

		if (round == 1) /* the first round was to warm up */
			before = footprint();
		rig_open(&r, (struct rig_options){ .no_rx = true });
		peer_open(&p);
		config = no_program(&r);
		xsk[0] = r.xsk;
		tx[0] = r.tx;
		EQ(xsk_socket__create(&xsk[1], ifname_of(A), 0, r.umem, NULL, &tx[1], &config), 0, "second socket");
		EQ(xsk_socket__create_shared(&xsk[2], ifname_of(A), 0, r.umem, NULL, &tx[2], &r.fill, &r.comp, &config), 0,
		   "third socket");
		CHECK(xsk_socket__fd(xsk[0]) != xsk_socket__fd(xsk[1]) && xsk_socket__fd(xsk[1]) != xsk_socket__fd(xsk[2]),
		      "sockets with the same descriptor");
		EQ(xsk_socket__fd(xsk[0]), xsk_umem__fd(r.umem), "the first socket's descriptor");
		for (int gone = 0; gone < 3; gone++) {
			for (int i = gone; i < 3; i++) {
				int s = order[i];

				send_one(&r, &tx[s], xsk_socket__fd(xsk[s]), (uint32_t)(10 * gone + s));
				EQ(peer_receive(&p, FRAME_LEN), 10 * gone + s, "frame");
				EQ(take_completions(&r.comp, &addr, 1), 1, "completion");
				EQ(addr, (10 * gone + s) * 4096, "completed address");
			}
			EQ(xsk_umem__delete(r.umem), -EBUSY, "deleting a umem in use");
			xsk_socket__delete(xsk[order[gone]]);
		}
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
		EQ(munmap(r.area, r.size), 0, "munmap");
		peer_close(&p);
		if (round > 0)
			check_clean(before, "a round of creation and deletion");
	}
}

/* C46. A later socket's bind flags are not looked at, and it inherits the wake-up flag. */
TEST(C46_later_bind_flags_are_dropped)
{
	static const uint16_t flags[] = { 0, XDP_ZEROCOPY, XDP_COPY | XDP_ZEROCOPY, 1u << 15, XDP_SHARED_UMEM };
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct xsk_socket_config config = no_program(&r);
		struct more m = { 0 };

		config.bind_flags = flags[i];
		EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, NULL, &m.tx, &config), 0, "later socket");
		EQ(xsk_ring_prod__needs_wakeup(&m.tx), 1, "TX flag");
		xsk_socket__delete(m.xsk);
	}
	rig_close(&r);
}

/* C35. Another queue needs rings of its own, and both of them. */
TEST(C35_second_queue)
{
	struct xsk_socket_config config;
	struct rig r;
	struct more m = { 0 };

	memset(&m, 0, sizeof(m));
	rig_open(&r, (struct rig_options){ .no_rx = true, .port = MANY_A });
	config = no_program(&r);
	EQ(xsk_socket__create(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, &config), -EFAULT, "plain create");
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, NULL, NULL, &config), -EFAULT,
	   "no rings");
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, &m.fill, NULL, &config), -EFAULT,
	   "no completion ring");
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, NULL, &m.comp, &config), -EFAULT,
	   "no fill ring");
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, &m.fill, &m.comp, &config), 0,
	   "both rings");
	EQ(m.fill.size, 256, "fill ring as configured for the umem");
	send_one(&r, &m.tx, xsk_socket__fd(m.xsk), 3);
	EQ(take_completions(&m.comp, NULL, 4), 1, "completion on the second queue's ring");
	EQ(take_completions(&r.comp, NULL, 4), 0, "completion on the first queue's ring");
	xsk_socket__delete(m.xsk);
	rig_close(&r);
}

/* Queues are kept apart: a frame arrives on the queue it was sent on. */
TEST(queues_are_separate)
{
	struct xsk_socket_config config;
	struct more from[2] = { 0 }, to[2] = { 0 }; /* libxdp leaves the cached indices as they are (D27) */
	struct rig r, s;

	rig_open(&r, (struct rig_options){ .port = MANY_A });
	rig_open(&s, (struct rig_options){ .port = MANY_B });
	config = rig_config(&r.opt);
	for (uint32_t q = 0; q < 2; q++) {
		EQ(xsk_socket__create_shared(&to[q].xsk, ifname_of(MANY_A), 6 + q, r.umem, &to[q].rx, &to[q].tx, &to[q].fill,
					     &to[q].comp, &config),
		   0, "receiving socket");
		EQ(xsk_socket__create_shared(&from[q].xsk, ifname_of(MANY_B), 6 + q, s.umem, &from[q].rx, &from[q].tx,
					     &from[q].fill, &from[q].comp, &config),
		   0, "sending socket");
		for (uint32_t i = 0; i < 8; i++) {
			uint32_t idx = 0;

			EQ(xsk_ring_prod__reserve(&to[q].fill, 1, &idx), 1, "fill");
			*xsk_ring_prod__fill_addr(&to[q].fill, idx) = (q * 100 + i) * 4096;
			xsk_ring_prod__submit(&to[q].fill, 1);
		}
	}
	for (uint32_t i = 0; i < 8; i++)
		for (uint32_t q = 0; q < 2; q++)
			send_one(&s, &from[q].tx, xsk_socket__fd(from[q].xsk), q * 100 + i);
	for (uint32_t q = 0; q < 2; q++) {
		uint32_t idx = 0, seen = 0, chunks = 0;

		WAIT_UNTIL(ring_entries(&to[q].rx) == 8, 1000, "eight frames");
		EQ(xsk_ring_cons__peek(&to[q].rx, 64, &idx), 8, "frames");
		for (uint32_t i = 0; i < 8; i++) {
			const struct xdp_desc *d = xsk_ring_cons__rx_desc(&to[q].rx, idx + i);

			CHECK(d->addr / 4096 - q * 100 < 8 && d->addr % 4096 == HEADROOM, "chunk %llu is not of the queue's own fill ring",
			      (unsigned long long)d->addr);
			chunks |= 1u << (d->addr / 4096 - q * 100);
			seen |= 1u << (frame_id(xsk_umem__get_data(r.area, d->addr), d->len) - q * 100);
		}
		/* veth may reorder when the sender changes processors, and so may the chunks be (C29). */
		EQ(seen, 0xff, "frames of the queue");
		EQ(chunks, 0xff, "chunks of the queue");
		xsk_ring_cons__release(&to[q].rx, 8);
	}
	EQ(ring_entries(&r.rx), 0, "frames on queue 0");
	for (uint32_t q = 0; q < 2; q++) {
		xsk_socket__delete(to[q].xsk);
		xsk_socket__delete(from[q].xsk);
	}
	rig_close(&r);
	rig_close(&s);
}

/* Two interfaces over one umem: what one receives, the other sends on, without a copy. */
TEST(two_interfaces)
{
	struct xsk_socket_config config;
	struct rig r;
	struct more m = { 0 };
	struct peer p, q;
	uint64_t addr;

	rig_open(&r, (struct rig_options){ 0 });
	config = rig_config(&r.opt);
	EQ(BUSY_RETRY(xsk_socket__create_shared(&m.xsk, ifname_of(C), 0, r.umem, &m.rx, &m.tx, &m.fill, &m.comp, &config)), 0,
	   "socket on the other interface");
	CHECK(m.comp.ring != r.comp.ring && m.fill.ring != r.fill.ring, "the interfaces share a ring");
	peer_open(&p);
	peer_open_on(&q, D);
	rig_fill(&r, 0, 64);
	for (uint32_t i = 0; i < 32; i++) {
		struct xdp_desc d;
		uint32_t idx = 0;

		peer_send(&p, FRAME_LEN, i);
		CHECK(rig_receive(&r, &d, 1000), "frame %u", i);
		EQ(xsk_ring_prod__reserve(&m.tx, 1, &idx), 1, "room");
		*xsk_ring_prod__tx_desc(&m.tx, idx) = d;
		xsk_ring_prod__submit(&m.tx, 1);
		EQ(kick_fd(xsk_socket__fd(m.xsk)), 0, "kick");
		EQ(peer_receive(&q, FRAME_LEN), i, "forwarded frame");
		EQ(take_completions(&m.comp, &addr, 1), 1, "completion");
		EQ(addr, d.addr, "its address");
	}
	xsk_socket__delete(r.xsk); /* the first: the other goes on */
	send_one(&r, &m.tx, xsk_socket__fd(m.xsk), 200);
	EQ(peer_receive(&q, FRAME_LEN), 200, "frame afterwards");
	xsk_socket__delete(m.xsk);
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	peer_close(&p);
	peer_close(&q);
}

/* The same memory as two umems, each with sockets: DPDK does that. */
TEST(one_memory_two_umems)
{
	struct rig r, s;
	struct xsk_socket_config config;
	struct peer p, q;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ 0 });
	memset(&s, 0, sizeof(s));
	s.opt = r.opt;
	s.opt.port = C;
	s.size = r.size;
	s.area = r.area;
	EQ(rig_umem(&s), 0, "second umem over the memory");
	config = rig_config(&s.opt);
	EQ(BUSY_RETRY(xsk_socket__create(&s.xsk, ifname_of(C), 0, s.umem, &s.rx, &s.tx, &config)), 0, "socket on it");
	peer_open(&p);
	peer_open_on(&q, D);
	rig_fill(&r, 0, 8);
	rig_fill(&s, 8, 8);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "frame on the first");
	EQ(d.addr, HEADROOM, "its chunk");
	rig_queue_at(&s, d.addr, d.len, 0); /* straight on through the other */
	EQ(rig_kick(&s), 0, "kick");
	EQ(peer_receive(&q, FRAME_LEN), 1, "frame");
	rig_complete(&s, 1);
	xsk_socket__delete(r.xsk);
	EQ(xsk_umem__delete(r.umem), 0, "first umem");
	peer_send(&q, FRAME_LEN, 2);
	CHECK(rig_receive(&s, &d, 1000), "the second still receives");
	EQ(d.addr, 8 * 4096 + HEADROOM, "its chunk");
	rig_close(&s);
	peer_close(&p);
	peer_close(&q);
}

/* A program that keeps the map itself says who receives. */
TEST(update_xskmap_chooses_the_receiver)
{
	struct xsk_socket_config config;
	struct xdp_desc d;
	struct rig r, view;
	struct more m = { 0 };
	struct peer p;
	int map = -1;

	EQ(xsk_setup_xdp_prog((int)if_nametoindex(ifname_of(A)), &map), 0, "xsk_setup_xdp_prog");
	CHECK(map >= 0, "map %d", map);
	memset(&r, 0, sizeof(r));
	r.opt = rig_defaults((struct rig_options){ 0 });
	r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
	r.area = map_area(r.size);
	EQ(rig_umem(&r), 0, "xsk_umem__create");
	config = no_program(&r);
	EQ(xsk_socket__create(&r.xsk, ifname_of(A), 0, r.umem, &r.rx, &r.tx, &config), 0, "first socket");
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &config), 0, "second socket");
	view = r;
	view.rx = m.rx;
	peer_open(&p);
	rig_fill(&r, 0, 32);
	EQ(xsk_socket__update_xskmap(r.xsk, map), 0, "map names the first");
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "the first receives");
	EQ(xsk_socket__update_xskmap(m.xsk, map), 0, "map names the second");
	peer_send(&p, FRAME_LEN, 2);
	CHECK(rig_receive(&view, &d, 1000), "the second receives");
	CHECK(!rig_receive(&r, &d, 20), "the first received too");
	EQ(xsk_socket__update_xskmap(r.xsk, -1), -EBADF, "no map");
	peer_close(&p);
	xsk_socket__delete(m.xsk);
	rig_close(&r);
	close(map);
}
