/* Programs with few rights: descriptors handed over by somebody with more, a limit on memory, a sandbox without AF_XDP, and a
 * sandbox that allows nothing but what an unprivileged program needs. */
#include "listen.h"
#include "world.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static void send_descriptor(int to, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec data = { .iov_base = "x", .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	EQ(sendmsg(to, &message, 0), 1, "sendmsg");
}

static int receive_descriptor(int from)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd;

	EQ(recvmsg(from, &message, 0), 1, "recvmsg");
	EQ(control.head.cmsg_type, SCM_RIGHTS, "a descriptor");
	memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

static void signal_to(int fd)
{
	EQ(send(fd, "x", 1, 0), 1, "send");
}

static void wait_for(int fd)
{
	char byte;

	EQ(recv(fd, &byte, 1, 0), 1, "the other process is gone");
}

/* uid 65534, and with that no capability. */
static void become_nobody(void)
{
	EQ(setresgid(65534, 65534, 65534), 0, "setresgid");
	EQ(setresuid(65534, 65534, 65534), 0, "setresuid");
}

static void kernel_only(void)
{
	if (!on_kernel())
		skip("the engine needs no rights");
	world();
}

static int umem_on(struct rig *r, int fd, struct rig_options opt)
{
	struct xsk_umem_config config;

	memset(r, 0, sizeof(*r));
	r->opt = rig_defaults(opt);
	r->size = (uint64_t)r->opt.chunk * r->opt.chunks;
	r->area = map_area(r->size);
	config = (struct xsk_umem_config){ .fill_size = r->opt.fill, .comp_size = r->opt.comp, .frame_size = r->opt.chunk };
	return xsk_umem__create_with_fd(&r->umem, fd, r->area, r->size, &r->fill, &r->comp, &config);
}

static int put_into_map(int map, uint32_t queue, int fd)
{
	struct {
		uint32_t map, pad;
		const uint32_t *key;
		const int *value;
		uint64_t flags;
	} update = { .map = (uint32_t)map, .key = &queue, .value = &fd };

	return (int)syscall(SYS_bpf, 2 /* BPF_MAP_UPDATE_ELEM */, &update, sizeof(update));
}

/* C18. A helper with rights makes the socket and keeps the map; who works with it has none. */
TEST(C18_descriptors_from_a_helper)
{
	int map = -1, handed, ends[2];
	struct peer p;
	pid_t child;

	kernel_only();
	EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0, "socketpair");
	child = fork();
	if (!child) {
		struct footprint before;
		struct xdp_desc d;
		struct rig r;
		int fd;

		become_nobody();
		before = footprint();
		fd = receive_descriptor(ends[1]);
		EQ(umem_on(&r, fd, (struct rig_options){ .no_program = true }), 0, "xsk_umem__create_with_fd");
		EQ(rig_socket(&r), 0, "xsk_socket__create");
		EQ(rig_fd(&r), fd, "the descriptor handed over");
		rig_fill(&r, 0, 8);
		signal_to(ends[1]);
		CHECK(rig_receive(&r, &d, 3000), "no frame");
		EQ(frame_id(xsk_umem__get_data(r.area, d.addr), d.len), 7, "frame");
		rig_queue(&r, 100, 1);
		EQ(rig_kick(&r), 0, "kick");
		rig_complete(&r, 1);
		rig_close(&r);
		check_clean(before, "the life of a socket");
		exit(0);
	}
	peer_open(&p);
	EQ(xsk_setup_xdp_prog((int)if_nametoindex(ifname_of(A)), &map), 0, "xsk_setup_xdp_prog");
	handed = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	send_descriptor(ends[0], handed);
	wait_for(ends[0]);
	EQ(put_into_map(map, 0, handed), 0, "map update");
	peer_send(&p, FRAME_LEN, 7);
	EQ(peer_receive(&p, FRAME_LEN), 100, "frame at the peer");
	EQ(ended(child), 0, "the child");
	close(handed);
	close(map);
	peer_close(&p);
}

/* And without a descriptor: the line says which right is missing. */
TEST(missing_right_is_named)
{
	pid_t child;

	kernel_only();
	child = fork();
	if (!child) {
		struct footprint before = footprint();
		struct rig r;

		become_nobody();
		hear_nothing_so_far();
		EQ(umem_on(&r, -1, (struct rig_options){ 0 }), -EPERM, "xsk_umem__create_with_fd without a descriptor");
		SAYS("no right", "CAP_NET_RAW", "xsk_umem__create_with_fd");
		check_clean(before, "a UMEM that could not be made");
		exit(0);
	}
	EQ(ended(child), 0, "the child");
}

