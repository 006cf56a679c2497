/* Faults of libxdp's that ours must not have: the default program, its map and its reference counter. As in
 * defects-sockets.c: one test a row, to be linked to libxdp as well. */
#include "world.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void kernel_only(void)
{
	if (!on_kernel())
		skip("no XDP program runs on the engine");
}

static void receives(struct peer *p, struct rig *r, uint32_t id, const char *what)
{
	struct xdp_desc d;

	peer_send(p, FRAME_LEN, id);
	CHECK(rig_receive(r, &d, 1000), "%s: no frame", what);
	EQ(frame_id(xsk_umem__get_data(r->area, d.addr), d.len), id, what);
}

/* D1. Two sockets on one queue: frames go to the one bound last; deleted in either order, the one that is left receives. */
static void survivor_receives(bool first_goes)
{
	struct xsk_socket_config config;
	struct rig first, second;
	struct more m = { 0 };
	struct xdp_desc d;
	struct peer p;

	rig_open(&first, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&first, 0, 32);
	receives(&p, &first, 1, "the only socket");
	config = rig_config(&first.opt);
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, first.umem, &m.rx, &m.tx, &config), 0, "second socket");
	second = first;
	second.rx = m.rx;
	receives(&p, &second, 2, "the socket bound last");
	CHECK(!rig_receive(&first, &d, 20), "the first one received too");
	xsk_socket__delete(first_goes ? first.xsk : m.xsk);
	receives(&p, first_goes ? &second : &first, 3, "the one that is left");
	xsk_socket__delete(first_goes ? m.xsk : first.xsk);
	rig_close_umem(&first);
	peer_close(&p);
}

CLEAN_TEST(D1_first_of_two_goes_first)
{
	survivor_receives(true);
}

CLEAN_TEST(D1_second_of_two_goes_first)
{
	survivor_receives(false);
}

/* D2, D19. A socket that has no entry in the map takes none away, and has no reference to give back. */
static void guest_leaves(bool inhibited)
{
	struct xsk_socket_config config;
	struct more m = { 0 };
	struct peer p;
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 32);
	config = inhibited ? no_program(&r) : rig_config(&r.opt);
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, inhibited ? &m.rx : NULL, &m.tx, &config), 0, "second socket");
	if (on_kernel()) /* on the engine, where there is no program, the socket bound last receives */
		receives(&p, &r, 1, "beside the other");
	xsk_socket__delete(m.xsk);
	receives(&p, &r, 2, "after the other");
	peer_close(&p);
	rig_close(&r);
}

CLEAN_TEST(D2_inhibited_socket_leaves)
{
	guest_leaves(true);
}

CLEAN_TEST(D19_sending_socket_leaves)
{
	guest_leaves(false);
}

/* D3. Native mode is refused; generic mode on the same UMEM works, as a program wants it that tries one after the other. */
CLEAN_TEST(D3_native_then_generic)
{
	struct xsk_socket_config config;
	struct rig r;

	kernel_only();
	rig_open_umem(&r, (struct rig_options){ .xdp_flags = NATIVE });
	config = rig_config(&r.opt);
	EQ(BUSY_RETRY(xsk_socket__create(&r.xsk, "lo", 0, r.umem, &r.rx, &r.tx, &config)), -EOPNOTSUPP, "native mode on lo");
	CHECK(!program_on("lo"), "a program after a failure");
	config.xdp_flags = GENERIC;
	EQ(BUSY_RETRY(xsk_socket__create(&r.xsk, "lo", 0, r.umem, &r.rx, &r.tx, &config)), 0, "generic mode on the same UMEM");
	CHECK(program_on("lo"), "no program");
	rig_close(&r);
}

/* An interface with four queues whose driver does not say how many it has. */
static void silent_interface(void)
{
	ip("link add iz numrxqueues 4 numtxqueues 4 type ifb\n"
	   "link set dev iz up\n");
}

