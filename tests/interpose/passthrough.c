/* Every interposed call on descriptors and memory that are not ours does what libc's does. Runs alike with and without the
 * library. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)
#define FAILS(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))

/* Before main, perhaps before the library's own constructor: everything must work already. */
static int early;

__attribute__((constructor(101))) static void before_main(void)
{
	int fds[2];
	char byte = 0;
	char *block = malloc(100);
	struct pollfd set = { .events = POLLIN };

	block = realloc(block, 100000);
	memset(block, 1, 100000);
	free(block);
	free(NULL);
	if (pipe(fds) == 0 && write(fds[1], "e", 1) == 1) {
		set.fd = fds[0];
		early = poll(&set, 1, 0) == 1 && read(fds[0], &byte, 1) == 1 && byte == 'e' && close(fds[0]) == 0;
		early = close(fds[1]) == 0 && early;
	}
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void sockets(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } }, from;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_INET, SOCK_STREAM, 0), server, pair[2];
	char text[64] = { 0 };
	struct iovec out[2] = { { "ab", 2 }, { "cde", 3 } }, in[2] = { { text, 3 }, { text + 3, 61 } };
	struct msghdr message = { .msg_iov = out, .msg_iovlen = 2 };
	struct mmsghdr several[2] = { { .msg_hdr = message }, { .msg_hdr = message } };
	socklen_t len = sizeof(addr);
	int value = 0;

	CHECK(listener >= 0 && client >= 0);
	CHECK(bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 4) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&addr, &len) == 0 && addr.sin_port != 0);
	CHECK(connect(client, (struct sockaddr *)&addr, len) == 0);
	len = sizeof(from);
	server = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
	CHECK(server >= 0 && len == sizeof(from) && fcntl(server, F_GETFD) == FD_CLOEXEC);
	CHECK(getpeername(client, (struct sockaddr *)&from, &len) == 0 && from.sin_port == addr.sin_port);
	CHECK(send(client, "hello", 5, MSG_NOSIGNAL) == 5 && recv(server, text, 5, MSG_WAITALL) == 5 && !strcmp(text, "hello"));
	CHECK(write(server, "world", 5) == 5 && read(client, text, 5) == 5 && !strcmp(text, "world"));
	CHECK(writev(server, out, 2) == 5 && readv(client, in, 2) == 5 && !strcmp(text, "abcde"));
	CHECK(sendmsg(server, &message, 0) == 5);
	message.msg_iov = in;
	CHECK(recvmsg(client, &message, 0) == 5 && !memcmp(text, "abcde", 5));
	FAILS(recv(client, text, 5, MSG_DONTWAIT), EAGAIN);
	len = sizeof(value);
	CHECK(getsockopt(client, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM && len == sizeof(value));
	value = 1;
	CHECK(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &value, sizeof(value)) == 0);
	FAILS(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &value, 1), EINVAL);
	CHECK(ioctl(client, FIONBIO, &value) == 0 && (fcntl(client, F_GETFL) & O_NONBLOCK));
	CHECK(shutdown(server, SHUT_WR) == 0 && read(client, text, 1) == 0);
	CHECK(close(server) == 0 && close(client) == 0 && close(listener) == 0);
	FAILS(close(listener), EBADF);
	FAILS(accept(listener, NULL, NULL), EBADF);
	FAILS(send(-1, "", 0, 0), EBADF);
	FAILS(recv(-1, text, 1, 0), EBADF);

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	CHECK(sendmmsg(pair[0], several, 2, 0) == 2 && several[1].msg_len == 5);
	several[0].msg_hdr.msg_iov = several[1].msg_hdr.msg_iov = in;
	CHECK(recvmmsg(pair[1], several, 2, 0, NULL) == 2 && several[0].msg_len == 5);
	CHECK(sendto(pair[0], NULL, 0, MSG_DONTWAIT, NULL, 0) == 0);
	CHECK(recvfrom(pair[1], NULL, 0, MSG_DONTWAIT, NULL, NULL) == 0);
	FAILS(recvfrom(pair[1], NULL, 0, MSG_DONTWAIT, NULL, NULL), EAGAIN);
	CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
	/* A kind of AF_XDP socket that there is not. */
	CHECK(socket(AF_XDP, SOCK_DGRAM, 0) == -1);
}

