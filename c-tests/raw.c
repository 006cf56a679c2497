/* Programs that speak the kernel interface themselves: socket, setsockopt, mmap and bind with family 44, no libxdp call.
 * (On the kernel a frame reaches a socket only through an XDP program; that one part is left to xsk_setup_xdp_prog.) */
#include "peer.h"

#include <linux/bpf.h>
#include <sys/syscall.h>

#define RING 64u
#define FRAMES 64u

/* The whole of it, in this file's own structs: the installed kernel headers may be older than the kernel. */
struct umem_reg {
	uint64_t addr, len;
	uint32_t chunk_size, headroom, flags, tx_metadata_len;
};

struct offsets {
	struct { uint64_t producer, consumer, desc, flags; } rx, tx, fr, cr;
};

struct ring {
	uint8_t *base;
	size_t length;
	uint32_t *producer, *consumer, *flags;
	void *desc;
};

struct raw {
	int fd;
	uint8_t *area;
	struct ring rx, tx, fill, comp;
};

static int raw_socket(void)
{
	int fd = socket(AF_XDP, SOCK_RAW, 0);

	CHECK(fd >= 0, "socket(AF_XDP): %s", strerror(errno));
	return fd;
}

static int set(int fd, int option, const void *value, socklen_t len)
{
	return setsockopt(fd, SOL_XDP, option, value, len) ? -errno : 0;
}

static int set_ring(int fd, int option, uint32_t entries)
{
	return set(fd, option, &entries, sizeof(entries));
}

static int register_umem(int fd, void *area, uint64_t size)
{
	struct umem_reg reg = { .addr = (uintptr_t)area, .len = size, .chunk_size = 4096 };

	return set(fd, XDP_UMEM_REG, &reg, sizeof(reg));
}

static struct ring map_ring(int fd, off_t page, uint64_t producer, uint64_t consumer, uint64_t flags, uint64_t desc, size_t entry)
{
	struct ring ring = { .length = desc + RING * entry };

	ring.base = mmap(NULL, ring.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);
	CHECK(ring.base != MAP_FAILED, "mmap of the ring at 0x%llx: %s", (unsigned long long)page, strerror(errno));
	ring.producer = (uint32_t *)(ring.base + producer);
	ring.consumer = (uint32_t *)(ring.base + consumer);
	ring.flags = (uint32_t *)(ring.base + flags);
	ring.desc = ring.base + desc;
	return ring;
}

static int bind_to(int fd, enum port port, uint32_t queue, uint16_t flags, int shared)
{
	struct sockaddr_xdp addr = {
		.sxdp_family = AF_XDP,
		.sxdp_flags = flags,
		.sxdp_ifindex = if_nametoindex(ifname_of(port)),
		.sxdp_queue_id = queue,
		.sxdp_shared_umem_fd = (uint32_t)shared,
	};

	CHECK(addr.sxdp_ifindex, "if_nametoindex(%s): %s", ifname_of(port), strerror(errno));
	return bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : 0;
}

/* All of a program's set-up, up to bind. */
static void raw_open(struct raw *r)
{
	struct offsets off;
	socklen_t len = sizeof(off);

	memset(r, 0, sizeof(*r));
	r->area = map_area(FRAMES * 4096);
	r->fd = raw_socket();
	EQ(register_umem(r->fd, r->area, FRAMES * 4096), 0, "XDP_UMEM_REG");
	EQ(set_ring(r->fd, XDP_UMEM_FILL_RING, RING), 0, "XDP_UMEM_FILL_RING");
	EQ(set_ring(r->fd, XDP_UMEM_COMPLETION_RING, RING), 0, "XDP_UMEM_COMPLETION_RING");
	EQ(set_ring(r->fd, XDP_RX_RING, RING), 0, "XDP_RX_RING");
	EQ(set_ring(r->fd, XDP_TX_RING, RING), 0, "XDP_TX_RING");
	EQ(getsockopt(r->fd, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len), 0, "XDP_MMAP_OFFSETS");
	EQ(len, sizeof(off), "length of XDP_MMAP_OFFSETS");
	r->rx = map_ring(r->fd, 0, off.rx.producer, off.rx.consumer, off.rx.flags, off.rx.desc, 16);
	r->tx = map_ring(r->fd, 0x80000000, off.tx.producer, off.tx.consumer, off.tx.flags, off.tx.desc, 16);
	r->fill = map_ring(r->fd, 0x100000000, off.fr.producer, off.fr.consumer, off.fr.flags, off.fr.desc, 8);
	r->comp = map_ring(r->fd, 0x180000000, off.cr.producer, off.cr.consumer, off.cr.flags, off.cr.desc, 8);
}

