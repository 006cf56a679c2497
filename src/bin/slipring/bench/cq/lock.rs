//! The spinlocks of the laboratory. The library has none.

use slipring::sync::{AtomicU32, Ordering, spin_loop, thread};

/// How often a lock that yields looks before it lets others run.
const SPINS: u32 = 200;

/// One word: 0 free, 1 held. The next holder is whoever comes first.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct SpinLock(AtomicU32);

/// The lock is held while this lives.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a SpinLock);

impl SpinLock {
    pub(super) fn new() -> SpinLock {
        SpinLock(AtomicU32::new(0))
    }

    /// Wait for the lock and take it; `YIELDS`: let others run after [`SPINS`] looks, as whoever holds it may be one of them.
    #[inline]
    pub(super) fn hold<const YIELDS: bool>(&self) -> Held<'_> {
        // Acquire: pairs with the Release of `drop`.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            let mut spins = 0;
            while self.0.load(Ordering::Relaxed) != 0 {
                spin_loop();
                spins += 1;
                if YIELDS && spins > SPINS {
                    spins = 0;
                    thread::yield_now();
                }
            }
        }
        Held(self)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}
