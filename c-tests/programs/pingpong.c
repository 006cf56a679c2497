/* pingpong: two ends pass one frame to and fro, with random pauses, and each sleeps in between in the ways it is told: is a
 * wake-up ever lost?
 *
 *     pingpong -i veth1 -c 100000 -w poll,epoll-edge &
 *     pingpong -i veth0 -c 100000 -w raw-poll -p
 *
 * Each wait is with a time-out or without, by lot. The end that serves (-p) begins. A wake-up is lost when a time-out ends
 * with a frame in the ring, or when nothing moves for that long; and a wait of the C library's, which is exact, must not end
 * without a frame. Exit code 77: a way does not exist here. */
#include "frame.h"
#include "waits.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#define CHUNKS 64u
#define LENGTH 64u

struct options {
	uint64_t count, seed;
	uint32_t ways;
	int patience_ms;
	uint32_t pause_us;
	bool exact;
};

struct end {
	const struct options *opt;
	const char *ifname;
	bool serves;

	uint8_t *area;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct waiter waiter;
	struct frame_sum payload;

	uint64_t state;         /* of the random numbers */
	_Atomic uint64_t steps; /* what the watchdog looks at */
	_Atomic int way;        /* of the wait that is on; WAYS: none */
	uint64_t waits, for_nothing, slowest_ns;
	bool trouble;
};

static uint32_t draw(struct end *e, uint32_t below)
{
	e->state ^= e->state << 13;
	e->state ^= e->state >> 7;
	e->state ^= e->state << 17;
	return (uint32_t)(e->state >> 32) % below;
}

static enum way draw_way(struct end *e)
{
	uint32_t skip = draw(e, (uint32_t)__builtin_popcount(e->opt->ways)), set = e->opt->ways;

	while (skip--)
		set &= set - 1;
	return (enum way)__builtin_ctz(set);
}

static uint32_t frames_in(const struct xsk_ring_cons *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

static void say(const struct end *e, const char *what)
{
	int way = e->way;

	fprintf(stderr, "%s on %s: %s after %llu frames, in %s, with %u frames in the ring\n", e->serves ? "server" : "returner",
		e->ifname, what, (unsigned long long)e->steps, way == WAYS ? "no wait" : way_names[way], frames_in(&e->rx));
}

static int end_open(struct end *e)
{
	struct xsk_umem_config umem_config = { .fill_size = CHUNKS, .comp_size = CHUNKS, .frame_size = CHUNK_SMALL };
	struct xsk_socket_config config = { .rx_size = CHUNKS, .tx_size = CHUNKS, .bind_flags = XDP_COPY };
	uint32_t idx = 0;
	int ret;

	e->state = (e->opt->seed * 2 + e->serves) * 0x9e3779b97f4a7c15u | 1;
	e->way = WAYS;
	e->area = packet_memory(2ull * CHUNKS * CHUNK_SMALL);
	ret = xsk_umem__create(&e->umem, e->area, 2ull * CHUNKS * CHUNK_SMALL, &e->fill, &e->comp, &umem_config);
	if (!ret)
		ret = create_socket(&e->xsk, e->ifname, 0, e->umem, &e->rx, &e->tx, &config);
	if (ret) {
		failed("a socket", e->ifname, ret);
		return 2;
	}
	/* The lower half of the chunks receives, the upper one sends. */
	if (xsk_ring_prod__reserve(&e->fill, CHUNKS, &idx) != CHUNKS)
		abort();
	for (uint32_t i = 0; i < CHUNKS; i++) {
		*xsk_ring_prod__fill_addr(&e->fill, idx + i) = (uint64_t)i * CHUNK_SMALL;
		e->payload = frame_prepare(e->area + (uint64_t)(CHUNKS + i) * CHUNK_SMALL, LENGTH, 1);
	}
	xsk_ring_prod__submit(&e->fill, CHUNKS);
	ret = waiter_open(&e->waiter, xsk_socket__fd(e->xsk), e->opt->ways);
	if (ret && e->opt->ways & 1u << URING)
		fprintf(stderr, "skipped: io_uring: %s\n", strerror(-ret));
	return ret ? 77 : 0;
}

static void end_close(struct end *e)
{
	waiter_close(&e->waiter);
	xsk_socket__delete(e->xsk);
	xsk_umem__delete(e->umem);
	munmap(e->area, 2ull * CHUNKS * CHUNK_SMALL);
}

/* Takes one frame of ours off the ring: true, and its number. */
static bool take(struct end *e, uint64_t *sequence)
{
	uint32_t idx = 0, place = 0, magic = 0, sum, sender;
	bool ours;

	if (!xsk_ring_cons__peek(&e->rx, 1, &idx))
		return false;
	const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, idx);
	const uint8_t *frame = e->area + d->addr;

	memcpy(&magic, frame + 14, 2);
	ours = d->len >= LENGTH && magic == FRAME_MAGIC;
	if (ours) {
		memcpy(&sender, frame + 16, 4);
		memcpy(&sum, frame + 20, 4);
		memcpy(sequence, frame + 24, 8);
		if (whole_sum(payload_sum(frame, LENGTH), sender, *sequence) != sum || sender != !e->serves) {
			say(e, "a frame that is not what was sent");
			e->trouble = true;
		}
	}
	while (xsk_ring_prod__reserve(&e->fill, 1, &place) != 1)
		sched_yield();
	*xsk_ring_prod__fill_addr(&e->fill, place) = d->addr & ~(uint64_t)(CHUNK_SMALL - 1);
	xsk_ring_prod__submit(&e->fill, 1);
	xsk_ring_cons__release(&e->rx, 1);
	return ours;
}

