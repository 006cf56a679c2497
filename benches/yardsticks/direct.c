/*
 * An AF_XDP program on veth for `slipring bench create` and `slipring bench direct`. It is written for libxdp and uses
 * whichever library it finds: one that is preloaded or linked, else the system's libxdp.so.1. So the same binary measures both.
 *
 * usage: direct create first|join|inhibit IFNAME TURNS QUEUES
 *        direct tx|rx IFNAME PEER FRAME SECONDS CPU
 *        direct kick IFNAME CPU
 *        direct library
 *
 * The first line that it prints is `library FILE`, then one line a figure (none for `library`, which only looks for one):
 *   create  makes and deletes a UMEM and a socket TURNS times: medians, in microseconds, of each half (create, delete) and
 *           of the process's time for both (cpu). first: the default program comes to and goes from a bare interface; join:
 *           another socket keeps it there; inhibit: no program is asked for. Queues take turns with a pause in between,
 *           for the kernel lets go of a queue some time after close
 *   tx      sends from IFNAME; nobody listens on PEER. rate: million frames a second; cpu: nanoseconds of the process's
 *           time for each frame
 *   rx      the same thread also receives them on PEER, with the default program; received frames count
 *   kick    nanoseconds of a sendto on the socket when there is nothing to send
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <xdp/xsk.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

enum {
	CHUNK = 2048,
	CHUNKS = 256, /* small, for RLIMIT_MEMLOCK */
	RING = 256,
	BATCH = 64,
	MAX_TURNS = 1000,
	PAUSE_MS = 10,
	RETRIES = 20,
	KICKS = 20000,
};

static __typeof__(&xsk_umem__create) umem_create;
static __typeof__(&xsk_umem__delete) umem_delete;
static __typeof__(&xsk_socket__create) socket_create;
static __typeof__(&xsk_socket__delete) socket_delete;
static __typeof__(&xsk_socket__fd) socket_fd;

struct end {
	void *area;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
};

static void *symbol(void *library, const char *name)
{
	void *address = dlsym(library, name);

	if (!address) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return address;
}