/* In the order that Go's and Rust's libraries use: unmap, then close. */
static void raw_close(struct raw *r)
{
	const struct ring *rings[] = { &r->rx, &r->tx, &r->fill, &r->comp };

	for (int i = 0; i < 4; i++)
		EQ(munmap(rings[i]->base, rings[i]->length), 0, "munmap of a ring");
	EQ(close(r->fd), 0, "close");
	EQ(munmap(r->area, FRAMES * 4096), 0, "munmap of the UMEM");
}

static void send_frame(struct raw *r, uint32_t chunk)
{
	uint32_t at = *r->tx.producer;

	make_frame(r->area + chunk * 4096, FRAME_LEN, chunk);
	((struct xdp_desc *)r->tx.desc)[at % RING] = (struct xdp_desc){ .addr = chunk * 4096, .len = FRAME_LEN };
	__atomic_store_n(r->tx.producer, at + 1, __ATOMIC_RELEASE);
}

static void give_chunk(struct raw *r, uint32_t chunk)
{
	uint32_t at = *r->fill.producer;

	((uint64_t *)r->fill.desc)[at % RING] = chunk * 4096;
	__atomic_store_n(r->fill.producer, at + 1, __ATOMIC_RELEASE);
}

/* Have the kernel send the queue's frames to this socket. The engine needs nothing. */
static int let_in(int fd, enum port port)
{
	uint32_t key = 0;
	union bpf_attr attr;
	int map = -1;

	if (!on_kernel())
		return -1;
	EQ(xsk_setup_xdp_prog((int)if_nametoindex(ifname_of(port)), &map), 0, "xsk_setup_xdp_prog");
	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map;
	attr.key = (uintptr_t)&key;
	attr.value = (uintptr_t)&fd;
	EQ(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr)), 0, "map update");
	return map;
}

TEST(send_and_receive)
{
	struct footprint before = { 0, 0 };

	for (int round = 0; round < 3; round++) {
		struct raw r;
		struct peer p;
		int map;

		if (round == 1)
			before = footprint();
		raw_open(&r);
		EQ(BUSY_RETRY(bind_to(r.fd, A, 0, XDP_COPY, 0)), 0, "bind");
		map = let_in(r.fd, A);
		peer_open(&p);
		EQ(*r.tx.flags & 1, 1, "wake-up flag");
		for (uint32_t i = 0; i < 32; i++)
			send_frame(&r, i);
		EQ(kick_fd(r.fd), 0, "kick");
		for (uint32_t i = 0; i < 32; i++)
			EQ(peer_receive(&p, FRAME_LEN), i, "frame at the peer");
		EQ(__atomic_load_n(r.comp.producer, __ATOMIC_ACQUIRE), 32, "completions");
		for (uint32_t i = 0; i < 32; i++)
			EQ(((uint64_t *)r.comp.desc)[i], i * 4096, "completed address");
		__atomic_store_n(r.comp.consumer, 32, __ATOMIC_RELEASE);
		for (uint32_t i = 0; i < 8; i++)
			give_chunk(&r, 40 + i);
		for (uint32_t i = 0; i < 8; i++)
			peer_send(&p, FRAME_LEN, i);
		EQ(poll(&(struct pollfd){ .fd = r.fd, .events = POLLIN }, 1, 1000), 1, "poll");
		WAIT_UNTIL(__atomic_load_n(r.rx.producer, __ATOMIC_ACQUIRE) == 8, 1000, "eight frames");
		for (uint32_t i = 0; i < 8; i++) {
			struct xdp_desc d = ((struct xdp_desc *)r.rx.desc)[i];

			EQ(d.addr, (40 + i) * 4096 + HEADROOM, "address");
			EQ(frame_id(r.area + d.addr, d.len), i, "frame");
		}
		__atomic_store_n(r.rx.consumer, 8, __ATOMIC_RELEASE);
		EQ(poll(&(struct pollfd){ .fd = r.fd, .events = POLLIN }, 1, 20), 0, "poll of an empty ring");
		peer_close(&p);
		raw_close(&r);
		if (map >= 0)
			close(map);
		if (round > 0 && provider() != LIBXDP) /* whose xsk_setup_xdp_prog leaks descriptors */
			check_clean(before, "a round");
	}
}

