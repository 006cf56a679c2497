//! What the program calls by libc's and libbpf's names: is the descriptor ours? then the engine, else the next definition.
//!
//! Every function here stands before libc's of the same name, in a preloaded or linked library, for the whole process and all
//! its threads, before `main` as well as in exit handlers. So each one begins with a test of one bit or word, and jumps to the
//! next definition unless it says "perhaps": no lock, no allocation, no frame. What comes after the test is the slow half: an
//! `extern "C"` function of its own, in which a panic is stopped.
//!
//! Rules (each was learned the hard way, see the comments where they apply):
//! - No version node: a preloaded `sendto@@SOME_NODE` is ignored by programs that ask for `sendto@GLIBC_2.2.5`.
//! - Nothing of ours is called by libc's name for it: that would come back here. `crate::sys` or `next`.
//! - While a call that may be cancelled (a pthread cancellation point) runs in the next definition, no frame of ours on the
//!   stack may need clean-up: the unwinder cannot pass a frame that has some. A call of a Rust function, which might panic,
//!   is enough for that in an unoptimised build. So these frames call `extern "C"` functions only, however small, and calls
//!   that sleep keep what they hold in plain memory, with a cancellation handler.

mod epoll;
mod fds;
mod ifaces;
#[cfg(feature = "libbpf")]
mod libbpf;
mod members;
mod memory;
mod names;
mod next;
mod options;
mod rival;
mod scratch;
mod select;
mod sock;
mod timeout;
mod user;
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    errno::{Errno, Result, SavedErrno},
    log,
};

/// What the slow half of an interposer has to say. Returned in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// What the call returns, with `errno` set if it is -1.
    value: isize,
    /// 0: the descriptor is not ours after all, and the next definition must be called.
    ours: usize,
}

impl Answer {
    const NOT_OURS: Answer = Answer { value: 0, ours: 0 };

    const fn new(value: isize) -> Answer {
        Answer { value, ours: 1 }
    }

    /// -1 and `errno`.
    fn error(error: Errno) -> Answer {
        error.set();
        Answer::new(-1)
    }

    /// The result as C gives it.
    fn of(result: Result<usize>) -> Answer {
        match result {
            Ok(value) => Answer::new(isize::try_from(value).unwrap_or(isize::MAX)),
            Err(error) => Answer::error(error),
        }
    }

    /// As [`Answer::of`]; `None`: not ours.
    fn maybe(result: Option<Result<usize>>) -> Answer {
        result.map_or(Answer::NOT_OURS, Answer::of)
    }

    /// The value as an `int`.
    #[expect(clippy::cast_possible_truncation, reason = "calls that return int answer with small numbers or -1")]
    #[inline]
    extern "C" fn int(self) -> i32 {
        self.value as i32
    }
}

/// The type that an interposed call returns.
trait Returned {
    extern "C" fn returned(answer: Answer) -> Self;
}

impl Returned for isize {
    #[inline]
    extern "C" fn returned(answer: Answer) -> isize {
        answer.value
    }
}

impl Returned for i32 {
    #[inline]
    extern "C" fn returned(answer: Answer) -> i32 {
        answer.int()
    }
}

/// Run the slow half of an interposer. No panic crosses the boundary to C: it becomes `failed` with EIO.
fn guard<R>(failed: R, body: impl FnOnce() -> R) -> R {
    // AssertUnwindSafe: nothing that a panic may have left half done is looked at by the caller; statics use poison-tolerant
    // locks.
    let hold = log::hold();
    let result = catch_unwind(AssertUnwindSafe(body));
    drop(hold);
    match result {
        Ok(value) => value,
        Err(_) => {
            crate::warn!("a call on a descriptor or interface of ours failed inside the library and returns EIO");
            Errno::EIO.set();
            failed
        }
    }
}

/// [`guard`] for slow halves that answer with a result.
fn guarded(body: impl FnOnce() -> Option<Result<usize>>) -> Answer {
    guard(Answer { value: -1, ours: 1 }, || Answer::maybe(body()))
}

/// Whether a descriptor may be ours.
#[inline]
extern "C" fn maybe_ours(fd: core::ffi::c_int) -> bool {
    crate::engine::maybe_ours(fd)
}

/// Whether a descriptor must be looked at more closely: the first thing that an interposer asks.
#[inline]
extern "C" fn suspect(fd: core::ffi::c_int) -> bool {
    crate::engine::suspect(fd)
}

/// Whether the program has, or had, any socket of ours.
#[inline]
extern "C" fn any_socket() -> bool {
    crate::engine::any_socket()
}

/// As every cancellation point of POSIX: end the thread here if it was cancelled. Called by an interposer itself before its
/// slow half, while no frame of ours needs clean-up.
#[inline(always)]
extern "C" fn cancellation_point() {
    unsafe extern "C" {
        fn pthread_testcancel();
    }
    // SAFETY: has no preconditions; it may unwind this thread, and no frame of ours on the stack has a destructor to run.
    unsafe { pthread_testcancel() }
}

/// An interposer for a call whose first argument is a descriptor: one bit decides, then the slow half (an expression that is
/// evaluated under [`guarded`]), which may still find that the descriptor is not ours. Both ways out of the first function
/// are jumps, so that it has no frame.
macro_rules! on_our_descriptor {
    ($(
        $(#[$meta:meta])*
        $(@$point:ident)? fn $name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $ret:ty $body:block
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($fd: c_int $(, $arg: $type)*) -> $ret {
            #[inline(never)]
            extern "C" fn ours($fd: c_int $(, $arg: $type)*) -> $crate::interpose::Answer {
                $crate::interpose::guarded(|| $body)
            }
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn perhaps($fd: c_int $(, $arg: $type)*) -> $ret {
                $($crate::interpose::$point();)?
                // Not all suspects are worth the slow half.
                if !$crate::interpose::maybe_ours($fd) {
                    // SAFETY: the program's own arguments, passed on as they are.
                    return unsafe { $crate::interpose::next::$name($fd $(, $arg)*) };
                }
                let answer = ours($fd $(, $arg)*);
                if answer.ours != 0 {
                    return $crate::interpose::Returned::returned(answer);
                }
                // SAFETY: the program's own arguments, passed on as they are.
                unsafe { $crate::interpose::next::$name($fd $(, $arg)*) }
            }
            if $crate::interpose::suspect($fd) {
                // SAFETY: the program's own arguments.
                return unsafe { perhaps($fd $(, $arg)*) };
            }
            // SAFETY: the program's own arguments, passed on as they are.
            unsafe { $crate::interpose::next::$name($fd $(, $arg)*) }
        }
    )*};
}
use on_our_descriptor;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_cross_to_c() {
        let answer = guarded(|| panic!("as if something in here were wrong"));
        assert_eq!((answer.value, answer.ours), (-1, 1));
        assert_eq!(Errno::last(), Errno::EIO);
        assert_eq!(guard(7, || panic!("again")), 7);
    }

    #[test]
    fn answers_are_those_of_c() {
        assert_eq!(Answer::maybe(None).ours, 0);
        assert_eq!(Answer::maybe(Some(Ok(5))).value, 5);
        Errno::EIO.set();
        assert_eq!(Answer::maybe(Some(Err(Errno::EBUSY))).int(), -1);
        assert_eq!(Errno::last(), Errno::EBUSY);
        let saved = SavedErrno::save();
        Errno::EIO.set();
        saved.restore();
        assert_eq!(Errno::last(), Errno::EBUSY);
    }
}
