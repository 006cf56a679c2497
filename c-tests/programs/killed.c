/* killed: two processes send to each other over a wire, and one or the other is killed at a random instant and started anew,
 * also while it has forked children that live on.
 *
 *     killed -n 500
 *
 * What must hold: the one that is left goes on; every frame that it gets is whole, of a process that was alive when it was
 * sent, and in its order; frames pass again within a second after the new one is there; nobody but the socket's maker
 * receives; and in the end nothing is left: no file, no process, and with the processes no memory. */
#include "frame.h"
#include "waits.h"

#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CHUNKS 256u
#define LONGEST 1500u
#define RESUME_NS 1000000000u
/* How long anything else may take. */
#define PATIENCE_NS 20000000000u
/* Too long to be over by itself. */
#define SLEEP_MS 5000
/* A child that outlives its parent ends by itself. */
#define CHILD_MS 1500u
/* Mappings of wires in a process: two memories, a head and a ring mapped twice each; twice that while one follows another. */
#define MAPPINGS 12u

/* What an end tells the driver, in memory that they share. */
struct report {
	_Atomic uint32_t life; /* of the end; 0: its socket is not there yet */
	_Atomic uint64_t up_ns;
	_Atomic uint32_t heard; /* the last life of the other end that a frame came from */
	_Atomic uint64_t heard_ns;
	_Atomic uint64_t frames;
	_Atomic uint32_t trouble;
	char text[200];
};

static struct {
	struct report ends[2];
	/* The end that may sleep long: the other one sends again and again, and must wake it after each death. */
	_Atomic uint32_t patient;
} *shared;

struct end {
	unsigned which;
	uint32_t life;
	bool lossless;
	struct report *report;

	uint8_t *area;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct waiter waiter;

	uint64_t state, sequence;
	uint64_t free[CHUNKS];
	uint32_t frees;
	/* Of the other end. */
	uint32_t other_life;
	uint64_t next;
};

static uint32_t draw(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 32) % below;
}

__attribute__((format(printf, 2, 3))) static void trouble(struct end *e, const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&e->report->trouble, 1))
		return;
	va_start(args, format);
	vsnprintf(e->report->text, sizeof(e->report->text), format, args);
	va_end(args);
	atomic_store(&e->report->trouble, 2);
}

static void end_open(struct end *e)
{
	struct xsk_umem_config umem_config = { .fill_size = CHUNKS, .comp_size = CHUNKS, .frame_size = CHUNK_SMALL };
	struct xsk_socket_config config = { .rx_size = CHUNKS, .tx_size = CHUNKS, .bind_flags = XDP_COPY };
	char name[64];
	uint32_t idx = 0;
	int ret;

	snprintf(name, sizeof(name), "wire:killed/%c?full=%s", "ab"[e->which], e->lossless ? "wait" : "drop");
	e->area = packet_memory(2ull * CHUNKS * CHUNK_SMALL);
	ret = xsk_umem__create(&e->umem, e->area, 2ull * CHUNKS * CHUNK_SMALL, &e->fill, &e->comp, &umem_config);
	if (!ret)
		ret = xsk_socket__create(&e->xsk, name, 0, e->umem, &e->rx, &e->tx, &config);
	if (ret) {
		trouble(e, "end %c, life %u: no socket: %s", "ab"[e->which], e->life, strerror(-ret));
		_exit(2);
	}
	/* The lower half of the chunks receives, the upper one sends. */
	if (xsk_ring_prod__reserve(&e->fill, CHUNKS, &idx) != CHUNKS)
		abort();
	for (uint32_t i = 0; i < CHUNKS; i++) {
		*xsk_ring_prod__fill_addr(&e->fill, idx + i) = (uint64_t)i * CHUNK_SMALL;
		e->free[e->frees++] = (uint64_t)(CHUNKS + i) * CHUNK_SMALL;
	}
	xsk_ring_prod__submit(&e->fill, CHUNKS);
	if (waiter_open(&e->waiter, xsk_socket__fd(e->xsk), ways_of("exact,raw")))
		_exit(2);
	e->report->up_ns = now_ns();
	e->report->life = e->life;
}

