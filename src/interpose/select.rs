//! `select` and `pselect`. The wait goes as in `super::wait`; only the form of the set differs.

use core::{
    ffi::{c_int, c_long, c_ulong, c_void},
    mem::MaybeUninit,
    ptr,
};

use libc::{fd_set, sigset_t, timespec, timeval};

use super::{
    Answer, SavedErrno, any_socket, cancellation_point, guard,
    members::Members,
    next,
    next::{_pthread_cleanup_pop, _pthread_cleanup_push, Handler},
    scratch::Scratch,
    timeout::{self, Deadline, Timeout},
};
use crate::{
    engine,
    errno::{Errno, Result},
};

const NO_TIME: *const timespec = ptr::null();
const NO_MASK: *const sigset_t = ptr::null();

/// A set is an array of words.
type Word = c_ulong;
const BITS: usize = Word::BITS as usize;
/// Sets that reach beyond this many descriptors are left to the kernel.
const HIGHEST: usize = 1 << 16;

/// What a set asks for, and which readiness fills its bit.
const KINDS: [(i16, i16); 3] = [
    (libc::POLLIN, libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL),
    (libc::POLLOUT, libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR | libc::POLLNVAL),
    (libc::POLLPRI, libc::POLLPRI | libc::POLLNVAL),
];

/// A set of the program's; null if it has none.
#[derive(Clone, Copy)]
struct Set(*mut Word);

impl Set {
    fn word(self, at: usize) -> Word {
        // SAFETY: the program says that the set reaches as far as the highest descriptor that it names.
        if self.0.is_null() { 0 } else { unsafe { self.0.wrapping_add(at).read() } }
    }

    fn put_word(self, at: usize, word: Word) {
        if !self.0.is_null() {
            // SAFETY: as in `word`.
            unsafe { self.0.wrapping_add(at).write(word) };
        }
    }
}

/// One `select` that has ours in its sets.
struct Selecting {
    count: c_int,
    words: usize,
    sets: [Set; 3],
    /// What the kernel gets to see: the three sets after each other, three times: the others as the program asks for them,
    /// the same for the kernel to write to, and the answer.
    copy: Scratch<Word, 96>,
    members: Members,
    others: bool,
    deadline: Deadline,
    mask: *const sigset_t,
    time: timespec,
    last: bool,
}

/// What to do next; see `super::wait`.
#[repr(C)]
struct Plan {
    done: c_int,
    value: c_int,
    count: c_int,
    sets: [*mut fd_set; 3],
    time: *const timespec,
    mask: *const sigset_t,
}

impl Plan {
    fn answer(value: c_int) -> Plan {
        Plan { done: 1, value, count: 0, sets: [ptr::null_mut(); 3], time: ptr::null(), mask: ptr::null() }
    }
}

