/* What the library says, through the callback that a program gives to libxdp. */
#ifndef LISTEN_H
#define LISTEN_H

#include "harness.h"

#include <stdarg.h>
#include <strings.h>
#include <xdp/libxdp.h>

static char said[4096];
static unsigned lines;

static inline int listen_to(enum libxdp_print_level level, const char *format, va_list args)
{
	size_t used = strlen(said);

	(void)level;
	lines++;
	return vsnprintf(said + used, sizeof(said) - used, format, args);
}

static inline void hear_nothing_so_far(void)
{
	libxdp_set_print(listen_to);
	said[0] = 0;
	lines = 0;
}

/* One line that has all the words. */
static inline void must_say(const char *what, const char *const words[])
{
	CHECK(lines == 1, "%s: %u lines: %s", what, lines, said);
	for (int i = 0; words[i]; i++)
		CHECK(strcasestr(said, words[i]), "%s: \"%s\" is not in: %s", what, words[i], said);
}

#define SAYS(what, ...) must_say(what, (const char *const[]){ __VA_ARGS__, NULL })

#endif
