/* poll, select and epoll on a socket of ours, alone and beside others: they tell the truth, sleep when there is nothing
 * to tell, wake when there is, and can be cancelled and interrupted like the kernel's. */
#include "xdp.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

static struct xdp x;
static int pipes[2];

/* A wait that sleeps takes the time and no processor. */
static double slept, used;
#define SLEEPING(call) \
	({ \
		double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID); \
		int result_ = (call); \
		slept = seconds(CLOCK_MONOTONIC) - wall; \
		used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu; \
		CHECK(used < slept / 2); \
		result_; \
	})

static void *send_later(void *frames)
{
	sleep_ms(50);
	xdp_send(&x, (uint32_t)(uintptr_t)frames);
	return NULL;
}

static void *write_later(void *unused)
{
	sleep_ms(50);
	CHECK(write(pipes[1], "x", 1) == 1);
	return unused;
}

static pthread_t later(void *(*what)(void *), uintptr_t argument)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, what, (void *)argument) == 0);
	return thread;
}

static void drain(void)
{
	while (xdp_take(&x, 64))
		;
}

static void polls(void)
{
	struct pollfd set[4] = { { -1, POLLIN, 9 }, { x.fd, POLLIN, 9 }, { pipes[0], POLLIN, 9 }, { x.fd, POLLOUT | POLLIN, 9 } };
	struct timespec time = { 0, 100000000 };
	pthread_t thread;
	char byte;

	/* Nothing there. */
	CHECK(poll(set, 3, 0) == 0 && set[0].revents == 0 && set[1].revents == 0 && set[2].revents == 0);
	CHECK(SLEEPING(poll(set + 1, 1, 100)) == 0 && slept >= 0.1);
	CHECK(SLEEPING(ppoll(set, 3, &time, NULL)) == 0 && slept >= 0.1);
	/* A frame arrives while it sleeps; the others keep their own truth. */
	thread = later(send_later, 1);
	set[1].revents = 9;
	CHECK(SLEEPING(poll(set, 3, -1)) == 1 && set[1].revents == POLLIN && set[2].revents == 0);
	pthread_join(thread, NULL);
	/* Without sleeping; both of one descriptor's entries. */
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(poll(set, 4, -1) == 3 && set[0].revents == 0 && set[1].revents == POLLIN && set[2].revents == POLLIN);
	CHECK(set[3].revents == (POLLIN | POLLOUT));
	CHECK(read(pipes[0], &byte, 1) == 1);
	drain();
	CHECK(poll(set + 1, 1, 0) == 0 && set[1].revents == 0);
	/* Only the pipe wakes. */
	thread = later(write_later, 0);
	CHECK(SLEEPING(poll(set, 3, 5000)) == 1 && set[1].revents == 0 && set[2].revents == POLLIN && slept < 4);
	pthread_join(thread, NULL);
	CHECK(read(pipes[0], &byte, 1) == 1);
	/* What is not asked for does not wake: data, where room is asked for and there is none. */
	xdp_send(&x, 2);
	xdp_queue(&x, 0);
	set[1].events = 0;
	CHECK(SLEEPING(poll(set + 1, 1, 100)) == 0 && set[1].revents == 0);
	set[1].events = POLLRDNORM;
	CHECK(poll(set + 1, 1, -1) == 1 && set[1].revents == POLLRDNORM);
	drain();
	/* poll sends. */
	xdp_queue(&x, 1);
	set[1].events = POLLIN;
	CHECK(poll(set + 1, 1, -1) == 1 && xdp_take(&x, 9) == 1);
}

