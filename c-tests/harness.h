/* The C tests' harness: named tests, each in a process of its own, checks with a message, skips with a reason.
 *
 * A test runs on one provider, named by the environment variable PROVIDER:
 *   engine   Slipring's engine, on wires that SLIPRING_DEVICES names; needs no privileges
 *   direct   Slipring over the kernel's AF_XDP, on veth pairs made by veth-run
 *   libxdp   the system's libxdp over the same veth pairs: the proof that a test asks for the right thing
 *
 * An executable runs all its tests, or those named on its command line (-l lists them). Exit code: 0, 1 when one failed, 77
 * when all were skipped. TEST_TIMEOUT_FACTOR=n gives each test n times its 20 s, for sanitizers and valgrind;
 * TEST_NO_FORK=1 runs one named test without a child process, for a debugger. */
#ifndef HARNESS_H
#define HARNESS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum provider { ENGINE, DIRECT, LIBXDP };

enum provider provider(void);

/* Whether the kernel's own AF_XDP is at work. */
static inline bool on_kernel(void)
{
	return provider() != ENGINE;
}

/* Interfaces by what they are for; the same test then runs on wires and on veth pairs. */
enum port {
	A, B,           /* the two ends of one wire, one queue */
	C, D,           /* another wire */
	MANY_A, MANY_B, /* a wire with 8 queues */
	JUMBO_A, JUMBO_B, /* a wire with an MTU of 8000 */
	WAIT_A, WAIT_B, /* a lossless wire (engine only) */
	LOOP,           /* sends to itself (engine only) */
	NOWHERE,        /* swallows (engine only) */
};

const char *ifname_of(enum port port);

struct test {
	const char *name;
	void (*run)(void);
	struct test *next;
};

void harness_add(struct test *test);

#define TEST(id)                                                         \
	static void id(void);                                            \
	__attribute__((constructor)) static void register_##id(void)     \
	{                                                                \
		static struct test test = { .name = #id, .run = id };    \
		harness_add(&test);                                      \
	}                                                                \
	static void id(void)

/* Ends the test (in whatever thread) as failed or skipped. */
__attribute__((noreturn, format(printf, 3, 4))) void harness_fail(const char *file, int line, const char *format, ...);
__attribute__((noreturn, format(printf, 1, 2))) void skip(const char *format, ...);

#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition, ...)              \
	do {                               \
		if (!(condition))          \
			FAIL(__VA_ARGS__); \
	} while (0)

/* Both sides as numbers, shown when they differ. */
#define EQ(got, want, what)                                                                     \
	do {                                                                                    \
		long long got_ = (long long)(got), want_ = (long long)(want);                   \
		if (got_ != want_)                                                              \
			FAIL("%s: got %lld, want %lld (%s)", what, got_, want_, #got " == " #want); \
	} while (0)

static inline void engine_only(const char *why)
{
	if (provider() != ENGINE)
		skip("engine only: %s", why);
}

/* For what libxdp itself gets wrong or does not have. */
static inline void not_libxdp(const char *why)
{
	if (provider() == LIBXDP)
		skip("not on libxdp: %s", why);
}

/* For what a sanitizer's runtime does itself, so that the library is not called. */
static inline void not_sanitized(const char *why)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip("not under a sanitizer: %s", why);
#endif
	(void)why;
}

uint64_t now_ms(void);
void sleep_ms(unsigned ms);

/* Until `condition` holds, or fails after `ms`. */
#define WAIT_UNTIL(condition, ms, what)                                   \
	do {                                                              \
		uint64_t end_ = now_ms() + (ms);                          \
		while (!(condition)) {                                    \
			CHECK(now_ms() < end_, "%s: not within %d ms", what, (int)(ms)); \
			sleep_ms(1);                                      \
		}                                                         \
	} while (0)

/* From the first call to the second nothing may come on stderr, by the library or anybody else. */
void hear_stderr(void);
void stderr_was_silent(const char *what);

/* What a process has that it did not have before: the "clean" of the cases. */
struct footprint {
	unsigned descriptors;
	unsigned mappings; /* of files, sockets and memory files */
};

struct footprint footprint(void);

static inline void check_clean(struct footprint before, const char *what)
{
	struct footprint after = footprint();

	CHECK(after.descriptors == before.descriptors && after.mappings == before.mappings,
	      "%s: %u descriptors and %u mappings before, %u and %u after", what, before.descriptors, before.mappings,
	      after.descriptors, after.mappings);
}

/* A number that is the same in each run of a test: xorshift. */
static inline uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

#endif
