/* An XDP program that has nothing to do with AF_XDP and passes everything; for clang -target bpf. Without the kernel's
 * header, which clang finds for this target on some systems only.
 */
struct xdp_md {
	unsigned data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

__attribute__((section("xdp"), used)) int other(struct xdp_md *ctx)
{
	(void)ctx;
	return 2;
}

__attribute__((section("license"), used)) static char gpl[] = "GPL";
