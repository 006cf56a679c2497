/* sendrecv: one AF_XDP socket that either sends test frames or receives and checks them.
 *
 *     sendrecv -R -i veth1 -c 100000 &
 *     sendrecv -T -i veth0 -c 100000
 */
#include "common.h"
#include "frame.h"
#include "receiver.h"

#include <getopt.h>

#define GIVE_UP_NS 5000000000u

struct options {
	const char *ifname;
	uint32_t queue, size, batch, sender;
	uint64_t count;
	double seconds, idle;
	bool transmit, receive, json, lossless;
	enum wait_kind wait;
	uint16_t bind_flags;
	uint32_t xdp_flags;
};

/* Sends; the frames are a stack of free chunks. */
struct transmitter {
	const struct options *opt;
	void *area;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp;
	uint32_t chunk, chunks, free;
	uint64_t *stack;
	struct frame_sum *sums;
	uint64_t sent, completed, kicks, again;
};

static int transmitter_open(struct transmitter *t)
{
	const struct options *opt = t->opt;
	struct xsk_umem_config umem_config = { .fill_size = 64, .comp_size = t->chunks, .frame_size = t->chunk };
	struct xsk_socket_config config = {
		.rx_size = 64,
		.tx_size = t->chunks,
		.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD,
		.xdp_flags = opt->xdp_flags,
		.bind_flags = opt->bind_flags,
	};
	uint64_t size = (uint64_t)t->chunks * t->chunk;
	int ret;

	t->area = packet_memory(size);
	t->stack = calloc(t->chunks, sizeof(*t->stack));
	t->sums = calloc(t->chunks, sizeof(*t->sums));
	if (!t->stack || !t->sums)
		abort();
	for (uint32_t i = 0; i < t->chunks; i++) {
		t->stack[t->free++] = (uint64_t)i * t->chunk;
		t->sums[i] = frame_prepare((uint8_t *)t->area + (uint64_t)i * t->chunk, opt->size, i);
	}
	ret = xsk_umem__create(&t->umem, t->area, size, &t->fill, &t->comp, &umem_config);
	if (ret) {
		failed("xsk_umem__create", NULL, ret);
		return ret;
	}
	ret = create_socket(&t->xsk, opt->ifname, opt->queue, t->umem, NULL, &t->tx, &config);
	if (ret)
		failed("xsk_socket__create", opt->ifname, ret);
	return ret;
}

static uint32_t collect(struct transmitter *t)
{
	uint32_t idx = 0, n = xsk_ring_cons__peek(&t->comp, t->chunks, &idx);

	for (uint32_t i = 0; i < n; i++)
		t->stack[t->free++] = *xsk_ring_cons__comp_addr(&t->comp, idx + i);
	if (n)
		xsk_ring_cons__release(&t->comp, n);
	t->completed += n;
	return n;
}

