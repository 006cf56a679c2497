//! System calls for what processes share: files in a directory, record locks, sealed memory, datagrams with descriptors.

use core::{
    ffi::CStr,
    mem::{self, MaybeUninit},
    ptr,
};
use std::os::fd::RawFd;

use super::close;
use crate::errno::{Errno, Result, check};

macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        check(libc::syscall(libc::$number $(, $arg)*))
    };
}

/// `geteuid`.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn geteuid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_geteuid) as u32 }
}

/// `openat`, close-on-exec.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn openat(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> Result<RawFd> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_openat, dir, path.as_ptr(), flags | libc::O_CLOEXEC, mode) }.map(|fd| fd as RawFd)
}

/// `mkdir`, below the current directory if the path is relative.
pub fn mkdir(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), mode) }.map(drop)
}

/// `unlinkat` of a file.
pub fn unlinkat(dir: RawFd, path: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_unlinkat, dir, path.as_ptr(), 0) }.map(drop)
}

/// `chmod`. A link is followed, so for the caller's own places and for `/proc/self/fd/N`.
pub fn chmod(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_fchmodat, libc::AT_FDCWD, path.as_ptr(), mode) }.map(drop)
}

/// `fchmod`.
pub fn fchmod(fd: RawFd, mode: u32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fchmod, fd, mode) }.map(drop)
}

/// `fstat`.
pub fn fstat(fd: RawFd) -> Result<libc::stat> {
    let mut st = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one struct stat.
    unsafe { sys!(SYS_fstat, fd, st.as_mut_ptr()) }?;
    // SAFETY: fstat succeeded and filled it.
    Ok(unsafe { st.assume_init() })
}

/// The type of the file system that a file is on (`statfs.f_type`).
pub fn file_system(fd: RawFd) -> Result<libc::__fsword_t> {
    let mut st = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes one struct statfs.
    unsafe { sys!(SYS_fstatfs, fd, st.as_mut_ptr()) }?;
    // SAFETY: filled by the kernel.
    let st = unsafe { st.assume_init() };
    Ok(st.f_type)
}

/// `len` bytes from `from` on; 0: all.
#[expect(clippy::cast_possible_truncation, reason = "constants that fit")]
fn record(from: u8, len: u8) -> libc::flock {
    // SAFETY: a struct of integers: zero is valid.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = from.into();
    lock.l_len = len.into();
    lock
}

/// Take the record lock of a file from byte `from` on, for this process. EAGAIN or EACCES: another process has a part of it.
pub fn lock(fd: RawFd, from: u8) -> Result<()> {
    let lock = record(from, 0);
    // SAFETY: the kernel reads one live struct.
    unsafe { sys!(SYS_fcntl, fd, libc::F_SETLK, &raw const lock) }.map(drop)
}

/// Who else has the record lock of a file's first byte; the number is 0 for a process that this one cannot see. `None`: nobody.
pub fn locked_by(fd: RawFd) -> Result<Option<u32>> {
    let mut lock = record(0, 1);
    // SAFETY: the kernel reads and writes one live struct.
    unsafe { sys!(SYS_fcntl, fd, libc::F_GETLK, &raw mut lock) }?;
    let free = i32::from(lock.l_type) == libc::F_UNLCK;
    Ok((!free).then(|| u32::try_from(lock.l_pid).unwrap_or(0)))
}

/// Add seals to a memfd.
pub fn seal(fd: RawFd, seals: i32) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fcntl, fd, libc::F_ADD_SEALS, seals) }.map(drop)
}

/// The seals of a file. EINVAL: it cannot have any.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn seals(fd: RawFd) -> Result<i32> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fcntl, fd, libc::F_GET_SEALS) }.map(|seals| seals as i32)
}

/// A descriptor that becomes readable when the process ends. ESRCH: there is none. ENOSYS: a kernel before 5.3.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn pidfd(pid: u32) -> Result<RawFd> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_pidfd_open, pid, 0) }.map(|fd| fd as RawFd)
}

/// `epoll_ctl(EPOLL_CTL_DEL)`.
pub fn epoll_remove(epoll: RawFd, fd: RawFd) {
    // SAFETY: no event is read for a removal.
    let _ = unsafe { sys!(SYS_epoll_ctl, epoll, libc::EPOLL_CTL_DEL, fd, ptr::null::<u8>()) };
}

