//! Sending and receiving: `sendto` and its kin, `recvfrom` and its kin, `write`, `read`.
//!
//! An AF_XDP socket moves no data through these: whatever they are given, they are a kick for the transmit or the receive
//! path. Buffers and addresses are not looked at. What is answered, and in which order things are checked, is what the
//! kernel answers on its own AF_XDP sockets.
//!
//! A kick without data is what a program calls all the time, so there the descriptor's identity is not verified; everything
//! else might be meant for another file that took over the number behind our back, and is.

use core::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::{on_our_descriptor, user};
use crate::{
    engine,
    errno::{Errno, Result},
    uapi::Socket as _,
};

/// Longest address that the kernel takes (`struct sockaddr_storage`).
const ADDRESS_MAX: socklen_t = 128;
/// Most elements of an iovec array, and most messages of one call.
const IOV_MAX: usize = 1024;

/// `MSG_DONTWAIT` for a descriptor that is non-blocking.
fn with_nonblock(fd: c_int, flags: c_int) -> c_int {
    if flags & libc::MSG_DONTWAIT == 0 && is_nonblocking(fd) { flags | libc::MSG_DONTWAIT } else { flags }
}

#[cold]
pub(super) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::c_long::from(libc::O_NONBLOCK) != 0
}

/// The socket of a call that carries nothing but the kick itself, or of any other call.
#[inline]
fn socket_for(fd: c_int, bare: bool) -> Option<engine::SocketRef> {
    if bare { engine::lookup(fd) } else { engine::lookup_verified(fd) }
}

#[inline]
fn kick_tx(socket: &engine::Socket, fd: c_int, flags: c_int) -> Result<usize> {
    socket.kick_tx(with_nonblock(fd, flags)).map(|()| 0)
}

#[inline]
fn kick_rx(socket: &engine::Socket, fd: c_int, flags: c_int) -> Result<usize> {
    socket.kick_rx(with_nonblock(fd, flags)).map(|()| 0)
}

