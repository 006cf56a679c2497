//! Messages that a person must act on. Silent on success.
//!
//! A message goes to the callback that the program gave (`libxdp_set_print`, `slipring_set_print`), else to stderr as one
//! line that begins with `slipring: `. It says what was tried, with which value, what failed and what to do.
//! Nothing is logged on a path that runs per packet.

use core::fmt;

use crate::sync::{AtomicUsize, Ordering};

/// How loud a message is; the numbers are libxdp's `enum libxdp_print_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Level {
    /// Something failed or will not work as asked.
    Warn = 0,
    /// Worth knowing.
    Info = 1,
    /// For the developers of this library. Goes to a callback only.
    Debug = 2,
}

/// Receives a level and a NUL-terminated line that ends in a newline.
pub type Sink = extern "C" fn(level: i32, line: *const core::ffi::c_char);

static SINK: AtomicUsize = AtomicUsize::new(0);

/// Send messages to `sink`, or to stderr again; returns the sink used until now.
pub fn set_sink(sink: Option<Sink>) -> Option<Sink> {
    let new = sink.map_or(0, |f| f as usize);
    decode(SINK.swap(new, Ordering::AcqRel))
}

fn decode(word: usize) -> Option<Sink> {
    if word == 0 {
        return None;
    }
    // SAFETY: the word is 0 or was a `Sink` in `set_sink`, the only writer.
    Some(unsafe { core::mem::transmute::<usize, Sink>(word) })
}

/// Log one message; use the macros [`warn!`](crate::warn) and [`info!`](crate::info).
#[cold]
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    let sink = decode(SINK.load(Ordering::Acquire));
    if sink.is_none() && level == Level::Debug {
        return;
    }
    let line = format!("slipring: {message}\n\0").replace("\0\0", "\0");
    match sink {
        Some(sink) => sink(level as i32, line.as_ptr().cast()),
        None => to_stderr(&line.as_bytes()[..line.len() - 1]),
    }
}

/// Write a line to stderr at once, so that lines of several threads do not mix. Nobody can be told when it is closed.
pub(crate) fn to_stderr(line: &[u8]) {
    // SAFETY: a live buffer; the raw call, since `write` is a name that we export.
    let _ = unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

/// Log a failure that a person must act on.
#[macro_export]
macro_rules! warn {
    ($($arg:tt)*) => { $crate::log::log($crate::log::Level::Warn, format_args!($($arg)*)) };
}

/// Log something worth knowing.
#[macro_export]
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::log($crate::log::Level::Info, format_args!($($arg)*)) };
}