TEST(socket_arguments)
{
	EQ(socket(AF_XDP, SOCK_DGRAM, 0), -1, "SOCK_DGRAM");
	EQ(errno, ESOCKTNOSUPPORT, "SOCK_DGRAM");
	EQ(socket(AF_XDP, SOCK_RAW, 1), -1, "protocol 1");
	EQ(errno, EPROTONOSUPPORT, "protocol 1");
}

/* Each step out of turn. */
TEST(order_of_setting_up)
{
	uint8_t *area = map_area(FRAMES * 4096);
	uint32_t word = 64;
	int fd = raw_socket(), other;
	struct umem_reg reg = { .addr = (uintptr_t)area, .len = FRAMES * 4096, .chunk_size = 4096 };

	EQ(bind_to(fd, A, 0, XDP_COPY, 0), -EINVAL, "bind of nothing");
	EQ(set_ring(fd, XDP_RX_RING, RING), 0, "RX ring without a UMEM");
	EQ(bind_to(fd, A, 0, XDP_COPY, 0), -EINVAL, "bind without a UMEM");
	EQ(set_ring(fd, XDP_UMEM_FILL_RING, RING), 0, "fill ring without a UMEM");
	EQ(set_ring(fd, XDP_RX_RING, RING), -EINVAL, "a second RX ring");
	EQ(set_ring(fd, XDP_TX_RING, 0), -EINVAL, "TX ring of 0");
	EQ(set_ring(fd, XDP_TX_RING, 3), -EINVAL, "TX ring of 3");
	EQ(set(fd, XDP_TX_RING, &word, 2), -EINVAL, "half a word");
	EQ(set(fd, XDP_UMEM_REG, &reg, 23), -EINVAL, "short registration");
	EQ(set(fd, XDP_UMEM_REG, &reg, 24), 0, "old registration");
	EQ(set(fd, XDP_UMEM_REG, &reg, 32), -EBUSY, "second registration");
	EQ(bind_to(fd, A, 0, XDP_COPY, 0), -EINVAL, "bind without a completion ring");
	EQ(set_ring(fd, XDP_UMEM_COMPLETION_RING, RING), 0, "completion ring");
	EQ(bind_to(fd, A, 99, XDP_COPY, 0), -EINVAL, "bind to queue 99");
	EQ(bind_to(fd, A, 0, XDP_COPY | XDP_ZEROCOPY, 0), -EINVAL, "bind with both modes");
	EQ(bind_to(fd, A, 0, XDP_ZEROCOPY, 0), -EOPNOTSUPP, "bind for zero-copy");
	EQ(bind_to(fd, A, 0, 1u << 15, 0), -EINVAL, "bind with an unknown flag");
	EQ(BUSY_RETRY(bind_to(fd, A, 0, XDP_COPY, 0)), 0, "bind");
	EQ(bind_to(fd, A, 0, XDP_COPY, 0), -EBUSY, "bind again");
	EQ(set_ring(fd, XDP_TX_RING, RING), -EBUSY, "TX ring after bind");
	other = raw_socket();
	EQ(register_umem(other, area, FRAMES * 4096), 0, "the memory once more");
	EQ(set_ring(other, XDP_UMEM_FILL_RING, RING), 0, "fill ring");
	EQ(set_ring(other, XDP_UMEM_COMPLETION_RING, RING), 0, "completion ring");
	EQ(set_ring(other, XDP_TX_RING, RING), 0, "TX ring");
	EQ(bind_to(other, A, 0, XDP_COPY, 0), -EBUSY, "bind to a queue that is taken");
	close(other);
	close(fd);
	munmap(area, FRAMES * 4096);
}

