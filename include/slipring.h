/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What Slipring adds to libxdp's interface (<xdp/xsk.h>). Generated (make headers): do not edit. */

#ifndef SLIPRING_H
#define SLIPRING_H

/* Version of this header. */
#define SLIPRING_VERSION "0.1.0"

/* In <xdp/xsk.h>. */
struct xsk_ring_cons;
struct xsk_umem;
struct xsk_umem_opts;

/* Level of a message: something failed, or will not work as asked. */
#define SLIPRING_WARN 0

/* Level of a message: worth knowing. */
#define SLIPRING_INFO 1

/* Level of a message: for the developers of the library. */
#define SLIPRING_DEBUG 2

/*
 * Takes a message: a SLIPRING_* level and a line that ends in a newline. line is valid during the call. Called on
 * whatever thread met the failure, also on several at once, just before the failing call returns. It may call the
 * library; messages about those calls go to stderr.
 */
typedef void (*slipring_print_fn)(int level, const char *line);

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library that the program runs with, as in "0.1.0". Never NULL, never freed. */
const char *slipring_version(void);

/*
 * Send messages to print from now on, unless the program has given libxdp_set_print() a callback, which then gets
 * them. NULL: to the callback of libbpf_set_print() if the program has set one, else warnings and infos to stderr,
 * which is what happens before the first call. Returns the callback until now, or NULL.
 */
slipring_print_fn slipring_set_print(slipring_print_fn print);

/*
 * As xsk_umem__create_opts() for a program that only sends and has no use for a fill ring.
 *
 * The fill ring exists, as the kernel wants one, with opts->fill_size entries, and stays empty. A socket that receives
 * is -EFAULT on this UMEM unless it brings fill and completion ring structs (xsk_socket__create_shared). Delete with
 * xsk_umem__delete().
 *
 * Returns the UMEM, or NULL with errno set as by xsk_umem__create_opts().
 */
struct xsk_umem *slipring_umem_create_tx(void *umem_area, struct xsk_ring_cons *comp, struct xsk_umem_opts *opts);

#ifdef __cplusplus
}
#endif

#endif  /* SLIPRING_H */
