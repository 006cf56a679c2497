//! Tests of the rings. The program's end of a ring is played by [`Program`].

#[cfg(not(loom))]
mod basic;
#[cfg(loom)]
mod doze;
#[cfg(loom)]
mod models;
#[cfg(not(loom))]
mod properties;
#[cfg(not(loom))]
mod stress;

use super::{Entry, RingMemory};
use crate::sync::Ordering;

/// What the C helpers of `xsk.h` do at the program's end of a ring, for a program that keeps the rules.
struct Program<'a, T: Entry>(&'a RingMemory<T>);

impl<T: Entry> Program<'_, T> {
    /// Consume up to `max` entries of a ring that we produce.
    fn consume(&self, max: u32) -> Vec<T> {
        self.consume_telling(max, |_| ())
    }

    /// As [`consume`](Self::consume); `before` is told how many, before they are given back.
    fn consume_telling(&self, max: u32, before: impl FnOnce(u32)) -> Vec<T> {
        let consumer = self.0.consumer().load(Ordering::Relaxed);
        let ready = self.0.producer().load(Ordering::Acquire).wrapping_sub(consumer);
        assert!(ready <= self.0.entries(), "the producer index went past the ring, or back: {ready}");
        let n = ready.min(max);
        let got = (0..n).map(|i| self.0.read(consumer.wrapping_add(i))).collect();
        if n > 0 {
            before(n);
            self.0.consumer().store(consumer.wrapping_add(n), Ordering::Release);
        }
        got
    }

    /// Produce as many of `entries` as there is room for into a ring that we consume; returns how many.
    fn produce(&self, entries: &[T]) -> u32 {
        let producer = self.0.producer().load(Ordering::Relaxed);
        let used = producer.wrapping_sub(self.0.consumer().load(Ordering::Acquire));
        assert!(used <= self.0.entries(), "the consumer index passed the producer: {used}");
        let mut n = 0;
        for entry in entries.iter().take((self.0.entries() - used) as usize) {
            self.0.write(producer.wrapping_add(n), *entry);
            n += 1;
        }
        self.0.producer().store(producer.wrapping_add(n), Ordering::Release);
        n
    }
}
