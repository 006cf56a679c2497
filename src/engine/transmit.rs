//! The transmit path: from a TX ring to the device, on the thread of whoever calls.
//!
//! A turn reads a batch of descriptors, checks each against the UMEM, reserves completion places for the batch, hands the
//! frames to the device, cancels what the device refused and submits what it took. Nothing is allocated, nothing locked.
//!
//! What the kernel (6.18) does with what cannot be sent, and so does this: an invalid descriptor completes, with the chain
//! that it spoils, and the call that met it stops behind it and succeeds; the rest of such a chain completes without being
//! sent; so does a chain of more than 18 descriptors, without a stop. A frame without a whole Ethernet header or longer
//! than the device takes completes and the call stops with EBUSY.

use core::mem::MaybeUninit;

use super::{
    bell::Bell,
    pool::Pool,
    stat::{Send, add_owned},
};
use crate::{
    device::{Piece, tally},
    errno::{Errno, Result},
    ring::{Available, Consumer, Token},
    sync::{AtomicBool, AtomicU32, Ordering, UnsafeCell},
    uapi::{Desc, Ring, XDP_PKT_CONTD},
};

/// Descriptors of one batch.
const BATCH: usize = 64;
/// Descriptors of one frame: the kernel's limit for a packet buffer.
const MAX_CHAIN: usize = 18;
/// The least that leaves: a whole Ethernet header.
const ETHER_HEADER: u32 = 14;
/// Rounds that a caller does for others who found the token taken, before it leaves the rest to the next call.
const ROUNDS: u32 = 8;

/// A chain whose end has not come yet: taken from the ring, its completion places reserved.
#[derive(Debug)]
struct Held {
    len: usize,
    /// The chain was spoiled: what is left of it goes nowhere.
    draining: bool,
    pieces: [Piece; MAX_CHAIN],
    addrs: [u64; MAX_CHAIN],
}

const NO_PIECE: Piece = Piece { data: core::ptr::null(), len: 0, more: false };

/// The sending side of one socket.
#[derive(Debug)]
pub(super) struct Tx {
    ring: Consumer<Desc>,
    token: Token,
    budget: AtomicU32,
    told_broken: AtomicBool,
    /// The last turn ended because the device did not take a frame.
    held_back: AtomicBool,
    /// Reached only by the holder of the token.
    held: UnsafeCell<Held>,
}

// SAFETY: `held` is reached only between Token::take and Token::put, which order its accesses; the pointers in it are the
// program's and not followed without the checks of a turn.
unsafe impl Sync for Tx {}
// SAFETY: as above.
unsafe impl core::marker::Send for Tx {}

/// How a batch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// All that was wanted was looked at.
    Done,
    /// A descriptor was invalid: the turn ends there and succeeds.
    Invalid,
    /// A frame that no device takes was dropped: the turn ends there with EBUSY.
    Dropped,
    /// No completion place, or refused by the device.
    Refused,
}

impl Tx {
    pub(super) fn new(ring: Consumer<Desc>, budget: u32) -> Tx {
        let held = Held { len: 0, draining: false, pieces: [NO_PIECE; MAX_CHAIN], addrs: [0; MAX_CHAIN] };
        Tx {
            ring,
            token: Token::new(),
            budget: AtomicU32::new(budget),
            told_broken: AtomicBool::new(false),
            held_back: AtomicBool::new(false),
            held: UnsafeCell::new(held),
        }
    }

