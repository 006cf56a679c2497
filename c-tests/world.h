/* A network namespace for one test, so that whatever a library leaves on an interface is gone with the test; and what a test
 * of the kernel's side needs there: who is on an interface, a foreign program, a sandbox around system calls.
 *
 * "Clean" is looked for in the process (descriptors, mappings) and on the interfaces. BPF maps need no look of their own:
 * one lives by a descriptor, by a program that is attached, or by a pin, and nothing is pinned here. */
#ifndef WORLD_H
#define WORLD_H

#include "peer.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NATIVE (1u << 2)  /* XDP_FLAGS_DRV_MODE */
#define GENERIC (1u << 1) /* XDP_FLAGS_SKB_MODE */

/* Run ip commands, one a line. */
static inline void ip(const char *commands)
{
	FILE *pipe = popen("ip -batch -", "w");

	CHECK(pipe && fputs(commands, pipe) >= 0, "ip: %s", strerror(errno));
	EQ(pclose(pipe), 0, commands);
}

/* On the kernel: a new namespace with the pairs va-vb (one queue) and ve-vf (eight), and lo. */
static inline void world(void)
{
	int fd;

	if (!on_kernel())
		return;
	CHECK(!unshare(CLONE_NEWNET), "unshare: %s", strerror(errno));
	fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "1", 1) < 0)
			perror("disable_ipv6");
		close(fd);
	}
	ip("link set dev lo up\n"
	   "link add va type veth peer name vb\n"
	   "link set dev va up\n"
	   "link set dev vb up\n"
	   "link add ve numrxqueues 8 numtxqueues 8 type veth peer name vf numrxqueues 8 numtxqueues 8\n"
	   "link set dev ve up\n"
	   "link set dev vf up\n");
}

/* Number of the XDP program on an interface, 0: none. */
static inline unsigned program_on(const char *ifname)
{
	char command[64], line[1024], *at;
	unsigned id = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "ip link show dev %s", ifname);
	pipe = popen(command, "r");
	CHECK(pipe, "popen: %s", strerror(errno));
	while (fgets(line, sizeof(line), pipe))
		if ((at = strstr(line, "prog/xdp id ")) || (at = strstr(line, "prog/xdp name")))
			id = (unsigned)atoi(strstr(at, "id ") + 3);
	pclose(pipe);
	return id;
}

/* Nothing is attached to the interfaces of the world. */
static inline void no_program_left(void)
{
	static const char *const names[] = { "lo", "va", "ve" };

	for (size_t i = 0; on_kernel() && i < sizeof(names) / sizeof(names[0]); i++)
		CHECK(!program_on(names[i]), "XDP program %u is left on %s", program_on(names[i]), names[i]);
}

static inline void clean_since(struct footprint before)
{
	struct footprint after = footprint();

	CHECK(after.mappings == before.mappings, "mappings: %u before, %u after", before.mappings, after.mappings);
	no_program_left();
	CHECK(after.descriptors == before.descriptors, "descriptors: %u before, %u after", before.descriptors, after.descriptors);
}

/* A test in a world of its own, whose body runs twice: the first time to warm up, the second must leave nothing. */
#define CLEAN_TEST(id)                             \
	static void id##_body(void);               \
	TEST(id)                                   \
	{                                          \
		struct footprint before_;          \
                                                   \
		world();                           \
		id##_body();                       \
		before_ = footprint();             \
		id##_body();                       \
		clean_since(before_);              \
	}                                          \
	static void id##_body(void)

/* What a child's body returns, or its signal as a negative number. */
static inline int ended(pid_t child)
{
	int status = 0;

	CHECK(child > 0 && waitpid(child, &status, 0) == child, "fork or waitpid: %s", strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Put an XDP program of two instructions, which passes everything, on an interface: no default program of AF_XDP. */
static inline void attach_foreign(const char *ifname)
{
	static const uint64_t pass_all[] = { 0x00000002000000b7, 0x95 }; /* r0 = XDP_PASS; exit */
	struct {
		uint32_t type, count;
		const uint64_t *instructions;
		const char *licence;
		uint64_t rest[8];
	} load = { .type = 6, .count = 2, .instructions = pass_all, .licence = "GPL" };
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
		struct rtattr xdp, fd_head;
		int32_t fd;
	} request = {
		.head = { .nlmsg_len = sizeof(request), .nlmsg_type = RTM_SETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.link = { .ifi_index = (int)if_nametoindex(ifname) },
		.xdp = { .rta_len = sizeof(struct rtattr) * 2 + 4, .rta_type = 43 /* IFLA_XDP */ | NLA_F_NESTED },
		.fd_head = { .rta_len = sizeof(struct rtattr) + 4, .rta_type = 1 /* IFLA_XDP_FD */ },
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	request.fd = (int32_t)syscall(SYS_bpf, 5 /* BPF_PROG_LOAD */, &load, sizeof(load));
	CHECK(request.fd >= 0, "BPF_PROG_LOAD: %s", strerror(errno));
	EQ(send(netlink, &request, sizeof(request), 0), sizeof(request), "netlink request");
	CHECK(recv(netlink, &answer, sizeof(answer), 0) > 0, "netlink answer: %s", strerror(errno));
	EQ(answer.error.error, 0, "attaching a program");
	close(request.fd);
	close(netlink);
}

/* From now on this thread, and what it starts, is under a seccomp filter. Returns the listener that `flags` ask for. */
static inline int sandbox(struct sock_filter *filter, size_t length, unsigned flags)
{
	struct sock_fprog program = { .len = (unsigned short)length, .filter = filter };
	int fd;

	EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "PR_SET_NO_NEW_PRIVS");
	fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (fd < 0)
		skip("no seccomp filters here: %s", strerror(errno));
	return fd;
}

/* Parts of filters: the system call's number, its argument n (low half), "is it this? else pass over so many", the end; and
 * rules that say what to do with a call, if one or two of its arguments have these values. */
#define SC_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define SC_ARG(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]))
#define SC_UNLESS(value, over) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (over))
#define SC_DO(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define SC_CALL(number, action) SC_NUMBER, SC_UNLESS(number, 1), SC_DO(action)
#define SC_CALL_IF(number, n, value, action) SC_NUMBER, SC_UNLESS(number, 3), SC_ARG(n), SC_UNLESS(value, 1), SC_DO(action)
#define SC_CALL_IF_BOTH(number, n, value, m, other, action) \
	SC_NUMBER, SC_UNLESS(number, 5), SC_ARG(n), SC_UNLESS(value, 3), SC_ARG(m), SC_UNLESS(other, 1), SC_DO(action)

/* The system call `number` fails with `error` when two of its arguments have these values. */
static inline void forbid(int number, unsigned arg, uint32_t value, unsigned other, uint32_t other_value, int error)
{
	struct sock_filter filter[] = {
		SC_CALL_IF_BOTH((uint32_t)number, arg, value, other, other_value, SECCOMP_RET_ERRNO | (uint32_t)error),
		SC_DO(SECCOMP_RET_ALLOW),
	};

	sandbox(filter, sizeof(filter) / sizeof(filter[0]), 0);
}

/* As systemd's RestrictAddressFamilies= and many a container: no AF_XDP sockets. */
static inline void forbid_af_xdp(void)
{
	forbid(SYS_socket, 0, AF_XDP, 0, AF_XDP, EAFNOSUPPORT);
}

#endif
