/* What a person is told: success is silent, and a failure says in one line what was wrong and what to do. */
#include "listen.h"
#include "peer.h"

static int umem(struct xsk_umem_config config, uint64_t size, unsigned offset)
{
	struct xsk_umem *umem = NULL;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	uint8_t *area = map_area((1 << 20) + 4096);
	int ret;

	hear_nothing_so_far();
	ret = xsk_umem__create(&umem, area + offset, size, &fill, &comp, &config);
	if (!ret)
		xsk_umem__delete(umem);
	munmap(area, (1 << 20) + 4096);
	return ret;
}

/* C23. Each wrong parameter is named, with its value. */
TEST(C23_parameters_are_named)
{
	const struct xsk_umem_config good = { .fill_size = 64, .comp_size = 64, .frame_size = 4096 };
	struct xsk_umem_config c;

	EQ(umem(good, 1 << 20, 0), 0, "good");
	EQ(lines, 0, "lines about a success");
	c = good;
	c.fill_size = 1000;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "fill 1000");
	SAYS("fill 1000", "fill", "1000");
	c = good;
	c.comp_size = 1000;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "comp 1000");
	SAYS("comp 1000", "comp", "1000");
	c = good;
	c.frame_size = 1024;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "frame 1024");
	SAYS("frame 1024", "frame", "1024", "2048");
	c.frame_size = 3000;
	EQ(umem(c, 300000, 0), -EINVAL, "frame 3000, aligned");
	SAYS("frame 3000", "frame", "3000");
	c.frame_size = 8192;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "frame 8192");
	SAYS("frame 8192", "frame", "8192", "4096");
	EQ(umem(good, 1 << 20, 64), -EINVAL, "memory within a page");
	SAYS("memory within a page", "page");
	EQ(umem(good, (1 << 20) + 1, 0), -EINVAL, "odd size");
	SAYS("odd size", "size", "1048577");
	EQ(umem(good, 0, 0), -EINVAL, "size 0");
	SAYS("size 0", "size");
	c = good;
	c.frame_headroom = 4096;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "head room 4096");
	SAYS("head room 4096", "headroom", "4096", "3392");
	c = good;
	c.flags = 0x80;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "unknown flag");
	SAYS("unknown flag", "flags", "0x80");
	c = good;
	c.frame_size = 9728;
	c.flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG;
	EQ(umem(c, 1 << 20, 0), -EINVAL, "frame 9728, unaligned");
	SAYS("frame 9728, unaligned", "frame", "9728", "4096");
}

/* C24. The lower limit is told to those who meet it. */
TEST(C24_lower_limit_is_told)
{
	EQ(umem((struct xsk_umem_config){ .fill_size = 64, .comp_size = 64, .frame_size = 1800,
					  .flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG },
		1 << 20, 0),
	   -EINVAL, "1800");
	SAYS("1800", "1800", "2048");
}

/* C35. */
TEST(C35_own_rings_are_asked_for)
{
	struct xsk_socket_config config;
	struct xsk_socket *xsk = NULL;
	struct xsk_ring_cons rx;
	struct xsk_ring_prod tx;
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true, .port = MANY_A });
	config = rig_config(&r.opt);
	hear_nothing_so_far();
	EQ(xsk_socket__create(&xsk, ifname_of(MANY_A), 1, r.umem, &rx, &tx, &config), -EFAULT, "plain create");
	SAYS("plain create", "fill", "completion", "own");
	hear_nothing_so_far();
	EQ(xsk_socket__create_shared(&xsk, ifname_of(MANY_A), 1, r.umem, &rx, &tx, NULL, NULL, &config), -EFAULT, "no rings");
	SAYS("no rings", "fill", "completion", "own");
	hear_nothing_so_far();
	EQ(xsk_socket__create_shared(&xsk, ifname_of(MANY_A), 1, r.umem, &rx, &tx, &r.fill, NULL, &config), -EFAULT, "one ring");
	SAYS("one ring", "needs its own fill and completion ring");
	rig_close(&r);
}

/* Names and numbers that a person typed are in the line. */
TEST(interface_and_queue_are_named)
{
	struct xsk_socket_config config;
	struct rig r;

	memset(&r, 0, sizeof(r));
	r.opt = rig_defaults((struct rig_options){ 0 });
	r.size = (uint64_t)r.opt.chunk * r.opt.chunks;
	r.area = map_area(r.size);
	EQ(rig_umem(&r), 0, "xsk_umem__create");
	config = rig_config(&r.opt);
	hear_nothing_so_far();
	EQ(xsk_socket__create(&r.xsk, "nosuchif0", 0, r.umem, &r.rx, &r.tx, &config), -ENODEV, "interface");
	SAYS("interface", "nosuchif0");
	hear_nothing_so_far();
	EQ(xsk_socket__create(&r.xsk, ifname_of(A), 99, r.umem, &r.rx, &r.tx, &config), -EINVAL, "queue");
	SAYS("queue", ifname_of(A), "99", "queue");
	EQ(xsk_umem__delete(r.umem), 0, "xsk_umem__delete");
}

/* C64. Opening, using and closing says nothing, neither to the callback nor to stderr. */
TEST(C64_success_is_silent)
{
	struct rig r;
	struct peer p;
	struct xdp_desc d;

	hear_stderr();
	for (int with_callback = 0; with_callback < 2; with_callback++) {
		if (with_callback)
			hear_nothing_so_far();
		rig_open(&r, (struct rig_options){ 0 });
		peer_open(&p);
		rig_fill(&r, 0, 8);
		peer_send(&p, FRAME_LEN, 1);
		CHECK(rig_receive(&r, &d, 1000), "no frame");
		rig_queue(&r, 100, 1);
		rig_kick(&r);
		peer_close(&p);
		rig_close(&r);
	}
	stderr_was_silent("a life");
	CHECK(!lines, "for the callback: %s", said);
}