static int on_silent(struct rig *r, uint32_t queue)
{
	struct xsk_socket_config config;

	rig_open_umem(r, (struct rig_options){ .xdp_flags = GENERIC });
	config = rig_config(&r->opt);
	return BUSY_RETRY(xsk_socket__create(&r->xsk, "iz", queue, r->umem, &r->rx, &r->tx, &config));
}

/* D32. The map has a place for each queue, also where only netlink tells how many there are. */
TEST(D32_map_for_every_queue)
{
	struct rig r;

	kernel_only();
	world();
	silent_interface();
	EQ(on_silent(&r, 3), 0, "queue 3 of 4");
	rig_close(&r);
	CHECK(!program_on("iz"), "the program is left");
}

/* D4. A creation that fails late, after it was counted as a user of the program, takes itself off again. libxdp fails on the
 * map that is too small (D32), where ours does not, and ours on a queue that is taken, where libxdp has not counted yet. */
TEST(D4_failed_user_is_not_counted)
{
	struct rig first, late;

	kernel_only();
	world();
	silent_interface();
	EQ(on_silent(&first, 0), 0, "queue 0 of 4");
	if (!on_silent(&late, 2))
		xsk_socket__delete(late.xsk);
	rig_close_umem(&late);
	rig_close(&first);
	CHECK(!program_on("iz"), "XDP program %u is left on iz", program_on("iz"));

	rig_open(&first, (struct rig_options){ 0 });
	rig_open_umem(&late, (struct rig_options){ 0 });
	EQ(rig_socket(&late), -EBUSY, "taken queue");
	rig_close_umem(&late);
	rig_close(&first);
	no_program_left();
}

/* D5. The last to leave detaches in the mode that is attached, whatever mode it asked for itself. */
CLEAN_TEST(D5_last_one_asked_for_another_mode)
{
	struct rig native, generic;

	kernel_only();
	rig_open(&native, (struct rig_options){ .port = MANY_A, .xdp_flags = NATIVE });
	rig_open(&generic, (struct rig_options){ .port = MANY_A, .queue = 1, .xdp_flags = GENERIC });
	rig_close(&native);
	CHECK(program_on(ifname_of(MANY_A)), "the program went with the first");
	rig_close(&generic);
	no_program_left();
}

/* D6. Deletion in another network namespace than creation. */
CLEAN_TEST(D6_deleted_in_another_namespace)
{
	struct rig r;
	int here;

	kernel_only();
	rig_open(&r, (struct rig_options){ 0 });
	here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	EQ(unshare(CLONE_NEWNET), 0, "unshare");
	rig_close(&r);
	EQ(setns(here, CLONE_NEWNET), 0, "setns");
	close(here);
	no_program_left();
}

/* D15. xsk_setup_xdp_prog leaves no descriptor but the one that it gives, and needs no object file. */
TEST(D15_setup_xdp_prog_leaves_no_descriptor)
{
	struct footprint before;
	int index, map = -1;

	kernel_only();
	world();
	index = (int)if_nametoindex(ifname_of(A));
	EQ(xsk_setup_xdp_prog(index, &map), 0, "first call");
	close(map);
	before = footprint();
	for (int i = 0; i < 3; i++) {
		EQ(xsk_setup_xdp_prog(index, &map), 0, "call");
		close(map);
		EQ(xsk_setup_xdp_prog(index, NULL), 0, "call without a place for the map");
	}
	EQ(footprint().descriptors, before.descriptors, "descriptors");
}

TEST(D15_no_object_file)
{
	int map = -1;

	kernel_only();
	world();
	setenv("LIBXDP_OBJECT_PATH", "/nonexistent", 1);
	EQ(xsk_setup_xdp_prog((int)if_nametoindex(ifname_of(A)), &map), 0, "xsk_setup_xdp_prog");
	close(map);
}

/* D16. A program that cannot be had beside a socket that lives leaves that one alone, and descriptor 0 open. libxdp has none
 * without its object files, ours none where a foreign one is. */