static void selects(void)
{
	int n = (x.fd > pipes[0] ? x.fd : pipes[0]) + 1, gone;
	struct timespec fine = { 0, 100000000 };
	struct timeval time = { 0, 100000 };
	fd_set in, out;
	pthread_t thread;
	char byte;

#define SETS() \
	do { \
		FD_ZERO(&in); \
		FD_ZERO(&out); \
		FD_SET(x.fd, &in); \
		FD_SET(pipes[0], &in); \
	} while (0)
	SETS();
	CHECK(SLEEPING(select(n, &in, NULL, NULL, &time)) == 0 && slept >= 0.1 && !FD_ISSET(x.fd, &in));
	CHECK(time.tv_sec == 0 && time.tv_usec == 0);
	SETS();
	CHECK(SLEEPING(pselect(n, &in, NULL, NULL, &fine, NULL)) == 0 && fine.tv_nsec == 100000000);
	SETS();
	FD_SET(x.fd, &out);
	CHECK(select(n, &in, &out, NULL, NULL) == 1 && FD_ISSET(x.fd, &out) && !FD_ISSET(x.fd, &in));
	SETS();
	thread = later(send_later, 1);
	time.tv_sec = 5;
	CHECK(SLEEPING(select(n, &in, NULL, NULL, &time)) == 1 && FD_ISSET(x.fd, &in) && !FD_ISSET(pipes[0], &in));
	CHECK(time.tv_sec < 5);
	pthread_join(thread, NULL);
	CHECK(write(pipes[1], "x", 1) == 1);
	SETS();
	FD_SET(x.fd, &out);
	CHECK(select(n, &in, &out, NULL, NULL) == 3 && FD_ISSET(pipes[0], &in) && FD_ISSET(x.fd, &in));
	CHECK(read(pipes[0], &byte, 1) == 1);
	drain();
	/* A number that is not open. */
	gone = dup(pipes[0]);
	CHECK(gone > 0 && close(gone) == 0);
	SETS();
	FD_SET(gone, &in);
	CHECK(select(gone + 1, &in, NULL, NULL, NULL) == -1 && errno == EBADF && FD_ISSET(x.fd, &in));
}

static int epoll_next(int ep, struct epoll_event *event, int ms)
{
	memset(event, 0x55, sizeof(*event));
	return epoll_wait(ep, event, 1, ms);
}

static void epoll_level(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 }, events[8];
	struct epoll_event other = { .events = EPOLLIN, .data.u64 = 88 };
	int ep = epoll_create1(0), ep2;
	struct timespec fine = { 0, 100000000 };
	pthread_t thread;
	char byte;

	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == -1 && errno == EEXIST);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[0], &other) == 0);
	CHECK(epoll_wait(ep, events, 8, 0) == 0);
	CHECK(epoll_wait(ep, events, 0, 0) == -1 && errno == EINVAL);
	CHECK(SLEEPING(epoll_wait(ep, events, 8, 100)) == 0 && slept >= 0.1);
	CHECK(SLEEPING(epoll_pwait2(ep, events, 8, &fine, NULL)) == 0 && slept >= 0.1);
	thread = later(send_later, 2);
	CHECK(SLEEPING(epoll_wait(ep, events, 8, -1)) == 1 && events[0].events == EPOLLIN && events[0].data.u64 == 77);
	pthread_join(thread, NULL);
	/* Level: told again; beside the other; and with one place in turns. */
	CHECK(epoll_wait(ep, events, 8, -1) == 1 && events[0].data.u64 == 77);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(epoll_wait(ep, events, 8, -1) == 2 && events[0].data.u64 + events[1].data.u64 == 77 + 88);
	{
		int ours = 0, others = 0;

		for (int i = 0; i < 10; i++) {
			CHECK(epoll_next(ep, &event, -1) == 1);
			ours += event.data.u64 == 77;
			others += event.data.u64 == 88;
		}
		CHECK(ours >= 3 && others >= 3 && ours + others == 10);
		CHECK(epoll_next(ep, &event, 0) == 1 && epoll_next(ep, &event, 0) == 1);
	}
	CHECK(read(pipes[0], &byte, 1) == 1);
	drain();
	CHECK(epoll_wait(ep, events, 8, 0) == 0);
	/* Another event mask; another data word; disarmed. */
	event = (struct epoll_event){ .events = EPOLLIN | EPOLLOUT, .data.u64 = 99 };
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, x.fd, &event) == 0);
	CHECK(epoll_wait(ep, events, 8, -1) == 1 && events[0].events == EPOLLOUT && events[0].data.u64 == 99);
	event.events = 0;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, x.fd, &event) == 0);
	xdp_send(&x, 1);
	CHECK(SLEEPING(epoll_wait(ep, events, 8, 100)) == 0);
	event.events = EPOLLIN;
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, x.fd, &event) == 0);
	/* A duplicate of the instance is the instance, and outlives the number it was made from. */
	ep2 = dup(ep);
	CHECK(ep2 >= 0 && close(ep) == 0);
	CHECK(epoll_wait(ep2, events, 8, -1) == 1 && events[0].data.u64 == 99);
	CHECK(epoll_ctl(ep2, EPOLL_CTL_DEL, x.fd, NULL) == 0);
	CHECK(epoll_ctl(ep2, EPOLL_CTL_DEL, x.fd, NULL) == -1 && errno == ENOENT);
	CHECK(epoll_ctl(ep2, EPOLL_CTL_MOD, x.fd, &event) == -1 && errno == ENOENT);
	CHECK(epoll_wait(ep2, events, 8, 0) == 0);
	drain();
	CHECK(close(ep2) == 0 && epoll_wait(ep2, events, 8, 0) == -1 && errno == EBADF);
}

