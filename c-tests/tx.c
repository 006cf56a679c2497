/* Transmit: what leaves, how much of it per call, and which descriptors are refused. */
#include "peer.h"

#include <fcntl.h>
#include <sys/uio.h>

/* Frames arrive byte for byte, in order, and each completes with the address that was submitted. */
TEST(frames_arrive_and_complete)
{
	static const uint32_t lengths[] = { 18, 60, 64, 100, 1000, 1500 };
	struct rig r;
	struct peer p;
	uint64_t addrs[6];

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	for (uint32_t i = 0; i < 6; i++) {
		make_frame(r.area + i * 4096, lengths[i], i);
		rig_queue_at(&r, i * 4096, lengths[i], 0);
	}
	EQ(rig_kick(&r), 0, "kick");
	for (uint32_t i = 0; i < 6; i++)
		EQ(peer_receive(&p, lengths[i]), i, "number of the frame");
	WAIT_UNTIL(ring_entries(&r.comp) == 6, 1000, "six completions");
	EQ(take_completions(&r.comp, addrs, 6), 6, "completions");
	for (uint32_t i = 0; i < 6; i++)
		EQ(addrs[i], i * 4096, "address of the completion");
	peer_close(&p);
	rig_close(&r);
}

/* A call sends 32 frames at the most and says EAGAIN while there are more. */
TEST(C14_budget)
{
	struct rig r;
	struct peer p;
	uint32_t total = 0, left = 300;

	rig_open(&r, (struct rig_options){ .no_rx = true, .chunks = 512, .tx = 512, .comp = 512 });
	peer_open(&p);
	rig_queue(&r, 0, 300);
	for (uint32_t round = 0; round < 9; round++) {
		EQ(rig_kick(&r), EAGAIN, "kick with more than 32 frames");
		left -= 32;
		EQ(ring_pending(&r.tx), left, "frames that wait after a kick");
	}
	EQ(rig_kick(&r), 0, "last kick");
	EQ(ring_pending(&r.tx), 0, "frames that wait after the last kick");
	WAIT_UNTIL((total += take_completions(&r.comp, NULL, 512)) == 300, 1000, "300 completions");
	EQ(peer_count(&p, 200), 300, "frames at the peer");
	EQ(rig_kick(&r), 0, "kick of an empty ring");
	peer_close(&p);
	rig_close(&r);
}

/* Exactly 32: is that "more"? The kernel's answer is no. */
TEST(C14_budget_exactly_used)
{
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	rig_queue(&r, 0, 32);
	EQ(rig_kick(&r), 0, "kick of 32 frames");
	EQ(ring_pending(&r.tx), 0, "frames that wait");
	rig_queue(&r, 32, 33);
	EQ(rig_kick(&r), EAGAIN, "kick of 33 frames");
	EQ(ring_pending(&r.tx), 1, "frames that wait");
	rig_close(&r);
}

/* No place in the completion ring: the descriptor stays where it is, EAGAIN, and goes out once there is room. */
TEST(completion_ring_full_holds_back)
{
	struct rig r;
	struct peer p;
	uint64_t addrs[16];

	rig_open(&r, (struct rig_options){ .no_rx = true, .comp = 8, .tx = 64 });
	peer_open(&p);
	rig_queue(&r, 0, 12);
	EQ(rig_kick(&r), EAGAIN, "kick with 12 frames and 8 places");
	EQ(ring_pending(&r.tx), 4, "frames that wait");
	EQ(rig_kick(&r), EAGAIN, "kick with no place");
	EQ(ring_pending(&r.tx), 4, "frames that wait");
	EQ(take_completions(&r.comp, addrs, 16), 8, "completions");
	EQ(rig_kick(&r), 0, "kick with places again");
	EQ(take_completions(&r.comp, addrs + 8, 8), 4, "completions");
	for (uint32_t i = 0; i < 12; i++)
		EQ(addrs[i], i * 4096, "address of the completion");
	EQ(peer_count(&p, 200), 12, "frames at the peer");
	peer_close(&p);
	rig_close(&r);
}

/* TX data begins at the descriptor's address: the head room is for received frames only. */
TEST(C27_no_headroom_when_sending)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .no_rx = true, .chunk = 2048, .headroom = 100 });
	peer_open(&p);
	make_frame(r.area, 80, 1);
	make_frame(r.area + 2048 + 700, 90, 2);
	rig_queue_at(&r, 0, 80, 0);
	rig_queue_at(&r, 2048 + 700, 90, 0);
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_receive(&p, 80), 1, "frame from byte 0");
	EQ(peer_receive(&p, 90), 2, "frame from within a chunk");
	peer_close(&p);
	rig_close(&r);
}

/* A bad descriptor is consumed, counted and completed; the call that met it stops there and succeeds, and the next one
 * goes on behind it. */
static void refused(const char *what, uint64_t addr, uint32_t len, uint32_t options)
{
	struct rig r;
	struct peer p;
	uint64_t addrs[4];

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	rig_queue(&r, 1, 1);
	rig_queue_at(&r, addr, len, options);
	rig_queue(&r, 2, 1);
	EQ(rig_kick(&r), 0, what);
	EQ(ring_pending(&r.tx), 1, what);
	EQ(rig_kick(&r), 0, what);
	EQ(ring_pending(&r.tx), 0, what);
	EQ(peer_receive(&p, FRAME_LEN), 1, what);
	EQ(peer_receive(&p, FRAME_LEN), 2, what);
	EQ(take_completions(&r.comp, addrs, 4), 3, what);
	EQ(addrs[0], 4096, what);
	EQ(addrs[1], addr, what);
	EQ(addrs[2], 8192, what);
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 1, what);
	EQ(peer_count(&p, 50), 0, what);
	peer_close(&p);
	rig_close(&r);
}

