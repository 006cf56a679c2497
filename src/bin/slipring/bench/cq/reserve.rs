//! Ways to reserve places of the completion queue that exist for comparison. The library's own is in `slipring::ring`.

use slipring::sync::Ordering;

use super::{layout::Layout, lock::SpinLock};

/// Reserved places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Ring index of the first. Only a submit that waits for its turn writes there; to all others the places are a number.
    pub first: u32,
    /// How many; not 0.
    pub count: u32,
}

/// A way to reserve.
pub(super) trait Reserve: Send + Sync + 'static {
    /// Take up to `n` places; `None`: the queue is full. `lost` counts compare-and-swaps that did not succeed.
    fn reserve<L: Layout>(layout: &L, n: u32, lost: &mut u64) -> Option<Places>;
}

/// Under a lock beside the pool's geometry (packed), or on lines of its own (separated).
#[derive(Debug)]
pub(super) struct PoolLock;

/// Under a lock on the line of the word that it guards.
#[derive(Debug)]
pub(super) struct QueueLock;

/// The same, but who waits lets others run after a while.
#[derive(Debug)]
pub(super) struct YieldLock;

/// By one compare-and-swap.
#[derive(Debug)]
pub(super) struct Cas;

impl Reserve for PoolLock {
    #[inline]
    fn reserve<L: Layout>(layout: &L, n: u32, _: &mut u64) -> Option<Places> {
        locked::<L, false>(layout, layout.pool_lock(), n)
    }
}

impl Reserve for QueueLock {
    #[inline]
    fn reserve<L: Layout>(layout: &L, n: u32, _: &mut u64) -> Option<Places> {
        locked::<L, false>(layout, &layout.reserving().lock, n)
    }
}

impl Reserve for YieldLock {
    #[inline]
    fn reserve<L: Layout>(layout: &L, n: u32, _: &mut u64) -> Option<Places> {
        locked::<L, true>(layout, &layout.reserving().lock, n)
    }
}

#[inline]
fn locked<L: Layout, const YIELDS: bool>(layout: &L, lock: &SpinLock, n: u32) -> Option<Places> {
    let (words, ring) = (layout.reserving(), layout.ring());
    let _held = lock.hold::<YIELDS>();
    // The lock orders both words; the consumer index is an A of `slipring::ring`.
    let first = words.reserved.load(Ordering::Relaxed);
    let mut free = ring.entries() - first.wrapping_sub(words.consumer_seen.load(Ordering::Relaxed));
    if free == 0 {
        let consumer = ring.consumer().load(Ordering::Acquire);
        words.consumer_seen.store(consumer, Ordering::Relaxed);
        free = ring.entries() - first.wrapping_sub(consumer);
    }
    let count = n.min(free);
    if count == 0 {
        return None;
    }
    words.reserved.store(first.wrapping_add(count), Ordering::Relaxed);
    Some(Places { first, count })
}

impl Reserve for Cas {
    #[inline]
    fn reserve<L: Layout>(layout: &L, n: u32, lost: &mut u64) -> Option<Places> {
        let (reserved, ring) = (&layout.reserving().reserved, layout.ring());
        loop {
            // A of `slipring::ring`. Before the load of `reserved`: an old consumer index only hides room.
            let consumer = ring.consumer().load(Ordering::Acquire);
            // Acquire: pairs with the swap below, for the earlier reserver's view of the consumer index.
            let first = reserved.load(Ordering::Acquire);
            let used = first.wrapping_sub(consumer);
            if used > ring.entries() {
                // The consumer index is older than the reservations that it made possible.
                continue;
            }
            let count = n.min(ring.entries() - used);
            if count == 0 {
                return None;
            }
            let next = first.wrapping_add(count);
            if reserved.compare_exchange_weak(first, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(Places { first, count });
            }
            *lost += 1;
        }
    }
}
