//! The descriptor of an engine socket, and what makes it readable and writable.
//!
//! The program holds one end (`near`) of a private pair of UNIX sockets, the engine the other (`far`). They keep messages apart as
//! datagram sockets do, and are of the kind that tells one end when the other is closed (SOCK_SEQPACKET): so the worker hears of a
//! close that is not interposed.
//! - POLLIN: one datagram from `far` waits at `near`. It is sent after RX entries were published, if somebody may sleep
//!   on them, and taken back when the ring was seen drained.
//! - POLLOUT: withdrawn by one datagram from `near` that uses up its send buffer, while more than half of the TX ring is
//!   used; given back by reading that datagram at `far`.
//! - An empty datagram that arrives at `far` is a kick made by a raw system call.
//!
//! Who may sleep is one word, `attention`: the number of announced (interposed) waits, and a bit that says that the owner
//! has made no call that we see for a while (`quiet`), so that it may be in a wait that we do not see. Two awake ends
//! therefore make no system call. The worker sets the bit; any call of the owner clears it.
//!
//! The hand-shake is the classic one of two flags. The waiter announces itself, fences (W1), and looks at the ring; the
//! publisher publishes, fences (W2), and looks at `attention`: at least one of them sees the other. The same pair keeps
//! the taking back of the datagram safe: it stores `pending` = none, fences (W3), and looks at the ring; a publisher that
//! still read that it was pending fenced (W2) before that, so the ring is seen filled and the datagram is sent again.

use std::os::fd::RawFd;

use crossbeam_utils::CachePadded;

use super::table;
use crate::{
    errno::{Errno, Result},
    sync::{AtomicBool, AtomicU32, Ordering, fence, thread},
    sys,
};

const QUIET: u32 = 1;
const WAITER: u32 = 2;

/// How often `busy` is tried for.
const PATIENCE: u32 = 1000;

/// `pending` is one of these and, above it, a count of the datagrams.
const STATE: u32 = 3;
/// No datagram at `near`.
const NONE: u32 = 0;
/// Somebody is sending it.
const UNDER_WAY: u32 = 1;
/// It was sent.
const THERE: u32 = 2;

/// Nobody changes what lies at `far`.
const FREE: u32 = 0;
/// Somebody does.
const HELD: u32 = 1;
/// Somebody does, and is to give POLLOUT back afterwards.
const WANTED: u32 = 2;

/// A datagram that uses up the send buffer of `near`. The kernel's least buffer is 4.5 KiB with all overhead, and it
/// withdraws POLLOUT when a quarter of it is used.
const FILLER: [u8; 2048] = [0; 2048];

/// See the module.
#[derive(Debug)]
pub(super) struct Bell {
    far: RawFd,
    /// Read by publishers, written when a wait begins or ends.
    attention: CachePadded<AtomicU32>,
    /// A datagram waits at `near`.
    pending: CachePadded<AtomicU32>,
    /// Something was published, or may have been, for a quiet owner while a datagram waited: level-triggered waits see that one,
    /// edge-triggered ones may have seen it long ago, and the worker sends it afresh.
    owed: AtomicBool,
    /// POLLOUT is withdrawn.
    blocked: AtomicBool,
    /// The owner called since the worker looked last.
    called: CachePadded<AtomicBool>,
    /// One thread at a time takes from `near`; others need not.
    settling: AtomicBool,
    /// One thread at a time changes what lies at `far`: one of the three below.
    busy: AtomicU32,
    /// A kick was taken out together with the filler, and the worker has not seen it.
    kicked: AtomicBool,
}