impl Selecting {
    /// Take in ours and copy the rest. Bits beyond the count are not the program's.
    fn collect(&mut self) -> Result<()> {
        for _ in 0..3 * 3 * self.words {
            self.copy.push(0)?;
        }
        for at in 0..self.words {
            let beyond = (self.count.cast_unsigned() as usize).saturating_sub(at * BITS);
            let valid = if beyond >= BITS { Word::MAX } else { (1 << beyond) - 1 };
            let mut words = self.sets.map(|set| set.word(at) & valid);
            let mut rest = words[0] | words[1] | words[2];
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let number = at * BITS + bit;
                let fd = c_int::try_from(number).map_err(|_| Errno::EINVAL)?;
                if !engine::maybe_ours(fd) {
                    continue;
                }
                let asked = words.iter().zip(KINDS).filter(|(word, _)| **word & (1 << bit) != 0);
                let events = asked.fold(0, |events, (_, (ask, _))| events | ask);
                if self.members.add(fd, number, events)? {
                    words = words.map(|word| word & !(1 << bit));
                }
            }
            self.others |= words.iter().any(|word| *word != 0);
            for (kind, word) in words.into_iter().enumerate() {
                self.copy.list_mut()[kind * self.words + at] = word;
            }
        }
        Ok(())
    }

    /// The sets for the kernel to write to: the others, and ours if they are to be watched.
    fn call(&mut self, watched: bool, mask: *const sigset_t) -> Plan {
        let all = 3 * self.words;
        let (asked, rest) = self.copy.list_mut().split_at_mut(all);
        let given = &mut rest[..all];
        given.copy_from_slice(asked);
        for member in self.members.list().iter().filter(|_| watched) {
            let events = member.watched().map_or(0, |(_, events)| events);
            for (kind, (ask, _)) in KINDS.into_iter().enumerate() {
                if events & ask != 0 {
                    given[kind * self.words + member.place / BITS] |= 1 << (member.place % BITS);
                }
            }
        }
        let mut parts = given.chunks_exact_mut(self.words);
        let sets = [(); 3].map(|()| parts.next().map_or(ptr::null_mut(), |part| part.as_mut_ptr().cast()));
        Plan { done: 0, value: 0, count: self.count, sets, time: &raw const self.time, mask }
    }

    /// Give the program the answer: what the kernel wrote about the others if it was asked, and the truth about ours.
    fn give(&mut self, asked: bool) -> c_int {
        let all = 3 * self.words;
        let (given, answer) = self.copy.list_mut()[all..].split_at_mut(all);
        if asked {
            answer.copy_from_slice(given);
        } else {
            answer.fill(0);
        }
        for member in self.members.list() {
            let (word, bit) = (member.place / BITS, 1 << (member.place % BITS));
            let ready = member.answer();
            for (kind, (ask, fill)) in KINDS.into_iter().enumerate() {
                let place = &mut answer[kind * self.words + word];
                *place &= !bit;
                if member.events & ask != 0 && ready & fill != 0 {
                    *place |= bit;
                }
            }
        }
        let mut count = 0;
        for (kind, set) in self.sets.into_iter().enumerate() {
            for at in 0..self.words {
                let word = answer[kind * self.words + at];
                set.put_word(at, word);
                count += word.count_ones();
            }
        }
        c_int::try_from(count).unwrap_or(c_int::MAX)
    }

    /// Whether anything of ours fills a bit: an error alone fills none of a set for exceptions.
    fn is_ready(&self) -> bool {
        self.members
            .list()
            .iter()
            .any(|m| KINDS.into_iter().any(|(ask, fill)| m.events & ask != 0 && m.ready & fill != 0))
    }

    fn finish(&mut self) -> Plan {
        let ready = self.is_ready();
        self.last = true;
        self.time = timeout::time(0);
        if self.others || !(ready || self.mask.is_null()) {
            self.call(false, if ready { ptr::null() } else { self.mask })
        } else {
            Plan::answer(self.give(false))
        }
    }

    fn plan(&mut self, first: bool) -> Plan {
        if first {
            self.members.turn();
            if self.is_ready() || self.deadline.left() == Some(0) {
                return self.finish();
            }
        }
        self.members.announce();
        if self.is_ready() {
            return self.finish();
        }
        self.time = timeout::time(self.deadline.left().unwrap_or(u64::MAX));
        self.call(true, self.mask)
    }

    fn judge(&mut self, result: c_int) -> Plan {
        let errno = SavedErrno::save();
        let all = 3 * self.words;
        if result >= 0 && !self.last {
            let given = &self.copy.list()[all..2 * all];
            for member in self.members.list_mut() {
                let bit = 1 << (member.place % BITS);
                member.woken = given.chunks_exact(self.words).any(|set| set[member.place / BITS] & bit != 0);
            }
        }
        let mut closed = false;
        if !self.last {
            for member in self.members.list_mut() {
                let before = member.watched().is_some();
                member.check();
                closed |= before && member.watched().is_none();
            }
            self.members.turn();
        }
        // One of ours that was closed after the last look is EBADF to the kernel, when the call begins with it.
        if result < 0 && !self.is_ready() && !(closed && errno.is(Errno::EBADF)) {
            errno.restore();
            return Plan::answer(-1);
        }
        let others = result > 0 && (self.last || self.has_others());
        if others || self.is_ready() || self.last || self.deadline.left() == Some(0) {
            return Plan::answer(self.give(result >= 0));
        }
        self.plan(false)
    }

    /// Whether the kernel's answer has anything about others.
    fn has_others(&self) -> bool {
        let all = 3 * self.words;
        let (asked, rest) = self.copy.list().split_at(all);
        asked.iter().zip(rest).any(|(asked, given)| asked & given != 0)
    }
}

