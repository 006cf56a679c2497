//! Where messages go: the program's callbacks, Slipring's own first, then libxdp's, else stderr.
//!
//! A callback is set on any thread and called on any thread. It may still be called once by a thread that had just read it
//! when it was replaced, as with libxdp.

use core::{
    ffi::{CStr, c_char, c_int, c_uint},
    mem::transmute,
};

use crate::{
    log::{self, Level, Sink},
    sync::{AtomicUsize, Ordering},
};

/// libxdp's callback. Its C type is `int (*)(enum libxdp_print_level, const char *, va_list)`; Rust only passes it on.
pub(super) type PrintFn = unsafe extern "C" fn();

unsafe extern "C" {
    fn slipring__call_print(print: PrintFn, level: c_uint, format: *const c_char, ...) -> c_int;
    fn slipring__default_print();
}

/// Slipring's callback, or 0.
static OURS: AtomicUsize = AtomicUsize::new(0);
/// libxdp's callback, [`UNSET`] or [`SILENT`].
static LIBXDP: AtomicUsize = AtomicUsize::new(UNSET);

/// The program has not set libxdp's callback.
const UNSET: usize = 0;
/// The program has set libxdp's callback to NULL: no messages. No function has this address.
const SILENT: usize = 1;

/// Set Slipring's callback, return the one until now.
pub(super) fn set_ours(print: Option<Sink>) -> Option<Sink> {
    let old = OURS.swap(print.map_or(0, |f| f as usize), Ordering::AcqRel);
    log::set_sink(Some(deliver));
    as_sink(old)
}

/// Set libxdp's callback, return the one until now; `None` stands for silence. Before the first call that is
/// the default one.
pub(super) fn set_libxdp(print: Option<PrintFn>) -> Option<PrintFn> {
    let old = LIBXDP.swap(print.map_or(SILENT, |f| f as usize), Ordering::AcqRel);
    log::set_sink(Some(deliver));
    if old == UNSET { Some(slipring__default_print) } else { as_print(old) }
}

/// Whether this is the libxdp callback that is in force before one is set: warnings and infos to stderr.
pub(super) fn is_default(print: PrintFn) -> bool {
    core::ptr::fn_addr_eq(print, slipring__default_print as PrintFn)
}

extern "C" fn deliver(level: i32, line: *const c_char) {
    if let Some(print) = as_sink(OURS.load(Ordering::Acquire)) {
        return print(level, line);
    }
    let libxdp = LIBXDP.load(Ordering::Acquire);
    if let Some(print) = as_print(libxdp) {
        // SAFETY: the program's callback, given to `set_libxdp` as a function of this C type; the format takes one string.
        unsafe { slipring__call_print(print, level.cast_unsigned(), c"%s".as_ptr(), line) };
    } else if libxdp == UNSET && level < Level::Debug as i32 {
        // SAFETY: the log passes a NUL-terminated line.
        log::to_stderr(unsafe { CStr::from_ptr(line) }.to_bytes());
    }
}

fn as_sink(word: usize) -> Option<Sink> {
    // SAFETY: 0, which is None, or a `Sink` that `set_ours` has stored.
    unsafe { transmute::<usize, Option<Sink>>(word) }
}

fn as_print(word: usize) -> Option<PrintFn> {
    if word == UNSET || word == SILENT {
        return None;
    }
    // SAFETY: a `PrintFn` that `set_libxdp` has stored, the only other value.
    Some(unsafe { transmute::<usize, PrintFn>(word) })
}
