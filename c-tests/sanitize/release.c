/* Part of the runtime that scripts/sanitize makes for ThreadSanitizer.
 *
 * ThreadSanitizer knows no fences. The last owner of an Arc is known by counting down with release, then a fence acquires
 * what the other owners did; the sanitizer would call every destruction a race. Where the standard library is built for it, a
 * load with acquire stands in place of the fence. The installed one is not, so here each count-down with release acquires as
 * well. (Nothing of Slipring's own subtracts with release.) */
#include <stdint.h>

/* The runtime's own function, renamed. */
uint64_t tsan_fetch_sub(volatile uint64_t *at, uint64_t value, int order);
uint64_t __tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t value, int order);

uint64_t __tsan_atomic64_fetch_sub(volatile uint64_t *at, uint64_t value, int order)
{
	return tsan_fetch_sub(at, value, order == __ATOMIC_RELEASE ? __ATOMIC_ACQ_REL : order);
}