CLEAN_TEST(D16_failed_program_beside_a_socket)
{
	struct xsk_socket_config config;
	struct more m = { 0 };
	struct rig r;

	kernel_only();
	rig_open(&r, (struct rig_options){ .no_program = true });
	attach_foreign(ifname_of(A));
	r.opt.no_program = false;
	config = rig_config(&r.opt);
	setenv("LIBXDP_OBJECT_PATH", "/nonexistent", 1);
	CHECK(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &config) < 0, "socket beside a foreign program");
	ip("link set dev va xdp off\n");
	xsk_socket__delete(r.xsk);
	CHECK(fcntl(0, F_GETFD) >= 0, "descriptor 0 was closed");
	rig_close_umem(&r);
}

/* D17. update_xskmap on a socket with the default program: the map is the caller's before and after. */
CLEAN_TEST(D17_the_callers_map_stays_open)
{
	struct rig r;
	int map = -1;

	kernel_only();
	EQ(xsk_setup_xdp_prog((int)if_nametoindex(ifname_of(A)), &map), 0, "xsk_setup_xdp_prog");
	rig_open(&r, (struct rig_options){ 0 });
	EQ(xsk_socket__update_xskmap(r.xsk, map), 0, "xsk_socket__update_xskmap");
	rig_close(&r);
	CHECK(fcntl(map, F_GETFD) >= 0, "the caller's map was closed");
	close(map);
	ip("link set dev va xdp off\n"); /* it was set up for good */
}

/* D18. Nothing piles up (case C49). */
CLEAN_TEST(D18_C49_twenty_rounds)
{
	kernel_only();
	for (int i = 0; i < 20; i++) {
		struct rig r;

		rig_open(&r, (struct rig_options){ 0 });
		rig_close(&r);
	}
}

/* D22. Many processes come and go on one interface, each on queues of its own. */
#define CROWD 4

static int one_of_a_crowd(int number)
{
	uint64_t end = now_ms() + 3000;

	for (uint32_t i = 0; i < 200 && now_ms() < end; i++) {
		struct rig r;
		int ret;

		rig_open_umem(&r, (struct rig_options){ .chunks = 32, .fill = 16, .comp = 16, .rx = 16, .tx = 16 });
		{
			struct xsk_socket_config config = rig_config(&r.opt);

			/* Never a queue again that it has just closed: that is D21. */
			ret = xsk_socket__create(&r.xsk, "wide", (uint32_t)number * 16 + i % 16, r.umem, &r.rx, &r.tx, &config);
		}
		CHECK(!ret, "round %u of process %d: %s", i, number, strerror(-ret));
		rig_close(&r);
	}
	return 0;
}

CLEAN_TEST(D22_crowd_on_one_interface)
{
	pid_t children[CROWD];

	kernel_only();
	ip("link add wide numrxqueues 64 numtxqueues 64 type veth peer name narrow\n"
	   "link set dev wide up\n");
	for (int i = 0; i < CROWD; i++) {
		children[i] = fork();
		if (!children[i])
			exit(one_of_a_crowd(i));
	}
	for (int i = 0; i < CROWD; i++)
		EQ(ended(children[i]), 0, "a process of the crowd");
	CHECK(!program_on("wide"), "the program is left");
	ip("link del wide\n");
}

/* D24, D25. The lock is where libxdp has it: in the BPF file system, else in /run. In a mount namespace, so that nobody else
 * waits for it. */
static void private_mounts(bool bpffs)
{
	EQ(unshare(CLONE_NEWNS), 0, "unshare");
	EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0, "private mounts");
	EQ(mount("run", "/run", "tmpfs", 0, NULL), 0, "tmpfs on /run");
	if (mount("bpf", "/sys/fs/bpf", bpffs ? "bpf" : "tmpfs", 0, NULL))
		skip("cannot mount over /sys/fs/bpf: %s", strerror(errno));
}

