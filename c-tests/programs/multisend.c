/* multisend: several threads, each with its own AF_XDP socket, send at once; all sockets share one UMEM and one queue,
 * hence one completion ring.
 *
 * The completion ring has one consumer side, so the threads take turns at it: whoever finds it free drains it and hands
 * each address back to the socket that sent it, over a small ring of that socket. Nobody waits for the drainer.
 * With -r a receiver thread on another interface checks that every frame arrives once and unharmed.
 *
 *     multisend -i veth0 -n 4 -c 1000000 -r veth1
 */
#include "common.h"
#include "frame.h"
#include "receiver.h"

#include <getopt.h>
#include <pthread.h>
#include <stdalign.h>

#define DRAIN_MAX 256u
#define GIVE_UP_NS 5000000000u
#define SAMPLE 16u

struct options {
	const char *ifname, *rx_ifname;
	uint32_t queue, sockets, size, batch, frames;
	uint64_t count;
	double seconds;
	bool quiet, json, lossless;
	uint16_t bind_flags;
	uint32_t xdp_flags;
};

/* A socket's frames that are at home. Written by whoever drains, read by the socket's own thread. */
struct home {
	alignas(64) _Atomic uint32_t head;
	alignas(64) uint32_t tail;
	uint32_t mask;
	uint64_t *addrs;
};

struct pool {
	const struct options *opt;
	uint8_t *area;
	uint64_t area_size;
	uint32_t chunk, chunks;
	struct xsk_umem *umem;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	struct frame_sum *sums;   /* by chunk */
	_Atomic uint8_t *in_flight; /* by chunk */
	struct sender *senders;
	pthread_barrier_t start;

	alignas(64) atomic_flag draining;
	/* The rest belongs to the thread that holds `draining`. */
	uint64_t drains, drained, bad_completions;
};

struct sender {
	alignas(64) struct pool *pool;
	struct xsk_socket *xsk;
	struct xsk_ring_prod tx;
	struct home home;
	pthread_t thread;
	uint32_t id;
	uint64_t sent, completed, stuck, kicks, again;
	uint64_t kick_samples, kick_ns, kick_max_ns;
	uint64_t begin_ns, end_ns;
};

/* Hands what has completed back to its owners. Returns false when another thread is at it. */
static bool drain(struct pool *p)
{
	uint32_t heads[MAX_SENDERS];
	bool touched[MAX_SENDERS] = { false };
	uint32_t idx = 0, n;

	if (atomic_flag_test_and_set_explicit(&p->draining, memory_order_acquire))
		return false;
	n = xsk_ring_cons__peek(&p->comp, DRAIN_MAX, &idx);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t addr = *xsk_ring_cons__comp_addr(&p->comp, idx + i);
		uint64_t chunk = addr / p->chunk;
		struct home *home;
		uint32_t owner;

		if (addr % p->chunk || chunk >= p->chunks ||
		    !atomic_load_explicit(&p->in_flight[chunk], memory_order_relaxed)) {
			p->bad_completions++;
			continue;
		}
		atomic_store_explicit(&p->in_flight[chunk], 0, memory_order_relaxed);
		owner = (uint32_t)chunk / p->opt->frames;
		home = &p->senders[owner].home;
		if (!touched[owner]) {
			touched[owner] = true;
			heads[owner] = atomic_load_explicit(&home->head, memory_order_relaxed);
		}
		home->addrs[heads[owner]++ & home->mask] = addr;
	}
	if (n) {
		xsk_ring_cons__release(&p->comp, n);
		for (uint32_t i = 0; i < p->opt->sockets; i++)
			if (touched[i])
				atomic_store_explicit(&p->senders[i].home.head, heads[i], memory_order_release);
		p->drains++;
		p->drained += n;
	}
	atomic_flag_clear_explicit(&p->draining, memory_order_release);
	return true;
}

static uint32_t at_home(struct home *h)
{
	return atomic_load_explicit(&h->head, memory_order_acquire) - h->tail;
}

