//! The rings' memory under the model checker: the same methods as `memory.rs` and `marks.rs` over loom's types.

use core::marker::PhantomData;

use super::entry::Entry;
use crate::{
    errno::Result,
    sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell},
};

/// The memory of a ring with entries of type `T`, in the model.
#[derive(Debug)]
pub struct RingMemory<T: Entry> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Box<[Slot]>,
    entry: PhantomData<T>,
}

/// The words of an entry, and a cell in which loom sees an access that nothing orders.
#[derive(Debug)]
struct Slot {
    words: [AtomicU64; 2],
    guard: UnsafeCell<()>,
}

// SAFETY: the guards hold nothing; loom checks the accesses to them.
unsafe impl<T: Entry> Sync for RingMemory<T> {}

impl<T: Entry> RingMemory<T> {
    /// A ring with both indices at `start`. Only inside a model.
    pub fn model(entries: u32, start: u32) -> RingMemory<T> {
        assert!(entries.is_power_of_two(), "a ring has a power of two of entries");
        let slot = |_| Slot { words: [AtomicU64::new(0), AtomicU64::new(0)], guard: UnsafeCell::new(()) };
        RingMemory {
            producer: AtomicU32::new(start),
            consumer: AtomicU32::new(start),
            flags: AtomicU32::new(0),
            slots: (0..entries).map(slot).collect(),
            entry: PhantomData,
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("made from a u32")
    }

    /// The producer index.
    pub fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    /// The consumer index.
    pub fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    /// The flags.
    pub fn flags(&self) -> &AtomicU32 {
        &self.flags
    }

    /// The entry at an index; a write that is not ordered with this read fails the model.
    pub fn read(&self, index: u32) -> T {
        let slot = self.slot(index);
        slot.guard.with(|_| self.read_unclaimed(index))
    }

    /// The entry at an index, which the program may be overwriting.
    pub fn read_unclaimed(&self, index: u32) -> T {
        let slot = self.slot(index);
        let mut words = [0; 2];
        for (word, from) in words.iter_mut().zip(&slot.words).take(T::WORDS) {
            *word = from.load(Ordering::Relaxed);
        }
        T::from_words(words)
    }

    /// Write the entry at an index; any other access that is not ordered with it fails the model.
    pub fn write(&self, index: u32, entry: T) {
        let slot = self.slot(index);
        slot.guard.with_mut(|_| {
            for (word, to) in entry.to_words().iter().zip(&slot.words).take(T::WORDS) {
                to.store(*word, Ordering::Relaxed);
            }
        });
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.slots[(index & (self.entries() - 1)) as usize]
    }
}

/// Ready marks, in the model.
#[derive(Debug)]
pub(super) struct Marks(Box<[AtomicU64]>);

impl Marks {
    pub(super) fn new(entries: u32) -> Result<Marks> {
        Ok(Marks((0..entries).map(|_| AtomicU64::new(0)).collect()))
    }

    pub(super) fn at(&self, position: u64) -> &AtomicU64 {
        let index = position & (self.0.len() as u64 - 1);
        &self.0[usize::try_from(index).expect("masked")]
    }
}