/* A child that holds the lock for ms, or until it is killed. */
static pid_t hold_lock(const char *directory, unsigned ms)
{
	int ready[2];
	pid_t child;
	char byte;

	EQ(pipe(ready), 0, "pipe");
	child = fork();
	if (!child) {
		int fd;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fd = open(directory, O_RDONLY | O_DIRECTORY);
		if (fd < 0 && mkdir(directory, 0700) == 0)
			fd = open(directory, O_RDONLY | O_DIRECTORY);
		CHECK(fd >= 0 && !flock(fd, LOCK_EX), "lock on %s: %s", directory, strerror(errno));
		EQ(write(ready[1], "x", 1), 1, "write");
		if (ms)
			sleep_ms(ms);
		else
			pause();
		_exit(0);
	}
	EQ(read(ready[0], &byte, 1), 1, "read");
	close(ready[0]);
	close(ready[1]);
	return child;
}

static void waits_for_the_lock(bool bpffs)
{
	struct rig r;
	uint64_t begin;
	pid_t holder;

	kernel_only();
	world();
	private_mounts(bpffs);
	rig_open(&r, (struct rig_options){ 0 });
	holder = hold_lock(bpffs ? "/sys/fs/bpf/xdp" : "/run/xdp", 300);
	begin = now_ms();
	rig_close(&r);
	CHECK(now_ms() - begin > 200, "the last reference was given back without the lock");
	EQ(ended(holder), 0, "the holder");
	no_program_left();
}

TEST(D24_lock_in_the_bpf_file_system)
{
	waits_for_the_lock(true);
}

TEST(D24_lock_in_run)
{
	waits_for_the_lock(false);
}

TEST(D25_holder_that_has_stopped)
{
	struct rig first, second;
	pid_t holder;
	int ret;

	kernel_only();
	world();
	private_mounts(false);
	rig_open(&first, (struct rig_options){ .port = MANY_A });
	rig_open_umem(&second, (struct rig_options){ .port = MANY_A, .queue = 1 });
	holder = hold_lock("/run/xdp", 0);
	ret = rig_socket(&second);
	kill(holder, SIGKILL);
	EQ(ended(holder), -SIGKILL, "the holder");
	EQ(ret, -ETIMEDOUT, "xsk_socket__create");
	EQ(rig_socket(&second), 0, "without the holder");
	rig_close(&second);
	rig_close(&first);
	no_program_left();
}

/* D33. The interface goes before the socket. */
TEST(D33_interface_goes_first)
{
	struct rig r;

	kernel_only();
	world();
	rig_open(&r, (struct rig_options){ 0 });
	ip("link del va\n");
	rig_close(&r);
}

/* D34, C64. Success says nothing on stderr and leaves errno alone, in each way to make a socket. */
#define NOISE(call, what)                                                \
	do {                                                             \
		errno = 0;                                               \
		call;                                                    \
		CHECK(!look_at_errno || !errno, "%s: errno %d", what, errno); \
	} while (0)

static void successful_life(bool look_at_errno)
{
	struct xsk_socket_config config;
	struct more m = { 0 };
	int map = -1, index;
	struct rig r;

	world();
	index = (int)if_nametoindex(ifname_of(A));
	memset(&r, 0, sizeof(r));
	r.opt = rig_defaults((struct rig_options){ .port = MANY_A });
	r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
	r.area = map_area(r.size);
	config = rig_config(&r.opt);
	hear_stderr();
	NOISE(EQ(rig_umem(&r), 0, "umem"), "xsk_umem__create");
	NOISE(EQ(rig_socket(&r), 0, "socket"), "xsk_socket__create");
	NOISE(EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, &m.rx, &m.tx, &m.fill, &m.comp, &config), 0,
		 "shared"),
	      "xsk_socket__create_shared");
	NOISE(EQ(xsk_setup_xdp_prog(index, &map), 0, "program"), "xsk_setup_xdp_prog");
	NOISE(xsk_socket__delete(m.xsk), "xsk_socket__delete");
	NOISE(xsk_socket__delete(r.xsk), "xsk_socket__delete of the last");
	NOISE(EQ(xsk_umem__delete(r.umem), 0, "delete"), "xsk_umem__delete");
	if (!look_at_errno)
		stderr_was_silent("all");
	close(map);
}

TEST(D34_C64_success_says_nothing)
{
	successful_life(false);
}

TEST(D34_success_leaves_errno_alone)
{
	successful_life(true);
}
