//! Where messages go: the callback that the program gave to libxdp, else Slipring's, else the one it gave to libbpf, else
//! stderr.
//!
//! A callback is set on any thread and called on any thread. It may still be called once by a thread that had just read it
//! when it was replaced, as with libxdp. Setting calls nothing of the program's.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem::transmute,
};
use std::sync::PoisonError;

use crate::{
    loaded,
    log::{self, Level, Sink},
    sync::{AtomicUsize, Mutex, Ordering},
};

/// A callback of libxdp or libbpf. Its C type is `int (*)(enum level, const char *, va_list)`, with the same levels in both
/// libraries; Rust only passes it on.
pub(super) type PrintFn = unsafe extern "C" fn();
/// `libxdp_set_print`, `libbpf_set_print`.
type SetFn = unsafe extern "C" fn(Option<PrintFn>) -> Option<PrintFn>;

unsafe extern "C" {
    fn slipring__call_print(print: PrintFn, level: c_uint, format: *const c_char, ...) -> c_int;
    fn slipring__default_print();
}

/// Slipring's callback, or 0.
static OURS: AtomicUsize = AtomicUsize::new(0);
/// libxdp's.
pub(super) static LIBXDP: Callback = Callback::new(c"libxdp_set_print", &[c"libxdp.so.1"]);
/// libbpf's.
#[cfg(feature = "libbpf")]
pub(super) static LIBBPF: Callback = Callback::new(c"libbpf_set_print", &[c"libbpf.so.1", c"libbpf.so.0"]);

/// The program has set none, or has put back the one that was there before: its messages go to stderr.
const UNSET: usize = 0;
/// The program has set NULL: no messages of that library. No function has this address.
const SILENT: usize = 1;

/// The callback of one library.
#[derive(Debug)]
pub(super) struct Callback {
    now: AtomicUsize,
    /// What the real library has before the program sets any, once that is known.
    first: AtomicUsize,
    /// So that concurrent calls leave the same callback here and in the real library.
    setting: Mutex<()>,
    name: &'static CStr,
    libraries: &'static [&'static CStr],
}

impl Callback {
    const fn new(name: &'static CStr, libraries: &'static [&'static CStr]) -> Callback {
        Callback {
            now: AtomicUsize::new(UNSET),
            first: AtomicUsize::new(UNSET),
            setting: Mutex::new(()),
            name,
            libraries,
        }
    }

    /// Set it, here and in the real library if one is loaded; return the one until now. `None` stands for silence. Before
    /// the first call that is the real library's own, or ours that does the same.
    pub(super) fn set(&self, print: Option<PrintFn>) -> Option<PrintFn> {
        log::set_sink(Some(deliver));
        // Looked up before the lock is taken: the loader has one too, and calls constructors under it, which may come here.
        let real = real(self.name, self.libraries);
        let _order = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let real = real.map(|real| {
            // SAFETY: the real function, and a callback of its type by the program's promise.
            unsafe { real(print) }
        });
        let now = print.map_or(SILENT, |f| f as usize);
        // Put back, the first one says no more than that nothing is set.
        let default = now == slipring__default_print as *const () as usize || now == self.first.load(Ordering::Relaxed);
        let old = self.now.swap(if default && now != SILENT { UNSET } else { now }, Ordering::AcqRel);
        if old != UNSET {
            return as_print(old);
        }
        let first = real.flatten().unwrap_or(slipring__default_print);
        self.first.store(first as usize, Ordering::Relaxed);
        Some(first)
    }

    fn word(&self) -> usize {
        self.now.load(Ordering::Acquire)
    }
}

/// The function of the real library.
fn real(name: &CStr, libraries: &[&CStr]) -> Option<SetFn> {
    let real = loaded::next_definition(name, libraries);
    // SAFETY: null, which is None, or the real library's function of this name, which has this type.
    unsafe { transmute::<*mut c_void, Option<SetFn>>(real) }
}

/// Set Slipring's callback, return the one until now.
pub(super) fn set_ours(print: Option<Sink>) -> Option<Sink> {
    let old = OURS.swap(print.map_or(0, |f| f as usize), Ordering::AcqRel);
    log::set_sink(Some(deliver));
    as_sink(old)
}

extern "C" fn deliver(level: i32, line: *const c_char) {
    let libxdp = LIBXDP.word();
    if let Some(print) = as_print(libxdp) {
        return call(print, level, line);
    }
    if let Some(print) = as_sink(OURS.load(Ordering::Acquire)) {
        return print(level, line);
    }
    if libxdp == SILENT {
        return;
    }
    // Silence of libbpf is no silence of ours: programs hush it for its chatter.
    #[cfg(feature = "libbpf")]
    if let Some(print) = as_print(LIBBPF.word()) {
        return call(print, level, line);
    }
    if level < Level::Debug as i32 {
        // SAFETY: the log passes a NUL-terminated line.
        log::to_stderr(unsafe { CStr::from_ptr(line) }.to_bytes());
    }
}

fn call(print: PrintFn, level: i32, line: *const c_char) {
    // SAFETY: the program's callback, given to `Callback::set` as a function of this C type; the format takes one string.
    unsafe { slipring__call_print(print, level.cast_unsigned(), c"%s".as_ptr(), line) };
}

fn as_sink(word: usize) -> Option<Sink> {
    // SAFETY: 0, which is None, or a `Sink` that `set_ours` has stored.
    unsafe { transmute::<usize, Option<Sink>>(word) }
}

fn as_print(word: usize) -> Option<PrintFn> {
    if word == UNSET || word == SILENT {
        return None;
    }
    // SAFETY: a `PrintFn` that `Callback::set` has stored, the only other value.
    Some(unsafe { transmute::<usize, PrintFn>(word) })
}
