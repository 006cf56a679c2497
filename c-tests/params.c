/* Parameters at creation: what is refused, with which error, and that nothing is left behind. */
#include "peer.h"

#define DEFAULTED 0xffffffffu

/* xsk_umem__create with one thing changed. Returns what it returns; deletes what it made. */
struct attempt {
	uint32_t fill, comp, frame, headroom, flags;
	uint64_t size;
	uint32_t area_offset;
};

static int umem_attempt(struct attempt a)
{
	struct xsk_umem_config config = {
		.fill_size = a.fill ? a.fill : 64,
		.comp_size = a.comp ? a.comp : 64,
		.frame_size = a.frame ? a.frame : 4096,
		.frame_headroom = a.headroom,
		.flags = a.flags,
	};
	struct xsk_umem *const untouched = (struct xsk_umem *)&config;
	struct xsk_umem *umem = untouched;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	uint64_t size = a.size ? a.size : 64 * 4096;
	uint8_t *area;
	int ret;

	memset(&fill, 0, sizeof(fill));
	memset(&comp, 0, sizeof(comp));
	area = map_area((1 << 20) + 4096);
	if (size == DEFAULTED)
		size = 0;
	ret = xsk_umem__create(&umem, area + a.area_offset, size, &fill, &comp, &config);
	if (ret) {
		CHECK(umem == untouched, "the umem pointer was written on failure %d", ret);
		EQ(errno, -ret, "errno");
	} else {
		EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	}
	munmap(area, (1 << 20) + 4096);
	return ret;
}

/* Leaves the process as it was, also the first time round. */
static void refused(const char *what, struct attempt a, int want)
{
	struct footprint before;

	umem_attempt((struct attempt){ 0 });
	before = footprint();
	EQ(umem_attempt(a), want, what);
	check_clean(before, what);
}

TEST(C23_umem_parameters)
{
	refused("fill ring of 1000", (struct attempt){ .fill = 1000 }, -EINVAL);
	refused("completion ring of 1000", (struct attempt){ .comp = 1000 }, -EINVAL);
	refused("frames of 1024", (struct attempt){ .frame = 1024 }, -EINVAL);
	refused("frames of 3000, aligned", (struct attempt){ .frame = 3000, .size = 30000 }, -EINVAL);
	refused("frames of 8192", (struct attempt){ .frame = 8192 }, -EINVAL);
	refused("memory that begins within a page", (struct attempt){ .area_offset = 64 }, -EINVAL);
	refused("size that is no multiple", (struct attempt){ .size = 64 * 4096 + 1 }, -EINVAL);
	refused("size 0", (struct attempt){ .size = DEFAULTED }, -EINVAL);
	refused("size below one frame", (struct attempt){ .size = 4095 }, -EINVAL);
	refused("head room of a whole frame", (struct attempt){ .headroom = 4096 }, -EINVAL);
	refused("unknown flag", (struct attempt){ .flags = 1u << 31 }, -EINVAL);
}

TEST(C27_headroom_limits)
{
	refused("head room 3392 of 4096", (struct attempt){ .headroom = 3392 }, 0);
	refused("head room 3393 of 4096", (struct attempt){ .headroom = 3393 }, -EINVAL);
	refused("head room 1344 of 2048", (struct attempt){ .frame = 2048, .headroom = 1344 }, 0);
	refused("head room 1345 of 2048", (struct attempt){ .frame = 2048, .headroom = 1345 }, -EINVAL);
	refused("head room near 2^32", (struct attempt){ .headroom = 0xfffffff0 }, -EINVAL);
}