static void send_burst(struct end *e)
{
	uint32_t idx = 0, n = xsk_ring_cons__peek(&e->comp, CHUNKS, &idx);

	for (uint32_t i = 0; i < n; i++)
		e->free[e->frees++] = *xsk_ring_cons__comp_addr(&e->comp, idx + i);
	if (n)
		xsk_ring_cons__release(&e->comp, n);
	n = 1 + draw(&e->state, 32);
	n = n < e->frees ? n : e->frees;
	n = xsk_ring_prod__reserve(&e->tx, n, &idx);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t length = FRAME_MIN + draw(&e->state, LONGEST - FRAME_MIN);
		uint64_t addr = e->free[--e->frees];
		struct frame_sum sum = frame_prepare(e->area + addr, length, (uint32_t)e->sequence);

		frame_stamp(e->area + addr, sum, e->life << 2 | e->which << 1 | e->lossless, e->sequence++);
		*xsk_ring_prod__tx_desc(&e->tx, idx + i) = (struct xdp_desc){ .addr = addr, .len = length };
	}
	if (n)
		xsk_ring_prod__submit(&e->tx, n);
	if (draw(&e->state, 16))
		sendto(xsk_socket__fd(e->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
	else
		syscall(SYS_sendto, xsk_socket__fd(e->xsk), NULL, 0, MSG_DONTWAIT, NULL, 0);
}

static void check(struct end *e, const uint8_t *frame, uint32_t length)
{
	uint32_t magic = 0, sender, sum, life;
	uint64_t sequence;

	memcpy(&magic, frame + 14, 2);
	memcpy(&sender, frame + 16, 4);
	memcpy(&sum, frame + 20, 4);
	memcpy(&sequence, frame + 24, 8);
	life = sender >> 2;
	if (length < FRAME_MIN || magic != FRAME_MAGIC || whole_sum(payload_sum(frame, length), sender, sequence) != sum)
		trouble(e, "end %c: a frame of %u bytes is not what was sent", "ab"[e->which], length);
	else if ((sender >> 1 & 1) == e->which)
		trouble(e, "end %c: a frame of its own", "ab"[e->which]);
	else if (life < e->other_life)
		trouble(e, "end %c: frame %llu of life %u after frames of life %u", "ab"[e->which],
			(unsigned long long)sequence, life, e->other_life);
	else if (life == e->other_life && (sender & 1 ? sequence != e->next : sequence < e->next))
		trouble(e, "end %c: frame %llu of life %u, %s, where %llu was to come", "ab"[e->which],
			(unsigned long long)sequence, life, sender & 1 ? "which loses none" : "which may lose some",
			(unsigned long long)e->next);
	e->other_life = life;
	e->next = sequence + 1;
}

static uint32_t receive(struct end *e)
{
	uint32_t idx = 0, place = 0, n = xsk_ring_cons__peek(&e->rx, 1 + draw(&e->state, 64), &idx);

	if (!n)
		return 0;
	if (xsk_ring_prod__reserve(&e->fill, n, &place) != n)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		const struct xdp_desc *d = xsk_ring_cons__rx_desc(&e->rx, idx + i);

		check(e, e->area + d->addr, d->len);
		*xsk_ring_prod__fill_addr(&e->fill, place + i) = d->addr & ~(uint64_t)(CHUNK_SMALL - 1);
	}
	xsk_ring_prod__submit(&e->fill, n);
	xsk_ring_cons__release(&e->rx, n);
	if (e->report->heard != e->other_life) {
		e->report->heard_ns = now_ns();
		e->report->heard = e->other_life;
	}
	e->report->frames += n;
	return n;
}

