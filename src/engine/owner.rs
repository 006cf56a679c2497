//! Which process owns the engine's state.
//!
//! A socket belongs to the process that made it. A word in a page with MADV_WIPEONFORK tells, without a system call and
//! also after `vfork` or a raw `clone`: it is 1 in the process that wrote it and reads 0 in a child.

use core::ptr::NonNull;

use crate::{
    errno::Result,
    sync::{AtomicU32, Ordering},
    sys,
};

/// The word. It lives as long as the process: a child may look at it at any time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner(NonNull<AtomicU32>);

// SAFETY: the word is an atomic in a page that is never unmapped.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// A word that only this process reads as set. EINVAL: a kernel before 4.14.
    pub(super) fn new() -> Result<Owner> {
        let page = sys::map_private(sys::PAGE)?;
        sys::wipe_on_fork(page, sys::PAGE)?;
        let owner = Owner(page.cast());
        owner.word().store(1, Ordering::Release);
        Ok(owner)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: page-aligned, mapped for the life of the process, accessed only as an atomic.
        unsafe { self.0.as_ref() }
    }

    /// Whether the caller runs in the process that made the word.
    #[inline]
    pub(super) fn is_us(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }
}
