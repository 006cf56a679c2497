//! `epoll_wait` and its kin, on instances that watch sockets of ours.

use core::{
    ffi::{c_int, c_void},
    mem, ptr,
};

use libc::{epoll_event, sigset_t, timespec};

use super::{
    super::{
        Answer, SavedErrno, cancellation_point, guard, next,
        next::{_pthread_cleanup_pop, _pthread_cleanup_push, Handler},
        timeout::{self, Deadline, Timeout},
    },
    table::{Instance, Table, maybe},
};
use crate::sync::Arc;

const NO_MASK: *const sigset_t = ptr::null();

/// Most events of one call, `INT_MAX / sizeof(struct epoll_event)`.
#[expect(clippy::cast_possible_truncation, reason = "12 or 16")]
const EVENTS_MAX: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// One wait.
struct Waiting {
    instance: *const Instance,
    epoll: c_int,
    out: *mut epoll_event,
    room: usize,
    /// Events put at the front of `out` so far.
    put: usize,
    deadline: Deadline,
    mask: *const sigset_t,
    time: timespec,
    asleep: bool,
    /// The timeout is finer than a millisecond.
    precise: bool,
    /// The next answer of the kernel is the last.
    last: bool,
    /// Ours have not been looked at, to leave the only place to the others.
    stepped_back: bool,
    /// Times that the kernel had nothing but news of ours, with no room left for others'.
    crowded: usize,
}

/// What to do next; see `super::wait`.
#[repr(C)]
struct Plan {
    done: c_int,
    value: c_int,
    events: *mut epoll_event,
    room: c_int,
    /// `time` counts, not `milliseconds`.
    precise: c_int,
    milliseconds: c_int,
    time: *const timespec,
    mask: *const sigset_t,
}

impl Plan {
    fn answer(value: usize) -> Plan {
        Plan { value: c_int::try_from(value).unwrap_or(c_int::MAX), ..Plan::failed() }
    }

    fn failed() -> Plan {
        Plan {
            done: 1,
            value: -1,
            events: ptr::null_mut(),
            room: 0,
            precise: 0,
            milliseconds: 0,
            time: ptr::null(),
            mask: ptr::null(),
        }
    }

    fn not_ours() -> Plan {
        Plan { done: -1, ..Plan::failed() }
    }
}

