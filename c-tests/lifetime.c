/* Creation and deletion: nothing stays behind, nothing breaks under traffic, whatever the program does with its memory,
 * its descriptors and its processes. */
#include "peer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* C01, C49. Open, use and close again and again, without a pause: each time it works, and in the end nothing is left. */
TEST(C01_C49_hundred_times)
{
	struct footprint before = { 0, 0 };
	uint64_t slowest = 0;

	not_libxdp("the queue stays busy for 20 ms after a close");
	for (int round = 0; round < 101; round++) {
		uint64_t begin = now_ms(), took;
		struct rig r;

		if (round == 1) /* the first was to warm up */
			before = footprint();
		rig_open(&r, (struct rig_options){ 0 });
		took = now_ms() - begin;
		if (took > slowest)
			slowest = took;
		rig_queue(&r, 0, 4);
		EQ(rig_kick(&r), 0, "kick");
		rig_close(&r);
	}
	CHECK(slowest < 500, "a creation took %llu ms", (unsigned long long)slowest);
	check_clean(before, "a hundred rounds");
}

/* C51. No socket was ever made, or making it failed. */
TEST(C51_umem_alone)
{
	struct footprint before = { 0, 0 };

	for (int round = 0; round < 101; round++) {
		struct xsk_socket_config config;
		struct rig r;

		if (round == 1)
			before = footprint();
		memset(&r, 0, sizeof(r));
		r.opt = rig_defaults((struct rig_options){ 0 });
		r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
		r.area = map_area(r.size);
		EQ(rig_umem(&r), 0, "xsk_umem__create");
		config = rig_config(&r.opt);
		if (round % 2)
			EQ(xsk_socket__create(&r.xsk, ifname_of(A), 99, r.umem, &r.rx, &r.tx, &config), -EINVAL, "queue 99");
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
		munmap(r.area, r.size);
	}
	check_clean(before, "a hundred rounds");
}

/* A flood from the far end while a thread does something else. */
struct flood {
	struct peer peer;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic uint32_t sent;
};

static void *pour(void *arg)
{
	struct flood *f = arg;

	while (!f->stop) {
		peer_send(&f->peer, 60, f->sent);
		f->sent++;
	}
	return NULL;
}

static void flood_start(struct flood *f)
{
	memset(f, 0, sizeof(*f));
	peer_open(&f->peer);
	EQ(pthread_create(&f->thread, NULL, pour, f), 0, "pthread_create");
}

static void flood_stop(struct flood *f)
{
	f->stop = true;
	pthread_join(f->thread, NULL);
	CHECK(f->sent > 0, "the flood sent nothing");
	peer_close(&f->peer);
}

/* Fifty rounds of creation and deletion with frames coming in all the time. */
TEST(created_and_deleted_under_flood)
{
	struct flood f;

	flood_start(&f);
	for (int round = 0; round < 50; round++) {
		struct rig r;
		struct xdp_desc d;

		rig_open(&r, (struct rig_options){ .fill = 64, .rx = 64 });
		rig_fill(&r, 0, 64);
		if (round % 2)
			CHECK(rig_receive(&r, &d, 2000), "round %d: no frame", round);
		rig_close(&r);
	}
	flood_stop(&f);
}

/* The program unmaps its UMEM, or takes the right to it, while the socket lives and frames come in: nothing crashes, and the socket can still be
 * deleted. (The kernel has the pages pinned; the engine has not.) */
enum taking { UNMAP, FREE, PROTECT, PROTECT_KEY };

