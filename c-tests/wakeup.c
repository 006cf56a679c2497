/* Wake-up: the flags in the rings, poll and its relatives, and sleeping without missing anything. */
#include "peer.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

/* The events poll reports, or fails. */
static int polled(int fd, short events, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	int n = poll(&pfd, 1, ms);

	CHECK(n >= 0, "poll: %s", strerror(errno));
	EQ(n, pfd.revents ? 1 : 0, "poll's count");
	return pfd.revents;
}

/* The TX flag says "call me" from bind on, with and without XDP_USE_NEED_WAKEUP; the fill ring's never does. Nothing
 * leaves before the call. */
static void flags_tell_the_truth(uint16_t bind_flags)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .bind_flags = bind_flags });
	peer_open(&p);
	EQ(xsk_ring_prod__needs_wakeup(&r.tx), 1, "TX flag");
	EQ(xsk_ring_prod__needs_wakeup(&r.fill), 0, "fill flag");
	rig_queue(&r, 0, 1);
	EQ(peer_count(&p, 300), 0, "frames before the kick");
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_count(&p, 200), 1, "frames after the kick");
	EQ(xsk_ring_prod__needs_wakeup(&r.tx), 1, "TX flag afterwards");
	EQ(xsk_ring_prod__needs_wakeup(&r.fill), 0, "fill flag afterwards");
	peer_close(&p);
	rig_close(&r);
}

TEST(C11_flags_without_need_wakeup)
{
	flags_tell_the_truth(XDP_COPY);
}

TEST(C11_flags_with_need_wakeup)
{
	flags_tell_the_truth(XDP_COPY | XDP_USE_NEED_WAKEUP);
}

/* POLLOUT from half of the TX ring free on. poll sends as well, so the completion ring holds the frames back here. */
TEST(C13_pollout_from_half)
{
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ .no_rx = true, .tx = 64, .comp = 1 });
	fd = rig_fd(&r);
	EQ(polled(fd, POLLIN | POLLOUT, 0), POLLOUT, "empty ring");
	rig_queue(&r, 0, 1);
	EQ(rig_kick(&r), 0, "kick");
	for (uint32_t n = 1; n <= 64; n++) {
		rig_queue(&r, n, 1);
		EQ(polled(fd, POLLIN | POLLOUT, 0), n <= 32 ? POLLOUT : 0, "POLLOUT");
		EQ(ring_pending(&r.tx), n, "frames that wait");
	}
	rig_close(&r);
}

TEST(C13_pollout_returns)
{
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ .no_rx = true, .tx = 64, .comp = 16 });
	fd = rig_fd(&r);
	rig_queue(&r, 0, 64);
	EQ(polled(fd, POLLOUT, 0), 0, "16 of 64 free");
	EQ(ring_pending(&r.tx), 48, "frames that wait");
	EQ(polled(fd, POLLOUT, 20), 0, "still 16 of 64 free");
	EQ(take_completions(&r.comp, NULL, 16), 16, "completions");
	EQ(polled(fd, POLLOUT, 0), POLLOUT, "32 of 64 free");
	rig_close(&r);
}

/* poll sleeps until there is a frame, and for as long as that frame is in the ring it comes back at once. */
TEST(C13_pollin)
{
	struct xdp_desc d;
	struct rig r;
	struct peer p;
	uint64_t begin;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	fd = rig_fd(&r);
	rig_fill(&r, 0, 8);
	begin = now_ms();
	EQ(polled(fd, POLLIN, 200), 0, "no frame");
	CHECK(now_ms() - begin >= 190, "poll slept %llu ms of 200", (unsigned long long)(now_ms() - begin));
	peer_send(&p, FRAME_LEN, 1);
	peer_send(&p, FRAME_LEN, 2);
	for (int i = 0; i < 3; i++)
		EQ(polled(fd, POLLIN | POLLOUT, 1000), POLLIN | POLLOUT, "frames in the ring");
	CHECK(rig_receive(&r, &d, 100), "first frame");
	EQ(polled(fd, POLLIN, 100), POLLIN, "one frame in the ring");
	CHECK(rig_receive(&r, &d, 100), "second frame");
	EQ(polled(fd, POLLIN, 50), 0, "ring empty again");
	peer_close(&p);
	rig_close(&r);
}

/* poll and select, whatever they are asked for, send what is on the TX ring; epoll when a descriptor is added, and while
 * it is ready (asleep in a set for EPOLLIN alone it need not: see KERNEL-NOTES.md). */
TEST(waits_send)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT };
	struct timespec none = { 0, 0 };
	struct pollfd pfd;
	struct rig r;
	fd_set set;
	int fd, ep;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	ep = epoll_create1(EPOLL_CLOEXEC);

