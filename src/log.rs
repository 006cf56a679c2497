//! Messages that a person must act on. Silent on success.
//!
//! A message goes to the callback that the program gave (`crate::abi`), else to stderr as one line that begins with
//! `slipring: `. It says what was tried, with which value, what failed and what to do. Nothing is logged on a path that runs
//! per packet.
//!
//! A callback may call back into the library, so it must not run while the thread that met the failure holds a lock of
//! ours: every way into the library takes a [`hold`], and the callback gets the messages when the outermost one ends. What
//! the library has to say about a callback's own calls goes to stderr, or a callback that fails would call itself for ever.

use core::{
    cell::{Cell, RefCell},
    fmt, mem,
};

use crate::{
    errno::SavedErrno,
    sync::{AtomicUsize, Ordering},
};

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

/// Where a thread stands.
struct Thread {
    /// Holds that have not ended.
    holds: Cell<u32>,
    /// `HELD` is not empty.
    waiting: Cell<bool>,
    /// A callback is running.
    telling: Cell<bool>,
}

thread_local! {
    static THREAD: Thread =
        const { Thread { holds: Cell::new(0), waiting: Cell::new(false), telling: Cell::new(false) } };
    /// Messages for the callback, as lines that end in a NUL.
    static HELD: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread's messages to a callback wait.
#[derive(Debug)]
#[must_use]
pub struct Hold {
    counted: bool,
}

/// Keep this thread's messages to a callback back until the outermost hold ends. One load where the program set none.
#[inline]
pub fn hold() -> Hold {
    // Relaxed: a callback that is set during a call may or may not see that call's messages.
    let counted = SINK.load(Ordering::Relaxed) != 0 && begin();
    Hold { counted }
}

#[cold]
fn begin() -> bool {
    THREAD.try_with(|t| t.holds.set(t.holds.get() + 1)).is_ok()
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        if self.counted {
            end();
        }
    }
}

#[cold]
fn end() {
    let due = THREAD.try_with(|t| {
        t.holds.set(t.holds.get() - 1);
        t.holds.get() == 0 && t.waiting.replace(false)
    });
    if due != Ok(true) {
        return;
    }
    // Taken out first: the callback may fail, free and log.
    let held = HELD.try_with(|held| held.try_borrow_mut().map(|mut held| mem::take(&mut *held)));
    if let Ok(Ok(held)) = held {
        for (level, line) in held {
            tell(level, &line);
        }
    }
}

/// Log one message; use the macros [`warn!`](crate::warn) and [`info!`](crate::info).
#[cold]
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    if SINK.load(Ordering::Acquire) == 0 && level == Level::Debug {
        return;
    }
    let line = format!("slipring: {message}\n\0").replace("\0\0", "\0");
    let (held, telling) = THREAD.try_with(|t| (t.holds.get() != 0, t.telling.get())).unwrap_or_default();
    if telling {
        if level != Level::Debug {
            to_stderr(text(&line));
        }
    } else if held {
        keep(level, line);
    } else {
        tell(level, &line);
    }
}

/// Keep a message for the end of the hold. At a thread's very end, or in a signal handler that interrupted this, it is given
/// at once.
fn keep(level: Level, line: String) {
    let mut line = Some((level, line));
    let _ = HELD.try_with(|held| {
        if let Ok(mut held) = held.try_borrow_mut() {
            held.extend(line.take());
        }
    });
    match line {
        Some((level, line)) => tell(level, &line),
        None => drop(THREAD.try_with(|t| t.waiting.set(true))),
    }
}

/// Give a line to the callback, or write it to stderr. The program's `errno` stays what it was.
fn tell(level: Level, line: &str) {
    let errno = SavedErrno::save();
    match decode(SINK.load(Ordering::Acquire)) {
        Some(sink) => {
            let _ = THREAD.try_with(|t| t.telling.set(true));
            sink(level as i32, line.as_ptr().cast());
            let _ = THREAD.try_with(|t| t.telling.set(false));
        }
        None if level == Level::Debug => {}
        None => to_stderr(text(line)),
    }
    errno.restore();
}

/// The line without its NUL.
fn text(line: &str) -> &[u8] {
    line.trim_end_matches('\0').as_bytes()
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