static void waits(void)
{
	int fds[2], ep = epoll_create1(EPOLL_CLOEXEC), old = epoll_create(1);
	struct pollfd set[2] = { { -1, POLLIN, 5 }, { 0, POLLIN, 5 } };
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 42 }, events[3];
	struct timespec time = { 0, 30000000 };
	struct timeval wait = { 0, 30000 };
	sigset_t none;
	fd_set in;

	sigemptyset(&none);
	CHECK(pipe2(fds, O_CLOEXEC) == 0 && ep >= 0 && old >= 0);
	set[1].fd = fds[0];
	CHECK(poll(set, 2, 30) == 0 && set[0].revents == 0 && set[1].revents == 0);
	CHECK(ppoll(set, 2, &time, &none) == 0 && time.tv_nsec == 30000000);
	FD_ZERO(&in);
	FD_SET(fds[0], &in);
	CHECK(select(fds[0] + 1, &in, NULL, NULL, &wait) == 0 && !FD_ISSET(fds[0], &in) && wait.tv_usec == 0);
	FD_SET(fds[0], &in);
	CHECK(pselect(fds[0] + 1, &in, NULL, NULL, &time, &none) == 0 && time.tv_nsec == 30000000);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &event) == 0 && epoll_ctl(old, EPOLL_CTL_ADD, fds[0], &event) == 0);
	CHECK(epoll_wait(ep, events, 3, 30) == 0 && epoll_pwait(ep, events, 3, 30, &none) == 0);
	CHECK(epoll_pwait2(ep, events, 3, &time, &none) == 0);
	CHECK(write(fds[1], "x", 1) == 1);
	CHECK(poll(set, 2, -1) == 1 && set[1].revents == POLLIN);
	FD_SET(fds[0], &in);
	CHECK(select(fds[0] + 1, &in, NULL, NULL, NULL) == 1 && FD_ISSET(fds[0], &in));
	CHECK(epoll_wait(ep, events, 3, -1) == 1 && events[0].data.u64 == 42 && epoll_wait(old, events, 1, 0) == 1);
	FAILS(epoll_wait(fds[0], events, 3, 0), EINVAL);
	FAILS(epoll_ctl(ep, EPOLL_CTL_ADD, fds[0], &event), EEXIST);
	FAILS(select(-1, NULL, NULL, NULL, NULL), EINVAL);
	time.tv_nsec = -1;
	FAILS(ppoll(set, 2, &time, NULL), EINVAL);
	CHECK(close(fds[0]) == 0 && close(fds[1]) == 0 && close(ep) == 0 && close(old) == 0);
	CHECK(poll(set + 1, 1, 0) == 1 && set[1].revents == POLLNVAL);
	CHECK(poll(NULL, 0, 0) == 0);
}