/* Kicks past the C library where the waits go past it, but now and then by it: then the library sees an owner who wakes up. */
static bool kick(struct end *e, bool raw)
{
	int fd = xsk_socket__fd(e->xsk);
	long ret = raw ? syscall(SYS_sendto, fd, NULL, 0, MSG_DONTWAIT, NULL, 0) : sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0);

	if (ret < 0 && !is_transient(errno)) {
		say(e, strerror(errno));
		e->trouble = true;
	}
	return ret >= 0;
}

static void send_frame(struct end *e, uint64_t sequence, bool raw)
{
	uint32_t idx = 0, chunk = CHUNKS + (uint32_t)(sequence % CHUNKS);
	uint32_t done = xsk_ring_cons__peek(&e->comp, CHUNKS, &idx);

	if (done)
		xsk_ring_cons__release(&e->comp, done);
	frame_stamp(e->area + (uint64_t)chunk * CHUNK_SMALL, e->payload, e->serves, sequence);
	while (xsk_ring_prod__reserve(&e->tx, 1, &idx) != 1)
		sched_yield();
	*xsk_ring_prod__tx_desc(&e->tx, idx) = (struct xdp_desc){ .addr = (uint64_t)chunk * CHUNK_SMALL, .len = LENGTH };
	xsk_ring_prod__submit(&e->tx, 1);
	while (!kick(e, raw) && !e->trouble)
		sched_yield();
}

static void spin(uint32_t us)
{
	uint64_t until = now_ns() + us * 1000u;

	while (now_ns() < until)
		;
}

/* Mostly none: only then do both ends meet at all points of each other's way to sleep. */
static void pause_a_while(struct end *e)
{
	uint32_t lot = draw(e, 64);

	if (lot < 40)
		return;
	else if (lot < 56)
		spin(draw(e, 8));
	else if (lot < 60)
		spin(draw(e, 64));
	else
		sleep_ns((long)draw(e, e->opt->pause_us + 1) * 1000);
}

/* Sleeps and looks until a frame is here. */
static bool await_frame(struct end *e, uint64_t *sequence)
{
	uint32_t looks = draw(e, 4) ? 1 : draw(e, 200);
	uint64_t begin = now_ns(), took;

	while (!e->trouble) {
		bool got = false;
		int n;

		for (uint32_t i = 0; i < looks && !got; i++)
			got = take(e, sequence);
		looks = 1;
		if (got)
			break;
		enum way way = draw_way(e);

		e->way = way;
		n = waiter_wait(&e->waiter, way, draw(e, 2) ? -1 : e->opt->patience_ms);
		e->waits++;
		if (n == 0) {
			say(e, frames_in(&e->rx) ? "a wake-up was lost" : "the other end is silent");
			e->trouble = true;
		} else if (n < 0 && n != -EINTR) {
			say(e, strerror(-n));
			e->trouble = true;
		} else if (n > 0 && !frames_in(&e->rx)) {
			e->for_nothing++;
			if (!is_raw(way) && !is_edge(way) && e->opt->exact) {
				say(e, "woken without a frame");
				e->trouble = true;
			}
		}
		e->way = WAYS;
	}
	took = now_ns() - begin;
	if (took > e->slowest_ns)
		e->slowest_ns = took;
	e->steps++;
	return !e->trouble;
}

/* Until the other end is there, frames get lost. */
static bool first_round(struct end *e)
{
	uint64_t until = now_ns() + (uint64_t)e->opt->patience_ms * 1000000u, sequence = 1;
	struct pollfd pfd = { .fd = xsk_socket__fd(e->xsk), .events = POLLIN };

	while (now_ns() < until && !e->trouble) {
		send_frame(e, 0, false);
		poll(&pfd, 1, 20);
		if (take(e, &sequence) && sequence == 0)
			return true;
	}
	say(e, "nobody at the other end");
	return false;
}

