//! The three functions of libxdp proper that programs use with AF_XDP sockets, for programs that link no other libxdp.
//!
//! Where a real libxdp is loaded as well, it is asked too: it has messages and error numbers of its own. All are cold; any
//! thread may call them.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use super::{
    guard,
    print::{self, PrintFn},
};
use crate::errno::Errno;

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
    if let Some(next) = next(c"libxdp_strerror", libxdp_strerror as Fn as *const c_void) {
        // SAFETY: libxdp's function of this name has this type.
        let next = unsafe { core::mem::transmute::<*const c_void, Fn>(next) };
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
    type Fn = unsafe extern "C" fn(Option<PrintFn>) -> Option<PrintFn>;
    let ours = print::set_libxdp(print);
    let Some(next) = next(c"libxdp_set_print", libxdp_set_print as Fn as *const c_void) else {
        return ours;
    };
    // SAFETY: libxdp's function of this name has this type.
    let next = unsafe { core::mem::transmute::<*const c_void, Fn>(next) };
    // SAFETY: the caller's promise.
    let theirs = unsafe { next(print) };
    // Before the program's first call the one that prints to stderr is libxdp's: it knows its own prefix.
    if ours.is_some_and(print::is_default) { theirs } else { ours }
}

/// A function of the real libxdp, if one is loaded: the next definition, or, where libxdp came in by dlopen and so is not in
/// the global scope, libxdp's own.
fn next(name: &CStr, own: *const c_void) -> Option<*const c_void> {
    // SAFETY: a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let symbol = if symbol.is_null() { from_loaded_libxdp(name) } else { symbol.cast_const() };
    (!symbol.is_null() && symbol != own).then_some(symbol)
}

fn from_loaded_libxdp(name: &CStr) -> *const c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // Looked up, since a reference would make the linker of a fully static program warn: there it is not found.
    // SAFETY: a NUL-terminated name.
    let open = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if open.is_null() {
        return core::ptr::null();
    }
    // SAFETY: libc's function of this name has this type.
    let open = unsafe { core::mem::transmute::<*mut c_void, Open>(open) };
    // SAFETY: a NUL-terminated name; RTLD_NOLOAD runs no constructor.
    let handle = unsafe { open(c"libxdp.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return core::ptr::null();
    }
    // SAFETY: a handle from dlopen and a NUL-terminated name.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: gives back the reference that dlopen took; whoever loaded the library keeps it.
    unsafe { libc::dlclose(handle) };
    symbol.cast_const()
}
