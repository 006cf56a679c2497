//! A ring that the program produces and one thread of ours consumes at a time: the TX ring.
//!
//! The caller's token makes [`get`](Consumer::get) and [`release`](Consumer::release) exclusive and orders their calls on
//! different threads; [`queued`](Consumer::queued) may be called from anywhere.

use super::{Entry, RingMemory, broken::BrokenOnce};
use crate::sync::{AtomicU32, Ordering};

/// What a ring of the program's holds for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Available {
    /// This many unread entries, 0 to the size of the ring.
    Entries(u32),
    /// The program's producer index is further ahead than the ring is long (or behind us). Nothing may be read until it
    /// makes sense again.
    Broken,
}

/// Our end of a ring that the program produces.
#[derive(Debug)]
pub struct Consumer<T: Entry> {
    memory: RingMemory<T>,
    /// First unread index. The consumer word in the ring only tells the program about it: the program can write there.
    index: AtomicU32,
    broken: BrokenOnce,
}

impl<T: Entry> Consumer<T> {
    /// Consume `memory` from the index `start` on. Writes nothing to the ring.
    pub fn new(memory: RingMemory<T>, start: u32) -> Consumer<T> {
        Consumer { memory, index: AtomicU32::new(start), broken: BrokenOnce::new() }
    }

    /// The ring's memory.
    #[inline]
    pub fn memory(&self) -> &RingMemory<T> {
        &self.memory
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.memory.entries()
    }

    /// How many entries can be read now. Only with the token.
    #[inline]
    pub fn available(&self) -> Available {
        // T1: own index, ordered between threads by the token.
        let index = self.index.load(Ordering::Relaxed);
        // C: look for entries; pairs with the program's B.
        let ready = self.memory.producer().load(Ordering::Acquire).wrapping_sub(index);
        if ready > self.memory.entries() {
            self.broken.note();
            return Available::Broken;
        }
        Available::Entries(ready)
    }

    /// The `i`-th unread entry; `i` is below what [`available`](Self::available) said last. Only with the token.
    #[inline]
    pub fn get(&self, i: u32) -> T {
        // T1
        self.memory.read(self.index.load(Ordering::Relaxed).wrapping_add(i))
    }

    /// Give the first `n` unread entries back to the program; `n` is at most what [`available`](Self::available) said
    /// last. Only with the token.
    #[inline]
    pub fn release(&self, n: u32) {
        // T1
        let index = self.index.load(Ordering::Relaxed).wrapping_add(n);
        // T1
        self.index.store(index, Ordering::Relaxed);
        // D: our reads are done; pairs with the program's A.
        self.memory.consumer().store(index, Ordering::Release);
    }

    /// Index of the first unread entry.
    #[inline]
    pub fn index(&self) -> u32 {
        // T1
        self.index.load(Ordering::Relaxed)
    }

    /// How many entries wait, as seen from any thread, for readiness and statistics: a snapshot that may be old, at most the
    /// size of the ring, and 0 for a broken ring.
    pub fn queued(&self) -> u32 {
        // T1
        let index = self.index.load(Ordering::Relaxed);
        // C: only the number is used.
        let ready = self.memory.producer().load(Ordering::Acquire).wrapping_sub(index);
        if ready <= self.memory.entries() {
            return ready;
        }
        // Either broken, or entries were released and others produced between the two loads.
        // T1
        let index = self.index.load(Ordering::Relaxed);
        // C: as above.
        let ready = self.memory.producer().load(Ordering::Acquire).wrapping_sub(index);
        if ready <= self.memory.entries() { ready } else { 0 }
    }

    /// True once, after the ring was first found broken: the caller logs it.
    pub fn take_broken_report(&self) -> bool {
        self.broken.take()
    }
}
