/* An AF_XDP program as small as can be, C and C++: it sends two frames on a device that brings back what is sent. Exit 0
 * when both came back unharmed and were completed. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <xdp/libxdp.h>
#include <xdp/xsk.h>

#define FRAMES 16u
#define FRAME XSK_UMEM__DEFAULT_FRAME_SIZE
#define LENGTH 64u

static void must(int result, const char *what)
{
	char text[128];

	if (result == 0)
		return;
	libxdp_strerror(result, text, sizeof(text));
	fprintf(stderr, "%s: %s\n", what, text);
	exit(1);
}

int main(int argc, char **argv)
{
	struct xsk_socket_config config;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons comp, rx;
	struct xsk_umem *umem = NULL;
	struct xsk_socket *xsk = NULL;
	struct pollfd wait;
	__u32 idx, i, received = 0, completed = 0;
	time_t until;
	void *memory;
	char *area;

	if (argc != 2 || posix_memalign(&memory, 4096, FRAMES * FRAME))
		return 2;
	area = (char *)memory;
	memset(&config, 0, sizeof(config));
	must(xsk_umem__create(&umem, area, FRAMES * FRAME, &fill, &comp, NULL), "xsk_umem__create");
	must(xsk_socket__create(&xsk, argv[1], 0, umem, &rx, &tx, &config), "xsk_socket__create");

	if (xsk_ring_prod__reserve(&fill, FRAMES / 2, &idx) != FRAMES / 2)
		return 1;
	for (i = 0; i < FRAMES / 2; i++)
		*xsk_ring_prod__fill_addr(&fill, idx + i) = (FRAMES / 2 + i) * FRAME;
	xsk_ring_prod__submit(&fill, FRAMES / 2);

	if (xsk_ring_prod__reserve(&tx, 2, &idx) != 2)
		return 1;
	for (i = 0; i < 2; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&tx, idx + i);

		memset(xsk_umem__get_data(area, i * FRAME), (int)(i + 1), LENGTH);
		desc->addr = i * FRAME;
		desc->len = LENGTH;
		desc->options = 0;
	}
	xsk_ring_prod__submit(&tx, 2);
	if (sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0) {
		perror("sendto");
		return 1;
	}

	wait.fd = xsk_socket__fd(xsk);
	wait.events = POLLIN;
	until = time(NULL) + 10;
	while ((received < 2 || completed < 2) && time(NULL) < until) {
		poll(&wait, 1, 100);
		if (xsk_ring_cons__peek(&rx, 1, &idx)) {
			const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&rx, idx);
			const char *data = (const char *)xsk_umem__get_data(area, desc->addr);

			if (desc->len != LENGTH || data[0] != (char)(received + 1) || data[LENGTH - 1] != data[0])
				return 1;
			xsk_ring_cons__release(&rx, 1);
			received++;
		}
		i = xsk_ring_cons__peek(&comp, 2, &idx);
		xsk_ring_cons__release(&comp, i);
		completed += i;
	}
	xsk_socket__delete(xsk);
	must(xsk_umem__delete(umem), "xsk_umem__delete");
	free(area);
	printf("%u received, %u completed\n", received, completed);
	return received != 2 || completed != 2;
}