/// First step; `done` is -1 if nothing is ours.
#[inline(never)]
extern "C" fn begin(
    state: &mut MaybeUninit<Selecting>,
    count: c_int,
    sets: &[*mut fd_set; 3],
    timeout: &Timeout,
    mask: *const sigset_t,
) -> Plan {
    const NOT_OURS: c_int = -1;
    let state = state.write(Selecting {
        count,
        words: 0,
        sets: sets.map(|set| Set(set.cast())),
        copy: Scratch::new(),
        members: Members::new(),
        others: false,
        deadline: Deadline::Never,
        mask,
        time: timeout::time(0),
        last: false,
    });
    guard(Plan::answer(-1), || {
        let bits = usize::try_from(count).unwrap_or(0);
        if bits == 0 || bits > HIGHEST {
            return Plan { done: NOT_OURS, ..Plan::answer(0) };
        }
        state.words = bits.div_ceil(BITS);
        let collected = timeout.read().and_then(|deadline| {
            state.deadline = deadline;
            state.collect()
        });
        match collected {
            // A time that is none is for the kernel to refuse.
            Err(Errno::EINVAL) => Plan { done: NOT_OURS, ..Plan::answer(0) },
            Err(error) => {
                error.set();
                Plan::answer(-1)
            }
            Ok(()) if state.members.list().is_empty() => Plan { done: NOT_OURS, ..Plan::answer(0) },
            Ok(()) => state.plan(true),
        }
    })
}

/// The kernel has answered.
#[inline(never)]
extern "C" fn judge(state: &mut Selecting, result: c_int) -> Plan {
    guard(Plan::answer(-1), || state.judge(result))
}

unsafe extern "C" fn release(state: *mut c_void) {
    // SAFETY: the state of `select_ours`, which this thread alone uses, and no longer.
    let state = unsafe { &mut *state.cast::<Selecting>() };
    let errno = SavedErrno::save();
    guard((), || {
        state.members.release();
        state.copy.release();
    });
    errno.restore();
}

/// The slow half. This frame is there while the kernel sleeps: it calls `extern "C"` functions only.
#[cold]
#[inline(never)]
unsafe extern "C" fn select_ours(
    count: c_int,
    sets: &[*mut fd_set; 3],
    timeout: &Timeout,
    mask: *const sigset_t,
) -> Answer {
    let mut state = const { MaybeUninit::uninit() };
    let mut handler = const { Handler::NEW };
    let mut plan = begin(&mut state, count, sets, timeout, mask);
    let state = &raw mut state;
    #[expect(clippy::ptr_as_ptr, reason = "a method would be a call of a Rust function in an unoptimised build")]
    let state = state as *mut Selecting;
    #[expect(clippy::ptr_as_ptr, reason = "as above")]
    let argument = state as *mut c_void;
    // SAFETY: popped below; the state is initialised, and lives as long.
    unsafe { _pthread_cleanup_push(&raw mut handler, release, argument) };
    while plan.done == 0 {
        let [read, write, except] = plan.sets;
        // SAFETY: three sets of `count` bits and a time in the state.
        let result = unsafe { next::pselect(plan.count, read, write, except, plan.time, plan.mask) };
        // SAFETY: initialised by `begin`, used by this thread alone.
        plan = judge(unsafe { &mut *state }, result);
    }
    // SAFETY: pushed above; releases the state.
    unsafe { _pthread_cleanup_pop(&raw mut handler, 1) };
    if plan.done < 0 { const { Answer::NOT_OURS } } else { Answer { value: plan.value as isize, ours: 1 } }
}

