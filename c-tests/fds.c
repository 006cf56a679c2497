/* The descriptor as a descriptor: copies of it, and numbers that come to mean something else. */
#include "peer.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>

/* A copy kicks, waits and answers like the original, which outlives it. */
static void copy_works(struct rig *r, struct peer *p, int copy, const char *what)
{
	struct pollfd pfd = { .fd = copy, .events = POLLIN };
	struct xdp_desc d;

	CHECK(copy >= 0 && copy != rig_fd(r), "%s: %d, %s", what, copy, strerror(errno));
	rig_queue(r, 100, 1);
	EQ(kick_fd(copy), 0, what);
	EQ(peer_receive(p, FRAME_LEN), 100, what);
	rig_complete(r, 1);
	EQ(poll(&pfd, 1, 10), 0, what);
	peer_send(p, FRAME_LEN, 7);
	EQ(poll(&pfd, 1, 1000), 1, what);
	CHECK(rig_receive(r, &d, 100), "%s: no frame", what);
	EQ(rig_statistics(copy).rx_dropped, 0, what);
	EQ(close(copy), 0, what);
	EQ(kick_fd(copy), EBADF, what);
	rig_queue(r, 101, 1);
	EQ(rig_kick(r), 0, what);
	EQ(peer_receive(p, FRAME_LEN), 101, what);
	rig_complete(r, 1);
}

TEST(copies)
{
	struct rig r;
	struct peer p;

	rig_open(&r, (struct rig_options){ 0 });
	peer_open(&p);
	rig_fill(&r, 0, 32);
	copy_works(&r, &p, dup(rig_fd(&r)), "dup");
	copy_works(&r, &p, dup2(rig_fd(&r), 200), "dup2");
	copy_works(&r, &p, dup3(rig_fd(&r), 201, O_CLOEXEC), "dup3");
	copy_works(&r, &p, fcntl(rig_fd(&r), F_DUPFD, 300), "F_DUPFD");
	copy_works(&r, &p, fcntl(rig_fd(&r), F_DUPFD_CLOEXEC, 300), "F_DUPFD_CLOEXEC");
	EQ(dup2(rig_fd(&r), rig_fd(&r)), rig_fd(&r), "dup2 onto itself");
	EQ(rig_kick(&r), 0, "kick");
	peer_close(&p);
	rig_close(&r);
}

/* One number after another is made a copy: no table runs over. */
TEST(many_copies)
{
	int copies[300];
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	for (int i = 0; i < 300; i++) {
		copies[i] = dup(rig_fd(&r));
		CHECK(copies[i] >= 0, "dup: %s", strerror(errno));
	}
	for (int i = 0; i < 300; i++) {
		rig_queue(&r, 0, 1);
		EQ(kick_fd(copies[i]), 0, "kick of a copy");
		rig_complete(&r, 1);
	}
	for (int i = 0; i < 300; i++)
		close(copies[i]);
	rig_queue(&r, 0, 1);
	EQ(rig_kick(&r), 0, "kick");
	rig_close(&r);
}

/* The number is closed in one of several ways and now is one end of a stream pair: every call must reach that. */
enum closing { RAW_CLOSE, LIBC_CLOSE, CLOSE_RANGE, RAW_DUP2, LIBC_DUP2 };