/* C21. More memory than may be locked: the line has both numbers, and the limit is left as it is. */
TEST(C21_memory_limit_is_named)
{
	pid_t child;

	kernel_only();
	child = fork();
	if (!child) {
		const struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };
		struct footprint before = footprint();
		struct rlimit now;
		int fd = socket(AF_XDP, SOCK_RAW, 0);
		struct rig r;

		become_nobody();
		EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0, "setrlimit");
		hear_nothing_so_far();
		EQ(umem_on(&r, fd, (struct rig_options){ .chunks = 4096 }), -ENOBUFS, "xsk_umem__create_with_fd");
		SAYS("16 MiB", "16777216", "1048576", "RLIMIT_MEMLOCK");
		check_clean(before, "a UMEM that is too large");
		EQ(getrlimit(RLIMIT_MEMLOCK, &now), 0, "getrlimit");
		EQ(now.rlim_cur, limit.rlim_cur, "RLIMIT_MEMLOCK");
		exit(0);
	}
	EQ(ended(child), 0, "the child");
}

/* C22. No AF_XDP for this process: said so on direct; on the engine the program runs. */
TEST(C22_sandbox_without_af_xdp)
{
	struct rig a, b;
	struct xdp_desc d;

	world();
	forbid_af_xdp();
	if (on_kernel()) {
		memset(&a, 0, sizeof(a));
		a.opt = rig_defaults((struct rig_options){ 0 });
		a.size = (uint64_t)a.opt.chunk * a.opt.chunks;
		a.area = map_area(a.size);
		hear_nothing_so_far();
		EQ(rig_umem(&a), -EAFNOSUPPORT, "xsk_umem__create");
		SAYS("no AF_XDP", "sandbox", "CONFIG_XDP_SOCKETS", "SLIPRING_DEVICES");
		return;
	}
	rig_open(&a, (struct rig_options){ .port = A });
	rig_open(&b, (struct rig_options){ .port = B });
	rig_fill(&b, 0, 8);
	rig_queue(&a, 3, 1);
	rig_complete(&a, 1);
	CHECK(rig_receive(&b, &d, 1000), "no frame");
	EQ(frame_id(xsk_umem__get_data(b.area, d.addr), d.len), 3, "frame");
	rig_close(&a);
	rig_close(&b);
}

static void another_call(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	FAIL("system call %d is not one that an unprivileged program may need", info->si_syscall);
}

/* An unprivileged program with a descriptor handed over and without the default program makes these calls and no other, from
 * the UMEM to its end, so that a sandbox can be written for it: set and read options of the socket, map, look an interface
 * name up, bind, close. (brk: malloc. write, exit_group: this test.) */
TEST(few_calls_of_an_unprivileged_program)
{
	static struct sock_filter filter[] = {
		SC_CALL(SYS_mmap, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_munmap, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_brk, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_close, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_bind, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_write, SECCOMP_RET_ALLOW),
		SC_CALL(SYS_exit_group, SECCOMP_RET_ALLOW),
		SC_CALL_IF(SYS_setsockopt, 1, SOL_XDP, SECCOMP_RET_ALLOW),
		SC_CALL_IF(SYS_getsockopt, 1, SOL_XDP, SECCOMP_RET_ALLOW),
		SC_CALL_IF_BOTH(SYS_getsockopt, 1, SOL_SOCKET, 2, SO_NETNS_COOKIE, SECCOMP_RET_ALLOW),
		SC_CALL_IF_BOTH(SYS_socket, 0, AF_UNIX, 1, SOCK_DGRAM, SECCOMP_RET_ALLOW),
		SC_CALL_IF_BOTH(SYS_socket, 0, AF_UNIX, 1, SOCK_DGRAM | SOCK_CLOEXEC, SECCOMP_RET_ALLOW),
		SC_CALL_IF(SYS_ioctl, 1, SIOCGIFINDEX, SECCOMP_RET_ALLOW),
		SC_DO(SECCOMP_RET_TRAP),
	};
	pid_t child;
	int fd;

	kernel_only();
	fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	child = fork();
	if (!child) {
		struct sigaction action = { .sa_sigaction = another_call, .sa_flags = SA_SIGINFO };
		struct rig r;

		become_nobody();
		sigaction(SIGSYS, &action, NULL);
		sandbox(filter, sizeof(filter) / sizeof(filter[0]), 0);
		EQ(umem_on(&r, fd, (struct rig_options){ .no_program = true }), 0, "xsk_umem__create_with_fd");
		rig_fill(&r, 0, 8);
		EQ(rig_socket(&r), 0, "xsk_socket__create");
		rig_close(&r);
		_exit(0);
	}
	EQ(ended(child), 0, "the child");
}
