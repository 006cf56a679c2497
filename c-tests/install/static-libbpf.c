/* A static program that calls libbpf itself beside xsk_*: both archives in one program, each name from the one it belongs to.
 * Exit 0 when a UMEM was made and libbpf answered about an interface. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <xdp/xsk.h>

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

int main(void)
{
	struct bpf_object *object;
	struct xsk_ring_prod fill;
	struct xsk_ring_cons comp;
	struct xsk_umem *umem = NULL;
	__u32 id = 0, key = 0, value = 0;
	void *area;
	int ret;

	if (posix_memalign(&area, 4096, 1 << 16) || xsk_umem__create(&umem, area, 1 << 16, &fill, &comp, NULL))
		return 1;
	libbpf_set_print(quiet);
	/* libbpf's own code for interfaces and maps is in the program, and used. */
	ret = bpf_xdp_query_id(1, 0, &id);
	if (ret == -ENOSYS || bpf_map_update_elem(-1, &key, &value, 0) != -EBADF)
		return 2;
	object = bpf_object__open_mem("no object", 9, NULL);
	if (libbpf_get_error(object) == 0)
		return 3;
	return xsk_umem__delete(umem) != 0;
}
