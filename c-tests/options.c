/* getsockopt and setsockopt on the descriptor: what there is, and with which lengths. */
#include "peer.h"

#include <fcntl.h>
#include <sys/stat.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#endif
#ifndef SO_BUSY_POLL_BUDGET
#define SO_BUSY_POLL_BUDGET 70
#endif

/* The length that comes back for one handed in; -errno for an error. */
static int answer(int fd, int option, int len)
{
	uint8_t buffer[512];
	socklen_t got = (socklen_t)len;

	memset(buffer, 0xa5, sizeof(buffer));
	if (getsockopt(fd, SOL_XDP, option, buffer, &got))
		return -errno;
	for (size_t i = got; i < sizeof(buffer); i++)
		CHECK(buffer[i] == 0xa5, "option %d with length %d wrote byte %zu", option, len, i);
	return (int)got;
}

TEST(C57_lengths)
{
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(answer(fd, XDP_STATISTICS, 0), -EINVAL, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 16), -EINVAL, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 23), -EINVAL, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 24), 24, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 47), 24, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 48), 48, "statistics");
	EQ(answer(fd, XDP_STATISTICS, 64), 48, "statistics");
	EQ(answer(fd, XDP_OPTIONS, 3), -EINVAL, "options");
	EQ(answer(fd, XDP_OPTIONS, 4), 4, "options");
	EQ(answer(fd, XDP_OPTIONS, 8), 4, "options");
	EQ(answer(fd, XDP_MMAP_OFFSETS, 95), -EINVAL, "offsets");
	EQ(answer(fd, XDP_MMAP_OFFSETS, 96), 96, "offsets");
	EQ(answer(fd, XDP_MMAP_OFFSETS, 127), 96, "offsets");
	EQ(answer(fd, XDP_MMAP_OFFSETS, 128), 128, "offsets");
	EQ(answer(fd, XDP_MMAP_OFFSETS, 200), 128, "offsets");
	EQ(answer(fd, XDP_STATISTICS, -1), -EINVAL, "negative length");
	EQ(answer(fd, 99, 4), -EOPNOTSUPP, "unknown option");
	EQ(answer(fd, XDP_RX_RING, 4), -EOPNOTSUPP, "option that can only be set");
	rig_close(&r);
}

TEST(bad_pointers)
{
	struct xdp_options options;
	socklen_t len = sizeof(options);
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(getsockopt(fd, SOL_XDP, XDP_OPTIONS, NULL, &len), -1, "no buffer");
	EQ(errno, EFAULT, "no buffer");
	EQ(getsockopt(fd, SOL_XDP, XDP_OPTIONS, &options, NULL), -1, "no length");
	EQ(errno, EFAULT, "no length");
	rig_close(&r);
}

/* Copy mode says so. */
TEST(C46_options_say_copy)
{
	struct xdp_options options = { .flags = 99 };
	socklen_t len = sizeof(options);
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	EQ(getsockopt(rig_fd(&r), SOL_XDP, XDP_OPTIONS, &options, &len), 0, "XDP_OPTIONS");
	EQ(options.flags, 0, "flags");
	rig_close(&r);
}

/* The offsets are where the rings' words really are, and the old answer is the new one without the flags. */
TEST(offsets_are_true)
{
	struct xdp_mmap_offsets off;
	struct { uint64_t producer, consumer, desc; } old[4];
	socklen_t len = sizeof(off);
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	EQ(getsockopt(rig_fd(&r), SOL_XDP, XDP_MMAP_OFFSETS, &off, &len), 0, "XDP_MMAP_OFFSETS");
	EQ((char *)r.rx.consumer - (char *)r.rx.producer, off.rx.consumer - off.rx.producer, "rx");
	EQ((char *)r.rx.ring - (char *)r.rx.producer, off.rx.desc - off.rx.producer, "rx");
	EQ((char *)r.tx.flags - (char *)r.tx.producer, off.tx.flags - off.tx.producer, "tx");
	EQ((char *)r.fill.flags - (char *)r.fill.producer, off.fr.flags - off.fr.producer, "fill");
	EQ((char *)r.comp.ring - (char *)r.comp.producer, off.cr.desc - off.cr.producer, "completion");
	len = sizeof(old);
	EQ(getsockopt(rig_fd(&r), SOL_XDP, XDP_MMAP_OFFSETS, old, &len), 0, "XDP_MMAP_OFFSETS, old form");
	EQ(old[0].producer, off.rx.producer, "old rx producer");
	EQ(old[1].consumer, off.tx.consumer, "old tx consumer");
	EQ(old[2].desc, off.fr.desc, "old fill desc");
	EQ(old[3].desc, off.cr.desc, "old completion desc");
	rig_close(&r);
}

