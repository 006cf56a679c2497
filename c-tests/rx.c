/* Receive: where frames land, how chunks are used up, what is counted when there is no room. */
#include "peer.h"

static void fill_addr(struct rig *r, uint64_t addr)
{
	uint32_t idx = 0;

	EQ(xsk_ring_prod__reserve(&r->fill, 1, &idx), 1, "room in the fill ring");
	*xsk_ring_prod__fill_addr(&r->fill, idx) = addr;
	xsk_ring_prod__submit(&r->fill, 1);
}

static struct xdp_desc receive(struct rig *r, uint32_t len, uint32_t id)
{
	struct xdp_desc d;

	CHECK(rig_receive(r, &d, 1000), "frame %u did not come", id);
	EQ(d.len, len, "length");
	EQ(d.options, 0, "options");
	EQ(frame_id(xsk_umem__get_data(r->area, d.addr), d.len), id, "frame");
	return d;
}

/* Frames arrive byte for byte, in order, in the chunks of the fill ring, without a call by the receiver. */
TEST(frames_arrive)
{
	static const uint32_t lengths[] = { 18, 60, 64, 100, 1000, 1514 };
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .no_tx = true });
	peer_open(&p);
	rig_fill(&r, 10, 6);
	for (uint32_t i = 0; i < 6; i++)
		peer_send(&p, lengths[i], i);
	for (uint32_t i = 0; i < 6; i++)
		EQ(receive(&r, lengths[i], i).addr, (10 + i) * 4096 + HEADROOM, "address");
	EQ(ring_pending(&r.fill), 0, "unused chunks");
	peer_close(&p);
	rig_close(&r);
}

/* The head room moves received data: 256 bytes and what was asked for. */
TEST(C27_headroom)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .chunk = 2048, .headroom = 100 });
	peer_open(&p);
	rig_fill(&r, 3, 1);
	peer_send(&p, FRAME_LEN, 1);
	EQ(receive(&r, FRAME_LEN, 1).addr, 3 * 2048 + 356, "address");
	peer_close(&p);
	rig_close(&r);
}

/* A raw RX address may go back to the fill ring: it is rounded down to its chunk. */
TEST(C28_raw_addresses_go_back)
{
	const uint32_t rounds = 10000;
	bool ours[8] = { false };
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .chunk = 2048 });
	peer_open(&p);
	rig_fill(&r, 0, 8);
	for (uint32_t i = 0; i < rounds; i++) {
		struct xdp_desc d;
		uint64_t chunk;

		peer_send(&p, FRAME_LEN, i);
		d = receive(&r, FRAME_LEN, i);
		chunk = d.addr / 2048;
		EQ(d.addr % 2048, HEADROOM, "offset in the chunk");
		CHECK(chunk < 8 && !ours[chunk], "chunk %llu was ours", (unsigned long long)chunk);
		ours[chunk] = true;
		if (i % 3 == 0 || i % 8 == 7) { /* return them in another order now and then */
			for (uint32_t c = 8; c-- > 0;) {
				if (ours[c])
					fill_addr(&r, c * 2048 + HEADROOM + c * 7);
				ours[c] = false;
			}
		}
	}
	peer_close(&p);
	rig_close(&r);
}

/* With an empty fill ring the frame is lost, and counted twice over. Once there are chunks, traffic resumes. */
TEST(C57_empty_fill_ring)
{
	struct xdp_statistics s;
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(!rig_receive(&r, &d, 50), "a frame without a chunk");
	s = rig_statistics(rig_fd(&r));
	EQ(s.rx_dropped, 1, "rx_dropped");
	EQ(s.rx_fill_ring_empty_descs, 1, "rx_fill_ring_empty_descs");
	EQ(s.rx_ring_full, 0, "rx_ring_full");
	rig_fill(&r, 0, 1);
	peer_send(&p, FRAME_LEN, 2);
	receive(&r, FRAME_LEN, 2);
	EQ(rig_statistics(rig_fd(&r)).rx_dropped, 1, "rx_dropped afterwards");
	peer_close(&p);
	rig_close(&r);
}

