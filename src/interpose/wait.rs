//! `poll` and `ppoll`, and what `super::select` and `super::epoll` share with them.
//!
//! A wait that has a socket of ours in its set goes like this: give each of ours the turn that the kernel's `poll` gives
//! (transmit what is queued), look; if nothing is ready, announce the wait on ours, look again, and sleep in the next
//! definition, where ours become readable or writable when something happens; retract, and look. What comes back is the truth
//! about ours, and the kernel's word about all others. A wake-up for nothing goes back to sleep for the rest of the time.
//!
//! These calls may come from a signal handler (nothing is allocated) and may be cancelled while they sleep: what they hold is
//! in a plain struct on the stack, which a cancellation handler releases, and every step is an `extern "C"` function of its
//! own, so that the frame from which the sleeping call is made has nothing to clean up. See `super`.

use core::{
    ffi::{c_int, c_long, c_void},
    mem::{self, MaybeUninit},
    ptr,
};

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use super::{Answer, SavedErrno, any_socket, cancellation_point, guard, next, scratch::Scratch};
use crate::{
    engine,
    errno::{Errno, Result},
    sync::Arc,
    sys,
    uapi::Socket as _,
};

const NO_MASK: *const sigset_t = ptr::null();

const SECOND: u64 = 1_000_000_000;

/// What the kernel is asked about ours: as far as the program asks for it.
const WATCHED: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM;

/// When a wait ends: never, or at a monotonic time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Never,
    At(u64),
}

/// A timeout as the program gives it.
pub(super) enum Timeout {
    /// Negative: without end.
    Milliseconds(c_int),
    /// Null: without end.
    Time(*const timespec),
}

impl Timeout {
    /// EINVAL: not a time.
    pub(super) fn read(&self) -> Result<Deadline> {
        match *self {
            Timeout::Milliseconds(ms) => {
                Ok(u64::try_from(ms).map_or(Deadline::Never, |ms| Deadline::after(ms * 1_000_000)))
            }
            Timeout::Time(time) => {
                // SAFETY: null, or the program's own time.
                let time = unsafe { time.as_ref() };
                time.map_or(Ok(Deadline::Never), |t| nanoseconds(t).map(Deadline::after))
            }
        }
    }
}

impl Deadline {
    /// So many nanoseconds from now.
    pub(super) fn after(ns: u64) -> Deadline {
        Deadline::At(sys::now_ns().saturating_add(ns))
    }

    /// Nanoseconds left; `None`: without end.
    pub(super) fn left(self) -> Option<u64> {
        match self {
            Deadline::Never => None,
            Deadline::At(end) => Some(end.saturating_sub(sys::now_ns())),
        }
    }
}

/// A timespec in nanoseconds; beyond 584 years it is as good as that. EINVAL: not a time.
pub(super) fn nanoseconds(time: &timespec) -> Result<u64> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::EINVAL)?;
    let rest = u64::try_from(time.tv_nsec).ok().filter(|&n| n < SECOND).ok_or(Errno::EINVAL)?;
    Ok(seconds.saturating_mul(SECOND).saturating_add(rest))
}

/// Nanoseconds as a timespec.
pub(super) fn time(ns: u64) -> timespec {
    let seconds = libc::time_t::try_from(ns / SECOND).unwrap_or(libc::time_t::MAX);
    timespec { tv_sec: seconds, tv_nsec: c_long::try_from(ns % SECOND).unwrap_or(0) }
}

/// What of a socket's readiness a poll that asks for `events` is told.
pub(super) fn told(ready: i16, events: i16) -> i16 {
    let mut all = ready;
    if ready & libc::POLLIN != 0 {
        all |= libc::POLLRDNORM;
    }
    if ready & libc::POLLOUT != 0 {
        all |= libc::POLLWRNORM;
    }
    all & (events | libc::POLLERR | libc::POLLHUP)
}

/// One of our sockets in a set. `socket` is an `Arc::into_raw`.
#[derive(Clone, Copy)]
pub(super) struct Member {
    socket: *const engine::Socket,
    /// Where in the program's set it stands.
    pub(super) place: usize,
    pub(super) events: i16,
    /// What is ready of that.
    pub(super) ready: i16,
    announced: bool,
    /// The kernel woke us for it.
    pub(super) woken: bool,
}

