//! A ring that several threads of ours produce and the program consumes: the completion ring and the RX ring.
//!
//! Places are *reserved* first and named last. [`reserve`](SharedProducer::reserve) only counts: it takes up to n free
//! places in one compare-and-swap. [`submit`](SharedProducer::submit) then claims the next positions, whichever they are, so
//! the ring fills in the order of completion. [`cancel`](SharedProducer::cancel) gives places back. Any thread may call any
//! method; no call waits for another thread, takes a lock, allocates or makes a system call.
//!
//! # How submit publishes
//!
//! `claimed` hands out positions, `head` is the position up to which everything is written and published. A claim `p..p+n`
//!
//! 1. takes its positions (S1) and writes its entries;
//! 2. tries to move `head` from `p` to `p+n` (S2). If that succeeds it was first in line, and is done with its own entries;
//! 3. otherwise some earlier claim is unfinished. It leaves its mark (S3), then looks at `head` *with a read-modify-write* (S4).
//!
//! Whoever has moved `head` to some position looks at the mark there (S5), and if the claim that begins there is marked, moves
//! `head` over it, and so on. Whoever looked in step 3 does the same from where it found `head`.
//!
//! No marked claim is left behind. Every change of `head` is a read-modify-write with AcqRel, and so is the look S4, so all of
//! them stand in one order, each seeing what was done before the earlier ones. Take a marked claim at `p`, and the move M
//! that brings `head` to `p` exactly (if none does, a move went past `p` and the claim is published).
//! - M before the claim's S4: S4 finds `head` at `p` or past it. If at `p`, the claim's owner moves it on, or fails because
//!   another thread did.
//! - M after S4: the mark was left before S4, so the look that follows M sees it, and M's owner moves `head` on, or
//!   fails because another thread did.
//!
//! So a claim waits only for earlier claims that have not left their mark, and for a thread that was preempted between its
//! move and its look; the first of these to run again publishes it. A later submit helps with the second kind.
//! A plain store of the mark and a plain load of `head` would not do: each side could miss the other's.
//!
//! # What the program can do
//!
//! Only `consumer` is read from the ring, and what it says bounds nothing alone: reservations never go more than a ring
//! beyond the private `head`, so positions of two unfinished claims never share an entry or a mark. The `producer` word is
//! never used as a position. If the program writes there it misleads itself alone, and the next submit puts the word right.

use crossbeam_utils::CachePadded;

use super::{Entry, Marks, RingMemory, advance, broken::BrokenOnce, low};
use crate::{
    errno::Result,
    sync::{AtomicU64, Ordering},
};

/// How often a consumer index that makes no sense is looked at again before the caller is told "full for now".
const LOOKS: u32 = 16;

/// Our end of a ring that the program consumes.
#[derive(Debug)]
pub struct SharedProducer<T: Entry> {
    // Three groups of lines: read-mostly, written by reservers, written by submitters.
    geometry: CachePadded<Geometry<T>>,
    reserving: CachePadded<Reserving>,
    submitting: CachePadded<Submitting>,
}

#[derive(Debug)]
struct Geometry<T: Entry> {
    memory: RingMemory<T>,
    marks: Marks,
    broken: BrokenOnce,
}

/// Positions have 64 bits, so that none ever comes back; the low half is the ring's index.
#[derive(Debug)]
struct Reserving {
    /// Position behind the last reserved place.
    taken: AtomicU64,
    /// A value that `head` had, so that reserving rarely touches the submitters' line. Never ahead of `head`.
    head_seen: AtomicU64,
}

#[derive(Debug)]
struct Submitting {
    /// Position behind the last claimed place; at most `taken`.
    claimed: AtomicU64,
    /// Position behind the last published entry; at most `claimed`. Changed by AcqRel read-modify-writes only.
    head: AtomicU64,
}

/// Places that are named and not yet published.
#[derive(Debug)]
#[must_use = "to be finished, or nothing behind it is ever published"]
pub struct Claim {
    position: u64,
    end: u64,
}

impl Claim {
    /// Index of the first place in the ring, free-running.
    #[inline]
    pub fn index(&self) -> u32 {
        low(self.position)
    }
}