fn transmit(fd: c_int, data: usize, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> Option<Result<usize>> {
    let socket = socket_for(fd, data == 0 && addr.is_null())?;
    if let Err(error) = check_address(addr, addr_len) {
        return Some(Err(error));
    }
    Some(kick_tx(&socket, fd, flags))
}

/// The kernel copies an address before anybody can say that it is not wanted.
fn check_address(addr: *const sockaddr, len: socklen_t) -> Result<()> {
    if addr.is_null() || len == 0 {
        return Ok(());
    }
    if len > ADDRESS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut copy = [0; ADDRESS_MAX as usize];
    user::copy_in(&mut copy[..len as usize], addr.cast())
}

fn receive(fd: c_int, data: usize, flags: c_int, addr_len: *mut socklen_t) -> Option<Result<usize>> {
    let socket = socket_for(fd, data == 0 && addr_len.is_null())?;
    let result = kick_rx(&socket, fd, flags);
    if result.is_ok() {
        // SAFETY: null, or the program's own.
        if let Some(len) = unsafe { addr_len.as_mut() } {
            *len = 0;
        }
    }
    Some(result)
}

/// Total of an iovec array, checked as the kernel does.
fn total(iov: *const iovec, count: usize) -> Result<usize> {
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    if iov.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the program says that `count` elements are there.
    let list = unsafe { core::slice::from_raw_parts(iov, count) };
    Ok(list.iter().fold(0, |sum: usize, v| sum.saturating_add(v.iov_len)))
}

fn send_message(socket: &engine::Socket, fd: c_int, message: &msghdr, flags: c_int) -> Result<usize> {
    if message.msg_iovlen > IOV_MAX {
        return Err(Errno::EMSGSIZE);
    }
    kick_tx(socket, fd, flags)
}

fn receive_message(socket: &engine::Socket, fd: c_int, message: &mut msghdr, flags: c_int) -> Result<usize> {
    if message.msg_iovlen > IOV_MAX {
        return Err(Errno::EMSGSIZE);
    }
    kick_rx(socket, fd, flags)?;
    message.msg_flags = 0;
    message.msg_namelen = 0;
    message.msg_controllen = 0;
    Ok(0)
}

fn is_bare(message: &msghdr) -> bool {
    message.msg_iovlen == 0 && message.msg_controllen == 0 && message.msg_name.is_null()
}

/// `sendmmsg` and `recvmmsg`: messages until one fails; its error only if it was the first.
fn messages(
    messages: *mut mmsghdr,
    count: c_uint,
    mut each: impl FnMut(&mut msghdr) -> Result<usize>,
) -> Result<usize> {
    let count = usize::try_from(count).unwrap_or(IOV_MAX).min(IOV_MAX);
    if count == 0 {
        return Ok(0);
    }
    if messages.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the program says that `count` elements are there.
    let list = unsafe { core::slice::from_raw_parts_mut(messages, count) };
    for (done, message) in list.iter_mut().enumerate() {
        match each(&mut message.msg_hdr) {
            Ok(_) => message.msg_len = 0,
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
        }
    }
    Ok(count)
}

on_our_descriptor! {
    @cancellation_point fn sendto(fd: c_int, data: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t {
        let _ = data;
        transmit(fd, len, flags, addr, addr_len)
    }

    @cancellation_point fn send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        let _ = data;
        transmit(fd, len, flags, core::ptr::null(), 0)
    }

    @cancellation_point fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: null, or the program's own message.
        let message = unsafe { message.as_ref() };
        let socket = socket_for(fd, message.is_some_and(is_bare))?;
        Some(message.ok_or(Errno::EFAULT).and_then(|m| send_message(&socket, fd, m, flags)))
    }

    @cancellation_point fn sendmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let socket = engine::lookup_verified(fd)?;
        Some(messages(list, count, |m| send_message(&socket, fd, m, flags)))
    }

    @cancellation_point fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        let _ = (data, len);
        let socket = engine::lookup_verified(fd)?;
        Some(kick_tx(&socket, fd, 0))
    }

    @cancellation_point fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let socket = engine::lookup_verified(fd)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(total(iov, count).and_then(|n| if n == 0 { Ok(0) } else { kick_tx(&socket, fd, 0) }))
    }

    @cancellation_point fn recvfrom(fd: c_int, data: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t {
        let _ = (data, addr);
        receive(fd, len, flags, addr_len)
    }

    @cancellation_point fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        let _ = data;
        receive(fd, len, flags, core::ptr::null_mut())
    }

    @cancellation_point fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: null, or the program's own message.
        let message = unsafe { message.as_mut() };
        let socket = socket_for(fd, message.as_deref().is_some_and(is_bare))?;
        Some(message.ok_or(Errno::EFAULT).and_then(|m| receive_message(&socket, fd, m, flags)))
    }

    @cancellation_point fn recvmmsg(fd: c_int, list: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let socket = engine::lookup_verified(fd)?;
        // SAFETY: null, or the program's own time.
        if unsafe { timeout.as_ref() }.is_some_and(|t| t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec)) {
            return Some(Err(Errno::EINVAL));
        }
        Some(messages(list, count, |m| receive_message(&socket, fd, m, flags)))
    }

    @cancellation_point fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t {
        let _ = data;
        let socket = engine::lookup_verified(fd)?;
        Some(if len == 0 { Ok(0) } else { kick_rx(&socket, fd, 0) })
    }

    @cancellation_point fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        let socket = engine::lookup_verified(fd)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Some(total(iov, count).and_then(|n| if n == 0 { Ok(0) } else { kick_rx(&socket, fd, 0) }))
    }

    // The fortified forms also get the size of the buffer. When it is too small libc's own ends the program.
    @cancellation_point fn __recv_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        let _ = data;
        if len > room { None } else { receive(fd, len, flags, core::ptr::null_mut()) }
    }

    @cancellation_point fn __recvfrom_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t {
        let _ = (data, addr);
        if len > room { None } else { receive(fd, len, flags, addr_len) }
    }

    @cancellation_point fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        let _ = data;
        if len > room {
            return None;
        }
        let socket = engine::lookup_verified(fd)?;
        Some(if len == 0 { Ok(0) } else { kick_rx(&socket, fd, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iovec_total_is_checked_as_by_the_kernel() {
        let iov = [
            iovec { iov_base: core::ptr::null_mut(), iov_len: 3 },
            iovec { iov_base: core::ptr::null_mut(), iov_len: 0 },
        ];
        assert_eq!(total(iov.as_ptr(), 2), Ok(3));
        assert_eq!(total(core::ptr::null(), 0), Ok(0));
        assert_eq!(total(core::ptr::null(), 1), Err(Errno::EFAULT));
        assert_eq!(total(iov.as_ptr(), 1025), Err(Errno::EINVAL));
    }

    #[test]
    fn messages_stop_at_the_first_failure() {
        // SAFETY: a struct of integers and pointers.
        let mut list: [mmsghdr; 3] = unsafe { core::mem::zeroed() };
        list[0].msg_len = 9;
        let mut left = 2;
        let mut each = |_: &mut msghdr| {
            left -= 1;
            if left >= 0 { Ok(0) } else { Err(Errno::EAGAIN) }
        };
        assert_eq!(messages(list.as_mut_ptr(), 3, &mut each), Ok(2));
        assert_eq!(list[0].msg_len, 0);
        assert_eq!(messages(list.as_mut_ptr(), 3, &mut each), Err(Errno::EAGAIN));
        assert_eq!(messages(core::ptr::null_mut(), 1, &mut each), Err(Errno::EFAULT));
        assert_eq!(messages(core::ptr::null_mut(), 0, &mut each), Ok(0));
    }
}