static void find_library(void)
{
	void *library = RTLD_DEFAULT;
	char path[PATH_MAX];
	Dl_info info;

	if (!dlsym(library, "xsk_umem__create")) {
		library = dlopen("libxdp.so.1", RTLD_NOW | RTLD_GLOBAL);
		if (!library) {
			fprintf(stderr, "%s\n", dlerror());
			exit(1);
		}
	}
	umem_create = symbol(library, "xsk_umem__create");
	umem_delete = symbol(library, "xsk_umem__delete");
	socket_create = symbol(library, "xsk_socket__create");
	socket_delete = symbol(library, "xsk_socket__delete");
	socket_fd = symbol(library, "xsk_socket__fd");
	if (dladdr(umem_create, &info) && realpath(info.dli_fname, path))
		printf("library %s\n", path);
}

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pause_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void pin(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void close_end(struct end *e)
{
	if (e->xsk)
		socket_delete(e->xsk);
	if (e->umem)
		umem_delete(e->umem);
	e->xsk = NULL;
	e->umem = NULL;
}

/* Returns 0 or a negative errno, with nothing left open. */
static int open_end(struct end *e, const char *ifname, uint32_t queue, int inhibit)
{
	struct xsk_umem_config umem_config = {
		.fill_size = RING, .comp_size = RING, .frame_size = CHUNK,
	};
	struct xsk_socket_config config = {
		.rx_size = RING, .tx_size = RING, .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
	};
	int ret;

	config.libbpf_flags = inhibit ? XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD : 0;
	ret = umem_create(&e->umem, e->area, (uint64_t)CHUNKS * CHUNK, &e->fill, &e->comp, &umem_config);
	if (!ret)
		ret = socket_create(&e->xsk, ifname, queue, e->umem, &e->rx, &e->tx, &config);
	if (ret)
		close_end(e);
	return ret;
}

static void prepare(struct end *e)
{
	memset(e, 0, sizeof(*e));
	e->area = mmap(NULL, (size_t)CHUNKS * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (e->area == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
}

static void must_open(struct end *e, const char *ifname, uint32_t queue, int inhibit)
{
	int ret = -EBUSY;

	prepare(e);
	for (int i = 0; i < RETRIES && ret == -EBUSY; i++) {
		if (i)
			pause_ms(50);
		ret = open_end(e, ifname, queue, inhibit);
	}
	if (ret) {
		fprintf(stderr, "a socket on %s queue %u: %s\n", ifname, queue, strerror(-ret));
		exit(1);
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

static void create(const char *kind, const char *ifname, int turns, uint32_t queues)
{
	static double made[MAX_TURNS], gone[MAX_TURNS], used[MAX_TURNS];
	int inhibit = !strcmp(kind, "inhibit"), busy = 0, done = 0;
	struct end holder, e;

	/* The last queue is the holder's. */
	if (!strcmp(kind, "join"))
		must_open(&holder, ifname, queues - 1, 0);
	prepare(&e);
	while (done < turns) {
		double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), start = seconds_of(CLOCK_MONOTONIC), middle, end;
		int ret = open_end(&e, ifname, done % (queues - 1), inhibit);

		if (ret == -EBUSY && ++busy < RETRIES) {
			pause_ms(50);
			continue;
		}
		if (ret) {
			fprintf(stderr, "a socket on %s: %s\n", ifname, strerror(-ret));
			exit(1);
		}
		middle = seconds_of(CLOCK_MONOTONIC);
		close_end(&e);
		end = seconds_of(CLOCK_MONOTONIC);
		used[done] = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6;
		made[done] = (middle - start) * 1e6;
		gone[done++] = (end - middle) * 1e6;
		pause_ms(PAUSE_MS);
	}
	if (!strcmp(kind, "join"))
		close_end(&holder);
	printf("create %.3f\ndelete %.3f\ncpu %.3f\n", median(made, turns), median(gone, turns), median(used, turns));
}

static void kick(const struct end *e)
{
	(void)!sendto(socket_fd(e->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
}

static uint32_t take_back(struct end *e, uint64_t *free, uint32_t n_free)
{
	uint32_t idx, n = xsk_ring_cons__peek(&e->comp, CHUNKS, &idx);

	for (uint32_t i = 0; i < n; i++)
		free[n_free + i] = *xsk_ring_cons__comp_addr(&e->comp, idx + i);
	if (n)
		xsk_ring_cons__release(&e->comp, n);
	return n;
}

static uint32_t receive(struct end *e, uint64_t *sum)
{
	uint32_t idx, fill_idx, n = xsk_ring_cons__peek(&e->rx, BATCH, &idx);

	/* Every chunk is either with the kernel or here. */
	if (!n || xsk_ring_prod__reserve(&e->fill, n, &fill_idx) != n)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, idx + i);

		*sum += *(volatile uint64_t *)xsk_umem__get_data(e->area, d->addr);
		*xsk_ring_prod__fill_addr(&e->fill, fill_idx + i) = d->addr;
	}
	xsk_ring_prod__submit(&e->fill, n);
	xsk_ring_cons__release(&e->rx, n);
	return n;
}

static void traffic(int receives, const char *ifname, const char *peer, uint32_t len, double seconds)
{
	static const unsigned char header[14] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
	uint64_t free[CHUNKS], sum = 0, frames = 0;
	double start = 0, cpu = 0, now = 0;
	uint32_t n_free = CHUNKS, idx;
	struct end far, e;

	must_open(&e, ifname, 0, 1);
	for (uint32_t i = 0; i < CHUNKS; i++) {
		free[i] = (uint64_t)i * CHUNK;
		memcpy((char *)e.area + free[i], header, sizeof(header));
	}
	if (receives) {
		must_open(&far, peer, 0, 0);
		if (xsk_ring_prod__reserve(&far.fill, RING, &idx) == RING) {
			for (uint32_t i = 0; i < RING; i++)
				*xsk_ring_prod__fill_addr(&far.fill, idx + i) = (uint64_t)i * CHUNK;
			xsk_ring_prod__submit(&far.fill, RING);
		}
	}
	/* The first rounds are for caches and branch predictors. */
	for (int round = 0; round < 100 || now < start + seconds; round++) {
		if (round == 100) {
			frames = 0;
			start = seconds_of(CLOCK_MONOTONIC);
			cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
		}
		for (int i = 0; i < 16; i++) {
			uint32_t n;

			if (n_free >= BATCH && xsk_ring_prod__reserve(&e.tx, BATCH, &idx) == BATCH) {
				for (uint32_t j = 0; j < BATCH; j++) {
					struct xdp_desc *d = xsk_ring_prod__tx_desc(&e.tx, idx + j);

					d->addr = free[--n_free];
					d->len = len;
					d->options = 0;
				}
				xsk_ring_prod__submit(&e.tx, BATCH);
			}
			kick(&e);
			n = take_back(&e, free, n_free);
			n_free += n;
			if (!receives)
				frames += n;
			else
				while ((n = receive(&far, &sum)))
					frames += n;
		}
		if (round >= 100)
			now = seconds_of(CLOCK_MONOTONIC);
	}
	cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	close_end(&e);
	if (receives)
		close_end(&far);
	if (!frames) {
		fprintf(stderr, "no frame was %s\n", receives ? "received" : "sent");
		exit(1);
	}
	printf("rate %.6f\ncpu %.3f\n", (double)frames / (now - start) / 1e6, cpu * 1e9 / (double)frames);
}

static void kicks(const char *ifname)
{
	double best = 1e18;
	struct end e;

	must_open(&e, ifname, 0, 1);
	for (int turn = 0; turn < 25; turn++) {
		double start = seconds_of(CLOCK_MONOTONIC), ns;

		for (int i = 0; i < KICKS; i++)
			kick(&e);
		ns = (seconds_of(CLOCK_MONOTONIC) - start) * 1e9 / KICKS;
		if (ns < best)
			best = ns;
	}
	close_end(&e);
	printf("call %.3f\n", best);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int turns = argc == 6 ? atoi(argv[4]) : 0;

	if (!strcmp(mode, "create") && turns > 0 && turns <= MAX_TURNS && atoi(argv[5]) > 1) {
		find_library();
		create(argv[2], argv[3], turns, (uint32_t)atoi(argv[5]));
	} else if ((!strcmp(mode, "tx") || !strcmp(mode, "rx")) && argc == 7) {
		find_library();
		pin(argv[6]);
		traffic(mode[0] == 'r', argv[2], argv[3], (uint32_t)atoi(argv[4]), atof(argv[5]));
	} else if (!strcmp(mode, "kick") && argc == 4) {
		find_library();
		pin(argv[3]);
		kicks(argv[2]);
	} else if (!strcmp(mode, "library") && argc == 2) {
		find_library();
	} else {
		fprintf(stderr, "usage: direct create first|join|inhibit IFNAME TURNS QUEUES | tx|rx IFNAME PEER FRAME SECONDS CPU |"
				" kick IFNAME CPU | library\n");
		return 2;
	}
	return 0;
}
