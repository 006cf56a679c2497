/* Every system call that a creation makes is refused once: the creation fails with an error and leaves nothing, or does without
 * that call; and the next attempt on the same UMEM works. A seccomp listener refuses the call, as in defects-offsets.c. */
#include "world.h"

#include <pthread.h>
#include <sys/file.h>
#include <sys/ioctl.h>

static _Atomic int listener = -1;
static _Atomic int countdown; /* at the call that makes it 0, refuse */
static _Atomic int refused = -1; /* which call that was */

static void *refuse(void *arg)
{
	while (listener < 0)
		sleep_ms(1);
	for (;;) {
		struct seccomp_notif call;
		struct seccomp_notif_resp result;

		memset(&call, 0, sizeof(call));
		memset(&result, 0, sizeof(result));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		result.id = call.id;
		result.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		/* Memory that is not shared is malloc's. */
		if ((call.data.nr != SYS_mmap || (call.data.args[3] & MAP_SHARED)) && countdown > 0 && --countdown == 0) {
			refused = call.data.nr;
			result.flags = 0;
			result.error = -ENOMEM;
		}
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &result);
	}
	return arg;
}

static void start_refusing(void)
{
	struct sock_filter filter[] = {
		SC_CALL(SYS_socket, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_bind, SECCOMP_RET_USER_NOTIF),
		SC_CALL(SYS_setsockopt, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_getsockopt, SECCOMP_RET_USER_NOTIF),
		SC_CALL(SYS_mmap, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_ioctl, SECCOMP_RET_USER_NOTIF),
		SC_CALL(SYS_bpf, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_sendto, SECCOMP_RET_USER_NOTIF),
		SC_CALL(SYS_recvfrom, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_openat, SECCOMP_RET_USER_NOTIF),
		SC_CALL(SYS_flock, SECCOMP_RET_USER_NOTIF), SC_CALL(SYS_fcntl, SECCOMP_RET_USER_NOTIF),
		SC_DO(SECCOMP_RET_ALLOW),
	};
	pthread_t thread;

	EQ(pthread_create(&thread, NULL, refuse, NULL), 0, "pthread_create");
	listener = sandbox(filter, sizeof(filter) / sizeof(filter[0]), SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

/* What is created with one call refused. Returns what it returns. */
struct creation {
	const char *what;
	bool umem, shared, beside;
};

static int create(const struct creation *c, struct rig *r, struct more *m)
{
	struct xsk_socket_config config = rig_config(&r->opt);

	if (c->umem)
		return rig_umem(r);
	if (!c->shared)
		return rig_socket(r);
	return xsk_socket__create_shared(&m->xsk, ifname_of(MANY_A), 1, r->umem, &m->rx, &m->tx, &m->fill, &m->comp, &config);
}

static void undo(const struct creation *c, struct rig *r, struct more *m)
{
	if (c->umem)
		EQ(xsk_umem__delete(r->umem), 0, "xsk_umem__delete");
	else
		xsk_socket__delete(c->shared ? m->xsk : r->xsk);
}

/* In a child. Exit code 0: a call was refused and all is well; 42: there are not so many calls. */
static void with_call_refused(const struct creation *c, int number)
{
	struct footprint before, empty;
	struct more m = { 0 };
	struct rig r;
	int ret;

	world();
	start_refusing();
	empty = footprint();
	rig_open_umem(&r, (struct rig_options){ .port = MANY_A });
	if (c->umem)
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	if (c->shared || c->beside)
		EQ(rig_socket(&r), 0, "first socket");
	if (c->beside) /* the same again on its queue, which has all that it needs */
		m.xsk = r.xsk;
	before = footprint();
	countdown = number;
	ret = create(c, &r, &m);
	countdown = 0;
	if (refused < 0)
		exit(42);
	if (ret) {
		CHECK(ret < 0 && errno == -ret, "%s: system call %d refused: result %d, errno %d", c->what, refused, ret, errno);
		EQ(footprint().descriptors, before.descriptors, "descriptors after a failure");
		CHECK(!!program_on(ifname_of(MANY_A)) == (c->shared || c->beside), "%s: system call %d refused: program %u",
		      c->what, refused, program_on(ifname_of(MANY_A)));
		EQ(create(c, &r, &m), 0, "the next attempt");
	}
	undo(c, &r, &m);
	if (c->shared)
		xsk_socket__delete(r.xsk);
	if (c->beside)
		xsk_socket__delete(m.xsk);
	if (!c->umem)
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
	clean_since(empty);
	exit(0);
}

static void each_call_refused(struct creation c)
{
	int number = 1, result;

	if (!on_kernel())
		skip("the engine asks no kernel");
	alarm(100); /* some thirty namespaces are made and left */
	do {
		pid_t child = fork();

		if (!child)
			with_call_refused(&c, number);
		result = ended(child);
		CHECK(result == 0 || result == 42, "%s: with system call number %d refused: %d", c.what, number, result);
		number++;
	} while (result == 0);
	CHECK(number > 5, "%s: %d system calls", c.what, number);
	fprintf(stderr, "  %s: %d system calls\n", c.what, number - 2);
}

TEST(each_call_of_a_umem_refused)
{
	each_call_refused((struct creation){ .what = "xsk_umem__create", .umem = true });
}

TEST(each_call_of_a_first_socket_refused)
{
	each_call_refused((struct creation){ .what = "xsk_socket__create" });
}

TEST(each_call_of_a_second_socket_refused)
{
	each_call_refused((struct creation){ .what = "a second socket on the queue", .beside = true });
}

TEST(each_call_of_a_second_queue_refused)
{
	each_call_refused((struct creation){ .what = "xsk_socket__create_shared", .shared = true });
}