TEST(C24_C26_frame_sizes)
{
	const uint32_t unaligned = XDP_UMEM_UNALIGNED_CHUNK_FLAG;

	refused("2304, aligned", (struct attempt){ .frame = 2304, .size = 2304 * 16 }, -EINVAL);
	refused("2304, unaligned", (struct attempt){ .frame = 2304, .flags = unaligned }, 0);
	refused("3000, unaligned", (struct attempt){ .frame = 3000, .flags = unaligned }, 0);
	refused("2048, unaligned", (struct attempt){ .frame = 2048, .flags = unaligned }, 0);
	refused("4096, unaligned", (struct attempt){ .frame = 4096, .flags = unaligned }, 0);
	refused("1800, unaligned", (struct attempt){ .frame = 1800, .flags = unaligned }, -EINVAL);
	refused("2047, unaligned", (struct attempt){ .frame = 2047, .flags = unaligned }, -EINVAL);
	refused("4097, unaligned", (struct attempt){ .frame = 4097, .flags = unaligned }, -EINVAL);
	refused("9728, unaligned", (struct attempt){ .frame = 9728, .flags = unaligned }, -EINVAL);
	refused("9728, aligned", (struct attempt){ .frame = 9728, .size = 9728 * 16 }, -EINVAL);
	refused("size that is no multiple, unaligned", (struct attempt){ .size = 64 * 4096 + 1, .flags = unaligned }, 0);
}

TEST(C55_ring_sizes)
{
	refused("rings of 1", (struct attempt){ .fill = 1, .comp = 1 }, 0);
	refused("rings of 2", (struct attempt){ .fill = 2, .comp = 2 }, 0);
	refused("fill ring of 511", (struct attempt){ .fill = 511 }, -EINVAL);
	refused("completion ring of 1022", (struct attempt){ .comp = 1022 }, -EINVAL);
	refused("fill ring of 2^31 + 1", (struct attempt){ .fill = 0x80000001 }, -EINVAL);
}

/* NULL configuration: the defaults. */
TEST(umem_defaults)
{
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	struct xsk_umem *umem = NULL;
	uint8_t *area = map_area(1 << 20);

	memset(&fill, 0x5a, sizeof(fill)); /* not zeroed by the caller: case D27 */
	memset(&comp, 0x5a, sizeof(comp));
	EQ(xsk_umem__create(&umem, area, 1 << 20, &fill, &comp, NULL), 0, "xsk_umem__create");
	EQ(fill.size, 2048, "fill size");
	EQ(fill.mask, 2047, "fill mask");
	EQ(comp.size, 2048, "completion size");
	EQ(comp.mask, 2047, "completion mask");
	EQ(fill.cached_cons, 2048, "fill cached_cons");
	if (provider() != LIBXDP) {
		EQ(fill.cached_prod, 0, "fill cached_prod");
		EQ(comp.cached_prod, 0, "completion cached_prod");
		EQ(comp.cached_cons, 0, "completion cached_cons");
	}
	EQ(*fill.producer, 0, "fill producer");
	EQ(*comp.producer, 0, "completion producer");
	*(uint64_t *)comp.ring = 1; /* completion entries are writable: Open vSwitch does that */
	CHECK(xsk_umem__fd(umem) >= 0, "fd %d", xsk_umem__fd(umem));
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	munmap(area, 1 << 20);
}

/* 0 in the configuration means the default, since 1.5. */
TEST(C55_zero_is_default)
{
	struct xsk_umem_config umem_config;
	struct xsk_socket_config config;
	struct xsk_socket *xsk = NULL;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct xsk_umem *umem = NULL;
	uint8_t *area = map_area(1 << 20);

	not_libxdp("1.3.1 hands 0 to the kernel");
	memset(&umem_config, 0, sizeof(umem_config));
	memset(&config, 0, sizeof(config));
	EQ(xsk_umem__create(&umem, area, 1 << 20, &fill, &comp, &umem_config), 0, "xsk_umem__create");
	EQ(fill.size, 2048, "fill size");
	EQ(comp.size, 2048, "completion size");
	EQ(xsk_socket__create(&xsk, ifname_of(A), 0, umem, &rx, &tx, &config), 0, "xsk_socket__create");
	EQ(rx.size, 2048, "RX size");
	EQ(tx.size, 2048, "TX size");
	EQ(tx.mask, 2047, "TX mask");
	xsk_socket__delete(xsk);
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	munmap(area, 1 << 20);
}