/* A child that inherited all of it. It ends at once, or lives longer than its parent may; then nothing comes for it. */
static void child(struct end *e, pid_t parent)
{
	struct pollfd pfd = { .fd = xsk_socket__fd(e->xsk), .events = POLLIN };
	uint64_t end = now_ns() + CHILD_MS * 1000000u;
	uint32_t produced;

	if (draw(&e->state, 3) == 0)
		exit(0);
	while (getppid() == parent && now_ns() < end)
		sleep_ns(2000000);
	if (getppid() != parent) {
		produced = __atomic_load_n(e->rx.producer, __ATOMIC_ACQUIRE);
		recvfrom(pfd.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
		sendto(pfd.fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
		poll(&pfd, 1, 300);
		sleep_ns(100000000);
		if (__atomic_load_n(e->rx.producer, __ATOMIC_ACQUIRE) != produced)
			trouble(e, "end %c, life %u: a child of the dead one received", "ab"[e->which], e->life);
	}
	if (draw(&e->state, 2))
		xsk_socket__delete(e->xsk);
	exit(0);
}

static void end_run(unsigned which, uint32_t life, uint64_t seed)
{
	struct end e = { .which = which, .life = life, .report = &shared->ends[which], .state = seed | 1 };
	pid_t parent = getppid();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	catch_signals();
	/* Of few different values, the first numbers would be alike. */
	for (int i = 0; i < 16; i++)
		draw(&e.state, 2);
	e.lossless = draw(&e.state, 2);
	end_open(&e);
	uint32_t fork_at = draw(&e.state, 2) ? draw(&e.state, 60) : UINT32_MAX;

	for (uint32_t turn = 0; !stopping() && getppid() == parent; turn++) {
		uint32_t got = receive(&e);

		if (draw(&e.state, 4))
			send_burst(&e);
		if (turn == fork_at) {
			pid_t self = getpid(), pid = fork();

			if (!pid)
				child(&e, self);
		}
		if (!got && draw(&e.state, 2)) {
			enum way way = (enum way)draw(&e.state, URING);
			bool sleeps = shared->patient == which && draw(&e.state, 4) == 0;
			int n = waiter_wait(&e.waiter, way, sleeps ? SLEEP_MS : (int)draw(&e.state, 4));

			/* POLLERR and the like are for nobody here. */
			if (n < 0 && n != -EINTR)
				trouble(&e, "end %c, life %u: %s: %s", "ab"[which], life, way_names[way], strerror(-n));
		}
	}
	if (draw(&e.state, 2)) {
		waiter_close(&e.waiter);
		xsk_socket__delete(e.xsk);
		xsk_umem__delete(e.umem);
	}
	exit(0);
}

/* The driver. */

static pid_t ends[2];
static uint32_t lives[2];
static uint64_t state;

static void start(unsigned which)
{
	uint64_t seed = ((uint64_t)draw(&state, UINT32_MAX) << 32) + which;

	lives[which]++;
	shared->ends[which].life = 0;
	fflush(NULL);
	ends[which] = fork();
	if (ends[which] < 0) {
		perror("fork");
		exit(2);
	}
	if (!ends[which])
		end_run(which, lives[which], seed);
}

/* Takes the dead off; false when one is among them that should live, or a child that did not end by itself. */
static bool all_is_well(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		const char *who = pid == ends[0] ? "end a" : pid == ends[1] ? "end b" : "a forked child";

		if (pid != ends[0] && pid != ends[1] && WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		fprintf(stderr, "%s ended: %s %d\n", who, WIFSIGNALED(status) ? "signal" : "status",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		return false;
	}
	for (int i = 0; i < 2; i++) {
		if (shared->ends[i].trouble == 2) {
			fprintf(stderr, "%s\n", shared->ends[i].text);
			return false;
		}
	}
	return true;
}

static bool is_up(unsigned which)
{
	return shared->ends[which].life == lives[which];
}

static bool have_heard(void)
{
	return is_up(0) && is_up(1) && shared->ends[0].heard == lives[1] && shared->ends[1].heard == lives[0];
}

static bool wait_until(bool (*done)(void))
{
	uint64_t until = now_ns() + PATIENCE_NS;

	while (!done()) {
		if (!all_is_well())
			return false;
		if (now_ns() > until) {
			fprintf(stderr, "nothing passes: end a has heard life %u of %u, end b life %u of %u\n", shared->ends[0].heard,
				lives[1], shared->ends[1].heard, lives[0]);
			return false;
		}
		sleep_ns(500000);
	}
	return all_is_well();
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Mappings of wires that a process has. */
static unsigned wire_mappings(pid_t pid)
{
	char path[64], line[512];
	unsigned n = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:slipring-wire") != NULL;
	if (maps)
		fclose(maps);
	return n;
}

/* Whether any process has something open under `directory`. */
static bool in_use(const char *directory)
{
	DIR *processes = opendir("/proc");
	struct dirent *process, *entry;
	bool found = false;

	while (processes && (process = readdir(processes))) {
		char path[64];
		DIR *fds;

		snprintf(path, sizeof(path), "/proc/%.16s/fd", process->d_name);
		fds = *process->d_name >= '1' && *process->d_name <= '9' ? opendir(path) : NULL;
		while (fds && (entry = readdir(fds))) {
			char target[512];
			ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target));

			if (n >= (ssize_t)strlen(directory) && !strncmp(target, directory, strlen(directory))) {
				fprintf(stderr, "process %s has %.*s open\n", process->d_name, (int)n, target);
				found = true;
			}
		}
		if (fds)
			closedir(fds);
	}
	if (processes)
		closedir(processes);
	return found;
}

/* Both ends go in good order, their children too, and nothing is left. */
static bool finish(const char *directory)
{
	uint64_t until = now_ns() + PATIENCE_NS;
	char path[128];
	bool ok = true;
	pid_t pid;
	int status;

	for (int i = 0; i < 2; i++)
		kill(ends[i], SIGTERM);
	while ((pid = waitpid(-1, &status, WNOHANG)) >= 0) {
		if (pid && status) {
			fprintf(stderr, "process %d ended with status 0x%x\n", (int)pid, (unsigned)status);
			ok = false;
		}
		if (now_ns() > until) {
			fputs("a process does not end\n", stderr);
			return false;
		}
		if (!pid)
			sleep_ns(1000000);
	}
	ends[0] = ends[1] = 0;
	ok &= all_is_well() && !in_use(directory);
	snprintf(path, sizeof(path), "%s/slipring", directory);
	if (rmdir(path) || rmdir(directory)) {
		fprintf(stderr, "%s: %s: a file is left\n", path, strerror(errno));
		ok = false;
	}
	return ok;
}

int main(int argc, char **argv)
{
	char directory[] = "/tmp/slipring-killed-XXXXXX";
	uint64_t begin = now_ns(), slowest = 0;
	uint32_t kills = 30, seed = 1, done = 0, resumed = 0;
	bool ok = true;
	int option;

	while ((option = getopt(argc, argv, "n:s:")) != -1) {
		if (option == 'n') {
			kills = (uint32_t)number(optarg, 'n', 1, 1000000);
		} else if (option == 's') {
			seed = (uint32_t)number(optarg, 's', 0, UINT32_MAX);
		} else {
			fputs("killed [-n KILLS] [-s SEED]\n", stderr);
			return 2;
		}
	}
	state = seed * 0x9e3779b97f4a7c15u | 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !mkdtemp(directory) || setenv("XDG_RUNTIME_DIR", directory, 1) ||
	    unsetenv("SLIPRING_DEVICES")) {
		perror("killed");
		return 2;
	}
	shared->patient = UINT32_MAX;
	/* Children of the dead are ours. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	start(0);
	start(1);
	ok = wait_until(have_heard);
	while (ok && done < kills) {
		/* One end lives through many deaths of the other, then the other way round. */
		unsigned victim = done / 25 % 2;
		bool both = draw(&state, 16) == 0, wait = draw(&state, 4) != 0;

		sleep_ns((long)draw(&state, 40) * 1000000 + draw(&state, 1000) * 1000);
		ok = all_is_well();
		shared->patient = !victim;
		for (unsigned which = 0; ok && which < 2; which++) {
			if (which != victim && !both)
				continue;
			kill(ends[which], SIGKILL);
			waitpid(ends[which], NULL, 0);
			ends[which] = -1;
			done++;
		}
		if (draw(&state, 2))
			sleep_ns((long)draw(&state, 20) * 1000000);
		for (unsigned which = 0; ok && which < 2; which++)
			if (ends[which] < 0)
				start(which);
		/* Else it may be killed before it is there. */
		if (!ok || !wait)
			continue;
		ok = wait_until(have_heard);
		if (!ok)
			break;
		uint64_t up = later(shared->ends[0].up_ns, shared->ends[1].up_ns);
		uint64_t heard = later(shared->ends[0].heard_ns, shared->ends[1].heard_ns);
		uint64_t took = heard > up ? heard - up : 0;

		resumed++;
		slowest = later(slowest, took);
		if (took > RESUME_NS) {
			fprintf(stderr, "after death %u nothing passed for %.2f s\n", done, (double)took / 1e9);
			ok = false;
		}
		for (unsigned which = 0; which < 2; which++) {
			if (wire_mappings(ends[which]) > MAPPINGS) {
				fprintf(stderr, "end %c has %u mappings of wires\n", "ab"[which], wire_mappings(ends[which]));
				ok = false;
			}
		}
	}
	if (!ok) {
		for (int i = 0; i < 2; i++)
			if (ends[i] > 0)
				kill(ends[i], SIGKILL);
		return 1;
	}
	ok = wait_until(have_heard) && finish(directory);
	printf("%u deaths, %u of %u and %u lives heard each other again, the slowest after %.0f ms; %llu frames; %.1f s\n", done,
	       resumed, lives[0], lives[1], (double)slowest / 1e6,
	       (unsigned long long)(shared->ends[0].frames + shared->ends[1].frames), (double)(now_ns() - begin) / 1e9);
	return !ok;
}
