/* Faults of libxdp's that ours must not have: sockets, their rings and the UMEM. One test a row of the table in
 * docs/deviations.md, over the public interface, so that the same test linked to libxdp shows the fault there
 * (make defects-of-libxdp; what to expect is in defects-of-libxdp.txt).
 *
 * Bodies run twice in a world of their own and must leave nothing: world.h. */
#include "world.h"

#include <pthread.h>
#include <sys/resource.h>

/* D7. A second socket on a queue that is not the first socket's. */
CLEAN_TEST(D7_two_sockets_on_a_later_queue)
{
	struct xsk_socket_config config;
	struct more m = { 0 }, n = { 0 }, o = { 0 };
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true, .port = MANY_A });
	config = no_program(&r);
	EQ(BUSY_RETRY(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, NULL, &m.tx, &m.fill, &m.comp, &config)), 0,
	   "queue 1");
	EQ(xsk_socket__create_shared(&n.xsk, ifname_of(MANY_A), 1, r.umem, NULL, &n.tx, &n.fill, &n.comp, &config), 0,
	   "queue 1 again");
	send_one(&r, &n.tx, xsk_socket__fd(n.xsk), 3);
	EQ(take_completions(&m.comp, NULL, 4), 1, "completion on the queue's ring");
	xsk_socket__delete(m.xsk); /* whose descriptor the other one was bound against */
	send_one(&r, &n.tx, xsk_socket__fd(n.xsk), 4);
	EQ(take_completions(&m.comp, NULL, 4), 1, "completion after the first on the queue is gone");
	EQ(xsk_socket__create(&o.xsk, ifname_of(MANY_A), 1, r.umem, NULL, &o.tx, &config), 0, "queue 1 once more");
	xsk_socket__delete(o.xsk);
	xsk_socket__delete(n.xsk);
	rig_close(&r);
}

/* D8. A later socket on the queue gets the queue's fill and completion ring written into its structs too. Structs that are
 * in use already are left alone: only they know what is reserved. */
CLEAN_TEST(D8_later_socket_is_given_the_rings)
{
	struct xsk_socket_config config;
	struct more m = { 0 }, n = { 0 };
	uint32_t idx = 0;
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	rig_queue(&r, 0, 3);
	EQ(rig_kick(&r), 0, "kick");
	EQ(take_completions(&r.comp, NULL, 2), 2, "completions");
	rig_fill(&r, 8, 5);
	config = no_program(&r);
	memset(&m, 0xee, sizeof(m));
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(A), 0, r.umem, NULL, &m.tx, &m.fill, &m.comp, &config), 0, "later socket");
	EQ(m.comp.size, 256, "completion ring");
	EQ(m.fill.size, 256, "fill ring");
	EQ(m.fill.cached_prod, 5, "chunks filled so far");
	EQ(m.fill.cached_cons, 256, "room in the fill ring");
	EQ(m.comp.cached_cons, 2, "completions taken so far");
	EQ(xsk_ring_cons__peek(&m.comp, 8, &idx), 1, "the third completion");
	EQ(*xsk_ring_cons__comp_addr(&m.comp, idx), 2 * 4096, "its address");
	xsk_ring_cons__release(&m.comp, 1);
	EQ(*r.comp.consumer, 3, "the same ring");
	EQ(xsk_ring_prod__reserve(&m.fill, 3, &idx), 3, "reserve");
	EQ(xsk_socket__create_shared(&n.xsk, ifname_of(A), 0, r.umem, NULL, &n.tx, &m.fill, &m.comp, &config), 0, "third socket");
	EQ(m.fill.cached_prod, 8, "what is reserved stays reserved");
	xsk_socket__delete(n.xsk);
	xsk_socket__delete(m.xsk);
	rig_close(&r);
}

/* D9. A first socket with other ring structs that fails leaves the UMEM's rings as they were. */
CLEAN_TEST(D9_failed_first_socket_keeps_the_rings)
{
	struct xsk_socket_config config;
	struct footprint before;
	struct more m = { 0 };
	struct xdp_desc d;
	struct peer p;
	struct rig r;

	rig_open_umem(&r, (struct rig_options){ 0 });
	config = no_program(&r);
	before = footprint();
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(A), 99, r.umem, &m.rx, NULL, &m.fill, &m.comp, &config), -EINVAL,
	   "queue 99");
	CHECK(footprint().mappings >= before.mappings, "the UMEM's rings were unmapped");
	rig_fill(&r, 0, 4);
	EQ(BUSY_RETRY(rig_socket(&r)), 0, "queue 0, same UMEM");
	peer_open(&p);
	rig_fill(&r, 4, 4);
	for (uint32_t i = 0; i < 8; i++)
		peer_send(&p, FRAME_LEN, i);
	for (uint32_t i = 0; i < 8; i++)
		CHECK(rig_receive(&r, &d, 1000), "frame %u", i);
	peer_close(&p);
	rig_close(&r);
}

