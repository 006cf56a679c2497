/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The two things about libxdp's print callback that need C: a va_list can be neither made nor read in Rust. */
#include <stdarg.h>
#include <stdio.h>

typedef int (*print_fn)(unsigned int level, const char *format, va_list args);

enum { LEVEL_DEBUG = 2 };

/* Call a libxdp print callback. */
int slipring__call_print(print_fn print, unsigned int level, const char *format, ...)
{
	va_list args;
	int written;

	va_start(args, format);
	written = print(level, format, args);
	va_end(args);
	return written;
}

/* The callback that is in force before a program sets one: what libxdp_set_print() returns the first time. */
int slipring__default_print(unsigned int level, const char *format, va_list args)
{
	return level < LEVEL_DEBUG ? vfprintf(stderr, format, args) : 0;
}
