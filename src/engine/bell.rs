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
    /// POLLOUT is withdrawn.
    blocked: AtomicBool,
    /// The owner called since the worker looked last.
    called: CachePadded<AtomicBool>,
    /// One thread at a time takes from `near`; others need not.
    settling: AtomicBool,
    /// One thread at a time changes what lies at `far`; who finds it taken need not, see `unblock`.
    busy: AtomicBool,
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
            blocked: AtomicBool::new(false),
            called: CachePadded::new(AtomicBool::new(false)),
            settling: AtomicBool::new(false),
            busy: AtomicBool::new(false),
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
        if self.attention.load(Ordering::Relaxed) != 0 {
            self.send();
        }
    }

    /// Make `near` readable.
    #[cold]
    pub(super) fn send(&self) {
        let before = self.pending.load(Ordering::SeqCst);
        // A number of its own for each, so that the last step is not taken for somebody else's.
        let under_way = (before & !STATE).wrapping_add(STATE + 1) | UNDER_WAY;
        if before & STATE == NONE
            && self.pending.compare_exchange(before, under_way, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            // The queue is empty, so this cannot block; it fails only when the program has closed its end.
            let _ = sys::send(self.far, &[1], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            // Unless it was taken back already.
            let there = under_way & !STATE | THERE;
            let _ = self.pending.compare_exchange(under_way, there, Ordering::SeqCst, Ordering::SeqCst);
        }
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
        self.attention.fetch_or(QUIET, Ordering::SeqCst);
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
        } else if !self.blocked.load(Ordering::SeqCst) && self.occupy() {
            let _ = sys::send(near, &FILLER, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            self.blocked.store(true, Ordering::SeqCst);
            self.busy.store(false, Ordering::Release);
            // As W3: room that was made meanwhile is not missed.
            fence(Ordering::SeqCst);
            if writable() {
                self.unblock();
            }
        }
    }

    /// Take `busy`, which others hold for a few system calls. Not at any price: the holder may be the very thread that this
    /// signal handler interrupts. POLLOUT then stays, and a sleeper for it wakes for nothing.
    fn occupy(&self) -> bool {
        for _ in 0..PATIENCE {
            if !self.busy.swap(true, Ordering::Acquire) {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    /// TX entries were consumed and the ring is writable: give POLLOUT back if it was withdrawn.
    #[inline]
    pub(super) fn writable_again(&self) {
        // W2 for the other direction; its partner is the fence in `set_writable`.
        fence(Ordering::SeqCst);
        if self.blocked.load(Ordering::Relaxed) {
            self.unblock();
        }
    }

    /// Whoever holds `busy` now either withdraws POLLOUT, and looks at the ring again afterwards, or found it not withdrawn.
    #[cold]
    fn unblock(&self) {
        if self.blocked.load(Ordering::SeqCst) && !self.busy.swap(true, Ordering::Acquire) {
            self.drain_far();
            self.blocked.store(false, Ordering::SeqCst);
            self.busy.store(false, Ordering::Release);
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
        if self.busy.swap(true, Ordering::Acquire) {
            return true;
        }
        // The filler is in front: a raw kick gets EAGAIN now, as from a kernel socket with a full ring. It must stay; whoever
        // wanted to take it out meanwhile is made up for by the turn that follows a kick.
        let kicked = self.blocked.load(Ordering::SeqCst) || self.drain_far();
        self.busy.store(false, Ordering::Release);
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

    /// A look for raw kicks leaves the datagram that withdraws POLLOUT where it is.
    #[test]
    fn looking_for_kicks_leaves_pollout_withdrawn() {
        let (near, bell) = Bell::new(true, true).expect("a bell");
        bell.set_writable(near, || false);
        assert!(bell.blocked.load(Ordering::SeqCst) && bell.take_kick() && readable(bell.far));
        bell.set_writable(near, || true);
        assert!(!bell.blocked.load(Ordering::SeqCst) && !readable(bell.far));
        sys::close(near);
    }
}