/* D10. A ring can be set up once only. A retry with another size is refused. */
static void retry_with(uint32_t size)
{
	struct rig r;

	rig_open_umem(&r, (struct rig_options){ .queue = 99, .no_program = true });
	EQ(rig_socket(&r), -EINVAL, "queue 99");
	r.opt.queue = 0;
	r.opt.rx = size;
	EQ(rig_socket(&r), -EINVAL, "another RX ring");
	r.opt.rx = 256;
	EQ(BUSY_RETRY(rig_socket(&r)), 0, "the same RX ring");
	EQ(r.rx.mask, 255, "RX mask");
	rig_close(&r);
}

CLEAN_TEST(D10_retry_with_a_larger_ring)
{
	retry_with(512);
}

CLEAN_TEST(D10_retry_with_a_smaller_ring)
{
	retry_with(128);
}

/* D11. A further socket for which no descriptor can be had leaves the UMEM as it was. In a child, which never gets its rights
 * back. */
static void further_socket_in_vain(void (*take_away)(void), int error)
{
	pid_t child = fork();

	if (!child) {
		struct xsk_socket_config config;
		struct footprint before;
		struct more m = { 0 };
		struct rig r;
		int ret;

		rig_open(&r, (struct rig_options){ .no_rx = true });
		config = no_program(&r);
		before = footprint();
		take_away();
		ret = xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, NULL, &m.tx, &config);
		EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 1024, 1024 }), 0, "setrlimit");
		EQ(ret, -error, "second socket");
		check_clean(before, "a socket that could not be made");
		rig_close(&r);
		exit(0);
	}
	EQ(ended(child), 0, "the child");
	if (on_kernel())
		sleep_ms(60); /* until the queue is free */
}

static void take_rights(void)
{
	EQ(setresuid(65534, 65534, 65534), 0, "setresuid");
}

static void take_descriptors(void)
{
	int next = dup(0);

	close(next);
	if (on_kernel()) /* the name of the interface is looked up by a descriptor too, and shall be found */
		forbid(SYS_socket, 0, AF_XDP, 0, AF_XDP, EMFILE);
	else
		EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ (rlim_t)next, 1024 }), 0, "setrlimit");
}

CLEAN_TEST(D11_no_right_to_a_second_socket)
{
	if (!on_kernel())
		skip("the engine needs no rights");
	further_socket_in_vain(take_rights, EPERM);
}

CLEAN_TEST(D11_no_descriptor_for_a_second_socket)
{
	further_socket_in_vain(take_descriptors, EMFILE);
}

/* D12. When rings for a later queue cannot be made, the error is the real one. */
CLEAN_TEST(D12_error_of_later_rings)
{
	pid_t child;

	if (!on_kernel())
		skip("the engine asks no kernel for rings");
	child = fork();
	if (!child) {
		struct xsk_socket_config config;
		struct more m = { 0 };
		struct rig r;

		rig_open(&r, (struct rig_options){ .no_rx = true, .port = MANY_A });
		config = no_program(&r);
		forbid(SYS_setsockopt, 1, SOL_XDP, 2, XDP_UMEM_FILL_RING, ENOBUFS);
		EQ(xsk_socket__create_shared(&m.xsk, ifname_of(MANY_A), 1, r.umem, NULL, &m.tx, &m.fill, &m.comp, &config), -ENOBUFS,
		   "no fill ring for queue 1");
		rig_close(&r);
		exit(0);
	}
	EQ(ended(child), 0, "the child in a sandbox");
	sleep_ms(60);
}

/* D14. The ring structs are the program's: it may move them, and free the old ones, once the create call is back. */
CLEAN_TEST(D14_ring_structs_move)
{
	struct footprint before = footprint();
	struct rig *r = malloc(sizeof(*r)), moved;
	struct xdp_desc d;
	struct peer p;

	rig_open(r, (struct rig_options){ 0 });
	moved = *r;
	explicit_bzero(r, sizeof(*r));
	peer_open(&p);
	rig_fill(&moved, 0, 8);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&moved, &d, 1000), "no frame");
	rig_queue(&moved, 100, 1);
	EQ(rig_kick(&moved), 0, "kick");
	EQ(peer_receive(&p, FRAME_LEN), 100, "frame");
	rig_complete(&moved, 1);
	peer_close(&p);
	xsk_socket__delete(moved.xsk);
	EQ(xsk_umem__delete(moved.umem), 0, "xsk_umem__delete");
	munmap(moved.area, moved.size);
	free(r);
	EQ(footprint().mappings, before.mappings, "mappings");
}

/* D20. After its last socket a UMEM is used up: as in libxdp, but the error says so. */
CLEAN_TEST(D20_umem_after_its_last_socket)
{
	struct xsk_socket_config config;
	struct more m = { 0 };
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	config = no_program(&r);
	xsk_socket__delete(r.xsk);
	EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &config), -EBUSY, "plain create");
	EQ(xsk_socket__create_shared(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &m.fill, &m.comp, &config), -EBUSY,
	   "shared create");
	rig_close_umem(&r);
}

