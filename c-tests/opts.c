/* The calls that libxdp has since 1.4 and 1.5 and that older ones lack, so only our library is tested: structs of other
 * sizes, pointers and errno, and who owns a descriptor that is handed in. */
#include "peer.h"

#include <fcntl.h>
#include <slipring.h>

struct pieces {
	uint8_t *area;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
};

#define AREA (64 * 4096)

static void pieces(struct pieces *p)
{
	memset(p, 0, sizeof(*p));
	p->area = map_area(AREA);
}

static struct xsk_umem_opts umem_opts(void)
{
	DECLARE_LIBXDP_OPTS(xsk_umem_opts, opts, .size = AREA, .fill_size = 64, .comp_size = 128);

	return opts;
}

static struct xsk_socket_opts socket_opts(struct pieces *p)
{
	DECLARE_LIBXDP_OPTS(xsk_socket_opts, opts, .rx = &p->rx, .tx = &p->tx, .rx_size = 64, .tx_size = 128,
			    .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD, .bind_flags = XDP_COPY);

	return opts;
}

/* NULL and errno, or the test fails. */
#define NO_POINTER(call, want, what)                                                     \
	do {                                                                             \
		errno = 0;                                                               \
		CHECK(!(call), "%s: succeeded", what);                                   \
		EQ(errno, want, what);                                                   \
	} while (0)

TEST(C34_umem_opts_errors)
{
	struct xsk_umem_opts opts = umem_opts();
	struct pieces p;

	pieces(&p);
	NO_POINTER(xsk_umem__create_opts(NULL, &p.fill, &p.comp, &opts), EFAULT, "no memory");
	NO_POINTER(xsk_umem__create_opts(p.area, NULL, &p.comp, &opts), EFAULT, "no fill ring");
	NO_POINTER(xsk_umem__create_opts(p.area, &p.fill, NULL, &opts), EFAULT, "no completion ring");
	NO_POINTER(xsk_umem__create_opts(p.area, &p.fill, &p.comp, NULL), EINVAL, "no opts, so no size");
	opts.size = 0;
	NO_POINTER(xsk_umem__create_opts(p.area, &p.fill, &p.comp, &opts), EINVAL, "size 0");
	opts = umem_opts();
	opts.frame_size = 1000;
	NO_POINTER(xsk_umem__create_opts(p.area, &p.fill, &p.comp, &opts), EINVAL, "frames of 1000");
}

TEST(C34_socket_opts_errors)
{
	struct xsk_umem_opts uopts = umem_opts();
	struct xsk_socket_opts opts;
	struct xsk_umem *umem;
	struct pieces p;

	pieces(&p);
	umem = xsk_umem__create_opts(p.area, &p.fill, &p.comp, &uopts);
	CHECK(umem, "xsk_umem__create_opts: %s", strerror(errno));
	opts = socket_opts(&p);
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, NULL, &opts), EFAULT, "no umem");
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, NULL), EFAULT, "no opts, so no rings");
	opts.rx = NULL;
	opts.tx = NULL;
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, &opts), EFAULT, "neither RX nor TX");
	opts = socket_opts(&p);
	opts.fill = &p.fill;
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, &opts), EFAULT, "fill without completion");
	opts = socket_opts(&p);
	opts.libxdp_flags = 2;
	NO_POINTER(xsk_socket__create_opts("nosuchif0", 0, umem, &opts), EINVAL, "unknown flag, before the name");
	opts = socket_opts(&p);
	NO_POINTER(xsk_socket__create_opts("nosuchif0", 0, umem, &opts), ENODEV, "unknown interface");
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 99, umem, &opts), EINVAL, "queue 99");
	opts.sz = 4;
	NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, NULL, &opts), EINVAL, "bad size, before the umem");
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
}

