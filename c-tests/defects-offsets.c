/* What the kernel answers to XDP_MMAP_OFFSETS: the short form of kernels before 5.4 (case C61), and no form at all (libxdp's
 * fault D13). This kernel answers neither, so a seccomp listener does: the thread of the test is sent to it, and a thread
 * that was there before asks the kernel and answers what it likes. */
#include "world.h"

#include <pthread.h>
#include <sys/ioctl.h>

#ifndef XDP_MMAP_OFFSETS
#define XDP_MMAP_OFFSETS 1
#endif

static _Atomic int listener = -1;
static _Atomic socklen_t answer_length; /* 128: the truth */

static void *answer(void *arg)
{
	struct seccomp_notif call;
	struct seccomp_notif_resp result;

	while (listener < 0)
		sleep_ms(1);
	for (;;) {
		struct xdp_mmap_offsets offsets;
		uint64_t *words = (uint64_t *)&offsets;
		socklen_t length = sizeof(offsets);

		memset(&call, 0, sizeof(call));
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			continue;
		memset(&result, 0, sizeof(result));
		result.id = call.id;
		memset(&offsets, 0, sizeof(offsets));
		if (syscall(SYS_getsockopt, (int)call.data.args[0], SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length))
			result.error = -errno;
		if (answer_length == 96) /* three words a ring, without the flags */
			for (int ring = 0; ring < 4; ring++)
				memmove(words + 3 * ring, words + 4 * ring, 24);
		/* One process: the caller's pointers are ours. */
		memcpy((void *)call.data.args[3], &offsets, answer_length < sizeof(offsets) ? answer_length : sizeof(offsets));
		*(socklen_t *)call.data.args[4] = answer_length;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &result);
	}
	return arg;
}

/* From now on this thread is told so many bytes. */
static void answer_with(socklen_t length)
{
	struct sock_filter filter[] = {
		SC_CALL_IF_BOTH(SYS_getsockopt, 1, SOL_XDP, 2, XDP_MMAP_OFFSETS, SECCOMP_RET_USER_NOTIF),
		SC_DO(SECCOMP_RET_ALLOW),
	};
	pthread_t thread;

	answer_length = length;
	if (listener >= 0)
		return;
	EQ(pthread_create(&thread, NULL, answer, NULL), 0, "pthread_create");
	listener = sandbox(filter, sizeof(filter) / sizeof(filter[0]), SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

static void real_kernel_only(void)
{
	if (!on_kernel())
		skip("the engine asks no kernel");
	world();
}

TEST(C61_short_offsets_of_old_kernels)
{
	struct xdp_desc d;
	struct peer p;
	struct rig r;

	real_kernel_only();
	answer_with(96);
	rig_open(&r, (struct rig_options){ 0 });
	/* There the flags word follows the consumer index. */
	CHECK(r.fill.flags == r.fill.consumer + 1 && r.comp.flags == r.comp.consumer + 1, "flags of the UMEM's rings");
	CHECK(r.rx.flags == r.rx.consumer + 1 && r.tx.flags == r.tx.consumer + 1, "flags of the socket's rings");
	peer_open(&p);
	rig_fill(&r, 0, 8);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "no frame");
	EQ(frame_id(xsk_umem__get_data(r.area, d.addr), d.len), 1, "frame");
	rig_queue(&r, 100, 1);
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_receive(&p, FRAME_LEN), 100, "frame at the peer");
	rig_complete(&r, 1);
	peer_close(&p);
	rig_close(&r);
}

/* D13. libxdp then looks at an errno that nobody has set. */
TEST(D13_umem_with_offsets_of_no_known_length)
{
	struct footprint before;
	struct rig r;

	real_kernel_only();
	rig_open_umem(&r, (struct rig_options){ 0 });
	rig_close_umem(&r);
	r.area = map_area(r.size);
	answer_with(100);
	before = footprint();
	errno = 0;
	EQ(rig_umem(&r), -EINVAL, "xsk_umem__create");
	EQ(errno, EINVAL, "errno");
	check_clean(before, "a UMEM that could not be made");
}

/* The second socket of a queue has a descriptor of its own, for which the question is asked anew. */
TEST(D13_socket_with_offsets_of_no_known_length)
{
	struct xsk_socket_config config;
	struct footprint before;
	struct more m = { 0 };
	struct rig r;

	real_kernel_only();
	answer_with(sizeof(struct xdp_mmap_offsets));
	before = footprint();
	rig_open(&r, (struct rig_options){ .no_program = true });
	config = no_program(&r);
	answer_with(100);
	errno = 0;
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &config), -EINVAL, "xsk_socket__create");
	CHECK(!m.xsk, "the socket pointer was written");
	answer_with(sizeof(struct xdp_mmap_offsets));
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &config), 0, "a second attempt");
	xsk_socket__delete(m.xsk);
	rig_close(&r);
	check_clean(before, "a socket that could not be made at first");
}