/// A socket's address in the file system. ENAMETOOLONG: more than 107 bytes.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn unix_address(path: &[u8]) -> Result<libc::sockaddr_un> {
    // SAFETY: a struct of integers.
    let mut addr: libc::sockaddr_un = unsafe { mem::zeroed() };
    addr.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if path.len() >= addr.sun_path.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in addr.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    Ok(addr)
}

/// Room for the descriptors and the credentials of one message.
#[repr(align(8))]
struct Control([u8; 128]);

/// Most descriptors that a message has.
pub const MESSAGE_FDS: usize = 2;

/// `sendmsg` without waiting, with descriptors; without an address on a connected socket.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn send_message(fd: RawFd, to: Option<&libc::sockaddr_un>, data: &[u8], fds: &[RawFd]) -> Result<()> {
    let mut control = Control([0; 128]);
    let mut iov = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: a struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    if let Some(addr) = to {
        message.msg_name = ptr::from_ref(addr).cast_mut().cast();
        message.msg_namelen = mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    }
    let fds = &fds[..fds.len().min(MESSAGE_FDS)];
    if !fds.is_empty() {
        let bytes = mem::size_of_val(fds) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
        let header = libc::cmsghdr {
            // SAFETY: arithmetic only.
            cmsg_len: unsafe { libc::CMSG_LEN(bytes) } as _,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        let at: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
        // SAFETY: the buffer is aligned for a header and longer than one with two descriptors.
        unsafe { at.write(header) };
        // SAFETY: the data of the header above, inside the buffer.
        let data = unsafe { libc::CMSG_DATA(at) };
        // SAFETY: `bytes` bytes of a live slice into the buffer, which has room for MESSAGE_FDS descriptors.
        unsafe { ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), data, bytes as usize) };
    }
    // SAFETY: the kernel reads what the message refers to, all of it alive.
    unsafe { sys!(SYS_sendmsg, fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }.map(drop)
}

/// A message that came in. Its descriptors are the caller's.
#[derive(Debug)]
pub struct Message {
    /// Bytes of data; longer messages are cut.
    pub len: usize,
    /// Descriptors, close-on-exec; -1 where there is none.
    pub fds: [RawFd; MESSAGE_FDS],
    /// Process and user of the sender, by the kernel's word; 0 where this process cannot see it.
    pub pid: u32,
    /// See `pid`.
    pub uid: u32,
}

/// `recvmsg` without waiting.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor, a count of what was given, or a size known here")]
pub fn receive_message(fd: RawFd, data: &mut [u8]) -> Result<Message> {
    let mut control = Control([0; 128]);
    let mut iov = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: a struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the kernel writes within what the message refers to, all of it alive and ours.
    let len = unsafe { sys!(SYS_recvmsg, fd, &raw mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) }? as usize;
    let mut out = Message { len, fds: [-1; MESSAGE_FDS], pid: 0, uid: u32::MAX };
    let mut taken = 0;
    // SAFETY: the kernel filled the message.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !at.is_null() {
        // SAFETY: a header that the kernel wrote into the buffer.
        let header = unsafe { at.read() };
        // SAFETY: the data behind that header.
        let data = unsafe { libc::CMSG_DATA(at) };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic only.
            let bytes = header.cmsg_len as usize - unsafe { libc::CMSG_LEN(0) } as usize;
            for i in 0..bytes / mem::size_of::<RawFd>() {
                // SAFETY: inside the data of the header.
                let place = unsafe { data.cast::<RawFd>().add(i) };
                // SAFETY: as above.
                let fd = unsafe { place.read_unaligned() };
                match out.fds.get_mut(taken) {
                    Some(place) => *place = fd,
                    // More than any of ours sends.
                    None => close(fd),
                }
                taken += 1;
            }
        } else if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_CREDENTIALS {
            // SAFETY: the kernel wrote a struct ucred there.
            let credentials = unsafe { data.cast::<libc::ucred>().read_unaligned() };
            out.pid = u32::try_from(credentials.pid).unwrap_or(0);
            out.uid = credentials.uid;
        }
        // SAFETY: walks the headers inside the buffer.
        at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
    }
    Ok(out)
}