static int bind_bytes(int fd, struct sockaddr_xdp addr, socklen_t len)
{
	return bind(fd, (struct sockaddr *)&addr, len) ? -errno : 0;
}

TEST(bind_addresses)
{
	struct sockaddr_xdp addr = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY };
	struct raw r;

	raw_open(&r);
	addr.sxdp_ifindex = if_nametoindex(ifname_of(A));
	EQ(bind_bytes(r.fd, addr, 15), -EINVAL, "short address");
	addr.sxdp_family = AF_INET;
	EQ(bind_bytes(r.fd, addr, sizeof(addr)), -EINVAL, "another family");
	addr.sxdp_family = AF_XDP;
	addr.sxdp_ifindex = 0x7ffffff0;
	EQ(bind_bytes(r.fd, addr, sizeof(addr)), -ENODEV, "no such interface");
	EQ(bind(r.fd, NULL, sizeof(addr)), -1, "no address");
	EQ(errno, EFAULT, "no address");
	addr.sxdp_ifindex = if_nametoindex(ifname_of(A));
	EQ(BUSY_RETRY(bind_bytes(r.fd, addr, sizeof(addr))), 0, "bind");
	raw_close(&r);
}

/* Sharing a UMEM by descriptor. */
TEST(shared_umem)
{
	struct raw r;
	struct peer p;
	int second = raw_socket(), third = raw_socket(), pipes[2];
	struct ring tx;
	struct offsets off;
	socklen_t len = sizeof(off);

	raw_open(&r);
	peer_open(&p);
	EQ(set_ring(second, XDP_TX_RING, RING), 0, "TX ring");
	EQ(bind_to(second, A, 0, XDP_SHARED_UMEM, r.fd), -EBADF, "bind to one that is not bound");
	EQ(BUSY_RETRY(bind_to(r.fd, A, 0, XDP_COPY, 0)), 0, "bind");
	EQ(pipe(pipes), 0, "pipe");
	EQ(bind_to(second, A, 0, XDP_SHARED_UMEM, pipes[0]), -ENOTSOCK, "bind to a pipe");
	EQ(bind_to(second, A, 0, XDP_SHARED_UMEM | XDP_COPY, r.fd), -EINVAL, "shared, with a mode");
	EQ(bind_to(second, A, 0, XDP_SHARED_UMEM | XDP_USE_NEED_WAKEUP, r.fd), -EINVAL, "shared, with need-wakeup");
	EQ(bind_to(second, C, 0, XDP_SHARED_UMEM, r.fd), -EINVAL, "another interface without rings");
	EQ(bind_to(second, A, 0, XDP_SHARED_UMEM, r.fd), 0, "shared");
	EQ(getsockopt(second, SOL_XDP, XDP_MMAP_OFFSETS, &off, &len), 0, "XDP_MMAP_OFFSETS");
	tx = map_ring(second, 0x80000000, off.tx.producer, off.tx.consumer, off.tx.flags, off.tx.desc, 16);
	make_frame(r.area + 5 * 4096, FRAME_LEN, 5);
	((struct xdp_desc *)tx.desc)[0] = (struct xdp_desc){ .addr = 5 * 4096, .len = FRAME_LEN };
	__atomic_store_n(tx.producer, 1, __ATOMIC_RELEASE);
	EQ(kick_fd(second), 0, "kick");
	EQ(peer_receive(&p, FRAME_LEN), 5, "frame");
	EQ(*r.comp.producer, 1, "completion on the shared ring");
	EQ(((uint64_t *)r.comp.desc)[0], 5 * 4096, "its address");
	/* Rings of its own on a queue that has them: refused. */
	EQ(set_ring(third, XDP_TX_RING, RING), 0, "TX ring");
	EQ(set_ring(third, XDP_UMEM_FILL_RING, RING), 0, "fill ring");
	EQ(set_ring(third, XDP_UMEM_COMPLETION_RING, RING), 0, "completion ring");
	EQ(bind_to(third, A, 0, XDP_SHARED_UMEM, r.fd), -EINVAL, "rings of its own on the same queue");
	close(third);
	/* The first one goes, and the UMEM's memory with it. The kernel holds the pages and the second one lives; the engine
	 * cannot hold them, so there it is finished. */
	raw_close(&r);
	EQ(kick_fd(second), on_kernel() ? 0 : ENXIO, "kick");
	munmap(tx.base, tx.length);
	close(second);
	close(pipes[0]);
	close(pipes[1]);
	peer_close(&p);
}