static void numbers(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int fd = fileno(tmpfile()), two, three;

	two = dup(fd);
	CHECK(two > fd && is_open(two));
	CHECK((three = fcntl(fd, F_DUPFD, 200)) >= 200 && fcntl(three, F_GETFD) == 0 && close(three) == 0);
	CHECK((three = fcntl(fd, F_DUPFD_CLOEXEC, 200)) >= 200 && fcntl(three, F_GETFD) == FD_CLOEXEC);
	CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(fcntl(fd, F_SETLK, &lock) == 0);
	CHECK(dup2(fd, 210) == 210 && dup3(fd, 211, O_CLOEXEC) == 211 && fcntl(211, F_GETFD) == FD_CLOEXEC);
	CHECK(dup2(fd, fd) == fd);
	FAILS(dup3(fd, fd, 0), EINVAL);
	FAILS(dup2(-1, 212), EBADF);
	FAILS(dup(-1), EBADF);
	FAILS(fcntl(-1, F_GETFD), EBADF);
	CHECK(close_range(three, 210, 0) == 0 && !is_open(three) && !is_open(210) && is_open(211));
	CHECK(close_range(211, 300, CLOSE_RANGE_CLOEXEC) == 0 && is_open(211));
	FAILS(close_range(5, 4, 0), EINVAL);
	if (fork() == 0) {
		closefrom(3);
		_exit(is_open(3) || is_open(two) || is_open(211) || !is_open(2));
	}
	CHECK(wait(&three) > 0 && three == 0 && is_open(211));
	CHECK(close(211) == 0 && close(two) == 0);
}

static void memory(void)
{
	FILE *file = tmpfile();
	char *map, *block = NULL;
	volatile size_t too_many = SIZE_MAX;

	CHECK(ftruncate(fileno(file), 16384) == 0);
	map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 4096);
	CHECK(map != MAP_FAILED);
	map[0] = 'm';
	map = mremap(map, 8192, 12288, MREMAP_MAYMOVE);
	CHECK(map != MAP_FAILED && map[0] == 'm');
	CHECK(mmap64(map, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map && map[0] == 0);
	CHECK(munmap(map, 12288) == 0);
	FAILS(munmap(map + 1, 1), EINVAL);
	CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(fclose(file) == 0);
	for (size_t size = 1; size < 10000000; size = size * 3 + 1) {
		block = realloc(block, size);
		CHECK(block);
		block[size - 1] = 'b';
	}
	block = reallocarray(block, 3, 5);
	CHECK(block);
	free(block);
	CHECK(reallocarray(NULL, too_many, 2) == NULL && errno == ENOMEM);
}

static void interfaces(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq request = { 0 };
	char name[IF_NAMESIZE];

	CHECK(if_nametoindex("lo") > 0 && if_indextoname(if_nametoindex("lo"), name) == name && !strcmp(name, "lo"));
	CHECK(if_nametoindex("no-such-if") == 0 && errno == ENODEV);
	CHECK(if_indextoname(0x7ffffff0, name) == NULL && errno == ENXIO);
	strcpy(request.ifr_name, "lo");
	CHECK(ioctl(fd, SIOCGIFINDEX, &request) == 0 && request.ifr_ifindex == (int)if_nametoindex("lo"));
	CHECK(ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0);
	CHECK(ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_LOOPBACK));
	strcpy(request.ifr_name, "no-such-if");
	FAILS(ioctl(fd, SIOCGIFINDEX, &request), ENODEV);
	FAILS(ioctl(fd, SIOCGIFINDEX, NULL), EFAULT);
	FAILS(ioctl(-1, SIOCGIFINDEX, &request), EBADF);
	CHECK(close(fd) == 0);
}