static void number_is_another_file(enum closing how)
{
	struct epoll_event event = { .events = EPOLLIN }, got;
	int pair[2], fd, type = 0, ep;
	socklen_t len = sizeof(type);
	struct pollfd pfd;
	struct rig r;
	char byte = 0;

	rig_open(&r, (struct rig_options){ 0 });
	EQ(rig_kick(&r), 0, "kick");
	fd = rig_fd(&r);
	EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0, "socketpair");
	switch (how) {
	case RAW_CLOSE:
		EQ(syscall(SYS_close, fd), 0, "close");
		EQ(syscall(SYS_fcntl, pair[0], F_DUPFD, fd), fd, "the number again");
		break;
	case LIBC_CLOSE:
		EQ(close(fd), 0, "close");
		EQ(kick_fd(fd), EBADF, "kick of a closed number");
		EQ(fcntl(pair[0], F_DUPFD, fd), fd, "the number again");
		break;
	case CLOSE_RANGE:
		EQ(close_range((unsigned)fd, (unsigned)fd, 0), 0, "close_range");
		EQ(fcntl(pair[0], F_DUPFD, fd), fd, "the number again");
		break;
	case RAW_DUP2:
		EQ(syscall(SYS_dup3, pair[0], fd, 0), fd, "dup3");
		break;
	case LIBC_DUP2:
		EQ(dup2(pair[0], fd), fd, "dup2");
		break;
	}
	EQ(write(fd, "a", 1), 1, "write");
	EQ(read(pair[1], &byte, 1), 1, "what was written");
	EQ(send(fd, "b", 1, MSG_DONTWAIT), 1, "send");
	EQ(read(pair[1], &byte, 1), 1, "what was sent");
	EQ(byte, 'b', "what was sent");
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT };
	EQ(poll(&pfd, 1, 0), 1, "poll");
	EQ(pfd.revents, POLLOUT, "events");
	ep = epoll_create1(EPOLL_CLOEXEC);
	EQ(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event), 0, "epoll_ctl");
	EQ(epoll_wait(ep, &got, 1, 0), 0, "epoll_wait");
	EQ(write(pair[1], "c", 1), 1, "write to it");
	EQ(epoll_wait(ep, &got, 1, 100), 1, "epoll_wait");
	EQ(poll(&pfd, 1, 0), 1, "poll");
	EQ(pfd.revents, POLLIN | POLLOUT, "events");
	EQ(recv(fd, &byte, 1, 0), 1, "recv");
	EQ(byte, 'c', "what was received");
	EQ(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len), 0, "SO_TYPE");
	EQ(type, SOCK_STREAM, "SO_TYPE");
	EQ(getsockopt(fd, SOL_XDP, XDP_OPTIONS, &type, &len), -1, "XDP_OPTIONS");
	EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR, "F_GETFL");
	close(ep);
	/* What delete does with a number that the program gave away is its own affair, but it does not crash. */
	xsk_socket__delete(r.xsk);
	xsk_umem__delete(r.umem);
}

TEST(number_reused_after_raw_close)
{
	number_is_another_file(RAW_CLOSE);
}

TEST(number_reused_after_close)
{
	number_is_another_file(LIBC_CLOSE);
}

TEST(number_reused_after_close_range)
{
	number_is_another_file(CLOSE_RANGE);
}

TEST(number_reused_by_raw_dup)
{
	number_is_another_file(RAW_DUP2);
}

TEST(number_reused_by_dup2)
{
	number_is_another_file(LIBC_DUP2);
}

/* A thread sleeps on the number while another closes it. The sleeper is not woken: it sleeps to the end of its time. Then
 * poll and select find that the number is not open; epoll has forgotten it. */
struct sleeper {
	int fd, epoll, result;
	short revents;
	uint64_t slept;
	void (*wait)(struct sleeper *s);
};

#define SLEEP_MS 400

static void sleep_in_poll(struct sleeper *s)
{
	struct pollfd pfd = { .fd = s->fd, .events = POLLIN };

	s->result = poll(&pfd, 1, SLEEP_MS);
	s->revents = pfd.revents;
}

static void sleep_in_select(struct sleeper *s)
{
	struct timeval limit = { 0, SLEEP_MS * 1000 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(s->fd, &set);
	s->result = select(s->fd + 1, &set, NULL, NULL, &limit);
	s->revents = FD_ISSET(s->fd, &set);
}

static void sleep_in_epoll(struct sleeper *s)
{
	struct epoll_event got;

	s->result = epoll_wait(s->epoll, &got, 1, SLEEP_MS);
}

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;
	uint64_t begin = now_ms();

	s->wait(s);
	s->slept = now_ms() - begin;
	return NULL;
}