static int map_error(int fd, size_t length, int flags, off_t offset)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, offset);

	if (p == MAP_FAILED)
		return errno;
	munmap(p, length);
	return 0;
}

TEST(mappings)
{
	struct raw r;
	int fd = raw_socket();
	void *again;

	EQ(map_error(fd, 4096, MAP_SHARED, 0), EINVAL, "RX ring that is not there");
	EQ(map_error(fd, 4096, MAP_SHARED, 0x100000000), EINVAL, "fill ring that is not there");
	EQ(map_error(fd, 4096, MAP_SHARED, 0x5000), EINVAL, "no ring's offset");
	close(fd);
	raw_open(&r);
	EQ(map_error(r.fd, 4096, MAP_SHARED, 0), 0, "RX ring once more");
	EQ(map_error(r.fd, 1 << 20, MAP_SHARED, 0), EINVAL, "too much of the RX ring");
	EQ(map_error(r.fd, 4096, MAP_SHARED, 0x80001000), EINVAL, "from within the TX ring");
	again = mmap(NULL, r.tx.length, PROT_READ, MAP_SHARED, r.fd, 0x80000000);
	CHECK(again != MAP_FAILED, "TX ring, read-only: %s", strerror(errno));
	EQ(BUSY_RETRY(bind_to(r.fd, A, 0, XDP_COPY, 0)), 0, "bind");
	send_frame(&r, 1);
	EQ(*(uint32_t *)((uint8_t *)again + ((uint8_t *)r.tx.producer - r.tx.base)), 1, "the same memory");
	EQ(kick_fd(r.fd), 0, "kick");
	EQ(munmap(again, r.tx.length), 0, "munmap");
	/* Mappings outlive the descriptor. */
	EQ(close(r.fd), 0, "close");
	EQ(*r.tx.consumer, 1, "a ring after its socket was closed");
	EQ(munmap(r.rx.base, r.rx.length) | munmap(r.tx.base, r.tx.length) | munmap(r.fill.base, r.fill.length) |
		   munmap(r.comp.base, r.comp.length),
	   0, "munmap");
	munmap(r.area, FRAMES * 4096);
}

/* C32. The length of TX metadata counts when the flag says that there is any. */
TEST(C32_metadata_lengths)
{
	static const struct { uint32_t flags, length; int want; } cases[] = {
		{ 4, 8, 0 }, { 4, 16, 0 }, { 4, 248, 0 }, { 4, 12, -EINVAL }, { 4, 256, -EINVAL }, { 0, 16, 0 }, { 0, 13, 0 }, { 8, 0, -EINVAL },
	};
	uint8_t *area = map_area(FRAMES * 4096);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct umem_reg reg = { .addr = (uintptr_t)area, .len = FRAMES * 4096, .chunk_size = 4096,
					.flags = cases[i].flags, .tx_metadata_len = cases[i].length };
		int fd = raw_socket(), ret = set(fd, XDP_UMEM_REG, &reg, sizeof(reg));

		CHECK(ret == cases[i].want, "flags %u, length %u: %d", cases[i].flags, cases[i].length, ret);
		close(fd);
	}
	munmap(area, FRAMES * 4096);
}

/* Without MSG_DONTWAIT, without rings and so on: as through libxdp. */
TEST(calls_before_bind)
{
	struct raw r;

	raw_open(&r);
	EQ(kick_fd(r.fd), ENXIO, "kick");
	EQ(recv(r.fd, NULL, 0, MSG_DONTWAIT), -1, "recv");
	EQ(errno, ENXIO, "recv");
	EQ(poll(&(struct pollfd){ .fd = r.fd, .events = POLLIN | POLLOUT }, 1, 10), 0, "poll");
	EQ(rig_statistics(r.fd).tx_ring_empty_descs, 0, "statistics");
	raw_close(&r);
}