impl Member {
    fn socket(&self) -> &engine::Socket {
        // SAFETY: the Arc is given back in `Members::release` only, which empties the list.
        unsafe { &*self.socket }
    }

    /// What the next sleep watches it for; the kernel's poll wakes for errors in any case.
    pub(super) fn watched(&self) -> Option<i16> {
        self.socket().is_open().then_some(self.events & WATCHED)
    }
}

/// Our sockets in a set. To be released with [`Members::release`], there is no destructor.
pub(super) struct Members(Scratch<Member, 16>);

impl Members {
    pub(super) const fn new() -> Members {
        Members(Scratch::new())
    }

    pub(super) fn list(&self) -> &[Member] {
        self.0.list()
    }

    pub(super) fn list_mut(&mut self) -> &mut [Member] {
        self.0.list_mut()
    }

    /// Take in the socket of `fd`, if it is one of ours.
    pub(super) fn add(&mut self, fd: c_int, place: usize, events: i16) -> Result<bool> {
        let Some(found) = engine::lookup_verified(fd) else { return Ok(false) };
        let socket = Arc::into_raw(found.share());
        let member = Member { socket, place, events, ready: 0, announced: false, woken: false };
        self.0.push(member).map(|()| true).inspect_err(|_| {
            // SAFETY: made above and not kept.
            drop(unsafe { Arc::from_raw(socket) });
        })
    }

    /// What the kernel's `poll` does to each. Returns how many are ready.
    pub(super) fn turn(&mut self) -> usize {
        self.look(engine::Socket::poll_turn)
    }

    fn look(&mut self, readiness: impl Fn(&engine::Socket) -> i16) -> usize {
        let mut count = 0;
        for member in self.0.list_mut() {
            member.ready = told(readiness(member.socket()), member.events);
            count += usize::from(member.ready != 0);
        }
        count
    }

    /// Announce the wait on each, then look again. Returns how many are ready.
    pub(super) fn announce(&mut self) -> usize {
        for member in self.0.list_mut() {
            // Anew for what woke us for nothing: that puts the descriptor right.
            if mem::take(&mut member.woken) && mem::take(&mut member.announced) {
                member.socket().end_wait();
            }
            if !mem::replace(&mut member.announced, true) {
                member.socket().begin_wait(member.events);
            }
        }
        self.look(|socket| socket.readiness())
    }

    /// Take back the announcements and give everything back.
    pub(super) fn release(&mut self) {
        for member in self.0.list() {
            if member.announced {
                member.socket().end_wait();
            }
            // SAFETY: from Arc::into_raw in `add`; the list is emptied below.
            drop(unsafe { Arc::from_raw(member.socket) });
        }
        self.0.release();
    }
}

/// A cancellation handler of the kind that needs no set-up in the frame: `struct _pthread_cleanup_buffer`.
#[repr(C)]
pub(super) struct Handler {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Handler,
}

impl Handler {
    pub(super) const NEW: Handler =
        Handler { routine: None, argument: ptr::null_mut(), kind: 0, previous: ptr::null_mut() };
}

