//! Ready marks of a [`SharedProducer`](super::SharedProducer): private memory, one word a ring entry.
//!
//! The word of a claim's first entry holds the position behind its last one, once the entries are written. Positions are
//! 64 bits and never come back, so a mark of an earlier lap is told from a new one by its size and none is ever cleared:
//! a claim at `p` of `n` entries leaves `p + n`, and `p + n` is at most the position that the same word stands for a lap later.

use core::{fmt, ptr::NonNull};

use super::{low, memory::Zeroed};
use crate::{
    errno::{Errno, Result},
    sync::{AtomicU64, Ordering},
};

pub(super) struct Marks {
    base: NonNull<u64>,
    mask: u32,
    _words: Zeroed,
}

// SAFETY: `base` points into `_words`, which the value owns, and is reached through atomics alone.
unsafe impl Send for Marks {}
// SAFETY: as for Send; every access through `&self` is atomic.
unsafe impl Sync for Marks {}

impl Marks {
    /// No marks. ENOMEM: no memory.
    pub(super) fn new(entries: u32) -> Result<Marks> {
        let bytes = (entries as usize).checked_mul(size_of::<u64>()).ok_or(Errno::ENOMEM)?;
        let words = Zeroed::new(bytes)?;
        Ok(Marks { base: words.base().cast(), mask: entries - 1, _words: words })
    }

    /// The mark of the claim that begins at `position`.
    #[inline]
    pub(super) fn at(&self, position: u64) -> &AtomicU64 {
        let index = low(position) & self.mask;
        // SAFETY: the index is masked to the allocated length.
        let at = unsafe { self.base.add(index as usize) };
        // SAFETY: aligned, zeroed, lives as long as `self`, reached through atomics alone.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entry(&self.at(0).load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}