static void unmapped_under_traffic(enum taking how)
{
	for (int round = 0; round < 20; round++) {
		struct flood f;
		struct rig r;
		struct xdp_desc d;

		memset(&r, 0, sizeof(r));
		r.opt = rig_defaults((struct rig_options){ 0 });
		r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
		if (how == FREE) {
			void *memory = NULL;

			EQ(posix_memalign(&memory, 4096, r.size), 0, "posix_memalign");
			r.area = memory;
		} else {
			r.area = map_area(r.size);
		}
		EQ(rig_umem(&r), 0, "xsk_umem__create");
		{
			struct xsk_socket_config config = rig_config(&r.opt);

			EQ(xsk_socket__create(&r.xsk, ifname_of(A), 0, r.umem, &r.rx, &r.tx, &config), 0, "xsk_socket__create");
		}
		rig_fill(&r, 0, 250);
		rig_queue_at(&r, 4096 * 255, 60, 0); /* one frame waits to be sent */
		flood_start(&f);
		CHECK(rig_receive(&r, &d, 2000), "no frame");
		switch (how) {
		case UNMAP:
			EQ(munmap(r.area, r.size), 0, "munmap");
			break;
		case FREE:
			free(r.area);
			break;
		case PROTECT:
			EQ(mprotect(r.area, r.size, round % 2 ? PROT_NONE : PROT_READ), 0, "mprotect");
			break;
		case PROTECT_KEY:
			EQ(pkey_mprotect(r.area, r.size, PROT_NONE, -1), 0, "pkey_mprotect");
			break;
		}
		sleep_ms(5);
		rig_kick(&r);
		kick_fd(rig_fd(&r));
		recvfrom(rig_fd(&r), NULL, 0, MSG_DONTWAIT, NULL, NULL);
		xsk_socket__delete(r.xsk);
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
		flood_stop(&f);
	}
}

TEST(umem_unmapped_under_traffic)
{
	engine_only("the kernel pins the pages");
	unmapped_under_traffic(UNMAP);
}

TEST(umem_protected_under_traffic)
{
	engine_only("the kernel pins the pages");
	unmapped_under_traffic(PROTECT);
}

TEST(umem_protected_with_key_under_traffic)
{
	engine_only("the kernel pins the pages");
	unmapped_under_traffic(PROTECT_KEY);
}

/* A change of protection that leaves the right to read and write takes nothing away. */
TEST(umem_stays_with_its_rights)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 8);
	EQ(mprotect(r.area, r.size, PROT_READ | PROT_WRITE | PROT_EXEC), 0, "mprotect");
	EQ(mprotect(r.area, r.size, PROT_READ | PROT_WRITE), 0, "mprotect");
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "no frame");
	peer_close(&p);
	rig_close(&r);
}

TEST(umem_freed_under_traffic)
{
	engine_only("the kernel pins the pages");
	not_sanitized("its runtime answers free()");
	unmapped_under_traffic(FREE);
}

/* After a fork the child's copy is dead: its calls fail, what it deletes is not the parent's, and the parent goes on. */
TEST(fork_child_is_inert)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;
	int status;
	pid_t child;

	engine_only("in direct the descriptor works in the child, as the kernel has it");
	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 16);
	rig_queue(&r, 100, 1);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		alarm(10);
		CHECK(rig_kick(&r) == ENXIO, "the child's kick");
		CHECK(recvfrom(rig_fd(&r), NULL, 0, MSG_DONTWAIT, NULL, NULL) == -1 && errno == ENXIO, "the child's recvfrom");
		xsk_socket__delete(r.xsk);
		CHECK(xsk_umem__delete(r.umem) == 0, "the child's xsk_umem__delete");
		peer_close(&p);
		_exit(42);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42, "the child's status is 0x%x",
	      status);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "the parent does not receive any more");
	EQ(ring_pending(&r.tx), 1, "frames that wait");
	EQ(rig_kick(&r), 0, "the parent's kick");
	EQ(peer_receive(&p, FRAME_LEN), 100, "the parent's frame");
	EQ(take_completions(&r.comp, NULL, 8), 1, "completions");
	peer_close(&p);
	rig_close(&r);
}

/* A thread is in the middle of creating or deleting a socket of the same UMEM when another one forks: the child, which has no such
 * thread, deletes what it inherited all the same. */
struct sharer {
	struct rig *rig;
	_Atomic bool stop;
};