static void *play(void *arg)
{
	struct end *e = arg;
	uint64_t next = 0, sequence = 0, completed;
	uint32_t idx = 0;
	bool raw = !(e->opt->ways & ((1u << RAW_POLL) - 1));

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	if (e->serves && !first_round(e))
		e->trouble = true;
	if (e->serves)
		next = 1;
	while (next < e->opt->count && !e->trouble) {
		bool past = e->opt->ways & ~((1u << RAW_POLL) - 1) && (raw ? draw(e, 32) != 0 : draw(e, 2) != 0);

		if (e->serves) {
			pause_a_while(e);
			send_frame(e, next, past);
		}
		/* What the first round left. */
		do {
			if (!await_frame(e, &sequence))
				break;
			if (!e->serves && !sequence && !next)
				break;
			if (!e->serves && !sequence)
				send_frame(e, 0, past);
		} while (!sequence);
		if (!e->trouble && sequence != next) {
			say(e, "a frame that was not the next");
			e->trouble = true;
		}
		if (!e->serves && !e->trouble) {
			pause_a_while(e);
			send_frame(e, sequence, past);
		}
		next++;
	}
	/* The last frame must have left before the socket goes. */
	completed = now_ns() + (uint64_t)e->opt->patience_ms * 1000000u;
	while (!e->trouble && now_ns() < completed && __atomic_load_n(e->tx.consumer, __ATOMIC_ACQUIRE) != *e->tx.producer) {
		kick(e, false);
		sched_yield();
	}
	idx = xsk_ring_cons__peek(&e->comp, CHUNKS, &idx);
	xsk_ring_cons__release(&e->comp, idx);
	return NULL;
}

/* Ends the program when an end does not move for longer than it may sleep: a wait without a time-out does not end itself. */
static void *watch(void *arg)
{
	struct end **ends = arg;
	uint64_t seen[2] = { 0, 0 };

	for (int still[2] = { 0, 0 };; sleep_ns(1000000000)) {
		for (int i = 0; i < 2 && ends[i]; i++) {
			still[i] = seen[i] == ends[i]->steps ? still[i] + 1 : 0;
			seen[i] = ends[i]->steps;
			if (still[i] <= ends[i]->opt->patience_ms / 1000 + 2)
				continue;
			say(ends[i], frames_in(&ends[i]->rx) ? "a wake-up was lost" : "the other end is silent");
			_exit(1);
		}
	}
	return NULL;
}

static void usage(void)
{
	fputs("pingpong -i IFNAME [-j IFNAME] [-p] [-c COUNT] [-w WAYS] [-s SEED] [-t SECONDS] [-u MICROSECONDS] [-x]\n"
	      "  -j  the other end, in this process\n"
	      "  -p  this end serves; with -j the first does\n"
	      "  -c  frames to and fro (10000)\n"
	      "  -w  ways to sleep, by lot: all, exact, raw, or some of\n     ",
	      stderr);
	for (enum way way = 0; way < WAYS; way++)
		fprintf(stderr, " %s", way_names[way]);
	fputs("\n"
	      "  -s  seed of the random numbers (1)\n"
	      "  -t  a wait that is longer has lost a wake-up (10)\n"
	      "  -u  the longest pause that is slept (300)\n"
	      "  -x  the C library's waits are exact\n",
	      stderr);
	exit(2);
}

int main(int argc, char **argv)
{
	struct options opt = { .count = 10000, .seed = 1, .ways = 1u << POLL, .patience_ms = 10000, .pause_us = 300 };
	struct end first = { .opt = &opt }, second = { .opt = &opt };
	struct end *ends[] = { &first, NULL };
	pthread_t watchdog, other;
	uint64_t begin;
	int ret, option;

	while ((option = getopt(argc, argv, "i:j:pc:w:s:t:u:x")) != -1) {
		switch (option) {
		case 'i':
			first.ifname = optarg;
			break;
		case 'j':
			second.ifname = optarg;
			ends[1] = &second;
			break;
		case 'p':
			first.serves = true;
			break;
		case 'c':
			opt.count = number(optarg, 'c', 2, 1ull << 40);
			break;
		case 'w':
			opt.ways = ways_of(optarg);
			if (!opt.ways)
				usage();
			break;
		case 's':
			opt.seed = number(optarg, 's', 0, UINT32_MAX);
			break;
		case 't':
			opt.patience_ms = (int)number(optarg, 't', 1, 3600) * 1000;
			break;
		case 'u':
			opt.pause_us = (uint32_t)number(optarg, 'u', 0, 1000000);
			break;
		case 'x':
			opt.exact = true;
			break;
		default:
			usage();
		}
	}
	if (!first.ifname || optind != argc)
		usage();
	if (ends[1])
		first.serves = true;
	for (int i = 0; i < 2 && ends[i]; i++) {
		ret = end_open(ends[i]);
		if (ret)
			return ret;
	}
	begin = now_ns();
	if (pthread_create(&watchdog, NULL, watch, ends) || (ends[1] && pthread_create(&other, NULL, play, ends[1])))
		abort();
	play(ends[0]);
	if (ends[1])
		pthread_join(other, NULL);
	for (int i = 0; i < 2 && ends[i]; i++) {
		printf("%s on %s: %llu frames, %llu waits, %llu ended for nothing, slowest answer %.1f ms, %.1f s\n",
		       ends[i]->serves ? "server" : "returner", ends[i]->ifname, (unsigned long long)ends[i]->steps,
		       (unsigned long long)ends[i]->waits, (unsigned long long)ends[i]->for_nothing,
		       (double)ends[i]->slowest_ns / 1e6, (double)(now_ns() - begin) / 1e9);
	}
	for (int i = 0; i < 2 && ends[i]; i++)
		end_close(ends[i]);
	return first.trouble || second.trouble;
}
