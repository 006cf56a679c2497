//! The error type of the whole library: a Linux error number.
//!
//! AF_XDP's interface speaks in error numbers and a program compares them, so nothing richer is carried. What a
//! person needs beyond the number is logged where the failure is noticed (`crate::log`).

use core::fmt;

/// Result of everything that can fail with an error number.
pub type Result<T> = core::result::Result<T, Errno>;

/// A positive Linux error number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Errno = Errno(libc::$name);
            )*

            /// The symbolic name, where this library ever uses the number.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG EFBIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE
    ENOSPC ERANGE ENOTSOCK EMSGSIZE ENOPROTOOPT EOPNOTSUPP EAFNOSUPPORT ENETDOWN ENOBUFS ENOSYS ENOTCONN ETIMEDOUT
    ECONNREFUSED ENAMETOOLONG ELOOP ENOTDIR EROFS EPROTO EPROTONOSUPPORT ESOCKTNOSUPPORT EISCONN EPIPE
}

impl Errno {
    /// From a positive error number; anything that is none becomes `EIO`, so that a value of this type is always an error.
    pub const fn new(number: i32) -> Errno {
        if number > 0 { Errno(number) } else { Errno(libc::EIO) }
    }

    /// The calling thread's `errno`.
    pub fn last() -> Errno {
        // SAFETY: has no preconditions.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's own errno, always valid.
        Errno::new(unsafe { *location })
    }

    /// Store the number in the calling thread's `errno`.
    pub fn set(self) {
        // SAFETY: has no preconditions.
        let location = unsafe { libc::__errno_location() };
        // SAFETY: as in `last`; the location belongs to this thread alone.
        unsafe { *location = self.0 }
    }

    /// The positive number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The number as libxdp's `int` functions return it.
    pub const fn negative(self) -> i32 {
        -self.0
    }
}

/// The program's `errno` across work that it must not see.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct SavedErrno(i32);

#[cfg(not(loom))]
impl SavedErrno {
    /// Of the calling thread, now.
    pub(crate) fn save() -> SavedErrno {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's own.
        SavedErrno(unsafe { *errno })
    }

    /// Whether it was this one.
    pub(crate) fn is(&self, error: Errno) -> bool {
        self.0 == error.number()
    }

    /// On the same thread.
    pub(crate) fn restore(&self) {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's own.
        unsafe { *errno = self.0 }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        // std appends " (os error N)"; the name says the same and can be searched for.
        let text = text.split(" (os error").next().unwrap_or_default();
        match self.name() {
            Some(name) => write!(f, "{text} ({name})"),
            None => write!(f, "{text} (error {})", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Errno {
        Errno::new(e.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// `-1 and errno` of a C call as a `Result`.
pub fn check(ret: libc::c_long) -> Result<libc::c_long> {
    if ret == -1 { Err(Errno::last()) } else { Ok(ret) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_never_zero_or_negative() {
        assert_eq!(Errno::new(0), Errno::EIO);
        assert_eq!(Errno::new(-5), Errno::EIO);
        assert_eq!(Errno::new(libc::EBUSY), Errno::EBUSY);
    }

    #[test]
    fn text_names_the_number() {
        assert_eq!(Errno::EBUSY.to_string(), "Device or resource busy (EBUSY)");
        assert_eq!(format!("{:?}", Errno::ENXIO), "ENXIO");
    }
}