static void closed_under_a_sleeper(void (*wait)(struct sleeper *), bool raw, int result, short revents)
{
	struct sleeper s = { .wait = wait, .epoll = epoll_create1(EPOLL_CLOEXEC) };
	struct epoll_event event = { .events = EPOLLIN };
	struct timespec before, after;
	pthread_t thread;
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	s.fd = rig_fd(&r);
	EQ(epoll_ctl(s.epoll, EPOLL_CTL_ADD, s.fd, &event), 0, "epoll_ctl");
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	EQ(pthread_create(&thread, NULL, sleep_on, &s), 0, "pthread_create");
	sleep_ms(SLEEP_MS / 4);
	EQ(raw ? syscall(SYS_close, s.fd) : close(s.fd), 0, "close");
	pthread_join(thread, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	EQ(s.result, result, "the sleeper's result");
	EQ(s.revents, revents, "the sleeper's events");
	CHECK(s.slept >= SLEEP_MS - 10, "it slept %llu ms of %d", (unsigned long long)s.slept, SLEEP_MS);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < SLEEP_MS / 4, "it did not sleep");
	close(s.epoll);
	xsk_socket__delete(r.xsk);
	xsk_umem__delete(r.umem);
}

TEST(closed_under_poll)
{
	closed_under_a_sleeper(sleep_in_poll, false, 1, POLLNVAL);
}

TEST(closed_under_poll_raw)
{
	closed_under_a_sleeper(sleep_in_poll, true, 1, POLLNVAL);
}

TEST(closed_under_select)
{
	closed_under_a_sleeper(sleep_in_select, false, 1, 1);
}

TEST(closed_under_select_raw)
{
	closed_under_a_sleeper(sleep_in_select, true, 1, 1);
}

TEST(closed_under_epoll)
{
	closed_under_a_sleeper(sleep_in_epoll, false, 0, 0);
}

TEST(closed_under_epoll_raw)
{
	closed_under_a_sleeper(sleep_in_epoll, true, 0, 0);
}

/* Nobody looks at the number again after a close by a raw system call, which a sleeper outlives: still nothing is left. */
TEST(raw_close_leaves_nothing)
{
	struct footprint before, after;
	struct rig r;

	not_libxdp("its delete asks the closed descriptor where the rings end, and leaves them mapped");
	/* What a process has once. An orderly end leaves nothing that is still to go. */
	rig_open(&r, (struct rig_options){ 0 });
	rig_close(&r);
	before = footprint();
	for (int round = 0; round < 2; round++) {
		struct sleeper s = { .wait = sleep_in_poll };
		pthread_t thread;
		int copy;

		rig_open(&r, (struct rig_options){ 0 });
		s.fd = rig_fd(&r);
		copy = dup(s.fd);
		EQ(pthread_create(&thread, NULL, sleep_on, &s), 0, "pthread_create");
		sleep_ms(SLEEP_MS / 4);
		EQ(syscall(SYS_close, s.fd), 0, "close");
		EQ(syscall(SYS_close, copy), 0, "close of the copy");
		pthread_join(thread, NULL);
		xsk_socket__delete(r.xsk);
		xsk_umem__delete(r.umem);
		munmap(r.area, r.size);
		WAIT_UNTIL((after = footprint(), after.descriptors == before.descriptors && after.mappings == before.mappings), 3000,
			   "nothing left");
	}
}

/* Descriptors that were never ours, before, during and after. */
TEST(others_are_left_alone)
{
	int pipes[2], udp = socket(AF_INET, SOCK_DGRAM, 0), error;
	struct rig r;
	char byte;

	EQ(pipe(pipes), 0, "pipe");
	rig_open(&r, (struct rig_options){ 0 });
	for (int i = 0; i < 3; i++) {
		EQ(write(pipes[1], "x", 1), 1, "write");
		EQ(read(pipes[0], &byte, 1), 1, "read");
		EQ(send(pipes[1], "x", 1, 0), -1, "send to a pipe");
		EQ(errno, ENOTSOCK, "send to a pipe");
		EQ(recv(udp, &byte, 1, MSG_DONTWAIT), -1, "recv without data");
		EQ(errno, EAGAIN, "recv without data");
		EQ(send(udp, &byte, 1, MSG_DONTWAIT), -1, "send without address");
		EQ(errno, EDESTADDRREQ, "send without address");
		error = kick_fd(-1);
		EQ(error, EBADF, "kick of -1");
		error = kick_fd(1 << 20);
		EQ(error, EBADF, "kick of a large number");
		EQ(poll(NULL, 0, 1), 0, "poll of nothing");
		if (i == 1)
			rig_close(&r);
	}
	close(udp);
	close(pipes[0]);
	close(pipes[1]);
}