/* 2.2: a field counts when it lies wholly inside sz; what is beyond the last one must be zero. */
TEST(umem_opts_of_other_sizes)
{
	static const struct {
		size_t sz;
		uint32_t fill, comp; /* 0: EINVAL */
	} cases[] = { { 0, 0, 0 },	{ 4, 0, 0 },	{ 7, 0, 0 },	{ 8, 0, 0 },	  { 20, 0, 0 },	   { 24, 2048, 2048 },
		      { 27, 2048, 2048 }, { 28, 64, 2048 }, { 32, 64, 128 }, { 47, 64, 128 }, { 48, 64, 128 }, { 64, 64, 128 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		union {
			struct xsk_umem_opts opts;
			uint8_t bytes[128];
		} u;
		struct xsk_umem *umem;
		struct pieces p;

		pieces(&p);
		memset(&u, 0, sizeof(u));
		u.opts = umem_opts();
		u.opts.sz = cases[i].sz;
		umem = xsk_umem__create_opts(p.area, &p.fill, &p.comp, &u.opts);
		CHECK(!umem == !cases[i].fill, "sz %zu: %s", cases[i].sz, umem ? "succeeded" : strerror(errno));
		if (umem) {
			EQ(p.fill.size, cases[i].fill, "fill size");
			EQ(p.comp.size, cases[i].comp, "completion size");
			EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
		}
		/* One byte behind the last known field. */
		u.opts.sz = 128;
		u.bytes[100] = 1;
		NO_POINTER(xsk_umem__create_opts(p.area, &p.fill, &p.comp, &u.opts), EINVAL, "unknown field with content");
		munmap(p.area, AREA);
	}
}

TEST(socket_opts_of_other_sizes)
{
	static const struct {
		size_t sz;
		int want; /* errno, 0: success */
	} cases[] = { { 7, EINVAL }, { 8, EFAULT }, { 32, EFAULT }, { 52, 0 }, { 57, 0 }, { 58, 0 }, { 64, 0 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct xsk_umem_opts uopts = umem_opts();
		struct xsk_socket_opts opts;
		struct xsk_socket *xsk;
		struct xsk_umem *umem;
		struct pieces p;

		pieces(&p);
		umem = xsk_umem__create_opts(p.area, &p.fill, &p.comp, &uopts);
		CHECK(umem, "xsk_umem__create_opts: %s", strerror(errno));
		opts = socket_opts(&p);
		opts.fill = &p.fill;
		opts.comp = &p.comp;
		opts.sz = cases[i].sz;
		memset((uint8_t *)&opts + 58, cases[i].sz == 58 ? 0xff : 0, 6); /* padding counts from sz 59 on */
		errno = 0;
		xsk = xsk_socket__create_opts(ifname_of(A), 0, umem, &opts);
		CHECK(!xsk == !!cases[i].want, "sz %zu: %s", cases[i].sz, xsk ? "succeeded" : strerror(errno));
		if (xsk) {
			EQ(p.rx.size, 64, "RX size");
			EQ(p.tx.size, 128, "TX size");
		} else {
			EQ(errno, cases[i].want, "errno");
		}
		xsk_socket__delete(xsk);
		((uint8_t *)&opts)[60] = 1;
		opts.sz = 64;
		NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, &opts), EINVAL, "padding with content");
		EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
		munmap(p.area, AREA);
	}
}

/* What opts make works like the rest, and without a word (C64). */
TEST(C64_sockets_by_opts_work)
{
	struct xsk_umem_opts uopts = umem_opts();
	struct xsk_socket_opts opts;
	struct xsk_umem *umem;
	struct xsk_socket *xsk;
	struct pieces p;
	struct peer far;
	uint32_t idx = 0;

	pieces(&p);
	hear_stderr();
	umem = xsk_umem__create_opts(p.area, &p.fill, &p.comp, &uopts);
	CHECK(umem, "xsk_umem__create_opts: %s", strerror(errno));
	opts = socket_opts(&p);
	opts.libxdp_flags = 0;
	xsk = xsk_socket__create_opts(ifname_of(A), 0, umem, &opts);
	CHECK(xsk, "xsk_socket__create_opts: %s", strerror(errno));
	peer_open(&far);
	EQ(xsk_ring_prod__reserve(&p.fill, 1, &idx), 1, "fill");
	*xsk_ring_prod__fill_addr(&p.fill, idx) = 8192;
	xsk_ring_prod__submit(&p.fill, 1);
	peer_send(&far, FRAME_LEN, 5);
	WAIT_UNTIL(xsk_ring_cons__peek(&p.rx, 1, &idx) == 1, 1000, "a frame");
	EQ(xsk_ring_cons__rx_desc(&p.rx, idx)->addr, 8192 + HEADROOM, "address");
	EQ(frame_id(p.area + 8192 + HEADROOM, FRAME_LEN), 5, "frame");
	EQ(xsk_ring_prod__reserve(&p.tx, 1, &idx), 1, "room");
	*xsk_ring_prod__tx_desc(&p.tx, idx) = (struct xdp_desc){ .addr = 8192 + HEADROOM, .len = FRAME_LEN };
	xsk_ring_prod__submit(&p.tx, 1);
	EQ(kick_fd(xsk_socket__fd(xsk)), 0, "kick");
	EQ(peer_receive(&far, FRAME_LEN), 5, "frame at the peer");
	peer_close(&far);
	xsk_socket__delete(xsk);
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	stderr_was_silent("a life by opts");
}