impl<T: Entry> SharedProducer<T> {
    /// Produce into `memory` from the index `start` on. Writes nothing to the ring. ENOMEM: no memory for the marks.
    pub fn new(memory: RingMemory<T>, start: u32) -> Result<SharedProducer<T>> {
        let marks = Marks::new(memory.entries())?;
        let at = || AtomicU64::new(u64::from(start));
        Ok(SharedProducer {
            geometry: CachePadded::new(Geometry { memory, marks, broken: BrokenOnce::new() }),
            reserving: CachePadded::new(Reserving { taken: at(), head_seen: at() }),
            submitting: CachePadded::new(Submitting { claimed: at(), head: at() }),
        })
    }

    /// The ring's memory.
    #[inline]
    pub fn memory(&self) -> &RingMemory<T> {
        &self.geometry.memory
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.memory().entries()
    }

    /// Reserve up to `n` places; returns how many, 0 when the ring is full or broken. Each reserved place is to be given to
    /// [`submit`](Self::submit) or [`cancel`](Self::cancel) once, by any thread.
    #[inline]
    pub fn reserve(&self, n: u32) -> u32 {
        self.reserve_with(n, || ())
    }

    /// As [`reserve`](Self::reserve); calls `lost` for each compare-and-swap that did not succeed, for who counts them.
    #[inline]
    pub fn reserve_with(&self, n: u32, mut lost: impl FnMut()) -> u32 {
        let mut looks = 0;
        loop {
            // A: look for room; pairs with the program's D. Before R1: an old consumer index only hides room.
            let consumer = self.memory().consumer().load(Ordering::Acquire);
            // R1: pairs with R2 (see `is_broken`).
            let taken = self.reserving.taken.load(Ordering::Acquire);
            let used = low(taken).wrapping_sub(consumer);
            if used > self.entries() {
                if looks == LOOKS || self.is_broken(consumer) {
                    return 0;
                }
                looks += 1;
                continue;
            }
            let take = n.min(self.entries() - used);
            if take == 0 {
                return 0;
            }
            let next = taken + u64::from(take);
            // R3: a hint, never ahead of `head`.
            let head = self.reserving.head_seen.load(Ordering::Relaxed);
            if next.wrapping_sub(head) > u64::from(self.entries()) && !self.head_allows(taken, used) {
                return 0;
            }
            // R2: test and take in one step, so that two reservers never both get the last place. Release: pairs with R1.
            if self.reserving.taken.compare_exchange_weak(taken, next, Ordering::Release, Ordering::Relaxed).is_ok() {
                return take;
            }
            lost();
        }
    }

    /// Give `n` reserved places back.
    #[inline]
    pub fn cancel(&self, n: u32) {
        // R4: nothing is handed over but the number; a read-modify-write, so R1 still pairs with the R2 before it.
        self.reserving.taken.fetch_sub(u64::from(n), Ordering::Relaxed);
    }

    /// Publish `entries` in that many reserved places, one after the other without an entry of others between them.
    ///
    /// When this returns the program can see them, or will as soon as a preempted thread with an earlier claim, or one
    /// that is publishing, runs again (see the top of the file).
    #[inline]
    pub fn submit(&self, entries: &[T]) {
        debug_assert!(entries.len() <= self.entries() as usize, "more entries than can be reserved");
        if !entries.is_empty() {
            let claim = self.claim(entries);
            self.finish(claim);
        }
    }

    /// Step 1: name the places and write them.
    #[inline]
    pub(super) fn claim(&self, entries: &[T]) -> Claim {
        let claim = self.claim_places(entries.len() as u64);
        let mut index = claim.index();
        for entry in entries {
            self.memory().write(index, *entry);
            index = index.wrapping_add(1);
        }
        claim
    }

    /// Name `n` reserved places, one after the other. The caller writes what stands there and then calls
    /// [`finish`](Self::finish): until it does nothing that is submitted afterwards is published.
    #[inline]
    pub fn claim_places(&self, n: u64) -> Claim {
        // S1: name the places. AcqRel although only the number counts: the reserver that saw the program free the
        // first of our entries (A) is this thread or claimed before us, and its view must reach our writes.
        let position = self.submitting.claimed.fetch_add(n, Ordering::AcqRel);
        Claim { position, end: position + n }
    }

