/* Frames of several descriptors, in both directions. */
#include "peer.h"

/* Frames of several descriptors go out as one; each descriptor completes. No XDP_USE_SG is needed to send them. */
TEST(C30_pieces_sent_as_one)
{
	struct rig r;
	struct peer p;
	uint8_t frame[300];
	uint64_t addrs[4];

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	make_frame(frame, 300, 7);
	memcpy(r.area + 4096, frame, 120);
	memcpy(r.area + 3 * 4096 + 64, frame + 120, 100);
	memcpy(r.area + 2 * 4096, frame + 220, 80);
	rig_queue_at(&r, 4096, 120, XDP_PKT_CONTD);
	rig_queue_at(&r, 3 * 4096 + 64, 100, XDP_PKT_CONTD);
	rig_queue_at(&r, 2 * 4096, 80, 0);
	rig_queue(&r, 5, 1);
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_receive(&p, 300), 7, "the frame of three pieces");
	EQ(peer_receive(&p, FRAME_LEN), 5, "the frame behind it");
	EQ(take_completions(&r.comp, addrs, 4), 4, "completions");
	EQ(addrs[0], 4096, "first piece");
	EQ(addrs[1], 3 * 4096 + 64, "second piece");
	EQ(addrs[2], 2 * 4096, "third piece");
	EQ(addrs[3], 5 * 4096, "frame behind");
	peer_close(&p);
	rig_close(&r);
}

/* A chain whose end has not been queued yet waits, out of the ring, and completes with its end. */
TEST(chain_waits_for_its_end)
{
	struct rig r;
	struct peer p;
	uint8_t frame[120];

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	make_frame(frame, 120, 3);
	memcpy(r.area + 4096, frame, 60);
	memcpy(r.area + 8192, frame + 60, 60);
	rig_queue_at(&r, 4096, 60, XDP_PKT_CONTD);
	for (int i = 0; i < 2; i++) {
		EQ(rig_kick(&r), 0, "kick without the end");
		EQ(take_completions(&r.comp, NULL, 4), 0, "completions without the end");
		EQ(peer_count(&p, 20), 0, "frames without the end");
	}
	rig_queue_at(&r, 8192, 60, 0);
	EQ(rig_kick(&r), 0, "kick with the end");
	EQ(peer_receive(&p, 120), 3, "the frame");
	EQ(take_completions(&r.comp, NULL, 4), 2, "completions");
	peer_close(&p);
	rig_close(&r);
}

/* One bad piece spoils the whole chain: every piece is consumed, counted as invalid and completed, none is sent. */
TEST(bad_piece_spoils_the_chain)
{
	struct rig r;
	struct peer p;
	uint64_t addrs[8];
	uint32_t n = 0;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	make_frame(r.area + 4096, 60, 1);
	rig_queue_at(&r, 4096, 60, XDP_PKT_CONTD);
	rig_queue_at(&r, 4096 * 300, 60, XDP_PKT_CONTD);
	rig_queue_at(&r, 4096 * 3, 60, 0);
	rig_queue(&r, 9, 1);
	for (int i = 0; i < 3; i++) {
		EQ(rig_kick(&r), 0, "kick");
		n += take_completions(&r.comp, addrs + n, 8 - n);
	}
	EQ(ring_pending(&r.tx), 0, "frames that wait");
	EQ(n, 4, "completions");
	EQ(addrs[0], 4096, "first piece");
	EQ(addrs[1], 4096 * 300, "bad piece");
	EQ(addrs[2], 4096 * 3, "last piece");
	EQ(addrs[3], 4096 * 9, "the frame behind");
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 3, "invalid descriptors");
	EQ(peer_receive(&p, FRAME_LEN), 9, "the frame behind");
	EQ(peer_count(&p, 20), 0, "other frames");
	peer_close(&p);
	rig_close(&r);
}

