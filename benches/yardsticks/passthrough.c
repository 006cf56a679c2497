/*
 * What does a call on a descriptor that is not AF_XDP cost? An ordinary program for `slipring bench passthrough`, which
 * runs it with and without the library preloaded, and once with next_stub.so behind it, so that the call itself costs
 * next to nothing.
 *
 * usage: passthrough CPU
 * Prints one line a function: its name, and the fastest of 25 turns in nanoseconds a call.
 *
 * It first asks for an AF_XDP socket. With the library and SLIPRING_DEVICES that is one of the engine's, so the library has
 * something to tell the descriptor apart from; without, nothing follows from the answer.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	TURNS = 25,
	CALLS = 20000,
	UNUSED = 900,	/* a number that is no descriptor: closing it can be repeated */
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define MEASURE(name, call)							\
	do {									\
		double best = 1e18;						\
										\
		for (int turn = 0; turn < TURNS; turn++) {			\
			uint64_t start = now_ns();				\
										\
			for (int i = 0; i < CALLS; i++)				\
				(void)!(call);					\
			double ns = (double)(now_ns() - start) / CALLS;		\
										\
			if (ns < best)						\
				best = ns;					\
		}								\
		printf("%s %.3f\n", name, best);				\
	} while (0)

int main(int argc, char **argv)
{
	uint64_t word = 0;
	socklen_t len = sizeof(word);
	struct pollfd one;
	cpu_set_t set;
	int fd, xsk;

	if (argc != 2) {
		fprintf(stderr, "usage: passthrough CPU\n");
		return 2;
	}
	CPU_ZERO(&set);
	CPU_SET(atoi(argv[1]), &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		return 1;
	}
	xsk = socket(AF_XDP, SOCK_RAW, 0);
	fd = eventfd(0, EFD_NONBLOCK);
	if (fd < 0) {
		perror("eventfd");
		return 1;
	}
	one.fd = fd;
	one.events = POLLIN;

	MEASURE("sendto", sendto(fd, &word, 0, MSG_DONTWAIT, NULL, 0));
	MEASURE("send", send(fd, &word, 0, MSG_DONTWAIT));
	MEASURE("recvfrom", recvfrom(fd, &word, sizeof(word), MSG_DONTWAIT, NULL, NULL));
	MEASURE("read", read(fd, &word, sizeof(word)));
	MEASURE("write", write(fd, &word, 0));
	MEASURE("poll", poll(&one, 1, 0));
	MEASURE("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &word, &len));
	MEASURE("close", close(UNUSED));
	if (xsk >= 0)
		close(xsk);
	return 0;
}
