//! The fill ring: the program produces, several delivering threads of ours consume it at once.
//!
//! A thread copies the entries first and then claims them by moving the private index with one compare-and-swap. If that
//! succeeds, nobody had claimed them before, so the program had not been told that they are free and they were stable
//! while they were copied. Any thread may call any method.

use crossbeam_utils::CachePadded;

use super::{RingMemory, advance, broken::BrokenOnce, low};
use crate::sync::{AtomicU64, Ordering};

/// How often an index that makes no sense is looked at again before the caller is told "nothing for now".
const LOOKS: u32 = 16;

/// Our end of the fill ring.
#[derive(Debug)]
pub struct SharedConsumer {
    memory: RingMemory<u64>,
    broken: BrokenOnce,
    /// First unclaimed position. 64 bits, so that it never comes back to a value; its low half is the ring's index.
    index: CachePadded<AtomicU64>,
}

impl SharedConsumer {
    /// Consume `memory` from the index `start` on. Writes nothing to the ring.
    pub fn new(memory: RingMemory<u64>, start: u32) -> SharedConsumer {
        SharedConsumer { memory, broken: BrokenOnce::new(), index: CachePadded::new(AtomicU64::new(u64::from(start))) }
    }

    /// The ring's memory.
    #[inline]
    pub fn memory(&self) -> &RingMemory<u64> {
        &self.memory
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.memory.entries()
    }

    /// Take up to `out.len()` entries, in the ring's order, into the front of `out`; returns how many. 0 for a broken ring.
    #[inline]
    pub fn take(&self, out: &mut [u64]) -> usize {
        let want = u32::try_from(out.len()).unwrap_or(u32::MAX);
        loop {
            let (index, ready) = self.look();
            let n = want.min(ready);
            if n == 0 {
                return 0;
            }
            for (slot, i) in out.iter_mut().zip(0..n) {
                *slot = self.memory.read_unclaimed(low(index).wrapping_add(i));
            }
            let next = index + u64::from(n);
            // F2: claim. Release: our copies come before, for whoever publishes the index further (F1, F2 Acquire, then D).
            if self.index.compare_exchange(index, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // D: the copies are done; pairs with the program's A.
                advance(self.memory.consumer(), &self.index, low(next), self.entries());
                return n as usize;
            }
        }
    }

    /// How many entries could be taken now; 0 for a broken ring.
    #[inline]
    pub fn available(&self) -> u32 {
        self.look().1
    }

    /// Index of the first entry that nobody has taken.
    #[inline]
    pub fn index(&self) -> u32 {
        // F1: a snapshot.
        low(self.index.load(Ordering::Relaxed))
    }

    /// True once, after the ring was first found broken: the caller logs it.
    pub fn take_broken_report(&self) -> bool {
        self.broken.take()
    }

    /// The index and how many entries are ready from there on.
    #[inline]
    fn look(&self) -> (u64, u32) {
        // F1: own index; pairs with F2, so that the producer index below is at least as new as the one that claimer saw.
        let index = self.index.load(Ordering::Acquire);
        // C: look for entries; pairs with the program's B.
        let ready = self.memory.producer().load(Ordering::Acquire).wrapping_sub(low(index));
        if ready <= self.entries() {
            return (index, ready);
        }
        self.look_again(index)
    }

    /// The producer index was more than a ring ahead of `index`. If `index` is still the same, it was so while the producer
    /// index was read, and the program cannot have seen more room than the ring has: the ring is broken. Otherwise the
    /// entries were taken and refilled between the two loads.
    #[cold]
    fn look_again(&self, mut index: u64) -> (u64, u32) {
        for _ in 0..LOOKS {
            // F1: pairs with F2. The loaded producer index came after the program's look at a consumer index (D) that
            // was published after the claim, so a claim that made it possible is seen here.
            let now = self.index.load(Ordering::Acquire);
            if now == index {
                self.broken.note();
                return (index, 0);
            }
            index = now;
            // C
            let ready = self.memory.producer().load(Ordering::Acquire).wrapping_sub(low(index));
            if ready <= self.entries() {
                return (index, ready);
            }
        }
        (index, 0)
    }
}