/* Edge-triggered: told once for what arrived, also while an undrained ring makes the descriptor readable all the time. */
static void epoll_edge(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u64 = 77 };
	int ep = epoll_create1(0);
	pthread_t thread;

	xdp_send(&x, 1);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	CHECK(epoll_next(ep, &event, -1) == 1 && event.events == EPOLLIN);
	CHECK(epoll_next(ep, &event, 0) == 0);
	CHECK(SLEEPING(epoll_next(ep, &event, 100)) == 0);
	for (int i = 0; i < 5; i++) {
		thread = later(send_later, 1);
		CHECK(SLEEPING(epoll_next(ep, &event, -1)) == 1 && event.data.u64 == 77);
		pthread_join(thread, NULL);
		CHECK(epoll_next(ep, &event, 0) == 0);
	}
	xdp_send(&x, 1);
	CHECK(epoll_next(ep, &event, -1) == 1 && epoll_next(ep, &event, 0) == 0);
	/* Changing the registration makes an edge of what is there. */
	event = (struct epoll_event){ .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u64 = 78 };
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, x.fd, &event) == 0);
	CHECK(epoll_next(ep, &event, -1) == 1 && event.events == (EPOLLIN | EPOLLOUT) && event.data.u64 == 78);
	CHECK(SLEEPING(epoll_next(ep, &event, 100)) == 0);
	drain();
	CHECK(SLEEPING(epoll_next(ep, &event, 100)) == 0);
	thread = later(send_later, 1);
	CHECK(SLEEPING(epoll_next(ep, &event, -1)) == 1);
	pthread_join(thread, NULL);
	drain();
	CHECK(close(ep) == 0);
}

static void epoll_oneshot(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 77 };
	int ep = epoll_create1(0);

	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	xdp_send(&x, 1);
	CHECK(epoll_next(ep, &event, -1) == 1 && event.events == EPOLLIN);
	xdp_send(&x, 1);
	CHECK(SLEEPING(epoll_next(ep, &event, 100)) == 0);
	event = (struct epoll_event){ .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 78 };
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, x.fd, &event) == 0);
	CHECK(epoll_next(ep, &event, -1) == 1 && event.data.u64 == 78);
	drain();
	CHECK(close(ep) == 0);
}

static int shared_ep;

static void *add_later(void *unused)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };

	sleep_ms(50);
	CHECK(epoll_ctl(shared_ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	return unused;
}

static void *add_then_send_later(void *unused)
{
	add_later(unused);
	sleep_ms(50);
	xdp_send(&x, 1);
	return unused;
}

/* A registration that is made while another thread sleeps on the same instance wakes it: at once, if something is there. */
static void epoll_added_while_asleep(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 88 };
	struct xdp second;
	pthread_t thread;

	xdp_open(&second, "loop1");
	shared_ep = epoll_create1(EPOLL_CLOEXEC);
	CHECK(epoll_ctl(shared_ep, EPOLL_CTL_ADD, second.fd, &event) == 0);
	thread = later(add_then_send_later, 0);
	CHECK(SLEEPING(epoll_next(shared_ep, &event, -1)) == 1 && event.data.u64 == 77);
	pthread_join(thread, NULL);
	CHECK(epoll_ctl(shared_ep, EPOLL_CTL_DEL, x.fd, &event) == 0);
	thread = later(add_later, 0);
	CHECK(SLEEPING(epoll_next(shared_ep, &event, -1)) == 1 && event.data.u64 == 77);
	pthread_join(thread, NULL);
	drain();
	/* Closing the last number of a socket ends its registration. */
	CHECK(close(second.fd) == 0);
	CHECK(SLEEPING(epoll_next(shared_ep, &event, 100)) == 0);
	CHECK(close(shared_ep) == 0);
}