unsafe extern "C" {
    pub(super) fn _pthread_cleanup_push(
        handler: *mut Handler,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    pub(super) fn _pthread_cleanup_pop(handler: *mut Handler, execute: c_int);
}

/// One `poll` that has ours in its set.
struct Polling {
    /// The program's array.
    fds: *mut pollfd,
    /// What the kernel gets to see.
    copy: Scratch<pollfd, 32>,
    members: Members,
    /// How many entries are others'.
    others: usize,
    deadline: Deadline,
    immediate: bool,
    mask: *const sigset_t,
    /// How long the next call to the kernel sleeps.
    time: timespec,
    /// The next answer of the kernel is the last.
    last: bool,
}

/// What to do next.
#[repr(C)]
struct Plan {
    /// Not 0: return `value`. 0: call the kernel with the rest, then [`judge`].
    done: c_int,
    value: c_int,
    fds: *mut pollfd,
    count: nfds_t,
    time: *const timespec,
    mask: *const sigset_t,
}

impl Plan {
    fn answer(value: c_int) -> Plan {
        Plan { done: 1, value, fds: ptr::null_mut(), count: 0, time: ptr::null(), mask: ptr::null() }
    }
}

impl Polling {
    /// Copy the set. Ours have no descriptor in the copy.
    fn collect(&mut self, count: usize) -> Result<()> {
        for place in 0..count {
            // SAFETY: the program says that `count` entries are there.
            let mut entry = unsafe { self.fds.wrapping_add(place).read() };
            entry.revents = 0;
            if entry.fd >= 0 && engine::maybe_ours(entry.fd) && self.members.add(entry.fd, place, entry.events)? {
                entry.fd = -1;
            }
            self.others += usize::from(entry.fd >= 0);
            self.copy.push(entry)?;
        }
        Ok(())
    }

    /// Let the kernel watch ours, as far as that is of use.
    fn watch(&mut self) {
        let copy = self.copy.list_mut();
        for member in self.members.list() {
            let entry = &mut copy[member.place];
            // SAFETY: an entry of the program's array, which `collect` has read.
            let fd = unsafe { (*self.fds.wrapping_add(member.place)).fd };
            let watched = member.watched();
            entry.fd = if watched.is_some() { fd } else { -1 };
            entry.events = watched.unwrap_or(0);
        }
    }

    /// After the kernel's answer: note what it says about ours and leave the others' in the copy. Returns whether one of
    /// ours has been closed under our feet.
    fn sort(&mut self) -> bool {
        let copy = self.copy.list_mut();
        let mut closed = false;
        for member in self.members.list_mut() {
            let said = mem::take(&mut copy[member.place].revents);
            member.woken = said != 0;
            if said & libc::POLLNVAL != 0 {
                member.ready = libc::POLLNVAL;
                closed = true;
            }
        }
        closed
    }

    /// Give the program the answer. Returns how many entries have one.
    fn give(&mut self) -> c_int {
        let copy = self.copy.list_mut();
        for member in self.members.list() {
            copy[member.place].revents = member.ready;
        }
        let mut count = 0;
        for (place, entry) in copy.iter_mut().enumerate() {
            let revents = mem::take(&mut entry.revents);
            // SAFETY: an entry of the program's array, which `collect` has read.
            unsafe { (*self.fds.wrapping_add(place)).revents = revents };
            count += c_int::from(revents != 0);
        }
        count
    }

    /// Ask the kernel about the others once, without sleeping, if there are any.
    fn finish(&mut self, ready: bool) -> Plan {
        self.last = true;
        self.time = time(0);
        // With a signal mask and nothing ready the kernel must see the call: a signal that is let in ends it.
        if self.others > 0 || !(ready || self.mask.is_null()) {
            self.call(if ready { ptr::null() } else { self.mask })
        } else {
            Plan::answer(self.give())
        }
    }

    fn call(&mut self, mask: *const sigset_t) -> Plan {
        let fds = self.copy.list_mut();
        let time = &raw const self.time;
        Plan { done: 0, value: 0, fds: fds.as_mut_ptr(), count: fds.len() as nfds_t, time, mask }
    }

    fn plan(&mut self, first: bool) -> Plan {
        if first {
            let ready = self.members.turn() > 0;
            if ready || self.immediate {
                return self.finish(ready);
            }
        }
        if self.members.announce() > 0 {
            return self.finish(true);
        }
        self.watch();
        self.time = time(self.deadline.left().unwrap_or(u64::MAX));
        self.call(self.mask)
    }

    fn judge(&mut self, result: c_int) -> Plan {
        let errno = SavedErrno::save();
        if !self.last && !self.sort() {
            self.members.turn();
        }
        let ready = self.members.list().iter().any(|m| m.ready != 0);
        if result < 0 && !ready {
            errno.restore();
            return Plan::answer(-1);
        }
        let count = self.give();
        if count > 0 || self.last || self.deadline.left() == Some(0) {
            return Plan::answer(count);
        }
        self.plan(false)
    }
}

/// First step: collect, then as `judge`. `done` is -1 if nothing is ours.
#[inline(never)]
extern "C" fn begin(
    state: &mut MaybeUninit<Polling>,
    fds: *mut pollfd,
    count: nfds_t,
    timeout: &Timeout,
    mask: *const sigset_t,
) -> Plan {
    let state = state.write(Polling {
        fds,
        copy: Scratch::new(),
        members: Members::new(),
        others: 0,
        deadline: Deadline::Never,
        immediate: false,
        mask,
        time: time(0),
        last: false,
    });
    guard(Plan::answer(-1), || {
        let collected = timeout.read().and_then(|deadline| {
            state.deadline = deadline;
            state.immediate = deadline.left() == Some(0);
            state.collect(usize::try_from(count).unwrap_or(0))
        });
        match collected {
            // A time that is none is for the kernel to refuse.
            Err(Errno::EINVAL) => Plan { done: -1, ..Plan::answer(0) },
            Err(error) => {
                error.set();
                Plan::answer(-1)
            }
            Ok(()) if state.members.list().is_empty() => Plan { done: -1, ..Plan::answer(0) },
            Ok(()) => state.plan(true),
        }
    })
}

/// The kernel has answered.
#[inline(never)]
extern "C" fn judge(state: &mut Polling, result: c_int) -> Plan {
    guard(Plan::answer(-1), || state.judge(result))
}

unsafe extern "C" fn release(state: *mut c_void) {
    // SAFETY: the state of `poll_ours`, which this thread alone uses, and no longer.
    let state = unsafe { &mut *state.cast::<Polling>() };
    let errno = SavedErrno::save();
    guard((), || {
        state.members.release();
        state.copy.release();
    });
    errno.restore();
}

/// The slow half of all forms. This frame is there while the kernel sleeps: it calls `extern "C"` functions only.
#[cold]
#[inline(never)]
unsafe extern "C" fn poll_ours(fds: *mut pollfd, count: nfds_t, timeout: &Timeout, mask: *const sigset_t) -> Answer {
    let mut state = const { MaybeUninit::uninit() };
    let mut handler = const { Handler::NEW };
    let mut plan = begin(&mut state, fds, count, timeout, mask);
    let state = &raw mut state;
    #[expect(clippy::ptr_as_ptr, reason = "a method would be a call of a Rust function in an unoptimised build")]
    let state = state as *mut Polling;
    #[expect(clippy::ptr_as_ptr, reason = "as above")]
    let argument = state as *mut c_void;
    // SAFETY: popped below; the state is initialised, and lives as long.
    unsafe { _pthread_cleanup_push(&raw mut handler, release, argument) };
    while plan.done == 0 {
        // SAFETY: an array of `count` entries and a time in the state.
        let result = unsafe { next::ppoll(plan.fds, plan.count, plan.time, plan.mask) };
        // SAFETY: initialised by `begin`, used by this thread alone.
        plan = judge(unsafe { &mut *state }, result);
    }
    // SAFETY: pushed above; releases the state.
    unsafe { _pthread_cleanup_pop(&raw mut handler, 1) };
    if plan.done < 0 { const { Answer::NOT_OURS } } else { Answer { value: plan.value as isize, ours: 1 } }
}

/// Whether any entry may be ours.
#[inline]
extern "C" fn has_ours(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() {
        return false;
    }
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the program says that `count` entries are there.
    (0..count).any(|place| engine::maybe_ours(unsafe { (*fds.wrapping_add(place)).fd }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        cancellation_point();
        let limit = Timeout::Milliseconds(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { poll_ours(fds, count, &limit, NO_MASK) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::poll(fds, count, timeout) }
    }
    if any_socket() && has_ours(fds, count) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(fds, count, timeout) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(
        fds: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        cancellation_point();
        let limit = Timeout::Time(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { poll_ours(fds, count, &limit, mask) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::ppoll(fds, count, timeout, mask) }
    }
    if any_socket() && has_ours(fds, count) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(fds, count, timeout, mask) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::ppoll(fds, count, timeout, mask) }
}

/// Whether the array is as long as the program says; if not libc's own ends the program.
extern "C" fn fits(count: nfds_t, room: size_t) -> bool {
    usize::try_from(count).is_ok_and(|count| count <= room / size_of::<pollfd>())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    if any_socket() && fits(count, room) {
        // SAFETY: the program's own arguments.
        return unsafe { poll(fds, count, timeout) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::__poll_chk(fds, count, timeout, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    if any_socket() && fits(count, room) {
        // SAFETY: the program's own arguments.
        return unsafe { ppoll(fds, count, timeout, mask) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::__ppoll_chk(fds, count, timeout, mask, room) }
}