/* A new socket has no statistics, except that a kick of an empty TX ring is counted. */
TEST(C57_counts)
{
	struct xdp_statistics s;
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	s = rig_statistics(rig_fd(&r));
	EQ(s.rx_dropped | s.rx_invalid_descs | s.tx_invalid_descs | s.rx_ring_full | s.rx_fill_ring_empty_descs |
		   s.tx_ring_empty_descs,
	   0, "counters of a new socket");
	EQ(rig_kick(&r), 0, "kick");
	EQ(rig_statistics(rig_fd(&r)).tx_ring_empty_descs, 1, "tx_ring_empty_descs");
	rig_queue(&r, 0, 40);
	EQ(rig_kick(&r), EAGAIN, "kick that uses its budget");
	EQ(rig_statistics(rig_fd(&r)).tx_ring_empty_descs, 1, "tx_ring_empty_descs, ring not empty");
	EQ(rig_kick(&r), 0, "kick that empties the ring");
	EQ(rig_statistics(rig_fd(&r)).tx_ring_empty_descs, 2, "tx_ring_empty_descs");
	rig_close(&r);
}

static int option(int fd, int name)
{
	int value = -77;
	socklen_t len = sizeof(value);

	EQ(getsockopt(fd, SOL_SOCKET, name, &value, &len), 0, "getsockopt");
	EQ(len, sizeof(value), "length");
	return value;
}

/* What a program can ask any socket. */
TEST(socket_level)
{
	struct stat st;
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(option(fd, SO_TYPE), SOCK_RAW, "SO_TYPE");
	EQ(option(fd, SO_DOMAIN), AF_XDP, "SO_DOMAIN");
	EQ(option(fd, SO_PROTOCOL), 0, "SO_PROTOCOL");
	EQ(option(fd, SO_ERROR), 0, "SO_ERROR");
	EQ(option(fd, SO_ACCEPTCONN), 0, "SO_ACCEPTCONN");
	EQ(fstat(fd, &st), 0, "fstat");
	CHECK(S_ISSOCK(st.st_mode), "mode %o", st.st_mode);
	rig_close(&r);
}

static int set(int fd, int name, int value)
{
	return setsockopt(fd, SOL_SOCKET, name, &value, sizeof(value)) ? -errno : 0;
}

/* The three options of preferred busy polling, with the values DPDK, Suricata and xdpsock use, and back. */
TEST(busy_poll_options)
{
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(set(fd, SO_PREFER_BUSY_POLL, 1), 0, "SO_PREFER_BUSY_POLL");
	EQ(set(fd, SO_BUSY_POLL, 20), 0, "SO_BUSY_POLL");
	EQ(set(fd, SO_BUSY_POLL_BUDGET, 64), 0, "SO_BUSY_POLL_BUDGET");
	EQ(option(fd, SO_PREFER_BUSY_POLL), 1, "SO_PREFER_BUSY_POLL");
	EQ(option(fd, SO_BUSY_POLL), 20, "SO_BUSY_POLL");
	EQ(set(fd, SO_BUSY_POLL, -1), -EINVAL, "negative SO_BUSY_POLL");
	EQ(setsockopt(fd, SOL_SOCKET, SO_PREFER_BUSY_POLL, "ab", 2), -1, "short value");
	EQ(errno, EINVAL, "short value");
	rig_queue(&r, 0, 1);
	EQ(rig_kick(&r), 0, "kick");
	EQ(recvfrom(fd, NULL, 0, MSG_DONTWAIT, NULL, NULL), 0, "recvfrom");
	EQ(set(fd, SO_BUSY_POLL, 0), 0, "SO_BUSY_POLL off");
	EQ(set(fd, SO_PREFER_BUSY_POLL, 0), 0, "SO_PREFER_BUSY_POLL off");
	rig_close(&r);
}

