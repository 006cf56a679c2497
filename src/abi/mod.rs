//! libxdp's C interface: every exported `xsk_*` function.
//!
//! Functions here turn C arguments into Rust values, call one function of `crate::xsk` and turn its result into libxdp's
//! return convention. They hold no logic. Any thread may call any of them.

pub mod ext;
pub mod inline;
#[cfg(feature = "libbpf")]
pub mod libbpf;
pub mod libxdp;
#[cfg(feature = "planted-faults")]
pub mod planted;
mod print;
pub mod types;
pub mod xsk;

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    errno::{Errno, Result, SavedErrno},
    log,
};

/// How a C return type tells success and failure.
pub trait Return: Sized {
    /// What the Rust side computes.
    type Value;

    /// The return value of a call that succeeded.
    fn success(value: Self::Value) -> Self;

    /// The return value of a call that failed; `errno` is set by [`guard`].
    fn failure(error: Errno) -> Self;
}

/// 0 or more, or a negative error number.
impl Return for c_int {
    type Value = c_int;

    fn success(value: c_int) -> c_int {
        value
    }

    fn failure(error: Errno) -> c_int {
        error.negative()
    }
}

/// A pointer, or NULL.
impl<T> Return for *mut T {
    type Value = *mut T;

    fn success(value: *mut T) -> *mut T {
        value
    }

    fn failure(_: Errno) -> *mut T {
        core::ptr::null_mut()
    }
}

/// Nothing: such a function cannot tell a failure.
impl Return for () {
    type Value = ();

    fn success((): ()) {}

    fn failure(_: Errno) {}
}

/// Run the body of an exported function: a panic stops here as EIO, and a failure sets `errno` and becomes the return
/// value that the type has for it. What there is to say is said when the body has let go of its locks. A success leaves
/// `errno` as the program had it.
///
/// A request to cancel the thread waits until the body is through: acted upon inside, at one of the waits or file accesses of
/// the body, it would unwind through Rust, which ends the process, and leave locks and descriptors behind.
///
/// `name` is the function's C name, for the message that a panic leaves.
#[inline]
pub fn guard<R: Return>(name: &str, body: impl FnOnce() -> Result<R::Value>) -> R {
    let _uncancelled = Uncancelled::begin();
    guard_short(name, body)
}

/// [`guard`] for bodies that neither wait nor make a system call, and that programs may call for each packet.
#[inline]
pub fn guard_short<R: Return>(name: &str, body: impl FnOnce() -> Result<R::Value>) -> R {
    let before = SavedErrno::save();
    let hold = log::hold();
    let result = catch_unwind(AssertUnwindSafe(body));
    drop(hold);
    match result {
        Ok(Ok(value)) => {
            before.restore();
            R::success(value)
        }
        Ok(Err(error)) => {
            error.set();
            R::failure(error)
        }
        Err(panic) => {
            report(name, &*panic);
            Errno::EIO.set();
            R::failure(Errno::EIO)
        }
    }
}

/// While it lives, this thread is not cancelled.
struct Uncancelled {
    before: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

impl Uncancelled {
    fn begin() -> Uncancelled {
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: writes one int.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: NULL for the state that is left is allowed.
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}

#[cold]
fn report(name: &str, panic: &(dyn core::any::Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    // The program's callback may itself panic when it is Rust; nothing may leave this function.
    let _ = catch_unwind(|| crate::warn!("{name}: internal error, the call failed with EIO: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_become_the_return_value_of_each_type_and_set_errno() {
        for error in [Errno::EINVAL, Errno::EBUSY, Errno::EFAULT] {
            Errno::EIO.set();
            assert_eq!(guard::<c_int>("t", || Err(error)), error.negative());
            assert_eq!(Errno::last(), error);
            Errno::EIO.set();
            assert!(guard::<*mut u8>("t", || Err(error)).is_null());
            assert_eq!(Errno::last(), error);
        }
        Errno::EBUSY.set();
        assert_eq!(
            guard::<c_int>("t", || {
                Errno::ENOENT.set();
                Ok(7)
            }),
            7
        );
        assert_eq!(Errno::last(), Errno::EBUSY);
    }

    #[test]
    fn a_panic_does_not_cross_the_boundary() {
        assert_eq!(guard::<c_int>("t", || panic!("deliberate")), -libc::EIO);
        assert_eq!(Errno::last(), Errno::EIO);
        assert!(guard::<*mut u8>("t", || panic!("deliberate")).is_null());
        guard::<()>("t", || panic!("deliberate"));
    }
}
