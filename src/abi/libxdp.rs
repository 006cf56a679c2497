//! The three functions of libxdp proper that programs use with AF_XDP sockets, for programs that link no other libxdp.
//!
//! Where a real libxdp is loaded as well, it is asked too: it has messages and error numbers of its own. All are cold; any
//! thread may call them.

use core::ffi::{c_char, c_int, c_long, c_void};

use super::{
    guard,
    print::{self, PrintFn},
};
use crate::{errno::Errno, loaded};

/// The largest error number that a pointer can stand for.
const MAX_ERRNO: usize = 4095;

/// The error that a pointer from a libxdp function stands for: 0 for a good pointer, else a negative error number. NULL:
/// what `errno` says.
#[unsafe(no_mangle)]
pub extern "C" fn libxdp_get_error(ptr: *const c_void) -> c_long {
    if ptr.is_null() {
        return -c_long::from(Errno::last().number());
    }
    let word = ptr.addr().cast_signed();
    if word.unsigned_abs() <= MAX_ERRNO && word < 0 { word as c_long } else { 0 }
}

/// Write the message of error number `err`, of either sign, to `buf` of `size` bytes, cut to fit.
///
/// Returns 0, or -EINVAL (no buffer), -ENOENT (no such error: the text says so), -ERANGE (the text was cut).
///
/// # Safety
///
/// `size` bytes at `buf` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libxdp_strerror(err: c_int, buf: *mut c_char, size: usize) -> c_int {
    type Fn = unsafe extern "C" fn(c_int, *mut c_char, usize) -> c_int;
    let next = loaded::next_definition(c"libxdp_strerror", &[c"libxdp.so.1"]);
    // SAFETY: null, which is None, or libxdp's function of this name, which has this type.
    if let Some(next) = unsafe { core::mem::transmute::<*mut c_void, Option<Fn>>(next) } {
        // SAFETY: the caller's promise.
        return unsafe { next(err, buf, size) };
    }
    guard("libxdp_strerror", || {
        if buf.is_null() || size == 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `size` bytes at `buf` may be written. (libc's binding is the XSI function.)
        let result = unsafe { libc::strerror_r(err.wrapping_abs(), buf, size) };
        match result {
            0 => Ok(0),
            libc::ERANGE => Err(Errno::ERANGE),
            _ => Err(Errno::ENOENT),
        }
    })
}

/// Send messages to `print` from now on, NULL: nowhere. Returns the callback until now.
///
/// # Safety
///
/// `print` has libxdp's callback type and may be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libxdp_set_print(print: Option<PrintFn>) -> Option<PrintFn> {
    print::LIBXDP.set(print)
}