static void *share_again_and_again(void *arg)
{
	struct sharer *s = arg;

	while (!s->stop) {
		struct xsk_socket_config config = rig_config(&s->rig->opt);
		struct xsk_ring_prod tx;
		struct xsk_socket *xsk;

		EQ(xsk_socket__create(&xsk, ifname_of(A), 0, s->rig->umem, NULL, &tx, &config), 0, "xsk_socket__create");
		xsk_socket__delete(xsk);
	}
	return NULL;
}

TEST(fork_while_the_umem_is_in_use)
{
	struct sharer s = { 0 };
	pthread_t thread;
	struct rig r;

	engine_only("in direct the descriptor works in the child, as the kernel has it");
	not_sanitized("it has locks of its own that a thread may hold");
	rig_open(&r, (struct rig_options){ 0 });
	s.rig = &r;
	EQ(pthread_create(&thread, NULL, share_again_and_again, &s), 0, "pthread_create");
	for (int round = 0; round < 200; round++) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			alarm(10);
			xsk_socket__delete(r.xsk);
			_exit(xsk_umem__delete(r.umem) == -EBUSY ? 43 : 42);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork: %s", strerror(errno));
		CHECK(WIFEXITED(status) && (WEXITSTATUS(status) | 1) == 43, "round %d: the child's status is 0x%x", round, status);
	}
	s.stop = true;
	pthread_join(thread, NULL);
	rig_close(&r);
}

/* The child makes sockets of its own after the fork, on another wire, and the parent keeps its. */
TEST(fork_then_create)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;
	int status;
	pid_t child;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 16);
	fflush(NULL);
	child = fork();
	if (child == 0) {
		struct rig mine;
		struct peer far;

		alarm(10);
		rig_open(&mine, (struct rig_options){ .port = C });
		peer_open_on(&far, D);
		rig_fill(&mine, 0, 16);
		peer_send(&far, FRAME_LEN, 1);
		CHECK(rig_receive(&mine, &d, 1000), "the child does not receive");
		rig_queue(&mine, 100, 1);
		EQ(rig_kick(&mine), 0, "the child's kick");
		EQ(peer_receive(&far, FRAME_LEN), 100, "the child's frame");
		peer_close(&far);
		rig_close(&mine);
		_exit(42);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42, "the child's status is 0x%x",
	      status);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "the parent does not receive any more");
	peer_close(&p);
	rig_close(&r);
}

/* vfork and exec beside a living socket: the new program knows nothing of it. */
TEST(exec_beside_a_socket)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 16);
	for (int i = 0; i < 5; i++) {
		EQ(system("exit 42"), 42 << 8, "system");
		peer_send(&p, FRAME_LEN, 1);
		CHECK(rig_receive(&r, &d, 1000), "no frame after the program");
	}
	peer_close(&p);
	rig_close(&r);
}

/* exit() without deleting anything, with traffic coming in. */
TEST(exit_under_flood)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		static struct flood f;
		static struct rig r;
		struct xdp_desc d;

		alarm(10);
		rig_open(&r, (struct rig_options){ 0 });
		rig_fill(&r, 0, 250);
		flood_start(&f);
		CHECK(rig_receive(&r, &d, 2000), "no frame");
		exit(42);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42, "the child's status is 0x%x",
	      status);
}

/* Two threads create and delete on two wires at once. */
static void *churn(void *arg)
{
	enum port port = *(enum port *)arg;

	for (int round = 0; round < 30; round++) {
		struct rig r;

		rig_open(&r, (struct rig_options){ .port = port, .no_rx = true });
		rig_queue(&r, 0, 8);
		EQ(rig_kick(&r), 0, "kick");
		rig_close(&r);
	}
	return NULL;
}

TEST(threads_create_and_delete)
{
	enum port ports[2] = { A, C };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		EQ(pthread_create(&threads[i], NULL, churn, &ports[i]), 0, "pthread_create");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