/* With a full RX ring the frame is lost and counted, and its chunk stays in the fill ring. */
TEST(C57_rx_ring_full)
{
	struct xdp_statistics s;
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .rx = 16 });
	peer_open(&p);
	rig_fill(&r, 0, 64);
	for (uint32_t i = 0; i < 20; i++)
		peer_send(&p, FRAME_LEN, i);
	WAIT_UNTIL(rig_statistics(rig_fd(&r)).rx_ring_full == 4, 1000, "rx_ring_full 4");
	s = rig_statistics(rig_fd(&r));
	EQ(s.rx_dropped, 0, "rx_dropped");
	EQ(s.rx_fill_ring_empty_descs, 0, "rx_fill_ring_empty_descs");
	EQ(ring_pending(&r.fill), 48, "chunks in the fill ring");
	for (uint32_t i = 0; i < 16; i++)
		receive(&r, FRAME_LEN, i);
	peer_send(&p, FRAME_LEN, 99);
	EQ(receive(&r, FRAME_LEN, 99).addr, 16 * 4096 + HEADROOM, "the next chunk");
	peer_close(&p);
	rig_close(&r);
}

/* Bad fill addresses are passed over, and not counted anywhere. */
TEST(C57_bad_fill_addresses)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .chunk = 2048 });
	peer_open(&p);
	fill_addr(&r, 256 * 2048);
	fill_addr(&r, ~(uint64_t)0);
	fill_addr(&r, (uint64_t)1 << 48);
	fill_addr(&r, 5 * 2048 + 77);
	peer_send(&p, FRAME_LEN, 1);
	EQ(receive(&r, FRAME_LEN, 1).addr, 5 * 2048 + HEADROOM, "address");
	EQ(ring_pending(&r.fill), 0, "chunks in the fill ring");
	EQ(rig_statistics(rig_fd(&r)).rx_invalid_descs, 0, "rx_invalid_descs");
	EQ(rig_statistics(rig_fd(&r)).rx_dropped, 0, "rx_dropped");
	peer_close(&p);
	rig_close(&r);
}

/* Every way to receive succeeds and gives nothing: the data is in the ring. */
TEST(receive_calls)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	struct mmsghdr msgs[2];
	struct msghdr msg;
	struct rig r;
	struct peer p;
	char data[8];
	int fd;

	memset(&msg, 0, sizeof(msg));
	memset(msgs, 0, sizeof(msgs));
	rig_open(&r, (struct rig_options){ .no_tx = true });
	peer_open(&p);
	fd = rig_fd(&r);
	rig_fill(&r, 0, 4);
	peer_send(&p, FRAME_LEN, 1);
	for (int round = 0; round < 2; round++) { /* with a frame in the ring, and without */
		EQ(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL), 0, "recvfrom");
		EQ(recvfrom(fd, data, 8, MSG_DONTWAIT, (struct sockaddr *)&from, &len), 0, "recvfrom with an address");
		EQ(len, 0, "length of the address");
		EQ(recv(fd, data, 8, MSG_DONTWAIT), 0, "recv");
		EQ(recvmsg(fd, &msg, MSG_DONTWAIT), 0, "recvmsg");
		EQ(recvmmsg(fd, msgs, 2, MSG_DONTWAIT, NULL), 2, "recvmmsg");
		EQ(recv(fd, data, 8, 0), -1, "recv that may block");
		EQ(errno, EOPNOTSUPP, "recv that may block");
		EQ(read(fd, data, 8), -1, "read that may block");
		EQ(errno, EOPNOTSUPP, "read that may block");
		if (!round)
			receive(&r, FRAME_LEN, 1);
	}
	peer_close(&p);
	rig_close(&r);
}