#define SENDS(call)                                          \
	do {                                                 \
		FD_ZERO(&set);                               \
		FD_SET(fd, &set);                            \
		pfd = (struct pollfd){ .fd = fd };           \
		rig_queue(&r, 0, 1);                         \
		CHECK((call) >= 0, "%s: %s", #call, strerror(errno)); \
		EQ(ring_pending(&r.tx), 0, "after " #call);  \
		rig_complete(&r, 1);                         \
	} while (0)

	SENDS(poll(&pfd, 1, 0));
	SENDS((pfd.events = POLLIN, poll(&pfd, 1, 0)));
	SENDS((pfd.events = POLLOUT, poll(&pfd, 1, 0)));
	SENDS(ppoll(&pfd, 1, &none, NULL));
	SENDS(select(fd + 1, &set, NULL, NULL, &(struct timeval){ 0, 0 }));
	SENDS(select(fd + 1, NULL, &set, NULL, &(struct timeval){ 0, 0 }));
	SENDS(pselect(fd + 1, NULL, NULL, &set, &none, NULL));
	SENDS(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event));
	SENDS(epoll_wait(ep, &event, 1, 0));
	SENDS(epoll_pwait(ep, &event, 1, 0, NULL));
	rig_queue(&r, 0, 70);
	poll(&pfd, 1, 0);
	EQ(ring_pending(&r.tx), 38, "70 frames after one poll");
	close(ep);
	rig_close(&r);
}

/* epoll, level-triggered: reported until the ring is empty; other descriptors in the set are untouched. */
TEST(C13_epoll_level)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 77 }, got[4];
	struct xdp_desc d;
	struct rig r;
	struct peer p;
	int ep, pipes[2];
	uint64_t begin;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 8);
	ep = epoll_create1(EPOLL_CLOEXEC);
	EQ(pipe(pipes), 0, "pipe");
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, rig_fd(&r), &event), 0, "epoll_ctl");
	event.data.u32 = 78;
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &event), 0, "epoll_ctl for a pipe");
	begin = now_ms();
	EQ(epoll_wait(ep, got, 4, 200), 0, "no frame");
	CHECK(now_ms() - begin >= 190, "epoll_wait slept %llu ms of 200", (unsigned long long)(now_ms() - begin));
	peer_send(&p, FRAME_LEN, 1);
	for (int i = 0; i < 3; i++) {
		EQ(epoll_wait(ep, got, 4, 1000), 1, "a frame");
		EQ(got[0].data.u32, 77, "whose event");
		EQ(got[0].events, EPOLLIN, "events");
	}
	EQ(write(pipes[1], "x", 1), 1, "write to the pipe");
	EQ(epoll_wait(ep, got, 4, 1000), 2, "a frame and a byte");
	CHECK(rig_receive(&r, &d, 100), "the frame");
	EQ(epoll_wait(ep, got, 4, 100), 1, "a byte");
	EQ(got[0].data.u32, 78, "whose event");
	event = (struct epoll_event){ .events = EPOLLIN | EPOLLOUT, .data.u32 = 79 };
	EQ(epoll_ctl(ep, EPOLL_CTL_MOD, rig_fd(&r), &event), 0, "EPOLL_CTL_MOD");
	EQ(epoll_ctl(ep, EPOLL_CTL_DEL, pipes[0], NULL), 0, "EPOLL_CTL_DEL");
	EQ(epoll_wait(ep, got, 4, 100), 1, "room to send");
	EQ(got[0].data.u32, 79, "whose event");
	EQ(got[0].events, EPOLLOUT, "events");
	EQ(epoll_ctl(ep, EPOLL_CTL_DEL, rig_fd(&r), NULL), 0, "EPOLL_CTL_DEL");
	EQ(epoll_wait(ep, got, 4, 20), 0, "empty set");
	close(ep);
	close(pipes[0]);
	close(pipes[1]);
	peer_close(&p);
	rig_close(&r);
}

/* epoll, edge-triggered: each arrival is an edge. (Once too often is allowed on the engine, never too seldom.) */
TEST(epoll_edge)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, got[4];
	struct rig r;
	struct peer p;
	int ep;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 64);
	ep = epoll_create1(EPOLL_CLOEXEC);
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, rig_fd(&r), &event), 0, "epoll_ctl");
	EQ(epoll_wait(ep, got, 4, 20), 0, "no frame");
	for (uint32_t i = 0; i < 20; i++) {
		struct xdp_desc d;

		peer_send(&p, FRAME_LEN, i);
		EQ(epoll_wait(ep, got, 4, 1000), 1, "an edge");
		if (i % 2) /* an edge also when the ring was not empty before */
			while (rig_receive(&r, &d, 0))
				;
	}
	close(ep);
	peer_close(&p);
	rig_close(&r);
}