/* D21. A queue that this process has just closed can be opened again at once. */
CLEAN_TEST(D21_reopened_at_once)
{
	for (int round = 0; round < 20; round++) {
		struct rig r;

		rig_open_umem(&r, (struct rig_options){ .no_program = true });
		EQ(rig_socket(&r), 0, "xsk_socket__create");
		rig_close(&r);
	}
}

/* D23. Sockets of one UMEM come and go on several threads. */
static uint64_t threads_end;

static void *come_and_go(void *arg)
{
	struct rig *r = arg;
	struct xsk_socket_config config = no_program(r);

	while (now_ms() < threads_end) {
		struct more m = { 0 };

		EQ(xsk_socket__create(&m.xsk, ifname_of(A), 0, r->umem, NULL, &m.tx, &config), 0, "socket of a thread");
		xsk_socket__delete(m.xsk);
	}
	return NULL;
}

CLEAN_TEST(D23_threads_on_one_umem)
{
	pthread_t threads[4];
	struct rig r;

	rig_open(&r, (struct rig_options){ .no_rx = true });
	threads_end = now_ms() + 1500;
	for (int i = 0; i < 4; i++)
		EQ(pthread_create(&threads[i], NULL, come_and_go, &r), 0, "pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	rig_close(&r);
}

/* D27. Ring structs need not be zeroed, and what was filled before the first socket stays. */
CLEAN_TEST(D27_structs_need_not_be_zeroed)
{
	struct xdp_desc d;
	uint32_t idx = 0;
	struct peer p;
	struct rig r;

	rig_open_umem(&r, (struct rig_options){ 0 });
	rig_close_umem(&r);
	memset(&r.fill, 0x5a, sizeof(r.fill));
	memset(&r.comp, 0x5a, sizeof(r.comp));
	r.area = map_area(r.size);
	EQ(rig_umem(&r), 0, "xsk_umem__create");
	EQ(r.fill.cached_prod, 0, "fill.cached_prod");
	EQ(r.fill.cached_cons, 256, "fill.cached_cons");
	EQ(r.comp.cached_prod, 0, "comp.cached_prod");
	EQ(r.comp.cached_cons, 0, "comp.cached_cons");
	rig_fill(&r, 0, 2);
	EQ(xsk_ring_prod__reserve(&r.fill, 2, &idx), 2, "reserve"); /* only the struct knows */
	EQ(BUSY_RETRY(rig_socket(&r)), 0, "xsk_socket__create");
	EQ(r.fill.cached_prod, 4, "what is reserved stays reserved");
	peer_open(&p);
	peer_send(&p, FRAME_LEN, 1);
	CHECK(rig_receive(&r, &d, 1000), "no frame into what was filled before");
	peer_close(&p);
	rig_close(&r);
}

/* D28. Other structs for the first socket are made from the shared rings, not copied from structs that may have moved. */
CLEAN_TEST(D28_other_structs_for_the_first_socket)
{
	struct xsk_socket_config config;
	struct more m = { 0 };
	struct xdp_desc d;
	struct peer p;
	void *ring;
	struct rig r;

	rig_open_umem(&r, (struct rig_options){ 0 });
	rig_fill(&r, 0, 7);
	ring = r.fill.ring;
	memset(&r.fill, 0x5a, sizeof(r.fill));
	memset(&r.comp, 0x5a, sizeof(r.comp));
	config = rig_config(&r.opt);
	EQ(BUSY_RETRY(xsk_socket__create_shared(&m.xsk, ifname_of(A), 0, r.umem, &m.rx, &m.tx, &m.fill, &m.comp, &config)), 0,
	   "xsk_socket__create_shared");
	CHECK(m.fill.ring == ring, "another fill ring");
	EQ(m.fill.cached_prod, 7, "chunks filled so far");
	EQ(m.fill.cached_cons, 256, "room in the fill ring");
	peer_open(&p);
	peer_send(&p, FRAME_LEN, 1);
	r.rx = m.rx;
	CHECK(rig_receive(&r, &d, 1000), "no frame");
	peer_close(&p);
	xsk_socket__delete(m.xsk);
	rig_close_umem(&r);
}

/* D30. NULL is an error. */
CLEAN_TEST(D30_no_interface_name)
{
	struct xsk_socket *xsk = NULL;
	struct rig r;

	rig_open_umem(&r, (struct rig_options){ 0 });
	EQ(xsk_socket__create(&xsk, NULL, 0, r.umem, &r.rx, &r.tx, NULL), -EFAULT, "xsk_socket__create");
	EQ(errno, EFAULT, "errno");
	rig_close_umem(&r);
}

CLEAN_TEST(D30_update_xskmap_without_a_socket)
{
	EQ(xsk_socket__update_xskmap(NULL, 0), -EFAULT, "xsk_socket__update_xskmap");
	EQ(errno, EFAULT, "errno");
}
