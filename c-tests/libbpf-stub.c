/* Stands for the libbpf of the time before libxdp, which had the xsk_ functions under version LIBBPF_0.0.4. A program
 * linked with it runs on the engine when libslipring is preloaded; without that, each call fails as here. */
#include <errno.h>

#define STUB(name)                     \
	int name(void);                \
	int name(void)                 \
	{                              \
		return -ENOSYS;        \
	}

STUB(xsk_umem__create)
STUB(xsk_umem__delete)
STUB(xsk_umem__fd)
STUB(xsk_socket__create)
STUB(xsk_socket__create_shared)
STUB(xsk_socket__delete)
STUB(xsk_socket__fd)
STUB(xsk_setup_xdp_prog)
STUB(xsk_socket__update_xskmap)
