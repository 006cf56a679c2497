/* The errno of each call in each state of a socket: the kernel's own. */
#include "peer.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#define ERRNO(call, want)                                                            \
	do {                                                                         \
		errno = 0;                                                           \
		long result_ = (long)(call);                                         \
		int errno_ = errno;                                                  \
		CHECK(result_ == -1 && errno_ == (want), "%s: result %ld, %s, not %s", #call, result_, \
		      strerror(errno_), strerror(want));                             \
	} while (0)

/* A UMEM whose socket is not bound yet. */
static void open_unbound(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	r->opt = rig_defaults((struct rig_options){ 0 });
	r->size = (uint64_t)r->opt.chunk * r->opt.chunks;
	r->area = map_area(r->size);
	EQ(rig_umem(r), 0, "xsk_umem__create");
}

TEST(C16_unbound)
{
	struct pollfd pfd;
	char data[8];
	struct rig r;
	int fd;

	open_unbound(&r);
	fd = xsk_umem__fd(r.umem);
	ERRNO(sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0), ENXIO);
	ERRNO(sendto(fd, NULL, 0, 0, NULL, 0), ENXIO);
	ERRNO(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL), ENXIO);
	ERRNO(recvfrom(fd, NULL, 0, 0, NULL, NULL), ENXIO);
	ERRNO(write(fd, data, 8), ENXIO);
	ERRNO(read(fd, data, 8), ENXIO);
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT };
	EQ(poll(&pfd, 1, 20), 0, "poll");
	EQ(pfd.revents, 0, "events");
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
}

TEST(C16_rx_only)
{
	char data[8];
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ .no_tx = true });
	fd = rig_fd(&r);
	ERRNO(sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0), ENOBUFS);
	ERRNO(sendto(fd, NULL, 0, 0, NULL, 0), EOPNOTSUPP);
	EQ(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL), 0, "recvfrom");
	ERRNO(recvfrom(fd, data, 8, 0, NULL, NULL), EOPNOTSUPP);
	EQ(poll(&(struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT }, 1, 20), 0, "poll");
	EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0, "fcntl");
	EQ(recv(fd, data, 8, 0), 0, "recv, non-blocking");
	EQ(read(fd, data, 8), 0, "read, non-blocking");
	ERRNO(write(fd, data, 8), ENOBUFS);
	rig_close(&r);
}

TEST(C16_tx_only)
{
	struct pollfd pfd;
	char data[8];
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	fd = rig_fd(&r);
	ERRNO(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL), ENOBUFS);
	ERRNO(recvfrom(fd, NULL, 0, 0, NULL, NULL), ENOBUFS);
	ERRNO(read(fd, data, 8), ENOBUFS);
	EQ(sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0), 0, "sendto");
	ERRNO(sendto(fd, NULL, 0, 0, NULL, 0), EOPNOTSUPP);
	ERRNO(sendmsg(fd, &(struct msghdr){ .msg_namelen = 0 }, 0), EOPNOTSUPP);
	ERRNO(write(fd, data, 8), EOPNOTSUPP);
	pfd = (struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT };
	EQ(poll(&pfd, 1, 20), 1, "poll");
	EQ(pfd.revents, POLLOUT, "events");
	rig_close(&r);
}

/* A call that may block is refused with nothing done. */
TEST(C16_blocking_call_does_nothing)
{
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	rig_queue(&r, 0, 1);
	ERRNO(sendto(rig_fd(&r), NULL, 0, 0, NULL, 0), EOPNOTSUPP);
	EQ(ring_pending(&r.tx), 1, "frames that wait");
	if (on_kernel()) { /* which copies the address before it ignores it; the engine does not look at it at all */
		ERRNO(sendto(rig_fd(&r), NULL, 0, MSG_DONTWAIT, (struct sockaddr *)1, 16), EFAULT);
		EQ(ring_pending(&r.tx), 1, "frames that wait after a wild address");
	}
	EQ(rig_kick(&r), 0, "kick");
	rig_complete(&r, 1);
	rig_close(&r);
}