/* A thread that sends one frame each time it is told to. */
struct remote {
	struct peer peer;
	unsigned frames, pause_ms;
};

static void *send_slowly(void *arg)
{
	struct remote *remote = arg;

	for (unsigned i = 0; i < remote->frames; i++) {
		sleep_ms(remote->pause_ms);
		peer_send(&remote->peer, FRAME_LEN, i);
	}
	return NULL;
}

/* A receiver asleep in a wait is woken by each frame that another thread sends: none is slept through. */
static void woken_by_each_frame(int (*wait)(int fd))
{
	struct remote remote = { .frames = 100, .pause_ms = 2 };
	struct xdp_desc d;
	pthread_t thread;
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&remote.peer);
	rig_fill(&r, 0, 128);
	EQ(pthread_create(&thread, NULL, send_slowly, &remote), 0, "pthread_create");
	for (unsigned i = 0; i < remote.frames; i++) {
		while (!rig_receive(&r, &d, 0))
			EQ(wait(rig_fd(&r)), 1, "woken within 5 s");
		EQ(frame_id(xsk_umem__get_data(r.area, d.addr), d.len), i, "frame");
	}
	pthread_join(thread, NULL);
	peer_close(&remote.peer);
	rig_close(&r);
}

static int wait_poll(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 5000);
}

static int wait_ppoll_two(int fd)
{
	struct timespec limit = { 5, 0 };
	struct pollfd pfds[2] = { { .fd = -1, .events = POLLIN }, { .fd = fd, .events = POLLIN } };

	return ppoll(pfds, 2, &limit, NULL);
}

static int wait_select(int fd)
{
	struct timeval limit = { 5, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &limit);
}

static int wait_epoll(int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ep = epoll_create1(EPOLL_CLOEXEC), n;

	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event), 0, "epoll_ctl");
	n = epoll_wait(ep, &event, 1, 5000);
	close(ep);
	return n;
}

TEST(poll_wakes)
{
	woken_by_each_frame(wait_poll);
}

TEST(ppoll_wakes)
{
	woken_by_each_frame(wait_ppoll_two);
}

TEST(select_wakes)
{
	woken_by_each_frame(wait_select);
}

TEST(epoll_wakes)
{
	woken_by_each_frame(wait_epoll);
}

/* Two sockets and another descriptor in one poll. */
TEST(poll_many)
{
	struct pollfd pfds[3];
	struct rig r, other;
	struct peer p, q;
	int pipes[2];

	EQ(pipe(pipes), 0, "pipe");
	rig_open(&r, (struct rig_options){ 0 });
	rig_open(&other, (struct rig_options){ .port = C });
	peer_open(&p);
	peer_open_on(&q, D);
	rig_fill(&r, 0, 4);
	rig_fill(&other, 0, 4);
	pfds[0] = (struct pollfd){ .fd = rig_fd(&r), .events = POLLIN };
	pfds[1] = (struct pollfd){ .fd = pipes[0], .events = POLLIN };
	pfds[2] = (struct pollfd){ .fd = rig_fd(&other), .events = POLLIN };
	EQ(poll(pfds, 3, 20), 0, "nothing yet");
	peer_send(&q, FRAME_LEN, 1);
	EQ(poll(pfds, 3, 1000), 1, "one has a frame");
	EQ(pfds[2].revents, POLLIN, "the second socket");
	EQ(pfds[0].revents | pfds[1].revents, 0, "the others");
	EQ(write(pipes[1], "x", 1), 1, "write");
	peer_send(&p, FRAME_LEN, 2);
	EQ(poll(pfds, 3, 1000), 3, "all three");
	EQ(pfds[0].revents & pfds[1].revents & pfds[2].revents, POLLIN, "all three");
	close(pipes[0]);
	close(pipes[1]);
	peer_close(&p);
	peer_close(&q);
	rig_close(&r);
	rig_close(&other);
}

/* A sleeper for POLLOUT is woken as frames leave, and sends more each time, until half of the ring is free: one turn would
 * not be enough here. */
static void sends_on(int (*wait)(int fd))
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	rig_queue(&r, 0, 256);
	EQ(wait(rig_fd(&r)), 1, "room within 5 s");
	CHECK(ring_pending(&r.tx) <= 128, "%u of 256 frames still wait", ring_pending(&r.tx));
	peer_close(&p);
	rig_close(&r);
}

static int room_poll(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };

	return poll(&pfd, 1, 5000);
}

