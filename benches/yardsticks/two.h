/* What the yardsticks of two processes over shared memory have in common: descriptors, memory, processors, time. */
#ifndef TWO_H
#define TWO_H

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

struct desc {
	uint64_t addr;
	uint32_t len;
	uint32_t options;
};

/* Two cache lines for each index: the adjacent-line prefetcher couples neighbours. */
#define OWN_LINES _Alignas(128)

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
