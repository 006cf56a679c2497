//! Remembers that a ring was found broken, so that its owner can log it once.

use crate::sync::{AtomicU8, Ordering};

const UNSEEN: u8 = 0;
const SEEN: u8 = 1;
const REPORTED: u8 = 2;

/// Unseen, seen, reported; only ever forward. All accesses are Relaxed: the word guards nothing.
#[derive(Debug)]
pub(super) struct BrokenOnce(AtomicU8);

impl BrokenOnce {
    pub(super) fn new() -> BrokenOnce {
        BrokenOnce(AtomicU8::new(UNSEEN))
    }

    /// The ring is broken now.
    #[cold]
    pub(super) fn note(&self) {
        let _ = self.0.compare_exchange(UNSEEN, SEEN, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True once, after the first [`note`](Self::note).
    pub(super) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SEEN
            && self.0.compare_exchange(SEEN, REPORTED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