/// Milliseconds for a sleep: rounded up, so that a wait is never too short.
fn milliseconds(left: Option<u64>) -> c_int {
    left.map_or(-1, |ns| c_int::try_from(ns.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

impl Waiting {
    fn instance(&self) -> &'static Instance {
        // SAFETY: the Arc is given back by `release`, the last use of this struct.
        unsafe { &*self.instance }
    }

    /// The part of the program's array behind what was put.
    fn rest(&self) -> &'static mut [epoll_event] {
        // SAFETY: the program says that `room` events fit; this thread alone writes to them while the call lasts.
        unsafe { core::slice::from_raw_parts_mut(self.out.wrapping_add(self.put), self.room - self.put) }
    }

    /// Call the kernel for at most `left` nanoseconds.
    fn call(&mut self, left: Option<u64>, mask: *const sigset_t) -> Plan {
        self.time = timeout::time(left.unwrap_or(u64::MAX));
        Plan {
            done: 0,
            value: 0,
            events: self.rest().as_mut_ptr(),
            room: c_int::try_from(self.room - self.put).unwrap_or(EVENTS_MAX),
            precise: c_int::from(self.precise),
            milliseconds: milliseconds(left),
            time: &raw const self.time,
            mask,
        }
    }

    /// Tell about ours.
    fn report(&mut self, room: usize) {
        let rest = self.rest();
        let room = room.min(rest.len());
        self.put += self.instance().set().report(self.epoll, &mut rest[..room]);
    }

    fn first(&mut self) -> Plan {
        let others_first = {
            let mut set = self.instance().set();
            set.others_first = !set.others_first;
            set.others_first
        };
        // Every other time one place is kept for the others.
        self.stepped_back = others_first && self.room == 1;
        if !self.stepped_back {
            self.report(self.room - usize::from(others_first));
        }
        if self.put == self.room {
            return Plan::answer(self.put);
        }
        let immediate = self.deadline.left() == Some(0);
        if self.put > 0 || immediate || self.stepped_back {
            self.last = self.put > 0 || immediate;
            // With a signal mask and nothing ready a signal that is let in ends the call.
            let mask = if self.last && self.put == 0 { self.mask } else { ptr::null() };
            return self.call(Some(0), mask);
        }
        self.sleep()
    }

    fn sleep(&mut self) -> Plan {
        let ready = {
            let mut set = self.instance().set();
            if !mem::replace(&mut self.asleep, true) {
                set.sleepers += 1;
            }
            set.announce()
        };
        if ready {
            self.report(self.room);
            if self.put > 0 {
                return Plan::answer(self.put);
            }
        }
        self.call(self.deadline.left(), self.mask)
    }

    fn judge(&mut self, result: c_int) -> Plan {
        let errno = SavedErrno::save();
        let got = usize::try_from(result).unwrap_or(0);
        let full = got == self.room - self.put;
        let kept = self.instance().set().sift(&mut self.rest()[..got]);
        self.put += kept;
        if result < 0 && self.put == 0 {
            self.report(self.room);
            if self.put == 0 {
                errno.restore();
                return Plan::failed();
            }
        }
        if (self.last || self.stepped_back) && got > 0 && full && kept == 0 && self.crowded < 64 {
            // Perhaps there was no room for others because of what is sifted out: the kernel puts that last the next time.
            self.crowded += 1;
            return self.call(Some(0), ptr::null());
        }
        if mem::take(&mut self.stepped_back) && self.put == 0 {
            self.report(self.room);
        }
        if self.last {
            return Plan::answer(self.put);
        }
        if self.put < self.room {
            self.report(self.room);
        }
        if self.put > 0 || self.deadline.left() == Some(0) {
            return Plan::answer(self.put);
        }
        self.sleep()
    }
}

/// First step; `done` is -1 if the instance watches nothing of ours.
#[inline(never)]
extern "C" fn begin(
    state: &mut mem::MaybeUninit<Waiting>,
    epoll: c_int,
    out: *mut epoll_event,
    room: c_int,
    limit: &Timeout,
    mask: *const sigset_t,
) -> Plan {
    let state = state.write(Waiting {
        instance: ptr::null(),
        epoll,
        out,
        room: 0,
        put: 0,
        deadline: Deadline::Never,
        mask,
        time: timeout::time(0),
        asleep: false,
        precise: matches!(limit, Timeout::Time(_)),
        last: false,
        stepped_back: false,
        crowded: 0,
    });
    guard(Plan::failed(), || {
        let instance = Table::get().and_then(|table| table.instance(epoll));
        // What is wrong is for the kernel to refuse.
        let (Some(instance), false, 1..=EVENTS_MAX, Ok(deadline)) = (instance, out.is_null(), room, limit.read())
        else {
            return Plan::not_ours();
        };
        if instance.set().entries.is_empty() {
            return Plan::not_ours();
        }
        state.instance = Arc::into_raw(instance);
        state.room = usize::try_from(room).unwrap_or(0);
        state.deadline = deadline;
        state.first()
    })
}

/// The kernel has answered.
#[inline(never)]
extern "C" fn judge(state: &mut Waiting, result: c_int) -> Plan {
    guard(Plan::failed(), || state.judge(result))
}

unsafe extern "C" fn release(state: *mut c_void) {
    // SAFETY: the state of `wait_ours`, which this thread alone uses, and no longer.
    let state = unsafe { &mut *state.cast::<Waiting>() };
    let errno = SavedErrno::save();
    guard((), || {
        if state.instance.is_null() {
            return;
        }
        // SAFETY: from Arc::into_raw in `begin`, given back once.
        let instance = unsafe { Arc::from_raw(mem::replace(&mut state.instance, ptr::null())) };
        if mem::take(&mut state.asleep) {
            instance.set().retract();
        }
    });
    errno.restore();
}

/// The slow half of all forms. This frame is there while the kernel sleeps: it calls `extern "C"` functions only.
#[cold]
#[inline(never)]
unsafe extern "C" fn wait_ours(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    limit: &Timeout,
    mask: *const sigset_t,
) -> Answer {
    let mut state = const { mem::MaybeUninit::uninit() };
    let mut handler = const { Handler::NEW };
    let mut plan = begin(&mut state, epoll, events, room, limit, mask);
    let state = &raw mut state;
    #[expect(clippy::ptr_as_ptr, reason = "a method would be a call of a Rust function in an unoptimised build")]
    let state = state as *mut Waiting;
    #[expect(clippy::ptr_as_ptr, reason = "as above")]
    let argument = state as *mut c_void;
    // SAFETY: popped below; the state is initialised, and lives as long.
    unsafe { _pthread_cleanup_push(&raw mut handler, release, argument) };
    while plan.done == 0 {
        let result = if plan.precise == 0 {
            // SAFETY: the program's own array, which has room for `room`.
            unsafe { next::epoll_pwait(epoll, plan.events, plan.room, plan.milliseconds, plan.mask) }
        } else {
            // SAFETY: as above, and a time in the state.
            unsafe { next::epoll_pwait2(epoll, plan.events, plan.room, plan.time, plan.mask) }
        };
        // SAFETY: initialised by `begin`, used by this thread alone.
        plan = judge(unsafe { &mut *state }, result);
    }
    // SAFETY: pushed above; releases the state.
    unsafe { _pthread_cleanup_pop(&raw mut handler, 1) };
    if plan.done < 0 { const { Answer::NOT_OURS } } else { Answer { value: plan.value as isize, ours: 1 } }
}

/// The forms differ in how they say how long, and in the mask.
macro_rules! waits {
    ($(fn $name:ident($epoll:ident, $events:ident, $room:ident $(, $arg:ident: $type:ty)*) = $limit:expr, $mask:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($epoll: c_int, $events: *mut epoll_event, $room: c_int $(, $arg: $type)*) -> c_int {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn perhaps(
                $epoll: c_int,
                $events: *mut epoll_event,
                $room: c_int
                $(, $arg: $type)*
            ) -> c_int {
                cancellation_point();
                let limit = $limit;
                // SAFETY: the program's own arguments.
                let answer = unsafe { wait_ours($epoll, $events, $room, &limit, $mask) };
                if answer.ours != 0 {
                    return answer.int();
                }
                // SAFETY: the program's own arguments.
                unsafe { next::$name($epoll, $events, $room $(, $arg)*) }
            }
            if maybe($epoll) {
                // SAFETY: the program's own arguments.
                return unsafe { perhaps($epoll, $events, $room $(, $arg)*) };
            }
            // SAFETY: the program's own arguments.
            unsafe { next::$name($epoll, $events, $room $(, $arg)*) }
        }
    )*};
}

waits! {
    fn epoll_wait(epoll, events, room, timeout: c_int) = Timeout::Milliseconds(timeout), NO_MASK;
    fn epoll_pwait(epoll, events, room, timeout: c_int, mask: *const sigset_t) = Timeout::Milliseconds(timeout), mask;
    fn epoll_pwait2(epoll, events, room, timeout: *const timespec, mask: *const sigset_t) = Timeout::Time(timeout), mask;
}