    /// Steps 2 and 3: publish what was written, or leave it to those who are before us.
    #[inline]
    pub fn finish(&self, Claim { position, end }: Claim) {
        // S2: first in line. Release: our entries; Acquire: those before, which B publishes along with ours.
        if self.submitting.head.compare_exchange(position, end, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.publish_from(end);
        } else {
            self.finish_behind(position, end);
        }
    }

    /// How many places could be reserved now: a snapshot; 0 for a broken ring.
    pub fn free(&self) -> u32 {
        // A, R1: only the numbers are used.
        let consumer = self.memory().consumer().load(Ordering::Acquire);
        let taken = self.reserving.taken.load(Ordering::Acquire);
        self.entries().saturating_sub(low(taken).wrapping_sub(consumer))
    }

    /// How many places are reserved and not yet published: a snapshot.
    pub fn in_flight(&self) -> u32 {
        // S6, R1: only the numbers are used. `head` first: it is never ahead of a later `taken`.
        let head = self.submitting.head.load(Ordering::Acquire);
        let taken = self.reserving.taken.load(Ordering::Acquire);
        low(taken.saturating_sub(head)).min(self.entries())
    }

    /// True once, after the ring was first found broken: the caller logs it.
    pub fn take_broken_report(&self) -> bool {
        self.geometry.broken.take()
    }

    /// Reserved minus consumed was more than the ring holds. Reserving never makes it so, hence either the program did, or
    /// it consumed and others reserved between the two loads. In the second case the consumer index has changed.
    #[cold]
    fn is_broken(&self, consumer: u32) -> bool {
        // A: R1 saw a reservation (R2) whose owner had looked at a consumer index at most a ring behind it, so this
        // load returns that one or a newer one.
        let broken = self.memory().consumer().load(Ordering::Acquire) == consumer;
        if broken {
            self.geometry.broken.note();
        }
        broken
    }

    /// Learn the real `head`; says whether the reservation is within a ring of it.
    ///
    /// A sane consumer index is at most `head`, so what it leaves free is free for `head` too. Otherwise the program claims
    /// to have consumed what nobody has published.
    #[cold]
    fn head_allows(&self, taken: u64, used: u32) -> bool {
        // S6: only the number; after A, so not older than what the program consumed. `taken` may be old, but then R2 fails.
        let head = self.submitting.head.load(Ordering::Relaxed);
        // R3
        self.reserving.head_seen.store(head, Ordering::Relaxed);
        let sane = taken.saturating_sub(head) <= u64::from(used);
        if !sane {
            self.geometry.broken.note();
        }
        sane
    }

    /// Leave the mark, then look: step 3.
    #[cold]
    fn finish_behind(&self, position: u64, end: u64) {
        // S3: ready mark. Release: our entries; pairs with S5.
        self.geometry.marks.at(position).store(end, Ordering::Release);
        // S4: look at `head` by writing it, so that whoever moves it later sees our mark.
        let head = self.submitting.head.fetch_add(0, Ordering::AcqRel);
        self.publish_from(head);
    }

    /// Move `head` from `head`, where this thread found it or brought it, over all marked claims; then tell the program.
    #[inline]
    fn publish_from(&self, mut head: u64) {
        loop {
            let mut end = head;
            loop {
                // S5: pairs with S3.
                let mark = self.geometry.marks.at(end).load(Ordering::Acquire);
                // Not above: a mark of an earlier lap. The bound holds unless `head` has moved on, and then S2 fails.
                if mark <= end || mark - head > u64::from(self.entries()) {
                    break;
                }
                end = mark;
            }
            if end == head {
                break;
            }
            // S2: as in `finish`; whoever moved it instead looks on from there.
            if self.submitting.head.compare_exchange(head, end, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                break;
            }
            head = end;
        }
        // B: all entries before `head` are written; pairs with the program's C.
        advance(self.memory().producer(), &self.submitting.head, low(head), self.entries());
    }
}