    /// Descriptors a turn may send from now on.
    pub(super) fn set_budget(&self, budget: u32) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// Whether half of the ring or more is free.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.ring.queued() <= self.ring.entries() / 2
    }

    /// Size of the ring.
    pub(super) fn entries(&self) -> u32 {
        self.ring.entries()
    }

    /// Entries consumed so far, modulo 2^32.
    pub(super) fn consumed(&self) -> u32 {
        self.ring.index()
    }

    /// Whether frames wait because the device did not take them.
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }

    /// Nobody sends any more; returns when nobody does.
    pub(super) fn close(&self) {
        self.token.close();
    }

    /// Be in a turn, as far as others can tell, until [`Tx::let_go`].
    #[cfg(test)]
    pub(super) fn hold(&self) -> bool {
        self.token.take()
    }

    #[cfg(test)]
    pub(super) fn let_go(&self) {
        self.token.put_anyway();
    }

    /// One turn. EAGAIN: more is left than the budget, no completion place, or the device holds the sender back.
    pub(super) fn turn(&self, pool: &Pool, counters: &Send, bell: &Bell) -> Result<()> {
        if !self.token.take() {
            return Ok(());
        }
        let before = self.consumed();
        let mut result;
        let mut rounds = 0;
        loop {
            result = self.drain(pool, counters);
            rounds += 1;
            if rounds == ROUNDS {
                self.token.put_anyway();
                break;
            }
            if self.token.put() {
                break;
            }
        }
        let device = pool.device.counters();
        for (shown, now) in counters.device.iter().zip([device.tx_frames, device.tx_bytes, device.tx_dropped]) {
            shown.store(now, Ordering::Relaxed);
        }
        // Only when something has left: it may have been withdrawn for the sake of an edge.
        if self.consumed() != before && self.is_writable() {
            bell.writable_again();
        }
        result
    }

    #[expect(clippy::cast_possible_truncation, reason = "BATCH is 64")]
    fn drain(&self, pool: &Pool, counters: &Send) -> Result<()> {
        add_owned(&counters.kicks, 1);
        let mut left = self.budget.load(Ordering::Relaxed);
        loop {
            let waiting = match self.ring.available() {
                Available::Entries(n) => n,
                Available::Broken => {
                    if !self.told_broken.swap(true, Ordering::Relaxed) {
                        pool.report_broken(Ring::Tx);
                    }
                    return Ok(());
                }
            };
            if waiting == 0 {
                add_owned(&counters.ring_empty, 1);
                return Ok(());
            }
            if left == 0 && !self.next_is_invalid(pool) {
                add_owned(&counters.again, 1);
                return Err(Errno::EAGAIN);
            }
            let (consumed, end) = self.batch(waiting.min(left).clamp(1, BATCH as u32), pool, counters);
            left = left.saturating_sub(consumed);
            match end {
                End::Done => {}
                End::Invalid => return Ok(()),
                End::Dropped => return Err(Errno::EBUSY),
                End::Refused => {
                    add_owned(&counters.again, 1);
                    return Err(Errno::EAGAIN);
                }
            }
        }
    }

    /// The kernel looks at a descriptor before it looks at the budget: one that is invalid goes even when it is used up.
    #[cold]
    fn next_is_invalid(&self, pool: &Pool) -> bool {
        pool.umem.rules().piece(&self.ring.get(0)).is_none()
    }

    /// Up to `want` (1 to BATCH) descriptors. Returns how many were consumed.
    #[inline]
    fn batch(&self, want: u32, pool: &Pool, counters: &Send) -> (u32, End) {
        self.held.with_mut(|held| {
            // SAFETY: the caller holds the token, so this is the only reference.
            let held = unsafe { &mut *held };
            self.batch_with(held, want, pool, counters)
        })
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts of a batch, at most BATCH + MAX_CHAIN")]
    fn batch_with(&self, held: &mut Held, want: u32, pool: &Pool, counters: &Send) -> (u32, End) {
        if held.draining {
            return self.drain_chain(held, want, pool, counters);
        }
        let mut piece_space = [const { MaybeUninit::<Piece>::uninit() }; BATCH + MAX_CHAIN];
        let mut addr_space = [const { MaybeUninit::<u64>::uninit() }; BATCH + MAX_CHAIN];
        let before = held.len;
        let mut bytes = 0u64;
        for i in 0..before {
            piece_space[i].write(held.pieces[i]);
            addr_space[i].write(held.addrs[i]);
            bytes += u64::from(held.pieces[i].len);
        }

        let rules = pool.umem.rules();
        let lengths = u64::from(ETHER_HEADER)..=u64::from(pool.interface.longest_frame());
        let places = pool.completion.reserve(want);
        // Pieces, addresses, and the pieces that make whole frames. An address without a piece is the last.
        let (mut len, mut named, mut whole) = (before, before, 0);
        let mut end = if places == want { End::Done } else { End::Refused };
        // What ends the batch, if something does: a chain that is dropped, and whether it goes on.
        let mut spoiled = None;
        for i in 0..places {
            let desc = self.ring.get(i);
            let more = desc.options & XDP_PKT_CONTD != 0;
            // `named` is at most `before` + `i`, below the space's BATCH + MAX_CHAIN.
            addr_space[named].write(desc.addr);
            named += 1;
            let Some(data) = rules.piece(&desc) else {
                (end, spoiled) = (End::Invalid, Some(more));
                break;
            };
            if len - whole == MAX_CHAIN {
                // No frame may be that long: it is dropped to its end, and the turn goes on.
                (end, spoiled) = (End::Done, Some(more));
                break;
            }
            piece_space[len].write(Piece { data, len: desc.len, more });
            len += 1;
            bytes += u64::from(desc.len);
            if !more {
                if !lengths.contains(&bytes) {
                    (end, spoiled) = (End::Dropped, Some(false));
                    break;
                }
                (whole, bytes) = (len, 0);
            }
        }
        // SAFETY: the first `len` were written above; MaybeUninit<T> has T's layout.
        let pieces = unsafe { core::slice::from_raw_parts(piece_space.as_ptr().cast::<Piece>(), len) };
        // SAFETY: the first `named` were written above; MaybeUninit<T> has T's layout.
        let addrs = unsafe { core::slice::from_raw_parts(addr_space.as_ptr().cast::<u64>(), named) };

        let sent = if whole == 0 { 0 } else { pool.device.transmit(pool.queue, &pieces[..whole]).pieces.min(whole) };
        let held_back = sent < whole;
        // Written only when it changes.
        if self.held_back.load(Ordering::Relaxed) != held_back {
            self.held_back.store(held_back, Ordering::Relaxed);
        }
        let (consumed, completed);
        if held_back {
            // What the device refused stays in the ring; a held chain stays held.
            end = End::Refused;
            (consumed, completed) = (sent.saturating_sub(before), sent);
            if sent >= before {
                held.len = 0;
            }
        } else if let Some(more) = spoiled {
            (consumed, completed) = (named - before, named);
            held.len = 0;
            held.draining = more;
            match end {
                End::Dropped => add_owned(&counters.dropped, 1),
                _ => add_owned(&counters.invalid, (named - whole) as u64),
            }
        } else {
            (consumed, completed) = (len - before, whole);
            held.len = len - whole;
            held.pieces[..held.len].copy_from_slice(&pieces[whole..]);
            held.addrs[..held.len].copy_from_slice(&addrs[whole..]);
        }
        let unused = before + places as usize - completed - held.len;
        if unused != 0 {
            pool.completion.cancel(unused as u32);
        }
        if consumed != 0 {
            self.ring.release(consumed as u32);
        }
        if completed != 0 {
            pool.completion.submit(&addrs[..completed]);
        }
        if sent != 0 {
            let (frames, bytes) = tally(&pieces[..sent]);
            add_owned(&counters.frames, frames);
            add_owned(&counters.bytes, bytes);
        }
        if end == End::Refused && pool.completion.take_broken_report() {
            pool.report_broken(Ring::Completion);
        }
        (consumed as u32, end)
    }

    /// The rest of a chain that was spoiled: each descriptor completes, counts as invalid, and goes nowhere.
    #[cold]
    fn drain_chain(&self, held: &mut Held, want: u32, pool: &Pool, counters: &Send) -> (u32, End) {
        let places = pool.completion.reserve(want);
        let mut n = 0;
        while n < places && held.draining {
            let desc = self.ring.get(n);
            pool.completion.submit(&[desc.addr]);
            held.draining = desc.options & XDP_PKT_CONTD != 0;
            n += 1;
        }
        if n < places {
            pool.completion.cancel(places - n);
        }
        self.ring.release(n);
        add_owned(&counters.invalid, u64::from(n));
        (n, if places == 0 { End::Refused } else { End::Done })
    }
}
