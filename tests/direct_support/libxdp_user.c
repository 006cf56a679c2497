/* A user of the system's libxdp, driven by lines on its standard input: makes a socket with the default program on a queue,
 * receives, deletes. Answers each order with one line.
 *
 * usage: libxdp_user IFNAME QUEUE XDP_FLAGS
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xdp/xsk.h>

#define FRAME 4096
#define FRAMES 128

static struct xsk_umem *umem;
static struct xsk_socket *xsk;
static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons comp, rx;

static int create(const char *name, unsigned queue, unsigned xdp_flags, void *area)
{
	struct xsk_umem_config uc = { .fill_size = 64, .comp_size = 64, .frame_size = FRAME };
	struct xsk_socket_config sc = { .rx_size = 64, .tx_size = 64, .xdp_flags = xdp_flags, .bind_flags = XDP_COPY };
	__u32 idx, i;
	int ret;

	ret = xsk_umem__create(&umem, area, FRAME * FRAMES, &fill, &comp, &uc);
	if (ret)
		return ret;
	if (xsk_ring_prod__reserve(&fill, 64, &idx) == 64) {
		for (i = 0; i < 64; i++)
			*xsk_ring_prod__fill_addr(&fill, idx + i) = i * FRAME;
		xsk_ring_prod__submit(&fill, 64);
	}
	/* The kernel frees a queue some time after its last socket is closed. */
	for (i = 0; i < 100; i++) {
		ret = xsk_socket__create(&xsk, name, queue, umem, &rx, &tx, &sc);
		if (ret != -EBUSY)
			break;
		poll(NULL, 0, 10);
		if (i % 10 == 9) {
			/* A failed first attempt leaves the descriptor bound. */
			xsk_umem__delete(umem);
			ret = xsk_umem__create(&umem, area, FRAME * FRAMES, &fill, &comp, &uc);
			if (ret)
				return ret;
		}
	}
	if (ret)
		xsk_umem__delete(umem);
	return ret;
}

static void delete(void)
{
	xsk_socket__delete(xsk);
	xsk_umem__delete(umem);
}

static int receive(int want)
{
	int got = 0, tries = 0;

	while (got < want && tries++ < 2000) {
		__u32 idx;
		__u32 n = xsk_ring_cons__peek(&rx, 64, &idx);

		xsk_ring_cons__release(&rx, n);
		got += n;
		if (!n)
			poll(NULL, 0, 1);
	}
	return got;
}

int main(int argc, char **argv)
{
	void *area = mmap(NULL, FRAME * FRAMES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned queue, xdp_flags;
	char line[64];

	if (argc != 4 || area == MAP_FAILED)
		return 2;
	queue = atoi(argv[2]);
	xdp_flags = atoi(argv[3]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		int n;

		if (!strncmp(line, "create", 6)) {
			printf("%d\n", create(argv[1], queue, xdp_flags, area));
		} else if (!strncmp(line, "delete", 6)) {
			delete();
			printf("0\n");
		} else if (sscanf(line, "receive %d", &n) == 1) {
			printf("%d\n", receive(n));
		} else if (sscanf(line, "churn %d", &n) == 1) {
			int failed = 0;

			while (n-- > 0) {
				if (create(argv[1], queue, xdp_flags, area))
					failed++;
				else
					delete();
			}
			printf("%d\n", failed);
		} else {
			return 2;
		}
	}
	return 0;
}
