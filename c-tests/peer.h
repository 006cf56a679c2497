/* The far end of a wire. On veth an AF_PACKET socket, which owes nothing to the library under test; on the engine, where
 * there is nothing else, a second AF_XDP socket of the same library. */
#ifndef PEER_H
#define PEER_H

#include "rig.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>

#define PEER_PROTOCOL 0x88b5

struct peer {
	int packet; /* AF_PACKET, or -1 */
	struct rig rig;
	uint32_t next_chunk;
};

#define PEER_RX 512u /* chunks and ring for receiving; as many again are for sending */

static inline void peer_open_on(struct peer *p, enum port port)
{
	memset(p, 0, sizeof(*p));
	p->packet = -1;
	if (on_kernel()) {
		struct sockaddr_ll addr = { .sll_family = AF_PACKET, .sll_protocol = htons(PEER_PROTOCOL) };
		int room = 4 << 20;

		addr.sll_ifindex = (int)if_nametoindex(ifname_of(port));
		p->packet = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
		CHECK(p->packet >= 0, "socket(AF_PACKET): %s", strerror(errno));
		setsockopt(p->packet, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
		EQ(bind(p->packet, (struct sockaddr *)&addr, sizeof(addr)), 0, "bind of the AF_PACKET peer");
		return;
	}
	rig_open(&p->rig, (struct rig_options){ .port = port, .chunks = 2 * PEER_RX, .fill = PEER_RX, .rx = PEER_RX,
						.comp = PEER_RX, .tx = PEER_RX });
	rig_fill(&p->rig, 0, PEER_RX);
}

static inline void peer_open(struct peer *p)
{
	peer_open_on(p, B);
}

static inline void peer_close(struct peer *p)
{
	if (p->packet >= 0)
		close(p->packet);
	else
		rig_close(&p->rig);
}

static inline void peer_send_bytes(struct peer *p, const uint8_t *frame, uint32_t len)
{
	uint64_t addr;

	if (p->packet >= 0) {
		EQ(send(p->packet, frame, len, 0), len, "send by the AF_PACKET peer");
		return;
	}
	addr = (uint64_t)(PEER_RX + p->next_chunk++ % PEER_RX) * p->rig.opt.chunk;
	memcpy(p->rig.area + addr, frame, len);
	rig_queue_at(&p->rig, addr, len, 0);
	rig_complete(&p->rig, 1);
}

/* Send one test frame. It is on its way when this returns. */
static inline void peer_send(struct peer *p, uint32_t len, uint32_t id)
{
	uint8_t frame[4096];

	CHECK(len <= sizeof(frame), "a peer's frame of %u bytes", len);
	make_frame(frame, len, id);
	peer_send_bytes(p, frame, len);
}

/* Receive one frame: its length, or -1 when none came within ms. */
static inline int peer_receive_bytes(struct peer *p, uint8_t *frame, uint32_t cap, int ms)
{
	struct xdp_desc d;

	if (p->packet >= 0) {
		struct pollfd pfd = { .fd = p->packet, .events = POLLIN };
		struct sockaddr_ll from;
		socklen_t len = sizeof(from);
		ssize_t n;

		while (poll(&pfd, 1, ms) == 1) {
			n = recvfrom(p->packet, frame, cap, 0, (struct sockaddr *)&from, &len);
			CHECK(n >= 0, "recvfrom by the AF_PACKET peer: %s", strerror(errno));
			if (from.sll_pkttype != PACKET_OUTGOING)
				return (int)n;
		}
		return -1;
	}
	if (!rig_receive(&p->rig, &d, (unsigned)ms))
		return -1;
	CHECK(d.len <= cap, "the peer got a frame of %u bytes", d.len);
	memcpy(frame, xsk_umem__get_data(p->rig.area, d.addr), d.len);
	rig_fill(&p->rig, (uint32_t)(d.addr / p->rig.opt.chunk), 1);
	return (int)d.len;
}

/* The number of the next test frame; fails when none comes within a second, or when it is damaged. */
static inline uint32_t peer_receive(struct peer *p, uint32_t len)
{
	uint8_t frame[4096];
	int n = peer_receive_bytes(p, frame, sizeof(frame), 1000);

	EQ(n, len, "length of the frame at the peer");
	return frame_id(frame, (uint32_t)n);
}

/* How many frames the peer has, each checked, until none comes for `quiet` ms. */
static inline uint32_t peer_count(struct peer *p, int quiet)
{
	uint8_t frame[4096];
	uint32_t count = 0;
	int n;

	while ((n = peer_receive_bytes(p, frame, sizeof(frame), quiet)) >= 0) {
		frame_id(frame, (uint32_t)n);
		count++;
	}
	return count;
}

#endif