/* C56. A program that only sends makes its UMEM without a fill ring. The old calls still want one. */
TEST(C56_without_a_fill_ring)
{
	struct xsk_umem_opts uopts = umem_opts();
	struct xsk_socket_opts opts;
	struct footprint before = { 0, 0 };

	for (int round = 0; round < 2; round++) {
		struct xsk_umem *umem;
		struct xsk_socket *xsk;
		struct pieces p;
		struct peer far;
		uint32_t done = 0;

		if (round == 1)
			before = footprint();
		pieces(&p);
		NO_POINTER(xsk_umem__create_opts(p.area, NULL, &p.comp, &uopts), EFAULT, "the old call");
		NO_POINTER(slipring_umem_create_tx(p.area, NULL, &uopts), EFAULT, "no completion ring");
		umem = slipring_umem_create_tx(p.area, &p.comp, &uopts);
		CHECK(umem, "slipring_umem_create_tx: %s", strerror(errno));
		opts = socket_opts(&p);
		NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, &opts), EFAULT, "a socket that receives");
		opts.rx = NULL;
		xsk = xsk_socket__create_opts(ifname_of(A), 0, umem, &opts);
		CHECK(xsk, "xsk_socket__create_opts: %s", strerror(errno));
		peer_open(&far);
		for (uint32_t i = 0; i < 10000; i++) {
			uint32_t idx = 0;

			if (i < 32)
				make_frame(p.area + i * 4096, FRAME_LEN, i);
			while (!xsk_ring_prod__reserve(&p.tx, 1, &idx)) {
				kick_fd(xsk_socket__fd(xsk));
				done += take_completions(&p.comp, NULL, 64);
			}
			*xsk_ring_prod__tx_desc(&p.tx, idx) = (struct xdp_desc){ .addr = i % 32 * 4096, .len = FRAME_LEN };
			xsk_ring_prod__submit(&p.tx, 1);
			if (i % 32 == 31) {
				kick_fd(xsk_socket__fd(xsk));
				done += take_completions(&p.comp, NULL, 64);
			}
		}
		WAIT_UNTIL((kick_fd(xsk_socket__fd(xsk)), done += take_completions(&p.comp, NULL, 64)) == 10000, 2000, "completions");
		EQ(peer_receive(&far, FRAME_LEN), 0, "the first frame");
		/* Who brings structs for both rings may receive after all. */
		{
			struct xsk_ring_prod tx;
			struct xsk_socket *second;

			opts = socket_opts(&p);
			opts.tx = &tx;
			NO_POINTER(xsk_socket__create_opts(ifname_of(A), 0, umem, &opts), EFAULT, "a second one that receives");
			opts.fill = &p.fill;
			opts.comp = &p.comp;
			second = xsk_socket__create_opts(ifname_of(A), 0, umem, &opts);
			CHECK(second, "xsk_socket__create_opts with fill and comp: %s", strerror(errno));
			EQ(p.fill.size, 64, "fill ring");
			xsk_socket__delete(second);
		}
		peer_close(&far);
		xsk_socket__delete(xsk);
		EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
		munmap(p.area, AREA);
	}
	check_clean(before, "a round");
}

