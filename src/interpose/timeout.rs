//! How long a wait lasts.

use core::ffi::{c_int, c_long};

use libc::timespec;

use crate::{
    errno::{Errno, Result},
    sys,
};

const SECOND: u64 = 1_000_000_000;

/// When a wait ends: never, or at a monotonic time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    Never,
    At(u64),
}

/// A timeout as the program gives it.
pub(super) enum Timeout {
    /// Negative: without end.
    Milliseconds(c_int),
    /// Null: without end.
    Time(*const timespec),
}

impl Timeout {
    /// EINVAL: not a time.
    pub(super) fn read(&self) -> Result<Deadline> {
        match *self {
            Timeout::Milliseconds(ms) => {
                Ok(u64::try_from(ms).map_or(Deadline::Never, |ms| Deadline::after(ms * 1_000_000)))
            }
            Timeout::Time(time) => {
                // SAFETY: null, or the program's own time.
                let time = unsafe { time.as_ref() };
                time.map_or(Ok(Deadline::Never), |t| nanoseconds(t).map(Deadline::after))
            }
        }
    }
}

impl Deadline {
    /// So many nanoseconds from now.
    pub(super) fn after(ns: u64) -> Deadline {
        Deadline::At(sys::now_ns().saturating_add(ns))
    }

    /// Nanoseconds left; `None`: without end.
    pub(super) fn left(self) -> Option<u64> {
        match self {
            Deadline::Never => None,
            Deadline::At(end) => Some(end.saturating_sub(sys::now_ns())),
        }
    }
}

/// A timespec in nanoseconds; beyond 584 years it is as good as that. EINVAL: not a time.
pub(super) fn nanoseconds(time: &timespec) -> Result<u64> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::EINVAL)?;
    let rest = u64::try_from(time.tv_nsec).ok().filter(|&n| n < SECOND).ok_or(Errno::EINVAL)?;
    Ok(seconds.saturating_mul(SECOND).saturating_add(rest))
}

/// Nanoseconds as a timespec.
pub(super) fn time(ns: u64) -> timespec {
    let seconds = libc::time_t::try_from(ns / SECOND).unwrap_or(libc::time_t::MAX);
    timespec { tv_sec: seconds, tv_nsec: c_long::try_from(ns % SECOND).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_kernel_reads_them() {
        let read = |tv_sec, tv_nsec| nanoseconds(&timespec { tv_sec, tv_nsec });
        assert_eq!(read(0, 0), Ok(0));
        assert_eq!(read(2, 999_999_999), Ok(2_999_999_999));
        #[cfg(target_pointer_width = "64")]
        assert_eq!(read(i64::MAX, 0), Ok(u64::MAX), "as good as for ever");
        for (seconds, rest) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(read(seconds, rest), Err(Errno::EINVAL));
        }
        let back = time(2_000_000_003);
        assert_eq!((back.tv_sec, back.tv_nsec), (2, 3));
    }

    #[test]
    fn a_deadline_passes_or_never_does() {
        assert_eq!(Timeout::Milliseconds(-1).read(), Ok(Deadline::Never));
        assert_eq!(Timeout::Time(core::ptr::null()).read(), Ok(Deadline::Never));
        assert_eq!(Deadline::Never.left(), None);
        assert_eq!(Timeout::Milliseconds(0).read().map(Deadline::left), Ok(Some(0)));
        let left = Timeout::Milliseconds(i32::MAX).read().map(Deadline::left);
        assert!(matches!(left, Ok(Some(ns)) if ns > 2_000_000_000_000_000));
    }
}
