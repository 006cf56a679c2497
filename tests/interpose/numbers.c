/* What a program does to descriptor numbers around a socket of ours leaves the socket working, or closes it: nothing in
 * between. The engine's own descriptors are not there for it. */
#include "xdp.h"

#include <linux/close_range.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static struct xdp x;

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* A frame goes round, and a wait sleeps and wakes. */
static void works(void)
{
	struct pollfd set = { x.fd, POLLIN, 0 };

	CHECK(poll(&set, 1, 20) == 0);
	xdp_send(&x, 1);
	CHECK(poll(&set, 1, 1000) == 1 && set.revents == POLLIN);
	CHECK(xdp_take(&x, 64) == 1);
}

/* As a daemon closes what it inherited. */
static void everything_is_closed_one_by_one(void)
{
	int refused = 0;

	for (int fd = 3; fd < 1024; fd++)
		if (fd != x.fd && is_open(fd)) {
			CHECK(close(fd) == -1 && errno == EBADF);
			refused++;
		}
	CHECK(refused > 0);
	works();
	/* Nothing of the program's lands on such a number. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != x.fd && is_open(fd)) {
			CHECK(dup2(2, fd) == -1 && errno == EBUSY);
			CHECK(dup3(2, fd, O_CLOEXEC) == -1 && errno == EBUSY);
		}
	works();
}

static void ranges(void)
{
	int other = open("/dev/null", O_RDONLY), high = fcntl(2, F_DUPFD, 300), copy;

	CHECK(other > 2 && high >= 300);
	CHECK(x.fd > 3 && close_range(3, (unsigned)x.fd - 1, 0) == 0);
	works();
	CHECK(close_range((unsigned)x.fd + 1, ~0u, 0) == 0 && !is_open(other) && !is_open(high));
	works();
	CHECK(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0);
	works();
	copy = dup(x.fd);
	CHECK(copy >= 0 && close_range((unsigned)copy, (unsigned)copy, 0) == 0 && !is_open(copy));
	works();
	closefrom(3);
	CHECK(!is_open(x.fd));
	xdp_open(&x, "loop0");
	works();
}

/* A shell or Python moves descriptors between vfork and exec, in its parent's memory. */
static void vfork_child(const char *self)
{
	int status, copy = dup(x.fd);
	pid_t child = vfork();

	if (child == 0) {
		dup2(x.fd, 1);
		dup2(2, copy);
		close(x.fd);
		closefrom(3);
		execl(self, self, "child", (char *)NULL);
		_exit(9);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	works();
	CHECK(close(x.fd) == 0);
	x.fd = copy;
	works();
	/* Standard output is what it was: a socket of ours would answer this. */
	CHECK(send(1, NULL, 0, MSG_DONTWAIT) == -1 && errno == ENOTSOCK);
}

/* A forked child has no socket, and may wait, close and exit as it likes. */
static void forked_child(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 5 };
	int ep = epoll_create1(0), status;
	pid_t child;

	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	child = fork();
	if (child == 0) {
		struct pollfd set = { x.fd, POLLIN | POLLOUT, 0 };

		alarm(10);
		if (xdp_kick(&x) != -1 || errno != ENXIO || poll(&set, 1, 0) != 0)
			_exit(1);
		epoll_wait(ep, &event, 1, 0);
		close(ep);
		ep = epoll_create1(0);
		if (epoll_wait(ep, &event, 1, 0) != 0 || close(x.fd) != 0)
			_exit(2);
		closefrom(3);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	works();
	xdp_send(&x, 1);
	CHECK(epoll_wait(ep, &event, 1, 1000) == 1 && event.data.u64 == 5 && xdp_take(&x, 64) == 1);
	CHECK(close(ep) == 0);
}

int main(int argc, char **argv)
{
	int devnull;

	if (argc > 1)
		return strcmp(argv[1], "child") != 0;
	alarm(60);
	closefrom(3);
	devnull = open("/dev/null", O_WRONLY);
	CHECK(dup2(devnull, 1) == 1);
	xdp_open(&x, "loop0");
	CHECK(close(devnull) == 0);
	works();
	everything_is_closed_one_by_one();
	ranges();
	vfork_child(argv[0]);
	forked_child();
	CHECK(close(x.fd) == 0 && !is_open(x.fd));
	return 0;
}
