/* Cases that only real interfaces can show: the interface goes, processes share one, environments without a BPF file system. */
#include "world.h"

#include <sys/mount.h>

static void kernel_only(void)
{
	if (!on_kernel())
		skip("real interfaces only");
	world();
}

/* C10. The interface goes while frames wait: each completes, or the kick says so, and nobody waits for ever. */
TEST(C10_deleted_with_frames_queued)
{
	uint64_t end;
	struct rig r;
	uint32_t done = 0;
	int error;

	kernel_only();
	rig_open(&r, (struct rig_options){ .no_rx = true });
	rig_queue(&r, 0, 32);
	ip("link del vb\n");
	end = now_ms() + 1000;
	do {
		error = rig_kick(&r);
		done += take_completions(&r.comp, NULL, 32);
		CHECK(now_ms() < end, "%u of 32 completed, sendto says %s", done, strerror(error));
	} while (done < 32 && error != ENXIO && error != ENETDOWN);
	rig_close(&r);
}

static void wait_for(int fd)
{
	char byte;

	EQ(read(fd, &byte, 1), 1, "the other process is gone");
}

static void tell(int fd)
{
	EQ(write(fd, "x", 1), 1, "write");
}

/* A process that receives on a queue: says "ready", takes five frames, says so, waits for leave, goes on with five more when it
 * is told to, and deletes. */
static int receiver(uint32_t queue, int in, int out, bool more)
{
	struct xdp_desc d;
	struct rig r;

	rig_open(&r, (struct rig_options){ .port = MANY_A, .queue = queue });
	rig_fill(&r, 0, 32);
	tell(out);
	for (int i = 0; i < (more ? 10 : 5); i++) {
		if (i == 5) {
			tell(out);
			wait_for(in);
		}
		CHECK(rig_receive(&r, &d, 5000), "frame %d on queue %u", i, queue);
	}
	if (!more) {
		tell(out);
		wait_for(in);
	}
	rig_close(&r);
	return 0;
}

static pid_t start_receiver(uint32_t queue, bool more, int *to, int *from)
{
	int in[2], out[2];
	pid_t child;

	EQ(pipe(in), 0, "pipe");
	EQ(pipe(out), 0, "pipe");
	child = fork();
	if (!child)
		exit(receiver(queue, in[0], out[1], more));
	*to = in[1];
	*from = out[0];
	return child;
}

/* Frames sent on a queue of the far end arrive on the same queue. */
static void send_five(struct rig *r)
{
	rig_queue(r, 0, 5);
	rig_complete(r, 5);
}

/* C41. Two processes on two queues of one interface: one goes, the other goes on; when that goes too, the program is gone. */
TEST(C41_another_process_on_another_queue)
{
	struct rig far[2];
	pid_t child[2];
	int to[2], from[2];

	kernel_only();
	for (uint32_t queue = 0; queue < 2; queue++) {
		rig_open(&far[queue], (struct rig_options){ .port = MANY_B, .queue = queue, .no_rx = true });
		child[queue] = start_receiver(queue, queue == 1, &to[queue], &from[queue]);
		wait_for(from[queue]);
	}
	for (uint32_t queue = 0; queue < 2; queue++) {
		send_five(&far[queue]);
		wait_for(from[queue]);
	}
	tell(to[0]);
	EQ(ended(child[0]), 0, "the process on queue 0");
	CHECK(program_on(ifname_of(MANY_A)), "the program went with the first process");
	tell(to[1]);
	send_five(&far[1]);
	EQ(ended(child[1]), 0, "the process on queue 1");
	no_program_left();
	rig_close(&far[0]);
	rig_close(&far[1]);
}

static void three_rounds(void)
{
	for (int i = 0; i < 3; i++) {
		struct rig r;

		rig_open(&r, (struct rig_options){ 0 });
		CHECK(program_on(ifname_of(A)), "no program");
		rig_close(&r);
		no_program_left();
	}
}

/* C43. Without a dispatcher, by the environment and for want of a BPF file system, a program comes and goes all the same. */
TEST(C43_dispatcher_switched_off)
{
	kernel_only();
	setenv("LIBXDP_SKIP_DISPATCHER", "1", 1);
	three_rounds();
}

TEST(C43_no_bpf_file_system)
{
	kernel_only();
	EQ(unshare(CLONE_NEWNS), 0, "unshare");
	EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0, "private mounts");
	if (mount("none", "/sys/fs/bpf", "tmpfs", 0, NULL))
		skip("cannot mount over /sys/fs/bpf: %s", strerror(errno));
	three_rounds();
}

/* C43. With one, too. */
TEST(C43_with_a_bpf_file_system)
{
	kernel_only();
	EQ(unshare(CLONE_NEWNS), 0, "unshare");
	EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0, "private mounts");
	if (mount("none", "/sys/fs/bpf", "bpf", 0, NULL))
		skip("cannot mount over /sys/fs/bpf: %s", strerror(errno));
	three_rounds();
}
