/* l2fwd: forwards between two interfaces, both ways, without copying: both sockets share one UMEM, so a received frame
 * is put on the other interface's TX ring by its address. Each interface has a fill and a completion ring of its own.
 *
 *     l2fwd -i veth0 -o veth2 -t 10
 *
 * A frame is taken off an RX ring only when the other side's TX ring has room: the forwarder itself loses nothing.
 */
#include "common.h"

#include <getopt.h>
#include <poll.h>
#include <sched.h>

#define CHUNKS 4096u
#define RING 1024u

struct port {
	const char *ifname;
	struct xsk_socket *xsk;
	struct xsk_ring_cons rx, comp;
	struct xsk_ring_prod tx, fill;
	uint64_t received, sent, completed, kicks;
	uint32_t waiting; /* handed to TX, not completed */
};

struct forwarder {
	struct port ports[2];
	struct xsk_umem *umem;
	uint8_t *area;
	uint64_t stack[CHUNKS]; /* chunks that nobody has */
	uint32_t free, batch;
	bool swap_mac;
};

static void swap_addresses(uint8_t *frame)
{
	uint8_t saved[6];

	memcpy(saved, frame, 6);
	memcpy(frame, frame + 6, 6);
	memcpy(frame + 6, saved, 6);
}

/* Gives the interface all the empty chunks it has room for, in batches. */
static void refill(struct forwarder *f, struct port *p)
{
	while (f->free) {
		uint32_t n = f->free < f->batch ? f->free : f->batch, idx = 0;

		if (xsk_ring_prod__reserve(&p->fill, n, &idx) != n)
			return;
		for (uint32_t i = 0; i < n; i++)
			*xsk_ring_prod__fill_addr(&p->fill, idx + i) = f->stack[--f->free];
		xsk_ring_prod__submit(&p->fill, n);
	}
}

static uint32_t collect(struct forwarder *f, struct port *p)
{
	uint32_t idx = 0, n = xsk_ring_cons__peek(&p->comp, RING, &idx);

	for (uint32_t i = 0; i < n; i++)
		f->stack[f->free++] = *xsk_ring_cons__comp_addr(&p->comp, idx + i);
	if (n)
		xsk_ring_cons__release(&p->comp, n);
	p->completed += n;
	p->waiting -= n;
	return n;
}