/* The link goes down and comes back, then the interface goes. Only a real interface can do that here. */
TEST(C16_device_down_and_gone)
{
	int error = -1;
	socklen_t len = sizeof(error);
	struct rig r;
	int fd;

	if (!on_kernel())
		skip("real interfaces only: engine links do not go down yet");
	rig_open(&r, (struct rig_options){ .port = C }); /* the other tests need A */
	fd = rig_fd(&r);
	EQ(system("ip link set dev vc down"), 0, "ip link");
	rig_queue(&r, 0, 1);
	EQ(rig_kick(&r), ENETDOWN, "kick");
	EQ(ring_pending(&r.tx), 1, "frames that wait");
	ERRNO(recv(fd, NULL, 0, MSG_DONTWAIT), ENETDOWN);
	EQ(poll(&(struct pollfd){ .fd = fd, .events = POLLIN | POLLOUT }, 1, 20), 0, "poll");
	EQ(system("ip link set dev vc up"), 0, "ip link");
	EQ(rig_kick(&r), 0, "kick when it is up again");
	rig_complete(&r, 1);
	rig_queue(&r, 0, 1);
	EQ(system("ip link del vc"), 0, "ip link");
	EQ(rig_kick(&r), ENXIO, "kick when it is gone");
	ERRNO(recv(fd, NULL, 0, MSG_DONTWAIT), ENXIO);
	EQ(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0, "SO_ERROR");
	EQ(error, ENETDOWN, "SO_ERROR");
	EQ(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0, "SO_ERROR");
	EQ(error, 0, "SO_ERROR, once read");
	rig_close(&r);
}

/* Calls that an AF_XDP socket does not have. */
TEST(calls_without_meaning)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	struct rig r;
	int fd, value = 0;

	memset(&addr, 0, sizeof(addr));
	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	ERRNO(getsockname(fd, (struct sockaddr *)&addr, &len), EOPNOTSUPP);
	len = sizeof(addr);
	ERRNO(getpeername(fd, (struct sockaddr *)&addr, &len), EOPNOTSUPP);
	ERRNO(shutdown(fd, SHUT_RDWR), EOPNOTSUPP);
	ERRNO(listen(fd, 1), EOPNOTSUPP);
	ERRNO(accept(fd, NULL, NULL), EOPNOTSUPP);
	ERRNO(connect(fd, (struct sockaddr *)&addr, 16), EOPNOTSUPP);
	ERRNO(ioctl(fd, FIONREAD, &value), EOPNOTSUPP);
	ERRNO(lseek(fd, 0, SEEK_SET), ESPIPE);
	/* After all that the socket works as before: shutdown did nothing. */
	rig_queue(&r, 0, 1);
	EQ(rig_kick(&r), 0, "kick");
	rig_complete(&r, 1);
	EQ(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20), 0, "poll");
	rig_close(&r);
}

/* Non-blocking mode by ioctl and by fcntl, and read back. */
TEST(nonblocking_mode)
{
	int on = 1, off = 0;
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDWR, "flags of a new socket");
	EQ(fcntl(fd, F_GETFD), 0, "close-on-exec of a new socket");
	ERRNO(send(fd, NULL, 0, 0), EOPNOTSUPP);
	EQ(ioctl(fd, FIONBIO, &on), 0, "FIONBIO");
	EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK, "flags");
	EQ(send(fd, NULL, 0, 0), 0, "send");
	EQ(ioctl(fd, FIONBIO, &off), 0, "FIONBIO");
	ERRNO(send(fd, NULL, 0, 0), EOPNOTSUPP);
	EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0, "F_SETFL");
	EQ(send(fd, NULL, 0, 0), 0, "send");
	EQ(recv(fd, NULL, 0, 0), 0, "recv");
	rig_close(&r);
}
