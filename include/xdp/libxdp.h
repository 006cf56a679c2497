/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What AF_XDP programs use of libxdp's own header: where that is installed (it needs libbpf's), this is it; else the
 * part of it that Slipring has.
 */
#ifndef SLIPRING_XDP_LIBXDP_H
#define SLIPRING_XDP_LIBXDP_H

/* For #include_next, and as in xsk.h. */
#if defined(__GNUC__) && !defined(SLIPRING_HEADER_WARNINGS)
#pragma GCC system_header
#endif

#ifdef __has_include_next
#if __has_include_next(<xdp/libxdp.h>) && __has_include(<bpf/libbpf.h>)
#define SLIPRING_HAVE_LIBXDP_H
#endif
#endif

#ifdef SLIPRING_HAVE_LIBXDP_H

/* libxdp.h defines it itself, in other words than xsk.h. */
#undef DECLARE_LIBXDP_OPTS
#include_next <xdp/libxdp.h>

#else

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DECLARE_LIBXDP_OPTS
#define DECLARE_LIBXDP_OPTS(TYPE, NAME, ...) struct TYPE NAME = { .sz = sizeof(struct TYPE), __VA_ARGS__ }
#endif

enum libxdp_print_level {
	LIBXDP_WARN,
	LIBXDP_INFO,
	LIBXDP_DEBUG
};

/* Takes a message as vprintf() does. Called on whatever thread met the failure, also on several at once. */
typedef int (*libxdp_print_fn_t)(enum libxdp_print_level level, const char *format, va_list args);

/*
 * Send messages to `print` from now on; NULL: nowhere. Returns the callback until now, which before the first call is
 * one that prints warnings and infos to stderr.
 */
libxdp_print_fn_t libxdp_set_print(libxdp_print_fn_t print);

/* The negative error number that a pointer from a library function stands for; 0 for a good one, -errno for NULL. */
long libxdp_get_error(const void *ptr);

/*
 * Write the message of error number `err`, of either sign, to `buf` of `size` bytes, cut to fit. Returns 0, or a
 * negative error number: -EINVAL no buffer, -ENOENT no such error, -ERANGE cut.
 */
int libxdp_strerror(int err, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

#endif
#endif
