//! Sleeping across a ring: how one side is woken by the other without a system call between two that are awake.
//!
//! The sleeper announces itself in a word that the other side can read, fences (Z1), and looks at the ring once more. The
//! other side publishes, fences (Z2), and looks at the word. At least one of them sees the other: either the sleeper finds
//! what was published and stays awake, or the publisher finds the announcement and rings.
//!
//! Each announcement has a number of its own, so that a publisher rings once for each and not once for each batch while the
//! sleeper is waking up. The word is read by a process that need not be honest, and so may be written by it: nothing
//! here is done but to ring or not to ring.

use crate::sync::{AtomicU32, Ordering, fence};

/// The side that sleeps. One for each word; any thread may announce.
#[derive(Debug)]
pub struct Sleeper {
    last: AtomicU32,
    /// What stands in the word, as far as we wrote it; 0: nobody sleeps.
    announced: AtomicU32,
}

impl Sleeper {
    /// Nobody sleeps.
    pub fn new() -> Sleeper {
        Sleeper { last: AtomicU32::new(0), announced: AtomicU32::new(0) }
    }

    /// Somebody is about to sleep, who looks at the ring after this.
    pub fn announce(&self, word: &AtomicU32) {
        // A number twice in a row would be taken for the old announcement; 0 is for nobody.
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        // By an exchange, as all changes of the two words: they then stand in one order whoever makes them.
        word.swap(number, Ordering::Relaxed);
        // Z3: what the caller did before, for `retract`.
        self.announced.swap(number, Ordering::Release);
        // Z1: the announcement before the look at the ring.
        fence(Ordering::SeqCst);
    }

    /// Somebody is awake, so the other side need not ring, unless `others` says that somebody else sleeps. Whoever sleeps
    /// makes that true before the announcement.
    #[inline]
    pub fn retract(&self, word: &AtomicU32, others: impl Fn() -> bool) {
        // Z3: pairs with `announce`: `others` is asked after that.
        let number = self.announced.load(Ordering::Acquire);
        if number != 0 && !others() {
            self.take_back(word, number);
        }
    }

    /// This announcement and no later one.
    #[cold]
    fn take_back(&self, word: &AtomicU32, number: u32) {
        let taken = self.announced.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if taken {
            let _ = word.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Default for Sleeper {
    fn default() -> Sleeper {
        Sleeper::new()
    }
}

/// The side that publishes. One for each word; any thread that publishes asks.
#[derive(Debug)]
pub struct Ringer {
    rung: AtomicU32,
}

impl Ringer {
    /// Nothing was rung yet.
    pub fn new() -> Ringer {
        Ringer { rung: AtomicU32::new(0) }
    }

    /// Something was published: whether the caller must ring.
    #[inline]
    pub fn must_ring(&self, word: &AtomicU32) -> bool {
        // Z2: publication before the look at the announcement.
        fence(Ordering::SeqCst);
        let number = word.load(Ordering::Relaxed);
        number != 0
            && self.rung.load(Ordering::Relaxed) != number
            && self.rung.swap(number, Ordering::Relaxed) != number
    }
}

impl Default for Ringer {
    fn default() -> Ringer {
        Ringer::new()
    }
}