TEST(bad_descriptor_beyond_umem)
{
	refused("address at the end of the UMEM", 256 * 4096, 60, 0);
}

TEST(bad_descriptor_wild_address)
{
	refused("wild address", 0xffffffffffffff00u, 60, 0);
}

TEST(bad_descriptor_crosses_chunk)
{
	refused("frame over the end of its chunk", 4096 * 5 + 4000, 97, 0);
}

TEST(bad_descriptor_too_long)
{
	refused("frame longer than a chunk", 4096 * 5, 4097, 0);
}

TEST(bad_descriptor_length_wraps)
{
	refused("length near 2^32", 4096 * 5 + 256, 0xffffffff, 0);
}

TEST(bad_descriptor_empty)
{
	refused("length 0", 4096 * 5, 0, 0);
}

TEST(bad_descriptor_unknown_option)
{
	refused("unknown option bit", 4096 * 5, 60, 1u << 15);
}

/* Each of these is a kick, with the flag or on a non-blocking descriptor; data and address are ignored. */
TEST(calls_that_kick)
{
	struct sockaddr_storage addr = { .ss_family = AF_INET };
	char data[8] = { 0 };
	struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct mmsghdr msgs[2];
	struct rig r;
	int fd;

	memset(msgs, 0, sizeof(msgs));
	rig_open(&r, (struct rig_options){ .no_rx = true });
	fd = rig_fd(&r);

#define KICKS(call, result)                                   \
	do {                                                  \
		rig_queue(&r, 0, 1);                          \
		EQ(call, result, #call);                      \
		EQ(ring_pending(&r.tx), 0, "after " #call);   \
		rig_complete(&r, 1);                          \
	} while (0)

	KICKS(sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0), 0);
	KICKS(sendto(fd, data, 8, MSG_DONTWAIT, NULL, 0), 0);
	KICKS(sendto(fd, NULL, 0, MSG_DONTWAIT, (struct sockaddr *)&addr, sizeof(addr)), 0);
	KICKS(sendto(fd, NULL, 0, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE, NULL, 0), 0);
	KICKS(send(fd, NULL, 0, MSG_DONTWAIT), 0);
	KICKS(sendmsg(fd, &msg, MSG_DONTWAIT), 0);
	KICKS(sendmmsg(fd, msgs, 2, MSG_DONTWAIT), 2);
	EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0, "fcntl");
	KICKS(sendto(fd, NULL, 0, 0, NULL, 0), 0);
	KICKS(send(fd, NULL, 0, 0), 0);
	KICKS(sendmsg(fd, &msg, 0), 0);
	KICKS(write(fd, data, 8), 0);
	KICKS(write(fd, data, 0), 0);
	KICKS(writev(fd, &iov, 1), 0);
	rig_close(&r);
}

/* A frame without a whole Ethernet header does not leave, but it completes. The kernel says EBUSY for it. */
TEST(short_frame_completes)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	rig_queue_at(&r, 0, 13, 0);
	EQ(rig_kick(&r), EBUSY, "kick");
	EQ(ring_pending(&r.tx), 0, "frames that wait");
	EQ(take_completions(&r.comp, NULL, 4), 1, "completions");
	rig_queue(&r, 1, 1);
	EQ(rig_kick(&r), 0, "kick of the next frame");
	EQ(peer_receive(&p, FRAME_LEN), 1, "next frame");
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 0, "it is not an invalid descriptor");
	peer_close(&p);
	rig_close(&r);
}

/* A socket without an RX ring sends, with nothing in the fill ring and no program on the interface. */
TEST(C56_tx_only)
{
	struct rig r;
	uint32_t done = 0, next = 0, queued = 0;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	while (done < 10000) {
		uint32_t n = take_completions(&r.comp, NULL, 64);

		done += n;
		queued -= n;
		while (queued < 128 && next < 10000) {
			rig_queue(&r, next++ % 256, 1);
			queued++;
		}
		rig_kick(&r);
	}
	EQ(done, 10000, "completions");
	EQ(rig_statistics(rig_fd(&r)).tx_invalid_descs, 0, "invalid descriptors");
	rig_close(&r);
}

/* 20 000 frames to a device that swallows all. */
TEST(null_device)
{
	struct rig r;
	uint32_t done = 0;

	engine_only("the null device");
	rig_open(&r, (struct rig_options){ .no_rx = true, .port = NOWHERE });
	for (uint32_t round = 0; round < 625; round++) {
		rig_queue(&r, 0, 32);
		EQ(rig_kick(&r), 0, "kick");
		done += take_completions(&r.comp, NULL, 32);
	}
	EQ(done, 20000, "completions");
	rig_close(&r);
}

/* What is sent on a loop comes back on it. */
TEST(loop_device)
{
	struct rig r;
	struct xdp_desc d;

	engine_only("the loop device");
	rig_open(&r, (struct rig_options){ .port = LOOP });
	rig_fill(&r, 128, 64);
	for (uint32_t i = 0; i < 64; i++) {
		rig_queue(&r, i, 1);
		EQ(rig_kick(&r), 0, "kick");
		CHECK(rig_receive(&r, &d, 1000), "frame %u did not come back", i);
		EQ(frame_id(xsk_umem__get_data(r.area, d.addr), d.len), i, "frame");
		EQ(d.addr, (128 + i) * 4096 + HEADROOM, "address");
	}
	rig_complete(&r, 64);
	rig_close(&r);
}