/* Arguments that are missing. */
TEST(C34_null_arguments)
{
	struct xsk_socket_config config;
	struct xsk_socket *xsk = NULL;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct xsk_umem *umem = NULL;
	uint8_t *area = map_area(1 << 20);

	memset(&fill, 0, sizeof(fill));
	memset(&comp, 0, sizeof(comp));
	memset(&config, 0, sizeof(config));
	EQ(xsk_umem__create(NULL, area, 1 << 20, &fill, &comp, NULL), -EFAULT, "no umem pointer");
	EQ(xsk_umem__create(&umem, NULL, 1 << 20, &fill, &comp, NULL), -EFAULT, "no memory");
	EQ(xsk_umem__create(&umem, area, 1 << 20, NULL, &comp, NULL), -EFAULT, "no fill ring");
	EQ(xsk_umem__create(&umem, area, 1 << 20, &fill, NULL, NULL), -EFAULT, "no completion ring");
	EQ(xsk_umem__delete(NULL), 0, "deleting no umem");
	xsk_socket__delete(NULL);
	EQ(xsk_umem__fd(NULL), -EINVAL, "fd of no umem");
	EQ(xsk_socket__fd(NULL), -EINVAL, "fd of no socket");
	EQ(xsk_umem__create(&umem, area, 1 << 20, &fill, &comp, NULL), 0, "xsk_umem__create");
	EQ(xsk_socket__create(NULL, ifname_of(A), 0, umem, &rx, &tx, NULL), -EFAULT, "no socket pointer");
	EQ(xsk_socket__create(&xsk, ifname_of(A), 0, NULL, &rx, &tx, NULL), -EFAULT, "no umem");
	EQ(xsk_socket__create(&xsk, ifname_of(A), 0, umem, NULL, NULL, NULL), -EFAULT, "neither RX nor TX");
	EQ(xsk_socket__create_shared(&xsk, ifname_of(A), 0, umem, &rx, &tx, &fill, NULL, NULL), -EFAULT, "fill without completion");
	EQ(xsk_socket__create_shared(&xsk, ifname_of(A), 0, umem, &rx, &tx, NULL, &comp, NULL), -EFAULT, "completion without fill");
	CHECK(!xsk, "the socket pointer was written on failure");
	EQ(xsk_umem__delete(umem), 0, "xsk_umem__delete");
	munmap(area, 1 << 20);
}

