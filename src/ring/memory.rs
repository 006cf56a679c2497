//! The memory of one ring: two indices, flags, entries, in the kernel's layout.
//!
//! The program maps the same memory and may write any byte of it at any time. So nothing here hands out a reference to an
//! entry, every index is masked, and what is read counts as a hint until the ring types have checked it. Any thread may
//! use a `RingMemory`; who may write what is the business of the ring types.

use core::{alloc::Layout, fmt, marker::PhantomData, ptr::NonNull};
use std::alloc::{alloc_zeroed, dealloc};

use super::{
    entry::{Entry, Line},
    layout,
};
use crate::{
    errno::{Errno, Result},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// The memory of a ring with entries of type `T`.
pub struct RingMemory<T: Entry> {
    producer: NonNull<u32>,
    consumer: NonNull<u32>,
    flags: NonNull<u32>,
    /// The first entry; dangling where entries have no words.
    slots: NonNull<u8>,
    mask: u32,
    /// Set when the memory is ours to free; else the maker of this value keeps it alive.
    _owned: Option<Zeroed>,
    entry: PhantomData<T>,
}

// SAFETY: the pointers lead to memory that outlives this value (the conditions of the constructors, or `_owned`), reached
// through atomics alone, so any thread may use it and it may be dropped on any.
unsafe impl<T: Entry> Send for RingMemory<T> {}
// SAFETY: as for Send; every access through `&self` is atomic.
unsafe impl<T: Entry> Sync for RingMemory<T> {}

impl<T: Entry> RingMemory<T> {
    /// The ring at `base`, with `entries` entries. Writes nothing: a program may have filled the ring already.
    ///
    /// # Panics
    /// If `entries` is no power of two or `base` is not aligned: both are checked where ring sizes are set and mapped.
    ///
    /// # Safety
    /// 1. `base` is the start of [`layout::bytes`] bytes that stay mapped, readable and writable, while the value lives.
    /// 2. This process reaches them through atomics and raw pointers only.
    pub unsafe fn from_raw(base: NonNull<u8>, entries: u32) -> RingMemory<T> {
        assert!(entries.is_power_of_two(), "a ring has a power of two of entries");
        assert!(base.addr().get().is_multiple_of(layout::ALIGN), "a ring begins on a cache line");
        let word = |offset: usize| {
            // SAFETY: an offset of the layout, below the length of any ring.
            unsafe { base.add(offset) }
        };
        RingMemory {
            producer: word(layout::PRODUCER).cast(),
            consumer: word(layout::CONSUMER).cast(),
            flags: word(layout::FLAGS).cast(),
            slots: word(layout::ENTRIES),
            mask: entries - 1,
            _owned: None,
            entry: PhantomData,
        }
    }

    /// A ring in memory of its own, both indices at `start`. For tests and benches. ENOMEM: no memory.
    ///
    /// # Panics
    /// If `entries` is no power of two.
    pub fn heap(entries: u32, start: u32) -> Result<RingMemory<T>> {
        let owned = Zeroed::new(layout::bytes(entries, size_of::<T>()))?;
        // SAFETY: `owned` has the length, is aligned to 128, and lives in the value itself.
        let mut memory = unsafe { Self::from_raw(owned.base(), entries) };
        memory._owned = Some(owned);
        memory.producer().store(start, Ordering::Relaxed);
        memory.consumer().store(start, Ordering::Relaxed);
        Ok(memory)
    }

    /// Number of entries, a power of two.
    #[inline]
    pub fn entries(&self) -> u32 {
        // `mask` is below 2^31, since no higher power of two fits `entries`.
        self.mask + 1
    }

    /// The producer index.
    #[inline]
    pub fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, mapped while `self` lives, reached through atomics alone (the constructors' conditions).
        unsafe { AtomicU32::from_ptr(self.producer.as_ptr()) }
    }

    /// The consumer index.
    #[inline]
    pub fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer index.
        unsafe { AtomicU32::from_ptr(self.consumer.as_ptr()) }
    }

    /// The flags (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for the producer index.
        unsafe { AtomicU32::from_ptr(self.flags.as_ptr()) }
    }

    /// The entry at a free-running index. A program that breaks the rules may tear it: the words of a descriptor are read
    /// one after the other.
    #[inline]
    pub fn read(&self, index: u32) -> T {
        let mut words = [0; 2];
        for (i, word) in words.iter_mut().enumerate().take(T::WORDS) {
            *word = self.entry_word(index, i).load(Ordering::Relaxed);
        }
        T::from_words(words)
    }

    /// As [`read`](Self::read), where the program may already be writing the next lap's entry: the caller throws the value
    /// away if so. Only the model checker tells the two apart.
    #[inline]
    pub fn read_unclaimed(&self, index: u32) -> T {
        self.read(index)
    }

    /// Write the entry at a free-running index.
    #[inline]
    pub fn write(&self, index: u32, entry: T) {
        let words = entry.to_words();
        for (i, word) in words.iter().enumerate().take(T::WORDS) {
            self.entry_word(index, i).store(*word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn entry_word(&self, index: u32, word: usize) -> &AtomicU64 {
        let offset = (index & self.mask) as usize * size_of::<T>() + 8 * word;
        // SAFETY: the masked index is below `entries` and `word` below `T::WORDS`, so this is inside `layout::bytes`.
        let at = unsafe { self.slots.as_ptr().add(offset) };
        // SAFETY: aligned to 8 (the ring to 64, entries at 320, sizes 8 or 16), mapped while `self` lives, atomics alone.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }
}

impl RingMemory<Line> {
    /// The indices of a ring whose bytes the caller moves by itself: `entries` lines of 64 bytes.
    ///
    /// # Panics
    /// If `entries` is no power of two.
    ///
    /// # Safety
    /// 1. The three words are aligned and stay mapped and readable while the value lives; the producer index of a ring that is
    ///    produced, and the consumer index of one that is consumed, also writable. `flags` is not used.
    /// 2. This process reaches them through atomics only.
    pub unsafe fn of_lines(producer: NonNull<u32>, consumer: NonNull<u32>, entries: u32) -> RingMemory<Line> {
        assert!(entries.is_power_of_two(), "a ring has a power of two of entries");
        RingMemory {
            producer,
            consumer,
            flags: producer,
            slots: NonNull::dangling(),
            mask: entries - 1,
            _owned: None,
            entry: PhantomData,
        }
    }
}

impl<T: Entry> fmt::Debug for RingMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory")
            .field("entries", &self.entries())
            .field("producer", &self.producer().load(Ordering::Relaxed))
            .field("consumer", &self.consumer().load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// Zeroed memory on cache lines of its own. Zeroed by the kernel if it is large, so it costs no pages until it is used.
pub(super) struct Zeroed {
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory, owned alone.
unsafe impl Send for Zeroed {}
// SAFETY: `&Zeroed` gives out an address only.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// A line pair, which is what neighbouring-line prefetch moves.
    const LINE: usize = 128;

    pub(super) fn new(bytes: usize) -> Result<Zeroed> {
        // Aligned by hand within a line more: the allocator clears what it aligns beyond 16 by writing it, page by page.
        let size = bytes.checked_next_multiple_of(Self::LINE).and_then(|n| n.checked_add(Self::LINE));
        let layout = Layout::from_size_align(size.ok_or(Errno::ENOMEM)?, 16).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        Ok(Zeroed { block, layout })
    }

    /// First byte, aligned to a line pair.
    #[inline]
    pub(super) fn base(&self) -> NonNull<u8> {
        let skip = self.block.addr().get().wrapping_neg() % Self::LINE;
        // SAFETY: `skip` is less than the line that was allocated more.
        unsafe { self.block.add(skip) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, freed once.
        unsafe { dealloc(self.block.as_ptr(), self.layout) }
    }
}