/* fork, and vfork followed by exec with descriptors moved about in between, as shells and Python do it. */
static void children(const char *self)
{
	int fds[2], status;
	char text[8] = { 0 };
	pid_t child;

	CHECK(pipe(fds) == 0);
	for (int kind = 0; kind < 2; kind++) {
		child = kind == 0 ? fork() : vfork();
		if (child == 0) {
			dup2(fds[1], 1);
			close(fds[0]);
			close_range(10, 20, 0);
			execl(self, self, "child", (char *)NULL);
			_exit(9);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
		CHECK(read(fds[0], text, 6) == 6 && !strcmp(text, "child\n"));
	}
	CHECK(is_open(fds[0]) && close(fds[0]) == 0 && close(fds[1]) == 0);
}

/* Cancellation of a thread that sleeps in each of the calls that are cancellation points. */
static int pipes[2], stream[2], listening, epoll, cleaned;

static void on_cancel(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *sleeper(void *kind)
{
	static char full[1 << 20];
	struct iovec iov = { full, sizeof(full) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct mmsghdr several = { .msg_hdr = message };
	struct pollfd set = { pipes[0], POLLIN, 0 };
	struct epoll_event event;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(pipes[0], &in);
	pthread_cleanup_push(on_cancel, NULL);
	for (;;)
		switch ((uintptr_t)kind) {
		case 0: (void)!read(pipes[0], full, 1); break;
		case 1: (void)!readv(pipes[0], &iov, 1); break;
		case 2: recv(stream[0], full, 1, 0); break;
		case 3: recvfrom(stream[0], full, 1, 0, NULL, NULL); break;
		case 4: recvmsg(stream[0], &message, 0); break;
		case 5: recvmmsg(stream[0], &several, 1, 0, NULL); break;
		case 6: poll(&set, 1, -1); break;
		case 7: ppoll(&set, 1, NULL, NULL); break;
		case 8: select(pipes[0] + 1, &in, NULL, NULL, NULL); break;
		case 9: pselect(pipes[0] + 1, &in, NULL, NULL, NULL, NULL); break;
		case 10: epoll_wait(epoll, &event, 1, -1); break;
		case 11: epoll_pwait(epoll, &event, 1, -1, NULL); break;
		case 12: epoll_pwait2(epoll, &event, 1, NULL, NULL); break;
		case 13: accept(listening, NULL, NULL); break;
		case 14: accept4(listening, NULL, NULL, 0); break;
		case 15: (void)!write(stream[1], full, sizeof(full)); break;
		case 16: (void)!writev(stream[1], &iov, 1); break;
		case 17: send(stream[1], full, sizeof(full), 0); break;
		case 18: sendto(stream[1], full, sizeof(full), 0, NULL, 0); break;
		case 19: sendmsg(stream[1], &message, 0); break;
		case 20: sendmmsg(stream[1], &several, 1, 0); break;
		default: close(-1); break;
		}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancellation(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct timespec pause = { 0, 5000000 };

	listening = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(listening, (struct sockaddr *)&addr, sizeof(sa_family_t)) == 0 && listen(listening, 1) == 0);
	CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0 && (epoll = epoll_create1(0)) >= 0);
	for (uintptr_t kind = 0; kind < 22; kind++) {
		pthread_t thread;
		void *result = NULL;

		CHECK(pthread_create(&thread, NULL, sleeper, (void *)kind) == 0);
		nanosleep(&pause, NULL);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED && cleaned == (int)kind + 1);
	}
	close(pipes[0]);
	close(pipes[1]);
	close(stream[0]);
	close(stream[1]);
	close(epoll);
	close(listening);
}

/* Many threads open and close at once. */
static void *churn(void *unused)
{
	for (int i = 0; i < 2000; i++) {
		int fds[2], copy, ep = epoll_create1(0);
		struct epoll_event event = { .events = EPOLLIN };
		char byte;
		void *block = malloc(200000);

		CHECK(pipe(fds) == 0 && (copy = dup(fds[0])) >= 0 && ep >= 0 && block);
		CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, copy, &event) == 0);
		CHECK(write(fds[1], "c", 1) == 1 && epoll_wait(ep, &event, 1, -1) == 1 && read(copy, &byte, 1) == 1);
		free(block);
		CHECK(close(fds[0]) == 0 && close(fds[1]) == 0 && close(copy) == 0 && close(ep) == 0);
	}
	return unused;
}

static void threads(void)
{
	pthread_t all[4];

	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(all + i, NULL, churn, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		puts(argv[1]);
		return 0;
	}
	alarm(60);
	CHECK(early);
	sockets();
	waits();
	numbers();
	memory();
	interfaces();
	children(argv[0]);
	cancellation();
	threads();
	puts("ok");
	return 0;
}
