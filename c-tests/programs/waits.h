/* Every way to sleep until a socket is readable: by the C library's calls, by the same system calls made past it, and by
 * io_uring. One `struct waiter` a socket, used by one thread. */
#ifndef PROGRAMS_WAITS_H
#define PROGRAMS_WAITS_H

#include "common.h"

#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

enum way {
	POLL, PPOLL, SELECT, PSELECT, EPOLL, EPOLL_EDGE,
	RAW_POLL, RAW_PPOLL, RAW_SELECT, RAW_EPOLL, RAW_EPOLL_EDGE,
	URING,
	WAYS
};

static const char *const way_names[WAYS] = {
	"poll", "ppoll", "select", "pselect", "epoll", "epoll-edge",
	"raw-poll", "raw-ppoll", "raw-select", "raw-epoll", "raw-epoll-edge",
	"uring",
};

static inline bool is_raw(enum way way)
{
	return way >= RAW_POLL;
}

static inline bool is_edge(enum way way)
{
	return way == EPOLL_EDGE || way == RAW_EPOLL_EDGE;
}

/* The set of ways that `text` names: a list with commas, in which `all`, `exact` (the C library's) and `raw` (the system
 * calls) stand for several. 0: there is no such way. */
static inline uint32_t ways_of(const char *text)
{
	uint32_t set = 0;

	while (*text) {
		size_t length = strcspn(text, ",");
		uint32_t one = 0;

		for (enum way way = 0; way < WAYS; way++)
			if ((strlen(way_names[way]) == length && !strncmp(text, way_names[way], length)) ||
			    (length == 3 && !strncmp(text, "all", 3)) ||
			    (length == 5 && !strncmp(text, "exact", 5) && !is_raw(way)) ||
			    (length == 3 && !strncmp(text, "raw", 3) && is_raw(way) && way != URING))
				one |= 1u << way;
		if (!one)
			return 0;
		set |= one;
		text += length + (text[length] == ',');
	}
	return set;
}

/* A ring of the kernel's, with one request at a time. */
struct uring {
	int fd;
	bool armed;
	uint32_t *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

/* 0 or the errno. The mappings stay for the program's life. */
static inline int uring_open(struct uring *u)
{
	struct io_uring_params p = { 0 };
	uint8_t *ring;

	u->fd = (int)syscall(SYS_io_uring_setup, 4, &p);
	if (u->fd < 0)
		return errno;
	if (!(p.features & IORING_FEAT_SINGLE_MMAP) || !(p.features & IORING_FEAT_EXT_ARG))
		return ENOSYS;
	ring = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*u->cqes) + p.sq_entries * sizeof(uint32_t) + 4096,
		    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQ_RING);
	u->sqes = mmap(NULL, p.sq_entries * sizeof(*u->sqes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd,
		       IORING_OFF_SQES);
	if (ring == MAP_FAILED || (void *)u->sqes == MAP_FAILED)
		return errno;
	u->sq_tail = (uint32_t *)(ring + p.sq_off.tail);
	u->sq_mask = (uint32_t *)(ring + p.sq_off.ring_mask);
	u->sq_array = (uint32_t *)(ring + p.sq_off.array);
	u->cq_head = (uint32_t *)(ring + p.cq_off.head);
	u->cq_tail = (uint32_t *)(ring + p.cq_off.tail);
	u->cq_mask = (uint32_t *)(ring + p.cq_off.ring_mask);
	u->cqes = (struct io_uring_cqe *)(ring + p.cq_off.cqes);
	return 0;
}

/* One POLL_ADD for `fd`; one that an earlier call did not see the end of goes on. */
static inline int uring_wait(struct uring *u, int fd, int ms)
{
	struct __kernel_timespec limit = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	struct io_uring_getevents_arg arg = { .ts = ms < 0 ? 0 : (uint64_t)(uintptr_t)&limit };
	uint32_t head = *u->cq_head;
	int ret, result;

	if (!u->armed) {
		uint32_t tail = *u->sq_tail, at = tail & *u->sq_mask;

		u->sqes[at] = (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = fd, .poll32_events = POLLIN };
		u->sq_array[at] = at;
		__atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
	}
	ret = (int)syscall(SYS_io_uring_enter, u->fd, u->armed ? 0 : 1, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg,
			   sizeof(arg));
	/* A request that was taken is armed, also when the waiting that followed came to nothing. */
	if (ret >= 0 || errno == ETIME || errno == EINTR)
		u->armed = true;
	if (head == __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE))
		return ret >= 0 || errno == ETIME ? 0 : -errno;
	result = u->cqes[head & *u->cq_mask].res;
	__atomic_store_n(u->cq_head, head + 1, __ATOMIC_RELEASE);
	u->armed = false;
	return result < 0 ? result : result == POLLIN ? 1 : -EIO;
}

