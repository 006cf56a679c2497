/* What a program is told about an interface of ours, which the kernel does not have: name, number, address, queues, and
 * what counts as its XDP program. Whether libbpf is there or not. */
#include "xdp.h"

#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

static int fd;

static int ask(unsigned long request, struct ifreq *r, const char *name)
{
	memset(r->ifr_name, 0, sizeof(r->ifr_name));
	strncpy(r->ifr_name, name, sizeof(r->ifr_name) - 1);
	return ioctl(fd, request, r);
}

static int ethtool(void *command, const char *name)
{
	struct ifreq r = { .ifr_data = command };

	return ask(SIOCETHTOOL, &r, name);
}

static void names(void)
{
	unsigned ours = if_nametoindex("loop0"), other = if_nametoindex("loop1");
	char name[IF_NAMESIZE];

	CHECK(ours != 0 && other != 0 && ours != other && if_nametoindex("loop0") == ours);
	CHECK(if_indextoname(ours, name) == name && !strcmp(name, "loop0"));
	CHECK(if_nametoindex("loop2") == 0 && errno == ENODEV);
	CHECK(if_nametoindex("lo") == 1 && if_indextoname(1, name) && !strcmp(name, "lo"));
	CHECK(if_indextoname(0x7ffffff0, name) == NULL && errno == ENXIO);
}

/* The list of all interfaces: the kernel's, and those of ours that have a name, once each and with their numbers. */
static void list(void)
{
	struct if_nameindex *all = if_nameindex();
	int lo = 0, ours = 0;

	CHECK(all);
	for (struct if_nameindex *i = all; i->if_index != 0 || i->if_name != NULL; i++) {
		CHECK(i->if_name && if_nametoindex(i->if_name) == i->if_index);
		lo += !strcmp(i->if_name, "lo");
		ours += !strcmp(i->if_name, "loop0") || !strcmp(i->if_name, "loop1");
	}
	CHECK(lo == 1 && ours == 2);
	if_freenameindex(all);
}

static void questions(void)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	struct ethtool_value link = { .cmd = ETHTOOL_GLINK };
	struct ethtool_rxnfc rings = { .cmd = ETHTOOL_GRXRINGS };
	struct ethtool_coalesce coalesce = { .cmd = ETHTOOL_GCOALESCE };
	struct ifreq r = { 0 };

	CHECK(ask(SIOCGIFINDEX, &r, "loop0") == 0 && r.ifr_ifindex == (int)if_nametoindex("loop0"));
	CHECK(ask(SIOCGIFHWADDR, &r, "loop0") == 0 && r.ifr_hwaddr.sa_family == ARPHRD_ETHER);
	CHECK(ask(SIOCGIFMTU, &r, "loop0") == 0 && r.ifr_mtu == 1500);
	CHECK(ask(SIOCSIFMTU, &r, "loop0") == 0);
	CHECK(ask(SIOCGIFFLAGS, &r, "loop0") == 0 && (r.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING));
	r.ifr_flags |= IFF_PROMISC;
	CHECK(ask(SIOCSIFFLAGS, &r, "loop0") == 0);
	r.ifr_ifindex = (int)if_nametoindex("loop1");
	CHECK(ioctl(fd, SIOCGIFNAME, &r) == 0 && !strcmp(r.ifr_name, "loop1"));
	CHECK(ask(SIOCGIFINDEX, &r, "loop2") == -1 && errno == ENODEV);
	CHECK(ethtool(&channels, "loop1") == 0 && channels.max_combined == 3 && channels.combined_count == 3);
	CHECK(channels.rx_count == 0 && channels.tx_count == 0 && channels.other_count == 0);
	CHECK(ethtool(&rings, "loop1") == 0 && rings.data == 3);
	CHECK(ethtool(&driver, "loop0") == 0 && !strcmp(driver.driver, "slipring"));
	CHECK(ethtool(&link, "loop0") == 0 && link.data == 1);
	CHECK(ethtool(&coalesce, "loop0") == -1 && errno == EOPNOTSUPP);
	CHECK(ethtool(NULL, "loop0") == -1 && errno == EFAULT);
	CHECK(ethtool(&link, "lo") == 0 && link.data == 1);
}

/* A function of libbpf, or ours before it. */
#define FUNCTION(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name); CHECK(name)

static void programs(int has_libbpf)
{
	FUNCTION(bpf_xdp_query_id, int, int, uint32_t *);
	FUNCTION(bpf_xdp_query, int, int, void *);
	FUNCTION(bpf_xdp_attach, int, int, uint32_t, const void *);
	FUNCTION(bpf_xdp_detach, int, uint32_t, const void *);
	FUNCTION(bpf_map_update_elem, int, const void *, const void *, uint64_t);
	FUNCTION(bpf_map_delete_elem, int, const void *);
	FUNCTION(xsk_setup_xdp_prog, int, int *);
	int ours = (int)if_nametoindex("loop0"), map = -1;
	struct { size_t size; uint32_t id, drv, hw, skb; uint8_t mode; } query = { .size = sizeof(query) };
	uint32_t id = 5, key = 0, value;
	struct xdp x;

	CHECK(bpf_xdp_query_id(ours, 0, &id) == 0 && id == 0);
	xdp_open(&x, "loop0");
	CHECK(bpf_xdp_query_id(ours, 0, &id) == 0 && id != 0);
	CHECK(bpf_xdp_query(ours, 0, &query) == 0 && query.id == id && query.drv == id && query.hw == 0 && query.mode == 1);
	CHECK(bpf_xdp_attach(ours, 7, 0, NULL) == -EOPNOTSUPP && errno == EOPNOTSUPP);
	CHECK(bpf_xdp_detach(ours, 0, NULL) == 0 && bpf_xdp_detach(ours, 0, NULL) == 0);
	/* The stand-in map sends the queue's frames to the socket, or to nobody. */
	CHECK(xsk_setup_xdp_prog(ours, &map) == 0 && map >= 0);
	value = (uint32_t)x.fd;
	CHECK(bpf_map_delete_elem(map, &key) == 0);
	xdp_send(&x, 1);
	CHECK(xdp_take(&x, 9) == 0);
	CHECK(bpf_map_update_elem(map, &key, &value, 0) == 0);
	xdp_send(&x, 1);
	CHECK(xdp_take(&x, 9) == 1);
	key = 64;
	CHECK(bpf_map_update_elem(map, &key, &value, 0) == -E2BIG && errno == E2BIG);
	key = 0;
	value = 2;
	CHECK(bpf_map_update_elem(map, &key, &value, 0) < 0);
	CHECK(bpf_map_update_elem(map, NULL, &value, 0) == -EFAULT);
	CHECK(close(map) == 0 && close(x.fd) == 0);
	CHECK(bpf_xdp_query_id(ours, 0, &id) == 0 && id == 0);
	/* What is not ours goes on to libbpf. */
	value = (uint32_t)bpf_xdp_query_id(1, 0, &id);
	CHECK(has_libbpf ? (int)value == 0 && id == 0 : (int)value == -ENOSYS);
	CHECK(bpf_map_update_elem(-1, &key, &value, 0) == (has_libbpf ? -EBADF : -ENOSYS));
}

int main(void)
{
	void *libbpf = dlopen("libbpf.so.1", RTLD_NOW | RTLD_LOCAL);

	alarm(60);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	names();
	list();
	questions();
	programs(libbpf != NULL);
	return 0;
}
