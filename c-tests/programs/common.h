/* What the client programs share: numbers from the command line, the clock, one socket's error text, signals.
 * Plain C11 over libxdp's interface; nothing here knows which library stands behind it. */
#ifndef PROGRAMS_COMMON_H
#define PROGRAMS_COMMON_H

#include <errno.h>
#include <linux/if_xdp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
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
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

#define CHUNK_SMALL 2048u
#define CHUNK_LARGE 4096u

/* Set by SIGINT and SIGTERM, and by a thread that met an error. */
static atomic_bool stop_all;

static inline void on_signal(int sig)
{
	(void)sig;
	atomic_store_explicit(&stop_all, true, memory_order_relaxed);
}

static inline void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

static inline bool stopping(void)
{
	return atomic_load_explicit(&stop_all, memory_order_relaxed);
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void sleep_ns(long ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	nanosleep(&ts, NULL);
}

/* A number between low and high, or the program ends with a message. */
static inline uint64_t number(const char *text, char option, uint64_t low, uint64_t high)
{
	char *end = NULL;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end || *text == '-' || value < low || value > high) {
		fprintf(stderr, "-%c: '%s' is not a number between %llu and %llu\n", option, text,
			(unsigned long long)low, (unsigned long long)high);
		exit(2);
	}
	return value;
}

static inline double seconds_arg(const char *text, char option)
{
	char *end = NULL;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0) || value > 86400) {
		fprintf(stderr, "-%c: '%s' is not a time in seconds\n", option, text);
		exit(2);
	}
	return value;
}

/* `error` is what the xsk_ functions return: a negative errno. */
static inline void failed(const char *what, const char *ifname, int error)
{
	fprintf(stderr, "%s%s%s: %s (%d)\n", what, ifname ? " on " : "", ifname ? ifname : "", strerror(-error), error);
}

static inline uint32_t power_of_two_from(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static inline void *packet_memory(uint64_t size)
{
	void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return area;
}

/* The kernel lets go of a queue some 20 ms after its last socket is closed: for that long EBUSY means "not yet". */
static inline int create_socket(struct xsk_socket **xsk, const char *ifname, uint32_t queue, struct xsk_umem *umem,
				struct xsk_ring_cons *rx, struct xsk_ring_prod *tx,
				const struct xsk_socket_config *config)
{
	uint64_t until = now_ns() + 300000000u;
	int ret;

	do {
		ret = xsk_socket__create(xsk, ifname, queue, umem, rx, tx, config);
		if (ret != -EBUSY)
			break;
		sleep_ns(5000000);
	} while (now_ns() < until);
	return ret;
}

/* Errors of a kick or a receive call after which a program simply tries again. */
static inline bool is_transient(int error)
{
	return error == EAGAIN || error == EBUSY || error == ENOBUFS || error == EINTR || error == ENETDOWN;
}

static inline struct xdp_statistics statistics_of(int fd)
{
	struct xdp_statistics stats;
	socklen_t length = sizeof(stats);

	memset(&stats, 0, sizeof(stats));
	if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &stats, &length))
		perror("getsockopt(XDP_STATISTICS)");
	return stats;
}

static inline void print_statistics(FILE *out, const char *name, int fd)
{
	struct xdp_statistics s = statistics_of(fd);

	fprintf(out,
		"%s: rx_dropped %llu, rx_invalid_descs %llu, tx_invalid_descs %llu, rx_ring_full %llu, "
		"rx_fill_ring_empty_descs %llu, tx_ring_empty_descs %llu\n",
		name, (unsigned long long)s.rx_dropped, (unsigned long long)s.rx_invalid_descs,
		(unsigned long long)s.tx_invalid_descs, (unsigned long long)s.rx_ring_full,
		(unsigned long long)s.rx_fill_ring_empty_descs, (unsigned long long)s.tx_ring_empty_descs);
}

#endif
