/* A program built with _FORTIFY_SOURCE: its libc calls go by other names (__poll_chk and so on), which must reach the
 * engine too. Sizes that the compiler cannot know are what makes it use them. */
#include "peer.h"

#include <time.h>

static volatile size_t two = 2, one = 1, eight = 8;

TEST(poll_chk)
{
	struct pollfd pfds[2];
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 4);
	pfds[0] = (struct pollfd){ .fd = -1 };
	pfds[1] = (struct pollfd){ .fd = rig_fd(&r), .events = POLLIN };
	rig_queue(&r, 100, 1);
	EQ(poll(pfds, two, 20), 0, "poll without a frame");
	EQ(ring_pending(&r.tx), 0, "poll sends");
	EQ(peer_receive(&p, FRAME_LEN), 100, "the frame sent");
	peer_send(&p, FRAME_LEN, 1);
	EQ(poll(pfds, two, 1000), 1, "poll with a frame");
	EQ(ppoll(pfds, two, &(struct timespec){ 1, 0 }, NULL), 1, "ppoll with a frame");
	CHECK(rig_receive(&r, &d, 100), "the frame");
	EQ(ppoll(pfds, two, &(struct timespec){ 0, 20000000 }, NULL), 0, "ppoll without a frame");
	peer_close(&p);
	rig_close(&r);
}

TEST(receive_chk)
{
	struct rig r;
	char data[8];
	int fd;

	rig_open(&r, (struct rig_options){ .no_tx = true });
	fd = rig_fd(&r);
	EQ(recv(fd, data, eight, MSG_DONTWAIT), 0, "recv");
	EQ(recvfrom(fd, data, eight, MSG_DONTWAIT, NULL, NULL), 0, "recvfrom");
	EQ(read(fd, data, one), -1, "read that may block");
	EQ(errno, EOPNOTSUPP, "read that may block");
	rig_close(&r);
}

/* Other descriptors, and the checks themselves, are as ever. */
TEST(others_pass_through)
{
	char data[8];
	struct rig r;
	int pipes[2];

	rig_open(&r, (struct rig_options){ 0 });
	EQ(pipe(pipes), 0, "pipe");
	EQ(write(pipes[1], "abc", 3), 3, "write");
	EQ(poll((struct pollfd[]){ { .fd = pipes[0], .events = POLLIN } }, one, 0), 1, "poll");
	EQ(read(pipes[0], data, eight), 3, "read");
	EQ(recv(pipes[0], data, eight, 0), -1, "recv from a pipe");
	EQ(errno, ENOTSOCK, "recv from a pipe");
	close(pipes[0]);
	close(pipes[1]);
	rig_close(&r);
}