static void kick(struct sender *s)
{
	bool sample = s->kicks++ % SAMPLE == 0;
	uint64_t before = sample ? now_ns() : 0;
	ssize_t ret = sendto(xsk_socket__fd(s->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);

	if (ret < 0) {
		if (!is_transient(errno)) {
			fprintf(stderr, "socket %u: sendto: %s\n", s->id, strerror(errno));
			atomic_store(&stop_all, true);
		}
		s->again++;
	}
	if (sample) {
		uint64_t took = now_ns() - before;

		s->kick_samples++;
		s->kick_ns += took;
		if (took > s->kick_max_ns)
			s->kick_max_ns = took;
	}
}

/* Puts up to a batch of frames on the TX ring; returns how many. */
static uint32_t queue_batch(struct sender *s)
{
	const struct options *opt = s->pool->opt;
	struct pool *p = s->pool;
	struct home *h = &s->home;
	uint32_t want = at_home(h), idx = 0;

	if (want > opt->batch)
		want = opt->batch;
	if (opt->count && want > opt->count - s->sent)
		want = (uint32_t)(opt->count - s->sent);
	if (!want || xsk_ring_prod__reserve(&s->tx, want, &idx) != want)
		return 0;
	for (uint32_t i = 0; i < want; i++) {
		uint64_t addr = h->addrs[h->tail++ & h->mask];
		uint64_t chunk = addr / p->chunk;
		struct xdp_desc *d = xsk_ring_prod__tx_desc(&s->tx, idx + i);

		frame_stamp(p->area + addr, p->sums[chunk], s->id, s->sent + i);
		atomic_store_explicit(&p->in_flight[chunk], 1, memory_order_relaxed);
		d->addr = addr;
		d->len = opt->size;
		d->options = 0;
	}
	xsk_ring_prod__submit(&s->tx, want);
	s->sent += want;
	return want;
}

/* Called when a round got nothing done. */
static void back_off(uint32_t *idle)
{
	if (++*idle < 256)
		sched_yield();
	else
		sleep_ns(20000);
}

static void *send_all(void *arg)
{
	struct sender *s = arg;
	const struct options *opt = s->pool->opt;
	uint64_t last_progress;
	uint32_t idle = 0, before;

	pthread_barrier_wait(&s->pool->start);
	s->begin_ns = now_ns();
	while (!stopping() && (!opt->count || s->sent < opt->count)) {
		before = at_home(&s->home);
		if (queue_batch(s))
			idle = 0;
		/* Without the flag the kernel is already at it; in copy mode the flag is always set. */
		if (xsk_ring_prod__needs_wakeup(&s->tx))
			kick(s);
		drain(s->pool);
		if (!before && !at_home(&s->home))
			back_off(&idle);
	}

	/* What is under way must come back: each frame completes, even one that is lost. */
	last_progress = now_ns();
	idle = 0;
	before = at_home(&s->home);
	while (before < opt->frames) {
		uint32_t after;

		kick(s);
		drain(s->pool);
		after = at_home(&s->home);
		if (after != before) {
			before = after;
			last_progress = now_ns();
			idle = 0;
		} else if (now_ns() - last_progress > GIVE_UP_NS) {
			break;
		} else {
			back_off(&idle);
		}
	}
	s->end_ns = now_ns();
	s->stuck = opt->frames - before;
	s->completed = s->sent - s->stuck;
	return NULL;
}

/* The receiver thread: until every frame is here, or nothing has come for a while after the senders are done. */
struct receiving {
	struct receiver receiver;
	pthread_t thread;
	_Atomic uint64_t expected; /* UINT64_MAX while the senders are at work */
};

static void *receive_all(void *arg)
{
	struct receiving *r = arg;
	uint64_t quiet_since = 0;
	uint32_t empty = 0;

	for (;;) {
		uint64_t expected = atomic_load_explicit(&r->expected, memory_order_acquire);

		if (receiver_step(&r->receiver)) {
			empty = 0;
			quiet_since = 0;
			continue;
		}
		if (expected != UINT64_MAX) {
			uint64_t now = now_ns();

			if (!quiet_since)
				quiet_since = now;
			/* A duplicate may still be behind the last frame: listen on for a moment. */
			if (now - quiet_since > (r->receiver.checker.unique >= expected ? 20000000u : 500000000u))
				return NULL;
		}
		receiver_wait(&r->receiver, empty++);
	}
}

static int open_senders(struct pool *p)
{
	const struct options *opt = p->opt;
	struct xsk_umem_config umem_config = {
		.fill_size = 64, /* nothing is received here, but a UMEM has both rings */
		.comp_size = power_of_two_from(p->chunks),
		.frame_size = p->chunk,
	};
	struct xsk_socket_config config = {
		.rx_size = 64,
		.tx_size = power_of_two_from(opt->frames),
		.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD, /* a sender needs no XDP program */
		.xdp_flags = opt->xdp_flags,
		.bind_flags = opt->bind_flags,
	};
	int ret = xsk_umem__create(&p->umem, p->area, p->area_size, &p->fill, &p->comp, &umem_config);

	if (ret) {
		failed("xsk_umem__create", NULL, ret);
		return ret;
	}
	for (uint32_t i = 0; i < opt->sockets; i++) {
		struct sender *s = &p->senders[i];

		if (i == 0)
			ret = create_socket(&s->xsk, opt->ifname, opt->queue, p->umem, NULL, &s->tx, &config);
		else
			ret = xsk_socket__create_shared(&s->xsk, opt->ifname, opt->queue, p->umem, NULL, &s->tx,
							&p->fill, &p->comp, &config);
		if (ret) {
			failed("xsk_socket__create", opt->ifname, ret);
			return ret;
		}
	}
	return 0;
}

static void prepare_frames(struct pool *p)
{
	const struct options *opt = p->opt;

	for (uint32_t i = 0; i < p->chunks; i++)
		p->sums[i] = frame_prepare(p->area + (uint64_t)i * p->chunk, opt->size, i);
	for (uint32_t i = 0; i < opt->sockets; i++) {
		struct sender *s = &p->senders[i];

		s->pool = p;
		s->id = i;
		s->home.mask = power_of_two_from(opt->frames) - 1;
		s->home.addrs = calloc((size_t)s->home.mask + 1, sizeof(uint64_t));
		if (!s->home.addrs)
			abort();
		for (uint32_t f = 0; f < opt->frames; f++)
			s->home.addrs[f] = ((uint64_t)i * opt->frames + f) * p->chunk;
		atomic_store(&s->home.head, opt->frames);
	}
}

static void close_senders(struct pool *p)
{
	int ret;

	for (uint32_t i = 0; i < p->opt->sockets; i++) {
		xsk_socket__delete(p->senders[i].xsk);
		free(p->senders[i].home.addrs);
	}
	ret = xsk_umem__delete(p->umem);
	if (ret)
		failed("xsk_umem__delete", NULL, ret);
	munmap(p->area, p->area_size);
	free(p->sums);
	free(p->in_flight);
	free(p->senders);
}

struct totals {
	uint64_t sent, completed, stuck, kicks, again, kick_samples, kick_ns, kick_max_ns;
	double seconds, mpps, fairness;
};

static double mpps_of(const struct sender *s)
{
	return s->end_ns > s->begin_ns ? (double)s->completed * 1e3 / (double)(s->end_ns - s->begin_ns) : 0;
}

/* Fairness is Jain's index over the rates of the sockets: 1 when all are equal, 1/N when one has everything. */
static struct totals total_of(const struct pool *p)
{
	struct totals t = { 0 };
	uint64_t begin = UINT64_MAX, end = 0;
	double rates = 0, squares = 0;

	for (uint32_t i = 0; i < p->opt->sockets; i++) {
		const struct sender *s = &p->senders[i];
		double rate = mpps_of(s);

		t.sent += s->sent;
		t.completed += s->completed;
		t.stuck += s->stuck;
		t.kicks += s->kicks;
		t.again += s->again;
		t.kick_samples += s->kick_samples;
		t.kick_ns += s->kick_ns;
		if (s->kick_max_ns > t.kick_max_ns)
			t.kick_max_ns = s->kick_max_ns;
		if (s->begin_ns < begin)
			begin = s->begin_ns;
		if (s->end_ns > end)
			end = s->end_ns;
		rates += rate;
		squares += rate * rate;
	}
	t.seconds = (double)(end - begin) / 1e9;
	t.mpps = t.seconds > 0 ? (double)t.completed / t.seconds / 1e6 : 0;
	t.fairness = squares > 0 ? rates * rates / (squares * p->opt->sockets) : 0;
	return t;
}

static void print_text(const struct pool *p, const struct totals *t, const struct receiving *r, uint64_t lost)
{
	const struct options *opt = p->opt;

	printf("%u sockets on %s queue %u, one UMEM, one completion ring; frames of %u bytes, batches of %u\n",
	       opt->sockets, opt->ifname, opt->queue, opt->size, opt->batch);
	for (uint32_t i = 0; i < opt->sockets && !opt->quiet; i++) {
		const struct sender *s = &p->senders[i];

		printf("  socket %u: sent %llu, completed %llu, %.3f Mpps, %llu kicks (%llu told to try again)\n", i,
		       (unsigned long long)s->sent, (unsigned long long)s->completed, mpps_of(s),
		       (unsigned long long)s->kicks, (unsigned long long)s->again);
	}
	printf("  sent %llu frames in %.3f s: %.3f Mpps; fairness %.4f\n", (unsigned long long)t->sent, t->seconds, t->mpps,
	       t->fairness);
	if (!opt->quiet)
		printf("  a kick took %.0f ns on average, %.0f ns at most; it sent %.1f frames; a drain took back %.1f\n",
		       t->kick_samples ? (double)t->kick_ns / (double)t->kick_samples : 0, (double)t->kick_max_ns,
		       t->kicks ? (double)t->completed / (double)t->kicks : 0,
		       p->drains ? (double)p->drained / (double)p->drains : 0);
	printf("  completions: %llu of %llu came back, %llu wrong\n", (unsigned long long)t->completed,
	       (unsigned long long)t->sent, (unsigned long long)p->bad_completions);
	if (r) {
		const struct checker *c = &r->receiver.checker;

		printf("  received on %s: %llu; lost %llu, duplicated %llu, corrupt %llu, out of order %llu\n",
		       opt->rx_ifname, (unsigned long long)c->unique, (unsigned long long)lost,
		       (unsigned long long)c->duplicated, (unsigned long long)c->corrupt,
		       (unsigned long long)c->out_of_order);
		if (!opt->quiet)
			print_statistics(stdout, "  receiver", xsk_socket__fd(r->receiver.xsk));
	}
}

static void print_json(const struct pool *p, const struct totals *t, const struct receiving *r, uint64_t lost)
{
	const struct options *opt = p->opt;

	printf("{\"program\":\"multisend\",\"sockets\":%u,\"frame\":%u,\"batch\":%u,\"sent\":%llu,\"completed\":%llu,"
	       "\"stuck\":%llu,\"bad_completions\":%llu,\"seconds\":%.6f,\"mpps\":%.6f,\"fairness\":%.6f,"
	       "\"kicks\":%llu,\"again\":%llu,\"kick_mean_ns\":%.1f,\"kick_max_ns\":%llu,\"completions\":[",
	       opt->sockets, opt->size, opt->batch, (unsigned long long)t->sent, (unsigned long long)t->completed,
	       (unsigned long long)t->stuck, (unsigned long long)p->bad_completions, t->seconds, t->mpps, t->fairness,
	       (unsigned long long)t->kicks, (unsigned long long)t->again,
	       t->kick_samples ? (double)t->kick_ns / (double)t->kick_samples : 0, (unsigned long long)t->kick_max_ns);
	for (uint32_t i = 0; i < opt->sockets; i++)
		printf("%s%llu", i ? "," : "", (unsigned long long)p->senders[i].completed);
	printf("]");
	if (r) {
		const struct checker *c = &r->receiver.checker;

		printf(",\"received\":%llu,\"lost\":%llu,\"duplicated\":%llu,\"corrupt\":%llu,\"out_of_order\":%llu",
		       (unsigned long long)c->unique, (unsigned long long)lost, (unsigned long long)c->duplicated,
		       (unsigned long long)c->corrupt, (unsigned long long)c->out_of_order);
	}
	printf("}\n");
}

static void usage(FILE *out)
{
	fputs("usage: multisend -i IFNAME [-q QUEUE] [-n SOCKETS] [-c FRAMES | -t SECONDS] [-s BYTES] [-b BATCH]\n"
	      "                 [-f FRAMES] [-r IFNAME [-e]] [-Z] [-S] [-Q] [-J]\n"
	      "  -i  interface to send on          -q  its queue (0)\n"
	      "  -n  sockets and threads (4)       -c  frames for each socket to send\n"
	      "  -t  seconds to send for (2)       -s  bytes of a frame (64)\n"
	      "  -b  frames a kick (64)            -f  frames in the UMEM for each socket (256)\n"
	      "  -r  receive and check there       -e  a lost frame is an error: the wire is lossless\n"
	      "  -Z  ask for zero-copy             -S  generic XDP mode\n"
	      "  -Q  summary only                  -J  one JSON object instead of text\n"
	      "Exit code: 0, or 1 when a frame was lost (with -e), duplicated, corrupt or never completed; 2 when it could not run.\n",
	      out);
}

static void parse(int argc, char **argv, struct options *opt)
{
	int c;

	while ((c = getopt(argc, argv, "i:q:n:c:t:s:b:f:r:eZSQJh")) != -1) {
		switch (c) {
		case 'i': opt->ifname = optarg; break;
		case 'q': opt->queue = (uint32_t)number(optarg, 'q', 0, 65535); break;
		case 'n': opt->sockets = (uint32_t)number(optarg, 'n', 1, MAX_SENDERS); break;
		case 'c': opt->count = number(optarg, 'c', 1, UINT64_MAX / MAX_SENDERS); break;
		case 't': opt->seconds = seconds_arg(optarg, 't'); break;
		case 's': opt->size = (uint32_t)number(optarg, 's', FRAME_MIN, CHUNK_LARGE); break;
		case 'b': opt->batch = (uint32_t)number(optarg, 'b', 1, 32768); break;
		case 'f': opt->frames = (uint32_t)number(optarg, 'f', 1, 32768); break;
		case 'r': opt->rx_ifname = optarg; break;
		case 'e': opt->lossless = true; break;
		case 'Z': opt->bind_flags = XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP; break;
		case 'S': opt->xdp_flags = 1u << 1; break; /* XDP_FLAGS_SKB_MODE */
		case 'Q': opt->quiet = true; break;
		case 'J': opt->json = true; break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (!opt->ifname || optind != argc) {
		usage(stderr);
		exit(2);
	}
	if (!opt->count && !(opt->seconds > 0))
		opt->seconds = 2;
	if (opt->batch > opt->frames)
		opt->batch = opt->frames;
}

int main(int argc, char **argv)
{
	struct options opt = { .sockets = 4, .size = 64, .batch = 64, .frames = 256,
			       .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP };
	struct pool pool = { .opt = &opt, .draining = ATOMIC_FLAG_INIT };
	struct receiving *receiving = NULL;
	struct totals totals;
	uint64_t lost = 0;
	bool bad;

	parse(argc, argv, &opt);
	catch_signals();
	pool.chunk = opt.size > CHUNK_SMALL ? CHUNK_LARGE : CHUNK_SMALL;
	pool.chunks = opt.sockets * opt.frames;
	pool.area_size = (uint64_t)pool.chunks * pool.chunk;
	pool.area = packet_memory(pool.area_size);
	pool.sums = calloc(pool.chunks, sizeof(*pool.sums));
	pool.in_flight = calloc(pool.chunks, 1);
	pool.senders = aligned_alloc(64, opt.sockets * sizeof(*pool.senders));
	if (!pool.sums || !pool.in_flight || !pool.senders)
		abort();
	memset(pool.senders, 0, opt.sockets * sizeof(*pool.senders));

	if (opt.rx_ifname) {
		receiving = calloc(1, sizeof(*receiving));
		if (!receiving)
			abort();
		receiving->receiver = (struct receiver){
			.ifname = opt.rx_ifname, .queue = opt.queue, .chunk = CHUNK_LARGE, .chunks = 1024, .batch = 64,
			.bind_flags = opt.bind_flags, .xdp_flags = opt.xdp_flags, .wait = WAIT_POLL,
		};
		atomic_store(&receiving->expected, UINT64_MAX);
		if (receiver_open(&receiving->receiver))
			return 2;
	}
	prepare_frames(&pool);
	if (open_senders(&pool))
		return 2;

	if (receiving && pthread_create(&receiving->thread, NULL, receive_all, receiving))
		abort();
	pthread_barrier_init(&pool.start, NULL, opt.sockets + 1);
	for (uint32_t i = 0; i < opt.sockets; i++)
		if (pthread_create(&pool.senders[i].thread, NULL, send_all, &pool.senders[i]))
			abort();
	pthread_barrier_wait(&pool.start);
	if (!opt.count) {
		uint64_t end = now_ns() + (uint64_t)(opt.seconds * 1e9);

		while (!stopping() && now_ns() < end)
			sleep_ns(5000000);
		atomic_store(&stop_all, true);
	}
	for (uint32_t i = 0; i < opt.sockets; i++)
		pthread_join(pool.senders[i].thread, NULL);
	totals = total_of(&pool);
	if (receiving) {
		atomic_store_explicit(&receiving->expected, totals.sent, memory_order_release);
		pthread_join(receiving->thread, NULL);
		if (receiving->receiver.checker.unique < totals.sent)
			lost = totals.sent - receiving->receiver.checker.unique;
	}
	(opt.json ? print_json : print_text)(&pool, &totals, receiving, lost);

	bad = totals.stuck || pool.bad_completions || (opt.lossless && lost) ||
	      (opt.count && totals.sent != opt.count * opt.sockets);
	if (receiving) {
		bad = bad || receiving->receiver.checker.duplicated || receiving->receiver.checker.corrupt;
		receiver_close(&receiving->receiver);
		free(receiving);
	}
	pthread_barrier_destroy(&pool.start);
	close_senders(&pool);
	return bad ? 1 : 0;
}