static int room_select(int fd)
{
	struct timeval limit = { 5, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, NULL, &set, NULL, &limit);
}

static int room_epoll(int fd, uint32_t flags)
{
	struct epoll_event event = { .events = EPOLLOUT | flags };
	int ep = epoll_create1(EPOLL_CLOEXEC), n;

	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event), 0, "epoll_ctl");
	n = epoll_wait(ep, &event, 1, 5000);
	close(ep);
	return n;
}

static int room_epoll_level(int fd)
{
	return room_epoll(fd, 0);
}

static int room_epoll_edge(int fd)
{
	return room_epoll(fd, EPOLLET);
}

TEST(C13_poll_sends_until_room)
{
	sends_on(room_poll);
}

TEST(C13_select_sends_until_room)
{
	sends_on(room_select);
}

TEST(C13_epoll_sends_until_room)
{
	sends_on(room_epoll_level);
}

TEST(C13_epoll_edge_sends_until_room)
{
	sends_on(room_epoll_edge);
}

/* epoll, edge-triggered, for room: each frame that leaves is an edge, also while there is room all the time. Here another
 * thread makes frames leave while this one sleeps. */
static void *queue_and_kick(void *arg)
{
	struct rig *r = arg;

	for (uint32_t i = 0; i < 20; i++) {
		sleep_ms(20);
		rig_queue(r, i, 1);
		rig_kick(r);
	}
	return NULL;
}

TEST(epoll_edge_for_each_that_leaves)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET }, got;
	int edges = 0, ep = epoll_create1(EPOLL_CLOEXEC);
	pthread_t thread;
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	peer_open(&p);
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, rig_fd(&r), &event), 0, "epoll_ctl");
	EQ(epoll_wait(ep, &got, 1, 1000), 1, "room from the beginning");
	while (epoll_wait(ep, &got, 1, 20) == 1)
		;
	EQ(pthread_create(&thread, NULL, queue_and_kick, &r), 0, "pthread_create");
	while (edges < 15 && epoll_wait(ep, &got, 1, 3000) == 1) {
		EQ(got.events, EPOLLOUT, "events");
		edges++;
	}
	CHECK(edges >= 15 || ring_pending(&r.tx) == 0, "frames wait");
	CHECK(edges >= 15, "%d edges for 20 frames", edges);
	pthread_join(thread, NULL);
	close(ep);
	peer_close(&p);
	rig_close(&r);
}

/* The same on a lossless wire, where the receiver holds the sender back and then makes room. */
static void *fill_later(void *arg)
{
	struct rig *r = arg;

	sleep_ms(100);
	rig_fill(r, 0, 200);
	return NULL;
}

static void edge_when_let_go(uint32_t frames)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET }, got;
	int ep = epoll_create1(EPOLL_CLOEXEC);
	pthread_t thread;
	struct rig r, far;
	uint64_t begin;

	engine_only("a lossless wire");
	rig_open(&r, (struct rig_options){ .port = WAIT_A, .no_rx = true });
	rig_open(&far, (struct rig_options){ .port = WAIT_B });
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, rig_fd(&r), &event), 0, "epoll_ctl");
	EQ(epoll_wait(ep, &got, 1, 1000), 1, "room from the beginning");
	rig_queue(&r, 0, frames);
	EQ(rig_kick(&r), EAGAIN, "kick without room at the far end");
	while (epoll_wait(ep, &got, 1, 20) == 1)
		;
	EQ(ring_pending(&r.tx), frames, "frames that wait");
	EQ(pthread_create(&thread, NULL, fill_later, &far), 0, "pthread_create");
	begin = now_ms();
	EQ(epoll_wait(ep, &got, 1, 5000), 1, "an edge");
	CHECK(now_ms() - begin >= 80, "an edge before there was room");
	CHECK(now_ms() - begin < 4000, "no edge, but the end of the time");
	pthread_join(thread, NULL);
	close(ep);
	rig_close(&far);
	rig_close(&r);
}

TEST(epoll_edge_when_let_go_with_room)
{
	edge_when_let_go(100);
}

TEST(epoll_edge_when_let_go_without_room)
{
	edge_when_let_go(200);
}

/* A bound socket without traffic costs no processor time. */
TEST(idle_costs_nothing)
{
	struct timespec before, after;
	struct rig r;
	struct peer p;
	int64_t used;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 64);
	peer_send(&p, FRAME_LEN, 1); /* so that whatever starts with the first frame is running */
	sleep_ms(100);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	sleep_ms(1000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	used = (int64_t)(after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
	CHECK(used < 10000000, "%lld us of processor time in an idle second", (long long)used / 1000);
	peer_close(&p);
	rig_close(&r);
}