static bool kick(struct port *p)
{
	if (!p->waiting || !xsk_ring_prod__needs_wakeup(&p->tx))
		return true;
	p->kicks++;
	if (sendto(xsk_socket__fd(p->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && !is_transient(errno)) {
		fprintf(stderr, "sendto on %s: %s\n", p->ifname, strerror(errno));
		return false;
	}
	return true;
}

/* One batch from one port to the other; returns the number of frames. */
static uint32_t forward(struct forwarder *f, struct port *from, struct port *to)
{
	uint32_t room = xsk_prod_nb_free(&to->tx, f->batch), rx = 0, tx = 0, n;

	if (room > f->batch)
		room = f->batch;
	if (!room)
		return 0;
	n = xsk_ring_cons__peek(&from->rx, room, &rx);
	if (!n)
		return 0;
	xsk_ring_prod__reserve(&to->tx, n, &tx);
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *in = xsk_ring_cons__rx_desc(&from->rx, rx + i);
		struct xdp_desc *out = xsk_ring_prod__tx_desc(&to->tx, tx + i);

		if (f->swap_mac && in->len >= 12)
			swap_addresses(xsk_umem__get_data(f->area, in->addr));
		out->addr = in->addr;
		out->len = in->len;
		out->options = 0;
	}
	xsk_ring_prod__submit(&to->tx, n);
	xsk_ring_cons__release(&from->rx, n);
	from->received += n;
	to->sent += n;
	to->waiting += n;
	return n;
}

static int open_ports(struct forwarder *f, uint32_t queue, uint16_t bind_flags, uint32_t xdp_flags)
{
	struct xsk_umem_config umem_config = { .fill_size = RING, .comp_size = RING, .frame_size = CHUNK_SMALL };
	struct xsk_socket_config config = { .rx_size = RING, .xdp_flags = xdp_flags, .bind_flags = bind_flags };
	struct port *a = &f->ports[0], *b = &f->ports[1];
	int ret;

	config.tx_size = RING;
	f->area = packet_memory((uint64_t)CHUNKS * CHUNK_SMALL);
	while (f->free < CHUNKS) {
		f->stack[f->free] = (uint64_t)f->free * CHUNK_SMALL;
		f->free++;
	}
	ret = xsk_umem__create(&f->umem, f->area, (uint64_t)CHUNKS * CHUNK_SMALL, &a->fill, &a->comp, &umem_config);
	if (ret) {
		failed("xsk_umem__create", NULL, ret);
		return ret;
	}
	/* The first socket takes the UMEM's own rings; the second, on another interface, brings rings to be made. */
	ret = create_socket(&a->xsk, a->ifname, queue, f->umem, &a->rx, &a->tx, &config);
	if (ret) {
		failed("xsk_socket__create", a->ifname, ret);
		return ret;
	}
	ret = xsk_socket__create_shared(&b->xsk, b->ifname, queue, f->umem, &b->rx, &b->tx, &b->fill, &b->comp, &config);
	if (ret)
		failed("xsk_socket__create_shared", b->ifname, ret);
	return ret;
}

static void run(struct forwarder *f, uint64_t count, double seconds)
{
	struct port *a = &f->ports[0], *b = &f->ports[1];
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	uint32_t idle = 0;

	while (!stopping() && now_ns() < end && !(count && a->completed + b->completed >= count)) {
		uint32_t done = 0;

		refill(f, a);
		refill(f, b);
		done += forward(f, a, b);
		done += forward(f, b, a);
		if (!kick(a) || !kick(b))
			return;
		done += collect(f, a);
		done += collect(f, b);
		if (done) {
			idle = 0;
		} else if (++idle < 64 || a->waiting || b->waiting) {
			sched_yield();
		} else {
			struct pollfd pfds[2] = {
				{ .fd = xsk_socket__fd(a->xsk), .events = POLLIN },
				{ .fd = xsk_socket__fd(b->xsk), .events = POLLIN },
			};

			poll(pfds, 2, 20);
		}
	}
}

static void usage(FILE *out)
{
	fputs("usage: l2fwd -i IFNAME -o IFNAME [-q QUEUE] [-t SECONDS] [-c FRAMES] [-b BATCH] [-m] [-Z] [-S] [-J]\n"
	      "  -i, -o  the two interfaces, -q  their queue (0)\n"
	      "  -t  seconds to run (10)           -c  stop after so many frames, both ways together\n"
	      "  -b  batch (64)                    -m  swap the MAC addresses of each frame\n"
	      "  -Z  ask for zero-copy             -S  generic XDP mode\n"
	      "  -J  one JSON object instead of text\n",
	      out);
}

int main(int argc, char **argv)
{
	static struct forwarder f = { .batch = 64 };
	uint16_t bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP;
	uint32_t xdp_flags = 0, queue = 0;
	uint64_t count = 0;
	double seconds = 10;
	bool json = false;
	int c;

	while ((c = getopt(argc, argv, "i:o:q:t:c:b:mZSJh")) != -1) {
		switch (c) {
		case 'i': f.ports[0].ifname = optarg; break;
		case 'o': f.ports[1].ifname = optarg; break;
		case 'q': queue = (uint32_t)number(optarg, 'q', 0, 65535); break;
		case 't': seconds = seconds_arg(optarg, 't'); break;
		case 'c': count = number(optarg, 'c', 1, UINT64_MAX); break;
		case 'b': f.batch = (uint32_t)number(optarg, 'b', 1, RING); break;
		case 'm': f.swap_mac = true; break;
		case 'Z': bind_flags = XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP; break;
		case 'S': xdp_flags = 1u << 1; break; /* XDP_FLAGS_SKB_MODE */
		case 'J': json = true; break;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if (!f.ports[0].ifname || !f.ports[1].ifname || optind != argc) {
		usage(stderr);
		return 2;
	}
	catch_signals();
	if (open_ports(&f, queue, bind_flags, xdp_flags))
		return 2;
	fprintf(stderr, "forwarding between %s and %s\n", f.ports[0].ifname, f.ports[1].ifname);
	run(&f, count, seconds);
	if (json)
		printf("{\"program\":\"l2fwd\",\"received\":[%llu,%llu],\"sent\":[%llu,%llu],\"completed\":[%llu,%llu]}\n",
		       (unsigned long long)f.ports[0].received, (unsigned long long)f.ports[1].received,
		       (unsigned long long)f.ports[0].sent, (unsigned long long)f.ports[1].sent,
		       (unsigned long long)f.ports[0].completed, (unsigned long long)f.ports[1].completed);
	for (uint32_t i = 0; i < 2; i++) {
		struct port *p = &f.ports[i];

		if (!json) {
			printf("%s: received %llu, sent %llu, completed %llu, %llu kicks\n", p->ifname,
			       (unsigned long long)p->received, (unsigned long long)p->sent,
			       (unsigned long long)p->completed, (unsigned long long)p->kicks);
			print_statistics(stdout, p->ifname, xsk_socket__fd(p->xsk));
		}
		xsk_socket__delete(p->xsk);
	}
	if (xsk_umem__delete(f.umem)) {
		fprintf(stderr, "xsk_umem__delete failed\n");
		return 1;
	}
	munmap(f.area, (uint64_t)CHUNKS * CHUNK_SMALL);
	return 0;
}
