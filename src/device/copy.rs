//! Moving the bytes of frames. Called per frame, by devices and by the engine's receive path, on any thread.

/// Ask for the line that is about to be copied: the misses of a batch then overlap.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; nothing is accessed, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// As [`prefetch`], for a line that is about to be written and may be with another processor.
#[inline]
pub(crate) fn prefetch_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; nothing is accessed, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copy one frame. Small ones are copied here, in vectors, since a call costs as much as they do.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`. The ranges may overlap; what is then copied is unspecified for
/// small frames, as it is for a program that sends from a chunk it also gave to the fill ring.
#[inline]
pub(crate) unsafe fn copy_frame(from: *const u8, to: *mut u8, len: usize) {
    type Vector = [u8; 32];
    const STEP: usize = size_of::<Vector>();
    if !(STEP..=8 * STEP).contains(&len) {
        // SAFETY: the caller's conditions.
        return unsafe { core::ptr::copy(from, to, len) };
    }
    // Whole vectors, the last one again from the end.
    let mut at = 0;
    loop {
        let here = at.min(len - STEP);
        // SAFETY: `here + STEP` is at most `len`.
        let source = unsafe { from.add(here) };
        // SAFETY: as above.
        let target = unsafe { to.add(here) };
        // SAFETY: STEP bytes are readable there.
        let vector = unsafe { source.cast::<Vector>().read_unaligned() };
        // SAFETY: STEP bytes are writable there.
        unsafe { target.cast::<Vector>().write_unaligned(vector) };
        at += STEP;
        if at >= len {
            return;
        }
    }
}