static bool kick(struct transmitter *t)
{
	struct pollfd pfd = { .fd = xsk_socket__fd(t->xsk), .events = POLLOUT };
	int ret;

	t->kicks++;
	if (t->opt->wait == WAIT_POLL)
		ret = poll(&pfd, 1, 20);
	else
		ret = (int)sendto(pfd.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
	if (ret < 0) {
		t->again++;
		if (!is_transient(errno)) {
			perror("kick");
			return false;
		}
	}
	return true;
}

static int transmit(const struct options *opt)
{
	struct transmitter t = { .opt = opt, .chunks = 1024, .chunk = opt->size > CHUNK_SMALL ? CHUNK_LARGE : CHUNK_SMALL };
	uint64_t begin, end, last_progress;
	double seconds;

	if (transmitter_open(&t))
		return 2;
	begin = last_progress = now_ns();
	for (;;) {
		bool more = !stopping() && (opt->count ? t.sent < opt->count : (double)(now_ns() - begin) < opt->seconds * 1e9);
		uint32_t want = t.free < opt->batch ? t.free : opt->batch, idx = 0;

		if (!more && t.completed == t.sent)
			break;
		if (opt->count && want > opt->count - t.sent)
			want = (uint32_t)(opt->count - t.sent);
		if (more && want && xsk_ring_prod__reserve(&t.tx, want, &idx) == want) {
			for (uint32_t i = 0; i < want; i++) {
				struct xdp_desc *d = xsk_ring_prod__tx_desc(&t.tx, idx + i);
				uint64_t addr = t.stack[--t.free];

				frame_stamp((uint8_t *)t.area + addr, t.sums[addr / t.chunk], opt->sender, t.sent + i);
				d->addr = addr;
				d->len = opt->size;
				d->options = 0;
			}
			xsk_ring_prod__submit(&t.tx, want);
			t.sent += want;
		}
		if (xsk_ring_prod__needs_wakeup(&t.tx) && !kick(&t))
			break;
		if (collect(&t)) {
			last_progress = now_ns();
		} else if (now_ns() - last_progress > GIVE_UP_NS) {
			fprintf(stderr, "no completion for 5 s\n");
			break;
		} else if (!t.free) {
			sched_yield();
		}
	}
	end = now_ns();
	seconds = (double)(end - begin) / 1e9;
	if (opt->json) {
		printf("{\"program\":\"sendrecv\",\"mode\":\"send\",\"frame\":%u,\"sent\":%llu,\"completed\":%llu,\"seconds\":%.6f,"
		       "\"mpps\":%.6f,\"kicks\":%llu,\"again\":%llu}\n",
		       opt->size, (unsigned long long)t.sent, (unsigned long long)t.completed, seconds,
		       (double)t.completed / seconds / 1e6, (unsigned long long)t.kicks, (unsigned long long)t.again);
	} else {
		printf("sent %llu, completed %llu in %.3f s: %.3f Mpps; %llu kicks, %llu told to try again\n",
		       (unsigned long long)t.sent, (unsigned long long)t.completed, seconds,
		       (double)t.completed / seconds / 1e6, (unsigned long long)t.kicks, (unsigned long long)t.again);
		print_statistics(stdout, opt->ifname, xsk_socket__fd(t.xsk));
	}
	xsk_socket__delete(t.xsk);
	if (xsk_umem__delete(t.umem))
		fprintf(stderr, "xsk_umem__delete failed\n");
	munmap(t.area, (uint64_t)t.chunks * t.chunk);
	free(t.stack);
	free(t.sums);
	return t.sent == t.completed && (!opt->count || t.sent == opt->count) ? 0 : 1;
}

static int receive(const struct options *opt)
{
	struct receiver r = {
		.ifname = opt->ifname, .queue = opt->queue, .chunk = CHUNK_LARGE, .chunks = 1024, .batch = opt->batch,
		.bind_flags = opt->bind_flags, .xdp_flags = opt->xdp_flags, .wait = opt->wait,
	};
	uint64_t begin, lost;
	uint32_t empty = 0;
	double seconds;
	int ret;

	if (receiver_open(&r))
		return 2;
	fprintf(stderr, "receiving on %s\n", opt->ifname);
	begin = now_ns();
	while (!stopping() && !(opt->count && r.checker.unique >= opt->count)) {
		if (receiver_step(&r)) {
			empty = 0;
			continue;
		}
		if (opt->idle > 0 && (double)(now_ns() - (r.last_ns ? r.last_ns : begin)) > opt->idle * 1e9)
			break;
		if (opt->seconds > 0 && (double)(now_ns() - begin) > opt->seconds * 1e9)
			break;
		receiver_wait(&r, empty++);
	}
	seconds = (double)(r.last_ns - r.first_ns) / 1e9;
	lost = opt->count > r.checker.unique ? opt->count - r.checker.unique : 0;
	if (opt->json) {
		printf("{\"program\":\"sendrecv\",\"mode\":\"receive\",\"received\":%llu,\"duplicated\":%llu,\"corrupt\":%llu,"
		       "\"out_of_order\":%llu,\"foreign\":%llu,\"seconds\":%.6f,\"mpps\":%.6f}\n",
		       (unsigned long long)r.checker.unique, (unsigned long long)r.checker.duplicated,
		       (unsigned long long)r.checker.corrupt, (unsigned long long)r.checker.out_of_order,
		       (unsigned long long)r.checker.foreign, seconds,
		       seconds > 0 ? (double)r.checker.unique / seconds / 1e6 : 0);
	} else {
		printf("received %llu (%llu duplicated, %llu corrupt, %llu out of order, %llu foreign) in %.3f s: %.3f Mpps; "
		       "%llu wake-ups\n",
		       (unsigned long long)r.checker.unique, (unsigned long long)r.checker.duplicated,
		       (unsigned long long)r.checker.corrupt, (unsigned long long)r.checker.out_of_order,
		       (unsigned long long)r.checker.foreign, seconds,
		       seconds > 0 ? (double)r.checker.unique / seconds / 1e6 : 0, (unsigned long long)r.wakeups);
		print_statistics(stdout, opt->ifname, xsk_socket__fd(r.xsk));
	}
	ret = r.checker.duplicated || r.checker.corrupt || (opt->lossless && lost) ? 1 : 0;
	receiver_close(&r);
	return ret;
}

static void usage(FILE *out)
{
	fputs("usage: sendrecv -T|-R -i IFNAME [-q QUEUE] [-c FRAMES] [-t SECONDS] [-I SECONDS] [-s BYTES] [-b BATCH]\n"
	      "                [-w poll|spin|recvfrom] [-n SENDER] [-e] [-Z] [-S] [-J]\n"
	      "  -T  send, -R  receive             -i  interface, -q  queue (0)\n"
	      "  -c  frames to send or expect      -t  seconds at most (sending without -c: 2)\n"
	      "  -I  receiving: stop when nothing came for so long\n"
	      "  -s  bytes of a frame (64)         -b  batch (64)\n"
	      "  -w  how to wait or kick           -n  sender number put into the frames (0)\n"
	      "  -e  receiving: fewer than -c frames is an error\n"
	      "  -Z  ask for zero-copy             -S  generic XDP mode\n"
	      "  -J  one JSON object instead of text\n",
	      out);
}

static enum wait_kind wait_arg(const char *text)
{
	if (!strcmp(text, "poll"))
		return WAIT_POLL;
	if (!strcmp(text, "spin"))
		return WAIT_SPIN;
	if (!strcmp(text, "recvfrom"))
		return WAIT_RECVFROM;
	fprintf(stderr, "-w: '%s' is none of poll, spin, recvfrom\n", text);
	exit(2);
}

int main(int argc, char **argv)
{
	struct options opt = { .size = 64, .batch = 64, .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP, .wait = WAIT_SPIN };
	int c;

	while ((c = getopt(argc, argv, "TRi:q:c:t:I:s:b:w:n:eZSJh")) != -1) {
		switch (c) {
		case 'T': opt.transmit = true; break;
		case 'R': opt.receive = true; break;
		case 'i': opt.ifname = optarg; break;
		case 'q': opt.queue = (uint32_t)number(optarg, 'q', 0, 65535); break;
		case 'c': opt.count = number(optarg, 'c', 1, UINT64_MAX); break;
		case 't': opt.seconds = seconds_arg(optarg, 't'); break;
		case 'I': opt.idle = seconds_arg(optarg, 'I'); break;
		case 's': opt.size = (uint32_t)number(optarg, 's', FRAME_MIN, CHUNK_LARGE); break;
		case 'b': opt.batch = (uint32_t)number(optarg, 'b', 1, 1024); break;
		case 'w': opt.wait = wait_arg(optarg); break;
		case 'n': opt.sender = (uint32_t)number(optarg, 'n', 0, MAX_SENDERS - 1); break;
		case 'e': opt.lossless = true; break;
		case 'Z': opt.bind_flags = XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP; break;
		case 'S': opt.xdp_flags = 1u << 1; break; /* XDP_FLAGS_SKB_MODE */
		case 'J': opt.json = true; break;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if (!opt.ifname || optind != argc || opt.transmit == opt.receive) {
		usage(stderr);
		return 2;
	}
	if (opt.transmit && !opt.count && !(opt.seconds > 0))
		opt.seconds = 2;
	catch_signals();
	return opt.transmit ? transmit(&opt) : receive(&opt);
}
