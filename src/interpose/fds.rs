//! The life of descriptor numbers: `close` and its kin, `dup` and its kin.
//!
//! Two tables follow them: the engine's (numbers of sockets) and that of `super::epoll` (numbers of epoll instances that
//! watch our sockets). Both ignore what the child of a `vfork` does, whose memory is its parent's.
//!
//! A number is forgotten *before* the kernel frees it: afterwards another thread may get it for something new. Where the
//! kernel may refuse (`dup2`) it is asked first; until the number is forgotten, verification tells the two files apart.

use core::ffi::{c_int, c_uint, c_ulong};

use super::{Answer, SavedErrno, any_socket, epoll, guard, guarded, next, suspect};
use crate::{
    engine,
    errno::{Errno, Result},
};

/// Numbers from here on are not looked for one by one when a range is closed.
const HIGHEST: c_uint = 1 << 20;

/// Whether a number means anything to us.
#[inline]
extern "C" fn maybe_known(fd: c_int) -> bool {
    engine::maybe_ours(fd) || epoll::maybe(fd)
}

fn forget(fd: c_int) {
    engine::forget(fd);
    epoll::forget(fd);
}

/// After the kernel made `new` stand for what `old` stands for.
fn duplicated(old: c_int, new: c_int) {
    if engine::lookup_verified(old).is_some() {
        engine::duplicate(old, new);
    }
    epoll::duplicate(old, new);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    /// EBADF for what the engine itself needs: the program did not open it and it would not be there otherwise.
    #[inline(never)]
    extern "C" fn known(fd: c_int) -> Answer {
        guarded(|| {
            if engine::is_internal(fd) {
                return Some(Err(Errno::EBADF));
            }
            forget(fd);
            None
        })
    }
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(fd: c_int) -> c_int {
        super::cancellation_point();
        if !maybe_known(fd) {
            // SAFETY: the program's own number.
            return unsafe { next::close(fd) };
        }
        let answer = known(fd);
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own number.
        let result = unsafe { next::close(fd) };
        swept();
        result
    }
    if suspect(fd) || epoll::maybe(fd) {
        // SAFETY: the program's own number.
        return unsafe { perhaps(fd) };
    }
    // SAFETY: the program's own number.
    unsafe { next::close(fd) }
}

/// Sockets whose last number went are dropped from the epoll instances that watched them.
#[cold]
#[inline(never)]
extern "C" fn swept() {
    let errno = SavedErrno::save();
    guard((), epoll::sweep);
    errno.restore();
}

/// Close a range but for what the engine needs.
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> Result<usize> {
    let mut from = first;
    let close = |from: c_uint, to: c_uint| {
        // SAFETY: no pointers.
        let result = unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) };
        crate::errno::check(result).map(drop)
    };
    for number in first..=last.min(HIGHEST) {
        let Ok(fd) = c_int::try_from(number) else { break };
        if !maybe_known(fd) {
            continue;
        }
        if !engine::is_internal(fd) {
            forget(fd);
            continue;
        }
        if number > from {
            close(from, number - 1)?;
        }
        from = number + 1;
    }
    if from <= last {
        close(from, last)?;
    }
    epoll::sweep();
    Ok(0)
}

#[cold]
#[inline(never)]
extern "C" fn close_known(first: c_uint, last: c_uint, flags: c_int) -> Answer {
    guarded(|| {
        // Only flags that do not keep the numbers open, and a range that the kernel accepts.
        let closes = flags & !CLOSE_RANGE_UNSHARE == 0 && first <= last;
        closes.then(|| close_all(first, last, flags))
    })
}

const CLOSE_RANGE_UNSHARE: c_int = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if any_socket() {
        let answer = close_known(first, last, flags);
        if answer.ours != 0 {
            return answer.int();
        }
    }
    // SAFETY: the program's own numbers.
    unsafe { next::close_range(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    if any_socket() && close_known(first.max(0).cast_unsigned(), c_uint::MAX, 0).value == 0 {
        return;
    }
    // Also where the kernel has no close_range: libc knows another way.
    // SAFETY: the program's own numbers.
    unsafe { next::closefrom(first) }
}

/// The two tables after a successful dup, and what `dup` returns.
#[cold]
#[inline(never)]
extern "C" fn after_dup(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        guard((), || duplicated(old, new));
    }
    new
}

/// The same where `new` may have stood for something of ours.
#[cold]
#[inline(never)]
extern "C" fn after_dup2(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old {
        guard((), || {
            forget(new);
            duplicated(old, new);
            epoll::sweep();
        });
    }
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the program's own number.
    let new = unsafe { next::dup(fd) };
    if maybe_known(fd) { after_dup(fd, new) } else { new }
}

/// Whether the engine itself needs the number that a program wants to put something under. The kernel allows itself EBUSY
/// for a number that is in use by a race.
#[cold]
#[inline(never)]
extern "C" fn is_taken(to: c_int) -> Answer {
    guarded(|| engine::is_internal(to).then_some(Err(Errno::EBUSY)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if !maybe_known(fd) && !maybe_known(to) {
        // SAFETY: the program's own numbers.
        return unsafe { next::dup2(fd, to) };
    }
    if is_taken(to).ours != 0 {
        return -1;
    }
    // SAFETY: the program's own numbers.
    after_dup2(fd, unsafe { next::dup2(fd, to) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if !maybe_known(fd) && !maybe_known(to) {
        // SAFETY: the program's own numbers.
        return unsafe { next::dup3(fd, to, flags) };
    }
    if is_taken(to).ours != 0 {
        return -1;
    }
    // SAFETY: the program's own numbers.
    after_dup2(fd, unsafe { next::dup3(fd, to, flags) })
}

#[inline]
extern "C" fn duplicates(command: c_int) -> bool {
    command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC
}

// `fcntl` is variadic in C. On the systems that we serve a third argument that is not there, or is an int or a pointer,
// arrives as a word.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if duplicates(command) && maybe_known(fd) {
        // SAFETY: the program's own arguments.
        return after_dup(fd, unsafe { next::fcntl(fd, command, argument) });
    }
    // SAFETY: the program's own arguments.
    unsafe { next::fcntl(fd, command, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if duplicates(command) && maybe_known(fd) {
        // SAFETY: the program's own arguments.
        return after_dup(fd, unsafe { next::fcntl64(fd, command, argument) });
    }
    // SAFETY: the program's own arguments.
    unsafe { next::fcntl64(fd, command, argument) }
}