/// Whether any set has a descriptor that may be ours.
#[inline(never)]
extern "C" fn has_ours(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> bool {
    let sets = [read, write, except].map(|set| Set(set.cast()));
    let count = usize::try_from(count).unwrap_or(0).min(HIGHEST);
    (0..count.div_ceil(BITS)).any(|at| {
        let mut rest = sets.iter().fold(0, |all, set| all | set.word(at));
        core::iter::from_fn(|| {
            let bit = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (bit < Word::BITS).then_some(at * BITS + bit as usize)
        })
        .any(|number| c_int::try_from(number).is_ok_and(engine::maybe_ours))
    })
}

/// A timeval as a timespec, with the kernel's tolerance for microseconds beyond a second.
fn from_timeval(time: &timeval) -> timespec {
    let more = time.tv_usec.div_euclid(1_000_000);
    let rest = time.tv_usec.rem_euclid(1_000_000);
    // A time below zero stays one.
    let seconds = if time.tv_usec < 0 { -1 } else { time.tv_sec.saturating_add(more) };
    timespec { tv_sec: seconds, tv_nsec: c_long::from(rest) * 1000 }
}

#[inline(never)]
extern "C" fn read_timeval(time: *const timeval) -> timespec {
    // SAFETY: null, or the program's own time.
    unsafe { time.as_ref() }.map_or(timeout::time(0), from_timeval)
}

/// Linux's `select` writes back how much of the time is left.
#[inline(never)]
extern "C" fn write_timeval(to: *mut timeval, started: u64) {
    // SAFETY: null, or the program's own time.
    let Some(to) = (unsafe { to.as_mut() }) else { return };
    let all = timeout::nanoseconds(&from_timeval(to)).unwrap_or(0);
    let left = timeout::time(all.saturating_sub(crate::sys::now_ns().saturating_sub(started)));
    *to = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
}

#[inline(never)]
extern "C" fn now() -> u64 {
    crate::sys::now_ns()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn ours(count: c_int, sets: &[*mut fd_set; 3], timeout: *mut timeval) -> Answer {
        let started = now();
        let time = read_timeval(timeout);
        let limit = Timeout::Time(if timeout as usize == 0 { NO_TIME } else { &raw const time });
        // SAFETY: the program's own arguments.
        let answer = unsafe { select_ours(count, sets, &limit, NO_MASK) };
        if answer.ours != 0 {
            write_timeval(timeout, started);
        }
        answer
    }
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int {
        cancellation_point();
        // SAFETY: the program's own arguments.
        let answer = unsafe { ours(count, &[read, write, except], timeout) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::select(count, read, write, except, timeout) }
    }
    if any_socket() && has_ours(count, read, write, except) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(count, read, write, except, timeout) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::select(count, read, write, except, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        cancellation_point();
        let limit = Timeout::Time(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { select_ours(count, &[read, write, except], &limit, mask) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::pselect(count, read, write, except, timeout, mask) }
    }
    if any_socket() && has_ours(count, read, write, except) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(count, read, write, except, timeout, mask) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::pselect(count, read, write, except, timeout, mask) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timevals_are_read_as_the_kernel_reads_them() {
        let read = |tv_sec, tv_usec| {
            let t = from_timeval(&timeval { tv_sec, tv_usec });
            (t.tv_sec, t.tv_nsec)
        };
        assert_eq!(read(1, 5), (1, 5000));
        assert_eq!(read(1, 2_500_000), (3, 500_000_000));
        assert!(read(1, -1).0 < 0, "no time");
        assert!(read(-1, 0).0 < 0, "no time");
    }

    #[test]
    fn what_is_left_is_written_back() {
        let mut time = timeval { tv_sec: 5, tv_usec: 0 };
        write_timeval(&raw mut time, crate::sys::now_ns() - 2_000_000_000);
        assert!((time.tv_sec, time.tv_usec) <= (3, 0), "{} s", time.tv_sec);
        write_timeval(&raw mut time, 0);
        assert_eq!((time.tv_sec, time.tv_usec), (0, 0));
        write_timeval(ptr::null_mut(), 0);
    }
}
