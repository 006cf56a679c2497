/* idle: an end that sleeps costs nothing, whoever is at the other one.
 *
 *     idle IFNAME IFNAME
 *
 * Two processes have the ends of a wire. They exchange frames, then sleep without a time-out, in poll and in other ways; or
 * there is one end only. For some seconds neither may then use a tick of processor time, nor may its threads be woken more
 * than a few times: that is counted, so it is the same on a slow machine. */
#include "waits.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CHUNKS 64u
#define FRAMES 10u
/* Until everybody has looked for the last time. */
#define SETTLE_MS 1000
#define WATCH_MS 2000
#define WAKEUPS 3u
#define PATIENCE_MS 20000

/* What the driver shares with the ends. */
struct shared {
	_Atomic bool quiet;
	_Atomic uint32_t up, received[2];
};

static struct shared *shared;

static void end_run(unsigned which, const char *ifname, enum way way)
{
	struct xsk_umem_config umem_config = { .fill_size = CHUNKS, .comp_size = CHUNKS, .frame_size = CHUNK_SMALL };
	struct xsk_socket_config config = { .rx_size = CHUNKS, .tx_size = CHUNKS, .bind_flags = XDP_COPY };
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct xsk_socket *xsk;
	struct xsk_umem *umem;
	struct waiter waiter;
	uint32_t idx = 0, n;
	uint8_t *area = packet_memory((CHUNKS + 1) * CHUNK_SMALL);
	int ret = xsk_umem__create(&umem, area, (CHUNKS + 1) * CHUNK_SMALL, &fill, &comp, &umem_config);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!ret)
		ret = create_socket(&xsk, ifname, 0, umem, &rx, &tx, &config);
	if (ret) {
		failed("a socket", ifname, ret);
		_exit(2);
	}
	if (xsk_ring_prod__reserve(&fill, CHUNKS, &idx) != CHUNKS)
		abort();
	for (uint32_t i = 0; i < CHUNKS; i++)
		*xsk_ring_prod__fill_addr(&fill, idx + i) = (uint64_t)i * CHUNK_SMALL;
	xsk_ring_prod__submit(&fill, CHUNKS);
	memset(area + CHUNKS * CHUNK_SMALL, 2, 60);
	if (waiter_open(&waiter, xsk_socket__fd(xsk), 1u << way))
		_exit(2);
	shared->up++;
	for (;;) {
		bool quiet = shared->quiet;

		if (!quiet && xsk_ring_prod__reserve(&tx, 1, &idx)) {
			*xsk_ring_prod__tx_desc(&tx, idx) = (struct xdp_desc){ .addr = CHUNKS * CHUNK_SMALL, .len = 60 };
			xsk_ring_prod__submit(&tx, 1);
			sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
		}
		n = xsk_ring_cons__peek(&comp, CHUNKS, &idx);
		if (n)
			xsk_ring_cons__release(&comp, n);
		waiter_wait(&waiter, way, quiet ? -1 : 5);
		n = xsk_ring_cons__peek(&rx, CHUNKS, &idx);
		for (uint32_t i = 0; i < n; i++) {
			uint64_t addr = xsk_ring_cons__rx_desc(&rx, idx + i)->addr & ~(uint64_t)(CHUNK_SMALL - 1);
			uint32_t place = 0;

			if (xsk_ring_prod__reserve(&fill, 1, &place) != 1)
				abort();
			*xsk_ring_prod__fill_addr(&fill, place) = addr;
			xsk_ring_prod__submit(&fill, 1);
		}
		if (n)
			xsk_ring_cons__release(&rx, n);
		shared->received[which] += n;
	}
}

/* What the threads of a process have used. */
struct usage {
	unsigned threads, ticks, switches;
};

static struct usage usage_of(pid_t pid)
{
	struct usage usage = { 0, 0, 0 };
	struct dirent *entry;
	char path[128], line[512];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		unsigned user = 0, system = 0, switches = 0;
		const char *rest;
		FILE *file;

		if (*entry->d_name == '.')
			continue;
		usage.threads++;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", (int)pid, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(line, sizeof(line), file) && (rest = strrchr(line, ')')) &&
		    sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %u %u", &user, &system) == 2)
			usage.ticks += user + system;
		if (file)
			fclose(file);
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", (int)pid, entry->d_name);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "voluntary_ctxt_switches: %u", &switches) == 1)
				usage.switches += switches;
		if (file)
			fclose(file);
	}
	if (tasks)
		closedir(tasks);
	return usage;
}

static bool scene(const char *const names[2], enum way first, enum way second)
{
	const enum way ways[2] = { first, second };
	unsigned count = second == WAYS ? 1 : 2;
	struct usage before[2], after[2];
	uint64_t until = now_ns() + PATIENCE_MS * 1000000ull;
	pid_t ends[2] = { -1, -1 };
	bool ok = true, ready = false;

	memset(shared, 0, sizeof(*shared));
	for (unsigned i = 0; i < count; i++) {
		ends[i] = fork();
		if (!ends[i])
			end_run(i, names[i], ways[i]);
	}
	while (!ready && now_ns() < until && waitpid(-1, NULL, WNOHANG) == 0) {
		sleep_ns(10000000);
		ready = shared->up == count && (count == 1 || (shared->received[0] >= FRAMES && shared->received[1] >= FRAMES));
	}
	shared->quiet = true;
	sleep_ns(SETTLE_MS * 1000000l);
	for (unsigned i = 0; i < count; i++)
		before[i] = usage_of(ends[i]);
	sleep_ns(WATCH_MS * 1000000l);
	for (unsigned i = 0; i < count; i++) {
		after[i] = usage_of(ends[i]);
		unsigned ticks = after[i].ticks - before[i].ticks, wakeups = after[i].switches - before[i].switches;

		printf("%s in %s: %u threads, %u ticks and %u wake-ups in %d ms%s\n", names[i], way_names[ways[i]],
		       after[i].threads, ticks, wakeups, WATCH_MS, count == 1 ? ", alone" : "");
		ok &= after[i].threads != 0 && !ticks && wakeups <= WAKEUPS;
	}
	for (unsigned i = 0; i < count; i++) {
		kill(ends[i], SIGKILL);
		waitpid(ends[i], NULL, 0);
	}
	if (!ready)
		fputs("the ends did not exchange frames\n", stderr);
	return ok && ready;
}

int main(int argc, char **argv)
{
	bool ok = true;

	if (argc != 3) {
		fputs("idle IFNAME IFNAME\n", stderr);
		return 2;
	}
	const char *const names[2] = { argv[1], argv[2] };

	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	ok &= scene(names, POLL, POLL);
	ok &= scene(names, POLL, RAW_POLL);
	ok &= scene(names, EPOLL, RAW_EPOLL_EDGE);
	ok &= scene(names, POLL, WAYS);
	ok &= scene(names, RAW_POLL, WAYS);
	return !ok;
}