/* Padding of the old structs is not looked at. */
TEST(padding_is_ignored)
{
	struct xsk_socket_config config;
	struct xsk_umem *umem = NULL;
	struct xsk_socket *xsk = NULL;
	struct pieces p;

	pieces(&p);
	EQ(xsk_umem__create(&umem, p.area, AREA, &p.fill, &p.comp, NULL), 0, "xsk_umem__create");
	memset(&config, 0xff, sizeof(config));
	config.rx_size = 64;
	config.tx_size = 64;
	config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
	config.xdp_flags = 0;
	config.bind_flags = XDP_COPY;
	EQ(xsk_socket__create(&xsk, ifname_of(A), 0, umem, &p.rx, &p.tx, &config), 0, "xsk_socket__create");
	xsk_socket__delete(xsk);
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* A descriptor that is handed in belongs to the library on success, and is closed when the kernel's part fails. */
TEST(D26_whose_descriptor)
{
	struct xsk_umem_config config = { .fill_size = 64, .comp_size = 64, .frame_size = 4096 };
	struct xsk_umem *umem = NULL;
	struct pieces p;
	int fd;

	pieces(&p);
	fd = socket(AF_XDP, SOCK_RAW, 0);
	CHECK(fd >= 0, "socket: %s", strerror(errno));
	EQ(xsk_umem__create_with_fd(&umem, fd, NULL, AREA, &p.fill, &p.comp, &config), -EFAULT, "no memory");
	CHECK(is_open(fd), "closed for a missing argument");
	EQ(xsk_umem__create_with_fd(&umem, fd, p.area, AREA, &p.fill, &p.comp, &config), 0, "with a descriptor");
	EQ(xsk_umem__fd(umem), fd, "the umem's descriptor");
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	CHECK(!is_open(fd), "still open after xsk_umem__delete");

	fd = socket(AF_XDP, SOCK_RAW, 0);
	config.frame_size = 1000;
	EQ(xsk_umem__create_with_fd(&umem, fd, p.area, AREA, &p.fill, &p.comp, &config), -EINVAL, "frames of 1000");
	CHECK(!is_open(fd), "still open after a failure");
	config.frame_size = 4096;

	EQ(xsk_umem__create_with_fd(&umem, 999, p.area, AREA, &p.fill, &p.comp, &config), -EBADF, "no descriptor");
	fd = open("/dev/null", O_RDWR);
	EQ(xsk_umem__create_with_fd(&umem, fd, p.area, AREA, &p.fill, &p.comp, &config), -ENOTSOCK, "/dev/null");
	CHECK(!is_open(fd), "still open after ENOTSOCK");
	EQ(xsk_umem__create_with_fd(&umem, -5, p.area, AREA, &p.fill, &p.comp, &config), 0, "-5: make one");
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
}

/* What a program puts before its frame, and finds there when the frame has completed. (Kernel headers may be older.) */
struct tx_metadata {
	uint64_t flags;
	union {
		struct {
			uint16_t csum_start, csum_offset;
		} request;
		uint64_t tx_timestamp;
	};
};
#define METADATA_TIMESTAMP 1u
#define METADATA_CHECKSUM 2u
#define DESC_METADATA 2u
#define UMEM_SW_CSUM 2u
#define UMEM_METADATA 4u

/* One's complement sum of n bytes, n even. */
static uint16_t sum_of(const uint8_t *at, uint32_t n)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i += 2)
		sum += (uint32_t)at[i] << 8 | at[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* C32, C33. TX metadata: the checksum is filled in, the time is there at completion, and what the kernel does not know is
 * refused with the frame completed. UMEM flags count whatever the length of the metadata is. */
TEST(C32_C33_metadata_of_frames)
{
	struct xsk_socket_opts socket;
	struct xsk_umem_opts opts = umem_opts();
	struct tx_metadata *meta;
	uint8_t frame[FRAME_LEN];
	struct peer peer;
	struct rig r = { 0 };

	if (!on_kernel())
		skip("devices of the engine take no TX metadata");
	r.area = map_area(AREA);
	r.size = AREA;
	opts.flags = 1;
	opts.frame_size = 3000;
	r.umem = xsk_umem__create_opts(r.area, &r.fill, &r.comp, &opts);
	CHECK(r.umem, "unaligned chunks of 3000 bytes: %s", strerror(errno));
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");

	opts = umem_opts();
	opts.flags = UMEM_METADATA | UMEM_SW_CSUM;
	opts.tx_metadata_len = sizeof(*meta);
	r.umem = xsk_umem__create_opts(r.area, &r.fill, &r.comp, &opts);
	if (!r.umem && errno == EINVAL)
		skip("this kernel knows no TX metadata");
	CHECK(r.umem, "xsk_umem__create_opts: %s", strerror(errno));
	DECLARE_LIBXDP_OPTS(xsk_socket_opts, only_tx, .tx = &r.tx, .tx_size = 64,
			    .libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD, .bind_flags = XDP_COPY);
	socket = only_tx;
	r.xsk = xsk_socket__create_opts(ifname_of(A), 0, r.umem, &socket);
	CHECK(r.xsk, "xsk_socket__create_opts: %s", strerror(errno));
	peer_open(&peer);

	meta = (struct tx_metadata *)r.area;
	*meta = (struct tx_metadata){ .flags = METADATA_TIMESTAMP | METADATA_CHECKSUM, .request = { .csum_start = 14, .csum_offset = 6 } };
	make_frame(r.area + sizeof(*meta), FRAME_LEN, 1);
	memset(r.area + sizeof(*meta) + 20, 0, 2);
	rig_queue_at(&r, sizeof(*meta), FRAME_LEN, DESC_METADATA);
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_receive_bytes(&peer, frame, sizeof(frame), 1000), FRAME_LEN, "length of the frame at the peer");
	CHECK(frame[20] || frame[21], "no checksum");
	EQ(sum_of(frame + 14, FRAME_LEN - 14), 0xffff, "sum of the frame with its checksum");
	rig_complete(&r, 1);
	CHECK(meta->tx_timestamp, "no time of completion");

	*meta = (struct tx_metadata){ .flags = 1u << 31 };
	rig_queue_at(&r, sizeof(*meta), FRAME_LEN, DESC_METADATA);
	EQ(rig_kick(&r), EINVAL, "kick with an unknown request");
	EQ(peer_receive_bytes(&peer, frame, sizeof(frame), 100), -1, "nothing at the peer");
	EQ(ring_entries(&r.comp), 1, "the frame completed");
	peer_close(&peer);
	rig_close(&r);
}
