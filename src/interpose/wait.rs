//! `poll` and `ppoll`. How they wait is how `super::select` and `super::epoll` wait as well:
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
    ffi::{c_int, c_void},
    mem::{self, MaybeUninit},
    ptr,
};

use libc::{nfds_t, pollfd, sigset_t, size_t, timespec};

use super::{
    Answer, SavedErrno, any_socket, cancellation_point, guard,
    members::Members,
    next,
    next::{_pthread_cleanup_pop, _pthread_cleanup_push, Handler},
    scratch::Scratch,
    suspect,
    timeout::{Deadline, Timeout, time},
};
use crate::{
    engine,
    errno::{Errno, Result},
};

const NO_MASK: *const sigset_t = ptr::null();

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
            (entry.fd, entry.events) = member.watched().unwrap_or((-1, 0));
        }
    }

    /// After the kernel's answer: note what it says about ours and leave the others' in the copy.
    fn sort(&mut self) {
        let copy = self.copy.list_mut();
        for member in self.members.list_mut() {
            member.woken = mem::take(&mut copy[member.place].revents) != 0;
            member.check();
        }
    }

    /// Give the program the answer. Returns how many entries have one.
    fn give(&mut self) -> c_int {
        let copy = self.copy.list_mut();
        for member in self.members.list() {
            copy[member.place].revents = member.answer();
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
        if !self.last {
            self.sort();
            self.members.turn();
        }
        let ready = self.members.list().iter().any(|m| m.ready != 0);
        let others = result > 0 && self.copy.list().iter().any(|entry| entry.revents != 0);
        if result < 0 && !ready {
            errno.restore();
            return Plan::answer(-1);
        }
        if ready || others || self.last || self.deadline.left() == Some(0) {
            return Plan::answer(self.give());
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

/// Whether the set must be looked at more closely. Straight through for a set of one.
#[inline]
extern "C" fn has_suspects(fds: *const pollfd, count: nfds_t) -> bool {
    if !any_socket() || count == 0 || fds.is_null() {
        return false;
    }
    let end = fds.wrapping_add(usize::try_from(count).unwrap_or(0));
    let mut at = fds;
    loop {
        // SAFETY: the program says that `count` entries are there.
        if suspect(unsafe { (*at).fd }) {
            return true;
        }
        at = at.wrapping_add(1);
        if at == end {
            return false;
        }
    }
}

/// Whether any entry may be ours: not all suspects are worth the slow half.
#[inline(never)]
extern "C" fn has_ours(fds: *const pollfd, count: nfds_t) -> bool {
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
        if !has_ours(fds, count) {
            // SAFETY: the program's own arguments.
            return unsafe { next::poll(fds, count, timeout) };
        }
        let limit = Timeout::Milliseconds(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { poll_ours(fds, count, &limit, NO_MASK) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::poll(fds, count, timeout) }
    }
    if has_suspects(fds, count) {
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
        if !has_ours(fds, count) {
            // SAFETY: the program's own arguments.
            return unsafe { next::ppoll(fds, count, timeout, mask) };
        }
        let limit = Timeout::Time(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { poll_ours(fds, count, &limit, mask) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::ppoll(fds, count, timeout, mask) }
    }
    if has_suspects(fds, count) {
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
