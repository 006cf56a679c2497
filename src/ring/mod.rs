//! Rings in the kernel's layout, and who may touch which index.
//!
//! No device, no socket: `crate::engine` makes these over the memory that it shares with the program.
//!
//! | ring | type | producer | consumer |
//! | --- | --- | --- | --- |
//! | TX | [`Consumer<Desc>`](Consumer) | the program | one thread of ours at a time |
//! | fill | [`SharedConsumer`] | the program | any threads of ours |
//! | completion, RX | [`SharedProducer`] of `u64`, `Desc` | any threads of ours | the program |
//!
//! Indices run freely over 32 bits and wrap; only the low bits name an entry. Our truth is private: what the ring's words
//! say is checked (the other side's index) or never read back as truth (our own).
//!
//! # Orderings
//!
//! Every atomic access in this module carries one of these labels. A to D are the kernel's names for the four accesses of a
//! one-producer, one-consumer ring; one half of each pair is the program's (the inline helpers of `xsk.h`).
//!
//! | label | access | ordering | pairs with | what it carries |
//! | --- | --- | --- | --- | --- |
//! | A | producer side loads the consumer index | Acquire | D | the consumer is done reading the entries |
//! | B | producer side advances the producer index | Release | C | the entries are written |
//! | C | consumer side loads the producer index | Acquire | B | the entries can be read |
//! | D | consumer side advances the consumer index | Release | A | the entries can be overwritten |
//! | T1 | TX: private consumer index | Relaxed | the caller's token | – |
//! | F1 | fill: load the private index | Acquire | F2 | the claimer's view of the producer index; its copies |
//! | F2 | fill: claim entries, compare-and-swap | AcqRel | F1, F2 | copies of the claimed entries, for D |
//! | R1 | load `taken` | Acquire | R2 | the reserver's view of the consumer index (A) |
//! | R2 | reserve, compare-and-swap of `taken` | Release | R1 | as R1 |
//! | R3 | `head_seen` | Relaxed | – | a number that is never too large |
//! | R4 | cancel, subtract from `taken` | Relaxed | – | a number |
//! | S1 | claim positions, add to `claimed` | AcqRel | S1 | the earlier claimers' view of the consumer index (A) |
//! | S2 | move `head`, compare-and-swap | AcqRel | S2, S4, S6 | entries, marks left before an S4 |
//! | S3 | leave a ready mark | Release | S5 | the entries of the claim |
//! | S4 | look at `head` after S3, by adding 0 | AcqRel | S2 | the mark |
//! | S5 | look at the mark where `head` is | Acquire | S3 | as S3 |
//! | S6 | load `head` | Acquire | S2 | entries, for B |
//! | K1 | take a [`Token`] | Acquire | K2 | what the last holder did |
//! | K2 | give it back | Release | K1 | as K1 |
//! | K3 | ask the holder to look again | Release | K4 | the asker's entries |
//! | K4 | take note of K3 | Acquire | K3 | as K3 |
//! | Z1 | store that somebody sleeps, then a fence | Relaxed, SeqCst | Z2 | one of the two sees the other ([`Sleeper`]) |
//! | Z2 | a fence after B or D, then a look whether somebody sleeps | SeqCst, Relaxed | Z1 | as Z1 |
//! | Z3 | a note of the announcement, and its look-up | Release, Acquire | Z3 | what the sleeper did before it |
//! | P1 | read our own word of the ring before advancing it | Acquire | B, D | how new the private index is at least |

mod broken;
mod consumer;
mod doze;
mod entry;
mod fill;
pub mod layout;
#[cfg(not(loom))]
mod marks;
#[cfg(not(loom))]
mod memory;
#[cfg(loom)]
mod model;
mod shared;
#[cfg(test)]
mod tests;
mod token;

pub use consumer::{Available, Consumer};
pub use doze::{Ringer, Sleeper};
pub use entry::{Entry, Line};
pub use fill::SharedConsumer;
#[cfg(not(loom))]
use marks::Marks;
#[cfg(not(loom))]
pub use memory::RingMemory;
#[cfg(loom)]
use model::Marks;
#[cfg(loom)]
pub use model::RingMemory;
pub use shared::{Claim, SharedProducer};
pub use token::Token;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The ring's index of a position.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the ring's index is the low half of the position")]
fn low(position: u64) -> u32 {
    position as u32
}

/// Bring our word of a ring at least to `goal`, a value that `private` has had. `private` moves forward only, by threads that
/// each call this afterwards; the word follows it and never passes it.
///
/// The program may write the word, to no effect but on itself: it is never taken for a position, and set right here.
#[inline]
fn advance(word: &AtomicU32, private: &AtomicU64, goal: u32, entries: u32) {
    // P1: pairs with B (D) of the thread that stored the value, which saw at least as much of `private`.
    let seen = word.load(Ordering::Acquire);
    let behind = goal.wrapping_sub(seen);
    if behind == 0 {
        return;
    }
    if behind > entries {
        return ahead(word, private, seen, entries);
    }
    // B, D: publish. A failure means that the word has changed.
    if let Err(now) = word.compare_exchange(seen, goal, Ordering::Release, Ordering::Relaxed) {
        advance_behind(word, goal, behind, now);
    }
}

/// Others advance the same word. Each of them brings it nearer to `goal`, or past it; when it does neither, the program
/// wrote there. So this ends.
#[cold]
fn advance_behind(word: &AtomicU32, goal: u32, mut behind: u32, mut seen: u32) {
    loop {
        let nearer = goal.wrapping_sub(seen);
        if nearer == 0 || nearer >= behind {
            return;
        }
        behind = nearer;
        // B, D
        match word.compare_exchange(seen, goal, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// The word is not within a ring behind the goal: others have advanced it past the goal, or the program wrote there.
#[cold]
fn ahead(word: &AtomicU32, private: &AtomicU64, seen: u32, entries: u32) {
    // S6, F1: after P1, so never behind a word that only we have written.
    let now = low(private.load(Ordering::Acquire));
    if now.wrapping_sub(seen) > entries {
        // B, D: put it right. On a sound ring this thread slept between the two loads; the word has moved on and this fails.
        let _ = word.compare_exchange(seen, now, Ordering::Release, Ordering::Relaxed);
    }
}