/* The namespace's cookie is that of any other socket of this process. */
TEST(netns_cookie)
{
	uint64_t cookie = 0, other = 0;
	socklen_t len = sizeof(cookie);
	struct rig r;
	int udp = socket(AF_INET, SOCK_DGRAM, 0);

	rig_open(&r, (struct rig_options){ 0 });
	EQ(getsockopt(rig_fd(&r), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len), 0, "SO_NETNS_COOKIE");
	EQ(len, 8, "length");
	EQ(getsockopt(udp, SOL_SOCKET, SO_NETNS_COOKIE, &other, &len), 0, "SO_NETNS_COOKIE of a UDP socket");
	EQ(cookie, other, "cookie");
	len = 4;
	EQ(getsockopt(rig_fd(&r), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len), -1, "short length");
	EQ(errno, EINVAL, "short length");
	close(udp);
	rig_close(&r);
}

static int set_xdp(int fd, int name, uint32_t value)
{
	return setsockopt(fd, SOL_XDP, name, &value, sizeof(value)) ? -errno : 0;
}

/* Nothing of a bound socket can be set up anew. */
TEST(bound_socket_is_busy)
{
	struct rig r;
	int fd;

	rig_open(&r, (struct rig_options){ 0 });
	fd = rig_fd(&r);
	EQ(set_xdp(fd, XDP_RX_RING, 64), -EBUSY, "XDP_RX_RING");
	EQ(set_xdp(fd, XDP_TX_RING, 0), -EBUSY, "XDP_TX_RING");
	EQ(set_xdp(fd, XDP_UMEM_FILL_RING, 64), -EBUSY, "XDP_UMEM_FILL_RING");
	EQ(set_xdp(fd, XDP_UMEM_COMPLETION_RING, 64), -EBUSY, "XDP_UMEM_COMPLETION_RING");
	EQ(set_xdp(fd, XDP_STATISTICS, 1), -ENOPROTOOPT, "option that can only be read");
	EQ(set_xdp(fd, 99, 1), -ENOPROTOOPT, "unknown option");
	EQ(setsockopt(fd, SOL_XDP, XDP_RX_RING, "ab", 2), -1, "short value");
	EQ(errno, EINVAL, "short value");
	rig_close(&r);
}

/* XDP_MAX_TX_SKB_BUDGET: from 32 to the size of the TX ring; a larger budget sends more a call. */
TEST(tx_budget_option)
{
	struct rig r;
	int ret;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	ret = set_xdp(rig_fd(&r), 9, 64);
	if (ret == -ENOPROTOOPT && on_kernel()) {
		rig_close(&r);
		skip("this kernel has no XDP_MAX_TX_SKB_BUDGET");
	}
	EQ(ret, 0, "budget 64");
	rig_queue(&r, 0, 100);
	EQ(rig_kick(&r), EAGAIN, "kick");
	EQ(ring_pending(&r.tx), 36, "frames that wait");
	EQ(rig_kick(&r), 0, "kick");
	EQ(set_xdp(rig_fd(&r), 9, 31), -EACCES, "budget 31");
	EQ(set_xdp(rig_fd(&r), 9, 257), -EACCES, "budget over the ring's size");
	rig_close(&r);
}

/* Options of levels that the socket does not have. */
TEST(other_levels)
{
	int value = 0;
	socklen_t len = sizeof(value);
	struct rig r;

	rig_open(&r, (struct rig_options){ 0 });
	EQ(getsockopt(rig_fd(&r), 12345, 1, &value, &len), -1, "level 12345");
	EQ(errno, ENOPROTOOPT, "level 12345");
	EQ(setsockopt(rig_fd(&r), 12345, 1, &value, sizeof(value)), -1, "level 12345");
	EQ(errno, ENOPROTOOPT, "level 12345");
	rig_close(&r);
}