/* An RX-only socket receives; its statistics and rings are its own. */
TEST(C56_rx_only_on_two_wires)
{
	struct rig r, other;
	struct peer p, q;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ .no_tx = true });
	rig_open(&other, (struct rig_options){ .no_tx = true, .port = C });
	peer_open(&p);
	peer_open_on(&q, D);
	rig_fill(&r, 0, 2);
	rig_fill(&other, 8, 2);
	peer_send(&p, FRAME_LEN, 1);
	peer_send(&q, FRAME_LEN, 2);
	receive(&r, FRAME_LEN, 1);
	receive(&other, FRAME_LEN, 2);
	CHECK(!rig_receive(&r, &d, 20) && !rig_receive(&other, &d, 20), "a frame went to the wrong wire");
	peer_close(&p);
	peer_close(&q);
	rig_close(&r);
	rig_close(&other);
}

/* Received frames are sent on from where they lie, and the completion brings the same address back. */
TEST(forward_in_place)
{
	struct rig r;
	struct peer p;
	uint64_t addr;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 128);
	for (uint32_t i = 0; i < 100; i++) {
		struct xdp_desc d;

		peer_send(&p, FRAME_LEN, i);
		d = receive(&r, FRAME_LEN, i);
		rig_queue_at(&r, d.addr, d.len, 0);
		EQ(rig_kick(&r), 0, "kick");
		EQ(peer_receive(&p, FRAME_LEN), i, "frame that came back");
		EQ(take_completions(&r.comp, &addr, 1), 1, "completion");
		EQ(addr, d.addr, "completed address");
		fill_addr(&r, addr);
	}
	peer_close(&p);
	rig_close(&r);
}

/* A lossless wire: with the far end's rings full the sender is held back, and nothing is lost. */
TEST(full_wait_holds_sender_back)
{
	struct rig s, r;
	uint32_t got = 0, done = 0;

	engine_only("full=wait");
	rig_open(&s, (struct rig_options){ .port = WAIT_A });
	rig_open(&r, (struct rig_options){ .port = WAIT_B, .rx = 16 });
	rig_fill(&r, 0, 64);
	rig_queue(&s, 0, 40);
	for (int i = 0; i < 10; i++)
		EQ(rig_kick(&s), EAGAIN, "kick without room at the far end");
	EQ(ring_pending(&s.tx), 24, "frames that wait");
	EQ(take_completions(&s.comp, NULL, 64), 16, "completions");
	while (got < 40) {
		struct xdp_desc d;

		CHECK(rig_receive(&r, &d, 1000), "frame %u did not come", got);
		EQ(frame_id(xsk_umem__get_data(r.area, d.addr), d.len), got, "frame");
		got++;
		rig_kick(&s);
	}
	done = 16 + take_completions(&s.comp, NULL, 64);
	EQ(done, 40, "completions");
	EQ(rig_statistics(rig_fd(&r)).rx_ring_full, 0, "rx_ring_full");
	EQ(rig_statistics(rig_fd(&r)).rx_dropped, 0, "rx_dropped");
	rig_close(&s);
	rig_close(&r);
}

/* The far end of a lossless wire goes away while frames are held back: they complete, the sender never hangs. */
TEST(C10_far_end_goes_away)
{
	struct rig s, r;

	engine_only("full=wait");
	rig_open(&s, (struct rig_options){ .port = WAIT_A });
	rig_open(&r, (struct rig_options){ .port = WAIT_B, .rx = 16 });
	rig_fill(&r, 0, 64);
	rig_queue(&s, 0, 48);
	rig_kick(&s);
	EQ(take_completions(&s.comp, NULL, 64), 16, "completions");
	rig_close(&r);
	rig_complete(&s, 32);
	rig_close(&s);
}

/* Nobody at the far end: what is sent is lost and completes. */
TEST(nobody_at_the_far_end)
{
	struct rig s;

	rig_open(&s, (struct rig_options){ .port = on_kernel() ? A : WAIT_A });
	rig_queue(&s, 0, 32);
	rig_complete(&s, 32);
	EQ(ring_pending(&s.tx), 0, "frames that wait");
	rig_close(&s);
}