/* A registration lives as long as any number of its socket. */
static void epoll_and_duplicates(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };
	int ep = epoll_create1(0), fd = dup(x.fd), moved;

	CHECK(fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
	moved = fcntl(fd, F_DUPFD_CLOEXEC, 100);
	CHECK(moved >= 100 && close(fd) == 0);
	xdp_send(&x, 1);
	CHECK(epoll_next(ep, &event, -1) == 1 && event.data.u64 == 77);
	drain();
	CHECK(close(moved) == 0 && close(ep) == 0);
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void *signal_later(void *target)
{
	sleep_ms(50);
	CHECK(pthread_kill((pthread_t)target, SIGUSR1) == 0);
	return NULL;
}

static void interrupted(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct pollfd set = { x.fd, POLLIN, 0 };
	struct epoll_event event = { .events = EPOLLIN };
	int ep = epoll_create1(0);
	struct timespec zero = { 0, 0 };
	sigset_t blocked, none;
	pthread_t thread;
	fd_set in;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	FD_ZERO(&in);
	FD_SET(x.fd, &in);
#define INTERRUPTED(call) \
	do { \
		thread = later(signal_later, (uintptr_t)pthread_self()); \
		signals = 0; \
		CHECK(SLEEPING(call) == -1 && errno == EINTR && signals == 1); \
		pthread_join(thread, NULL); \
	} while (0)
	INTERRUPTED(poll(&set, 1, -1));
	INTERRUPTED(select(x.fd + 1, &in, NULL, NULL, NULL));
	INTERRUPTED(epoll_wait(ep, &event, 1, -1));
	/* A blocked signal comes in during the wait only, as the mask says. */
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
	INTERRUPTED(ppoll(&set, 1, NULL, &none));
	INTERRUPTED(pselect(x.fd + 1, &in, NULL, NULL, NULL, &none));
	INTERRUPTED(epoll_pwait(ep, &event, 1, -1, &none));
	INTERRUPTED(epoll_pwait2(ep, &event, 1, NULL, &none));
	/* One that is pending ends even a wait of no time, but not one that has an answer. */
	signals = 0;
	CHECK(raise(SIGUSR1) == 0 && signals == 0);
	set.events = POLLOUT;
	CHECK(ppoll(&set, 1, &zero, &none) == 1 && signals == 0);
	set.events = POLLIN;
	CHECK(ppoll(&set, 1, &zero, &none) == -1 && errno == EINTR && signals == 1);
	CHECK(raise(SIGUSR1) == 0 && pselect(x.fd + 1, &in, NULL, NULL, &zero, &none) == -1 && signals == 2);
	/* (The kernel's epoll does not look for signals when it may not sleep.) */
	CHECK(raise(SIGUSR1) == 0 && epoll_pwait(ep, &event, 1, 0, &none) == 0 && signals == 2);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &blocked, NULL) == 0 && close(ep) == 0);
	/* Times that are none. */
	zero.tv_nsec = 1000000000;
	CHECK(ppoll(&set, 1, &zero, NULL) == -1 && errno == EINVAL);
	FD_SET(x.fd, &in);
	CHECK(pselect(x.fd + 1, &in, NULL, NULL, &zero, NULL) == -1 && errno == EINVAL);
}

static int cleaned;

static void on_cancel(void *unused)
{
	(void)unused;
	cleaned++;
}

static int cancel_ep;

static void *wait_for_ever(void *kind)
{
	struct pollfd set[2] = { { x.fd, POLLIN, 0 }, { pipes[0], POLLIN, 0 } };
	struct epoll_event event;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(x.fd, &in);
	pthread_cleanup_push(on_cancel, NULL);
	switch ((uintptr_t)kind) {
	case 0:
		poll(set, 1, -1);
		break;
	case 1:
		ppoll(set, 2, NULL, NULL);
		break;
	case 2:
		select(x.fd + 1, &in, NULL, NULL, NULL);
		break;
	case 3:
		epoll_wait(cancel_ep, &event, 1, -1);
		break;
	default:
		/* Never sleeps: still a cancellation point. */
		for (;;)
			xdp_kick(&x);
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancelled(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 77 };
	struct pollfd set = { x.fd, POLLIN, 0 };

	cancel_ep = epoll_create1(0);
	CHECK(epoll_ctl(cancel_ep, EPOLL_CTL_ADD, x.fd, &event) == 0);
	for (uintptr_t kind = 0; kind < 5; kind++) {
		pthread_t thread = later(wait_for_ever, kind);
		void *result = NULL;

		sleep_ms(30);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED && cleaned == (int)kind + 1);
	}
	/* And all goes on. */
	CHECK(epoll_next(cancel_ep, &event, 0) == 0);
	xdp_send(&x, 1);
	CHECK(poll(&set, 1, -1) == 1 && epoll_next(cancel_ep, &event, -1) == 1);
	drain();
	CHECK(SLEEPING(poll(&set, 1, 100)) == 0);
	CHECK(close(cancel_ep) == 0);
}

int main(void)
{
	alarm(20);
	CHECK(pipe(pipes) == 0);
	xdp_open(&x, "loop0");
	polls();
	selects();
	epoll_level();
	epoll_edge();
	epoll_oneshot();
	epoll_added_while_asleep();
	epoll_and_duplicates();
	interrupted();
	cancelled();
	CHECK(close(x.fd) == 0);
	puts("ok");
	return 0;
}
