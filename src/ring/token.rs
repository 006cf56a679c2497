//! Who may consume a ring: one thread at a time. Nobody waits for it but the one who ends the consuming.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU32, Ordering, spin_loop, thread};

/// See the module.
#[derive(Debug)]
pub struct Token(CachePadded<AtomicU32>);

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody wanted it meanwhile.
const AGAIN: u32 = 2;
const CLOSED: u32 = 3;

impl Token {
    /// Free.
    pub fn new() -> Token {
        Token(CachePadded::new(AtomicU32::new(FREE)))
    }

    /// False: taken; the holder was asked to look again, or the socket is closed.
    #[inline]
    pub fn take(&self) -> bool {
        loop {
            // K1
            match self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(HELD) => {
                    // K3: the holder's next look sees the caller's entries.
                    if self.0.compare_exchange(HELD, AGAIN, Ordering::Release, Ordering::Relaxed).is_ok() {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    /// Give it back. False: somebody wanted it, and the caller still holds it.
    #[inline]
    pub fn put(&self) -> bool {
        // K2
        if self.0.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return true;
        }
        // K4
        self.0.swap(HELD, Ordering::Acquire);
        false
    }

    /// Give it back whoever wanted it.
    pub fn put_anyway(&self) {
        // K2
        self.0.store(FREE, Ordering::Release);
    }

    /// Nobody gets it any more; returns when nobody has it.
    pub fn close(&self) {
        let mut spins = 0u32;
        while self.0.compare_exchange(FREE, CLOSED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if self.0.load(Ordering::Relaxed) == CLOSED {
                return;
            }
            spins += 1;
            if spins < 64 { spin_loop() } else { thread::yield_now() }
        }
    }
}

impl Default for Token {
    fn default() -> Token {
        Token::new()
    }
}