/* Eighteen pieces are a frame; a longer chain is refused whole. */
TEST(longest_chain)
{
	struct rig r;
	struct peer p;
	uint8_t frame[18 * 20];
	uint32_t done = 0;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	make_frame(frame, sizeof(frame), 4);
	for (uint32_t i = 0; i < 18; i++) {
		memcpy(r.area + i * 4096, frame + i * 20, 20);
		rig_queue_at(&r, i * 4096, 20, i < 17 ? XDP_PKT_CONTD : 0);
	}
	EQ(rig_kick(&r), 0, "kick of 18 pieces");
	EQ(take_completions(&r.comp, NULL, 32), 18, "completions");
	EQ(peer_receive(&p, sizeof(frame)), 4, "the frame");
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 0, "invalid descriptors");
	for (uint32_t i = 0; i < 20; i++)
		rig_queue_at(&r, i * 4096, 20, i < 19 ? XDP_PKT_CONTD : 0);
	rig_queue(&r, 30, 1);
	for (int i = 0; i < 3; i++) {
		EQ(rig_kick(&r), 0, "kick of 20 pieces");
		done += take_completions(&r.comp, NULL, 32);
	}
	EQ(done, 21, "completions");
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 20, "invalid descriptors");
	EQ(peer_receive(&p, FRAME_LEN), 30, "the frame behind");
	peer_close(&p);
	rig_close(&r);
}

/* The budget counts descriptors, not frames. */
TEST(C14_budget_counts_pieces)
{
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	for (uint32_t i = 0; i < 40; i++) {
		make_frame(r.area + i * 4096, FRAME_LEN, i);
		rig_queue_at(&r, i * 4096, FRAME_LEN, i % 2 ? 0 : XDP_PKT_CONTD);
	}
	EQ(rig_kick(&r), EAGAIN, "kick");
	EQ(ring_pending(&r.tx), 8, "descriptors that wait");
	EQ(take_completions(&r.comp, NULL, 64), 32, "completions");
	EQ(rig_kick(&r), 0, "kick");
	EQ(take_completions(&r.comp, NULL, 64), 8, "completions");
	rig_close(&r);
}

/* C30. A frame larger than a chunk comes as several descriptors to a socket that asked for it, else not at all. */
TEST(C30_large_frame_received)
{
	uint8_t frame[3500], got[3500];
	struct xdp_desc d;
	struct rig r;
	struct peer p;

	not_libxdp("its default program is refused on an interface with a large MTU");
	make_frame(frame, sizeof(frame), 9);
	rig_open(&r, (struct rig_options){ .port = JUMBO_A, .chunk = 2048, .bind_flags = XDP_COPY | XDP_USE_SG });
	peer_open_on(&p, JUMBO_B);
	rig_fill(&r, 4, 4);
	peer_send_bytes(&p, frame, sizeof(frame));
	CHECK(rig_receive(&r, &d, 1000), "first piece");
	EQ(d.addr, 4 * 2048 + HEADROOM, "first piece");
	EQ(d.len, 1792, "first piece");
	EQ(d.options, XDP_PKT_CONTD, "first piece");
	memcpy(got, r.area + d.addr, 1792);
	CHECK(rig_receive(&r, &d, 1000), "second piece");
	EQ(d.addr, 5 * 2048 + HEADROOM, "second piece");
	EQ(d.len, 1708, "second piece");
	EQ(d.options, 0, "second piece");
	memcpy(got + 1792, r.area + d.addr, 1708);
	EQ(frame_id(got, sizeof(got)), 9, "the frame");
	rig_close(&r);
	rig_open(&r, (struct rig_options){ .port = JUMBO_A, .chunk = 2048 });
	rig_fill(&r, 4, 4);
	peer_send_bytes(&p, frame, sizeof(frame));
	CHECK(!rig_receive(&r, &d, 50), "a large frame for a socket that cannot take it");
	EQ(rig_statistics(rig_fd(&r)).rx_dropped, 1, "rx_dropped");
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "a small frame afterwards");
	EQ(d.len, FRAME_LEN, "its length");
	peer_close(&p);
	rig_close(&r);
}