struct waiter {
	int fd;
	int sets[WAYS]; /* epoll descriptors, 0: none */
	struct uring uring;
};

/* 0 or a negative errno, with a word on what is missing. */
static inline int waiter_open(struct waiter *w, int fd, uint32_t ways)
{
	*w = (struct waiter){ .fd = fd };
	for (enum way way = 0; way < WAYS; way++) {
		struct epoll_event event = { .events = EPOLLIN | (is_edge(way) ? EPOLLET : 0) };
		bool raw = is_raw(way);

		if (!(ways & 1u << way) || (way != EPOLL && way != RAW_EPOLL && !is_edge(way)))
			continue;
		w->sets[way] = raw ? (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC) : epoll_create1(EPOLL_CLOEXEC);
		if (w->sets[way] < 0 || (raw ? (int)syscall(SYS_epoll_ctl, w->sets[way], EPOLL_CTL_ADD, fd, &event) :
					       epoll_ctl(w->sets[way], EPOLL_CTL_ADD, fd, &event))) {
			perror(way_names[way]);
			return -errno;
		}
	}
	return ways & 1u << URING ? -uring_open(&w->uring) : 0;
}

static inline void waiter_close(struct waiter *w)
{
	for (enum way way = 0; way < WAYS; way++)
		if (w->sets[way] > 0)
			close(w->sets[way]);
	if (w->uring.fd > 0)
		close(w->uring.fd);
}

/* Sleeps until the socket is readable: 1; for at most `ms`: 0; -1 is for ever. Else a negative errno. */
static inline int waiter_wait(struct waiter *w, enum way way, int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, *limit = ms < 0 ? NULL : &ts;
	struct timeval tv = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
	struct pollfd pfd = { .fd = w->fd, .events = POLLIN };
	struct epoll_event event = { 0 };
	fd_set set;
	int n = -1;

	FD_ZERO(&set);
	FD_SET(w->fd, &set);
	switch (way) {
	case POLL:
		n = poll(&pfd, 1, ms);
		break;
	case PPOLL:
		n = ppoll(&pfd, 1, limit, NULL);
		break;
	case SELECT:
		n = select(w->fd + 1, &set, NULL, NULL, ms < 0 ? NULL : &tv);
		break;
	case PSELECT:
		n = pselect(w->fd + 1, &set, NULL, NULL, limit, NULL);
		break;
	case EPOLL:
	case EPOLL_EDGE:
		n = epoll_wait(w->sets[way], &event, 1, ms);
		break;
	case RAW_POLL:
#ifdef SYS_poll
		n = (int)syscall(SYS_poll, &pfd, 1, ms);
		break;
#endif
	case RAW_PPOLL:
		n = (int)syscall(SYS_ppoll, &pfd, 1, limit, NULL, 8);
		break;
	case RAW_SELECT:
		n = (int)syscall(SYS_pselect6, w->fd + 1, &set, NULL, NULL, limit, NULL);
		break;
	case RAW_EPOLL:
	case RAW_EPOLL_EDGE:
#ifdef SYS_epoll_wait
		n = (int)syscall(SYS_epoll_wait, w->sets[way], &event, 1, ms);
#else
		n = (int)syscall(SYS_epoll_pwait, w->sets[way], &event, 1, ms, NULL, 8);
#endif
		break;
	case URING:
		return uring_wait(&w->uring, w->fd, ms);
	case WAYS:
		break;
	}
	if (n < 0)
		return -errno;
	if (n > 0 && (pfd.revents | (int)event.events) & ~POLLIN)
		return -EIO;
	return n;
}

#endif