impl Bell {
    /// The pair: the program's number and the bell.
    pub(super) fn new(cloexec: bool, nonblock: bool) -> Result<(RawFd, Bell)> {
        let (near, far) = sys::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)?;
        table::set_internal(far, true);
        let bell = Bell {
            far,
            attention: CachePadded::new(AtomicU32::new(QUIET)),
            pending: CachePadded::new(AtomicU32::new(NONE)),
            owed: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            called: CachePadded::new(AtomicBool::new(false)),
            settling: AtomicBool::new(false),
            busy: AtomicU32::new(FREE),
            kicked: AtomicBool::new(false),
        };
        // The least that the kernel grants, so that one filler withdraws POLLOUT.
        sys::setsockopt(near, libc::SOL_SOCKET, libc::SO_SNDBUF, &1i32)
            .and_then(|()| sys::set_flags(near, cloexec, nonblock))
            .inspect_err(|_| sys::close(near))?;
        Ok((near, bell))
    }

    /// The engine's end, for the worker to watch.
    pub(super) fn far(&self) -> RawFd {
        self.far
    }

    /// Something was published.
    #[inline]
    pub(super) fn ring(&self) {
        // W2: publication before the look at `attention`; pairs with W1 and W3.
        fence(Ordering::SeqCst);
        if self.attention.load(Ordering::Relaxed) != 0 && !self.send() && !self.owed.load(Ordering::Relaxed) {
            // Release: pairs with `take_owed`, so that the publication is seen with it.
            self.owed.store(true, Ordering::Release);
        }
    }

    /// Worker: whether something was published since the datagram was sent.
    pub(super) fn take_owed(&self) -> bool {
        self.owed.swap(false, Ordering::Acquire)
    }

    /// Make `near` readable. False: it is already.
    #[cold]
    pub(super) fn send(&self) -> bool {
        let before = self.pending.load(Ordering::SeqCst);
        // A number of its own for each, so that the last step is not taken for somebody else's.
        let under_way = (before & !STATE).wrapping_add(STATE + 1) | UNDER_WAY;
        let free = before & STATE == NONE;
        if free && self.pending.compare_exchange(before, under_way, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // The queue is empty, so this cannot block; it fails only when the program has closed its end.
            let _ = sys::send(self.far, &[1], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            // Unless it was taken back already.
            let there = under_way & !STATE | THERE;
            let _ = self.pending.compare_exchange(under_way, there, Ordering::SeqCst, Ordering::SeqCst);
        }
        free
    }

    /// Whether a datagram waits at `near`, or is on its way there.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst) & STATE != NONE
    }

    /// The owner made a call that we see. Returns true when it was quiet until now: then the worker must be told.
    #[inline]
    pub(super) fn called(&self) -> bool {
        if !self.called.load(Ordering::Relaxed) {
            self.called.store(true, Ordering::Relaxed);
        }
        self.attention.load(Ordering::Relaxed) & QUIET != 0
            && self.attention.fetch_and(!QUIET, Ordering::SeqCst) & QUIET != 0
    }

    /// Worker: whether the owner called since the last look; if not it is quiet from now on.
    pub(super) fn look(&self) -> bool {
        if self.called.swap(false, Ordering::Relaxed) {
            return true;
        }
        if self.attention.fetch_or(QUIET, Ordering::SeqCst) & QUIET == 0 {
            // Until now nobody rang for him.
            self.owed.store(true, Ordering::Relaxed);
        }
        // As W1: the bit before the look at the ring that the worker makes next.
        fence(Ordering::SeqCst);
        false
    }

    /// Announce a wait. The caller looks at the rings afterwards.
    pub(super) fn announce(&self) {
        self.attention.fetch_add(WAITER, Ordering::SeqCst);
        // W1: the announcement before the look at the ring; pairs with W2.
        fence(Ordering::SeqCst);
    }

    /// Undo one [`Bell::announce`].
    pub(super) fn retract(&self) {
        self.attention.fetch_sub(WAITER, Ordering::SeqCst);
    }

    /// Whether a wait is announced.
    pub(super) fn has_waiters(&self) -> bool {
        self.attention.load(Ordering::SeqCst) >= WAITER
    }

    /// Take the datagram back if `ready` says that nothing is there. `near` must be verified to be ours.
    pub(super) fn settle(&self, near: RawFd, ready: impl Fn() -> bool) {
        if !self.is_pending() || ready() || self.settling.swap(true, Ordering::Acquire) {
            return;
        }
        let pending = self.pending.load(Ordering::SeqCst);
        let mut byte = [0; 4];
        let taken = pending & STATE != NONE && sys::recv(near, &mut byte, libc::MSG_DONTWAIT).is_ok();
        // One that is still under way would come after this was cleared, and stay. Whoever it wakes for nothing comes here
        // again. One that was there and is not was read by the program.
        if taken || pending & STATE == THERE {
            self.pending.store(pending & !STATE, Ordering::SeqCst);
        }
        self.settling.store(false, Ordering::Release);
        // W3: see the module.
        fence(Ordering::SeqCst);
        if ready() {
            self.send();
        }
    }

    /// Take the datagram although something is there, so that the next publication sends it afresh. The caller has announced
    /// a wait, and looks at the ring afterwards. If others wait too they may have relied on it: then it is sent again.
    pub(super) fn hush(&self, near: RawFd, ready: impl Fn() -> bool) {
        self.settle(near, || false);
        // The fence W3 in `settle` is between the taking and these looks: whoever announces itself after them looks at the
        // ring after them too.
        if self.attention.load(Ordering::SeqCst) >= 2 * WAITER && ready() {
            self.send();
        }
    }

    /// Make POLLOUT of `near` what `writable` says. `near` must be verified to be ours.
    pub(super) fn set_writable(&self, near: RawFd, writable: impl Fn() -> bool) {
        if writable() {
            self.unblock();
        } else {
            self.withdraw(near);
            // Room that was made meanwhile is not missed.
            if writable() {
                self.unblock();
            }
        }
    }

    /// Withdraw POLLOUT whatever room there is, so that the next frame that leaves gives it back: an edge. `near` must be
    /// verified to be ours; the caller looks afterwards whether one has left already.
    pub(super) fn withdraw(&self, near: RawFd) {
        // Whether it is withdrawn already is known only here: somebody may be in the middle of giving it back.
        if self.occupy() {
            if !self.blocked.swap(true, Ordering::SeqCst) {
                let _ = sys::send(near, &FILLER, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            }
            self.leave();
        }
        // As W3: before the caller's next look at the ring.
        fence(Ordering::SeqCst);
    }

    /// Take `busy`, which others hold for a few system calls. Not at any price: the holder may be the very thread that this
    /// signal handler interrupts. POLLOUT then stays, and a sleeper for it wakes for nothing.
    fn occupy(&self) -> bool {
        for _ in 0..PATIENCE {
            if self.busy.compare_exchange(FREE, HELD, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    /// Give `busy` back, and do what was asked for meanwhile.
    fn leave(&self) {
        if self.busy.swap(FREE, Ordering::SeqCst) == WANTED {
            self.unblock();
        }
    }

    /// TX entries were consumed and the ring is writable: give POLLOUT back if it was withdrawn.
    #[inline]
    pub(super) fn writable_again(&self) {
        // W2 for the other direction; its partner is the fence in `withdraw`.
        fence(Ordering::SeqCst);
        if self.blocked.load(Ordering::Relaxed) {
            self.unblock();
        }
    }

    /// Give POLLOUT back, or leave it to the one who holds `busy`.
    #[cold]
    fn unblock(&self) {
        while self.blocked.load(Ordering::SeqCst) {
            if self.busy.compare_exchange(FREE, HELD, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                if self.drain_far() {
                    self.kicked.store(true, Ordering::SeqCst);
                }
                self.blocked.store(false, Ordering::SeqCst);
                self.leave();
                return;
            }
            // Fails when it was given back meanwhile: then once more.
            if self.busy.compare_exchange(HELD, WANTED, Ordering::SeqCst, Ordering::SeqCst) != Err(FREE) {
                return;
            }
        }
    }

    /// Read everything at `far`. Returns whether a kick was among it.
    fn drain_far(&self) -> bool {
        let mut kicked = false;
        let mut byte = [0; 1];
        // Bounded: a program that floods its own descriptor must not keep us here.
        for _ in 0..64 {
            match sys::recv(self.far, &mut byte, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
                Ok(0) => kicked = true,
                Ok(_) => {}
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        kicked
    }

    /// Worker: whether a raw kick has arrived.
    pub(super) fn take_kick(&self) -> bool {
        if !self.occupy() {
            return true;
        }
        // The filler must stay. Behind it is nothing: a raw kick gets EAGAIN now, as from a kernel socket with a full ring.
        let arrived = if self.blocked.load(Ordering::SeqCst) { self.take_leading_kicks() } else { self.drain_far() };
        self.leave();
        self.kicked.swap(false, Ordering::SeqCst) | arrived
    }

    /// Take the kicks in front of the filler out. Returns whether there was one.
    fn take_leading_kicks(&self) -> bool {
        let mut kicked = false;
        let mut byte = [0; 1];
        // Bounded, as in `drain_far`.
        for _ in 0..64 {
            if sys::recv(self.far, &mut byte, libc::MSG_DONTWAIT | libc::MSG_PEEK) != Ok(0) {
                break;
            }
            kicked = sys::recv(self.far, &mut byte, libc::MSG_DONTWAIT).is_ok();
        }
        kicked
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        table::set_internal(self.far, false);
        sys::close(self.far);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(fd: RawFd) -> bool {
        let mut byte = [0; 4];
        sys::recv(fd, &mut byte, libc::MSG_DONTWAIT | libc::MSG_PEEK).is_ok()
    }

    /// A sender that is interrupted between its note and its datagram: who settles meanwhile must not forget about it, or
    /// the datagram stays for ever and every sleep ends at once.
    #[test]
    fn a_datagram_under_way_is_not_forgotten() {
        let (near, bell) = Bell::new(true, true).expect("a bell");
        bell.pending.store(UNDER_WAY, Ordering::SeqCst);
        bell.settle(near, || false);
        assert!(bell.is_pending());
        sys::send(bell.far, &[1], libc::MSG_DONTWAIT).expect("the datagram");
        bell.settle(near, || false);
        assert!(!bell.is_pending() && !readable(near));
        bell.send();
        assert!(bell.is_pending() && readable(near));
        // One that the program read itself is not waited for.
        assert!(sys::recv(near, &mut [0; 4], libc::MSG_DONTWAIT).is_ok());
        bell.settle(near, || false);
        assert!(!bell.is_pending());
        sys::close(near);
    }

    /// A look for raw kicks leaves the datagram that withdraws POLLOUT where it is, and does not take it for a kick.
    #[test]
    fn looking_for_kicks_leaves_pollout_withdrawn() {
        let (near, bell) = Bell::new(true, true).expect("a bell");
        sys::send(near, &[], libc::MSG_DONTWAIT).expect("a kick");
        bell.set_writable(near, || false);
        assert!(bell.take_kick() && !bell.take_kick());
        assert!(bell.blocked.load(Ordering::SeqCst) && readable(bell.far));
        bell.set_writable(near, || true);
        assert!(!bell.blocked.load(Ordering::SeqCst) && !readable(bell.far));
        // A kick that went out with it is not lost.
        sys::send(near, &[], libc::MSG_DONTWAIT).expect("a kick");
        bell.set_writable(near, || false);
        bell.set_writable(near, || true);
        assert!(bell.take_kick() && !bell.take_kick());
        sys::close(near);
    }

    /// Room that is found while somebody else is at the far end is not forgotten: who is there gives POLLOUT back.
    #[test]
    fn room_found_while_the_far_end_is_busy_is_not_forgotten() {
        let (near, bell) = Bell::new(true, true).expect("a bell");
        bell.withdraw(near);
        assert!(bell.occupy());
        bell.writable_again();
        assert!(bell.blocked.load(Ordering::SeqCst));
        bell.leave();
        assert!(!bell.blocked.load(Ordering::SeqCst));
        sys::close(near);
    }
}