/* A socket's parameters, one wrong at a time, on one umem, which still works in the end. */
TEST(C34_C46_C52_socket_parameters)
{
	static const struct {
		const char *what, *ifname;
		uint32_t queue, rx, tx, libxdp_flags;
		uint16_t bind_flags;
		int want;
	} cases[] = {
		{ "unknown interface", "nosuchif0", 0, 64, 64, 1, XDP_COPY, -ENODEV },
		{ "empty name", "", 0, 64, 64, 1, XDP_COPY, -ENODEV },
		{ "name of 16 characters", "abcdefghijklmnop", 0, 64, 64, 1, XDP_COPY, -ENODEV },
		{ "unknown libxdp flag", "nosuchif0", 0, 64, 64, 2, XDP_COPY, -EINVAL },
		{ "RX ring of 1000", NULL, 0, 1000, 64, 1, XDP_COPY, -EINVAL },
		{ "TX ring of 1000", NULL, 0, 64, 1000, 1, XDP_COPY, -EINVAL },
		{ "queue 99", NULL, 99, 64, 64, 1, XDP_COPY, -EINVAL },
		{ "queue 1 of 1", NULL, 1, 64, 64, 1, XDP_COPY, -EINVAL },
		{ "queue 2^32-1", NULL, 0xffffffff, 64, 64, 1, XDP_COPY, -EINVAL },
		{ "zero-copy", NULL, 0, 64, 64, 1, XDP_ZEROCOPY, -EOPNOTSUPP },
		{ "zero-copy and need-wakeup", NULL, 0, 64, 64, 1, XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP, -EOPNOTSUPP },
		{ "copy and zero-copy", NULL, 0, 64, 64, 1, XDP_COPY | XDP_ZEROCOPY, -EINVAL },
		{ "shared umem asked for", NULL, 0, 64, 64, 1, XDP_SHARED_UMEM, -EINVAL },
		{ "unknown bind flag", NULL, 0, 64, 64, 1, 1u << 15, -EINVAL },
		{ "next unknown bind flag", NULL, 0, 64, 64, 1, 1u << 5, -EINVAL },
	};
	struct rig r;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *ifname = cases[i].ifname ? cases[i].ifname : ifname_of(A);
		struct xsk_socket_config config;
		struct footprint before, without;

		/* A new umem for each: on libxdp a ring size that was once accepted stays. */
		without = footprint();
		memset(&r, 0, sizeof(r));
		r.opt = rig_defaults((struct rig_options){ .rx = 64, .tx = 64 });
		r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
		r.area = map_area(r.size);
		EQ(rig_umem(&r), 0, "xsk_umem__create");
		before = footprint();
		config = (struct xsk_socket_config){ .rx_size = cases[i].rx, .tx_size = cases[i].tx,
						     .libbpf_flags = cases[i].libxdp_flags,
						     .bind_flags = cases[i].bind_flags };
		errno = 0;
		EQ(BUSY_RETRY(xsk_socket__create(&r.xsk, ifname, cases[i].queue, r.umem, &r.rx, &r.tx, &config)),
		   cases[i].want, cases[i].what);
		if (provider() != LIBXDP) /* 1.3.1 does not set it everywhere */
			EQ(errno, -cases[i].want, cases[i].what);
		CHECK(!r.xsk, "%s: the socket pointer was written", cases[i].what);
		/* Rings that were made on the umem's own descriptor may stay mapped for the next attempt, until the umem goes. */
		EQ(footprint().descriptors, before.descriptors, cases[i].what);
		/* C52: the next attempt on the same umem is as if it were the first. */
		config = (struct xsk_socket_config){ .rx_size = 64, .tx_size = 64, .libbpf_flags = 1, .bind_flags = XDP_COPY };
		if (cases[i].rx == 64 && cases[i].tx == 64)
			EQ(BUSY_RETRY(xsk_socket__create(&r.xsk, ifname_of(A), 0, r.umem, &r.rx, &r.tx, &config)), 0,
			   cases[i].what);
		xsk_socket__delete(r.xsk);
		EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
		munmap(r.area, r.size);
		if (i > 0) /* the first was to warm up */
			check_clean(without, cases[i].what);
	}
}

/* A first attempt for RX alone fails, the second asks for both rings. */
TEST(C52_retry_with_another_ring)
{
	struct xsk_socket_config config;
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	memset(&r, 0, sizeof(r));
	r.opt = rig_defaults((struct rig_options){ 0 });
	r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
	r.area = map_area(r.size);
	EQ(rig_umem(&r), 0, "xsk_umem__create");
	config = rig_config(&r.opt);
	EQ(xsk_socket__create(&r.xsk, ifname_of(A), 99, r.umem, &r.rx, NULL, &config), -EINVAL, "queue 99");
	rig_fill(&r, 0, 8);
	EQ(xsk_socket__create(&r.xsk, ifname_of(A), 0, r.umem, &r.rx, &r.tx, &config), 0, "queue 0");
	peer_open(&p);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "no frame");
	rig_queue(&r, 100, 1);
	EQ(rig_kick(&r), 0, "kick");
	EQ(peer_receive(&p, FRAME_LEN), 100, "frame");
	peer_close(&p);
	rig_close(&r);
}

/* A queue that another umem's socket holds is busy; when that is gone it is free. */
TEST(busy_queue)
{
	struct xsk_socket_config config;
	struct rig r, other;

	rig_open(&r, (struct rig_options){ 0 });
	memset(&other, 0, sizeof(other));
	other.opt = rig_defaults((struct rig_options){ 0 });
	other.size = (uint64_t)other.opt.chunk * other.opt.chunks;
	other.area = map_area(other.size);
	EQ(rig_umem(&other), 0, "xsk_umem__create");
	config = rig_config(&other.opt);
	EQ(xsk_socket__create(&other.xsk, ifname_of(A), 0, other.umem, &other.rx, &other.tx, &config), -EBUSY, "taken queue");
	EQ(errno, EBUSY, "errno");
	rig_close(&r);
	EQ(BUSY_RETRY(xsk_socket__create(&other.xsk, ifname_of(A), 0, other.umem, &other.rx, &other.tx, &config)), 0,
	   "free queue");
	rig_close(&other);
}
