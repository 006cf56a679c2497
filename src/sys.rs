//! Thin system calls.
//!
//! Everything here goes through `syscall(2)`, never through libc's wrappers: `poll`, `sendto`, `close`, `mmap`, ... are
//! names that `crate::interpose` exports, so a call by name from inside the library would come back to us.

use core::{mem, ptr, ptr::NonNull};
use std::os::fd::RawFd;

use crate::errno::{Errno, Result, check};

/// Size of a page. The rings' and the UMEM's alignment.
pub const PAGE: usize = 4096;

macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        check(libc::syscall(libc::$number $(, $arg)*))
    };
}

/// `socket`.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Result<RawFd> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_socket, domain, kind, protocol) }.map(|fd| fd as RawFd)
}

/// `socketpair`.
pub fn socketpair(domain: i32, kind: i32) -> Result<(RawFd, RawFd)> {
    let mut fds = [0 as RawFd; 2];
    // SAFETY: the kernel writes two ints to an array of two.
    unsafe { sys!(SYS_socketpair, domain, kind, 0, fds.as_mut_ptr()) }?;
    Ok((fds[0], fds[1]))
}

/// `close`. An error is of no use to anyone: the number is free afterwards in any case.
pub fn close(fd: RawFd) {
    // SAFETY: no pointers; the caller owns the descriptor.
    let _ = unsafe { sys!(SYS_close, fd) };
}

/// `dup3`: put `fd` under the number `to`; close-on-exec if asked.
pub fn dup3(fd: RawFd, to: RawFd, cloexec: bool) -> Result<()> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    unsafe { sys!(SYS_dup3, fd, to, flags) }.map(drop)
}

/// `bind` with a plain struct as address.
pub fn bind<T: Copy>(fd: RawFd, addr: &T) -> Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes at a live reference.
    unsafe { sys!(SYS_bind, fd, ptr::from_ref(addr), mem::size_of::<T>()) }.map(drop)
}

/// `setsockopt` with a plain struct.
pub fn setsockopt<T: Copy>(fd: RawFd, level: i32, name: i32, value: &T) -> Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes at a live reference.
    unsafe { sys!(SYS_setsockopt, fd, level, name, ptr::from_ref(value), mem::size_of::<T>()) }.map(drop)
}

/// `getsockopt` into a plain struct; returns the length that the kernel wrote.
///
/// `T` must be valid for any bit pattern, zero included (integers and `repr(C)` structs of integers).
pub fn getsockopt<T: Copy>(fd: RawFd, level: i32, name: i32, value: &mut T) -> Result<usize> {
    // `mem::size_of` of an option struct is a few hundred bytes at the most.
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a live, unique reference and the length to ours.
    unsafe { sys!(SYS_getsockopt, fd, level, name, ptr::from_mut(value), &raw mut len) }?;
    Ok(len as usize)
}

/// `sendto` without an address.
pub fn send(fd: RawFd, data: &[u8], flags: i32) -> Result<usize> {
    // SAFETY: the kernel reads data.len() bytes of a live slice.
    let n = unsafe { sys!(SYS_sendto, fd, data.as_ptr(), data.len(), flags, ptr::null::<u8>(), 0) }?;
    Ok(n as usize)
}

/// `recvfrom` without an address.
pub fn recv(fd: RawFd, data: &mut [u8], flags: i32) -> Result<usize> {
    // SAFETY: the kernel writes at most data.len() bytes to a live, unique slice.
    let n =
        unsafe { sys!(SYS_recvfrom, fd, data.as_mut_ptr(), data.len(), flags, ptr::null::<u8>(), ptr::null::<u8>()) }?;
    Ok(n as usize)
}

/// `poll`. `None` waits without end.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> Result<usize> {
    // SAFETY: the kernel reads and writes fds.len() structs of a live, unique slice.
    let n = unsafe { sys!(SYS_poll, fds.as_mut_ptr(), fds.len(), timeout_ms) }?;
    Ok(n as usize)
}

/// `memfd_create`, close-on-exec, sealing allowed.
pub fn memfd(name: &std::ffi::CStr) -> Result<RawFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_memfd_create, name.as_ptr(), flags) }.map(|fd| fd as RawFd)
}

/// `ftruncate`.
pub fn ftruncate(fd: RawFd, len: usize) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_ftruncate, fd, len) }.map(drop)
}

/// `mmap`, shared, readable and writable, populated. `at`: exactly there, replacing what is mapped (MAP_FIXED).
pub fn map_shared(fd: RawFd, offset: u64, len: usize, at: Option<NonNull<u8>>) -> Result<NonNull<u8>> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE | fixed;
    mmap(at.map_or(ptr::null_mut(), NonNull::as_ptr), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
}

/// `mmap`, private anonymous memory.
pub fn map_private(len: usize) -> Result<NonNull<u8>> {
    mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
}

/// `mmap` as it is. The offset is 64 bits wide on every architecture.
pub fn mmap(addr: *mut u8, len: usize, prot: i32, flags: i32, fd: RawFd, offset: u64) -> Result<NonNull<u8>> {
    #[cfg(target_pointer_width = "64")]
    // SAFETY: a fresh mapping, or one at an address whose owner asked for it.
    let ret = unsafe { sys!(SYS_mmap, addr, len, prot, flags, fd, offset) }?;
    #[cfg(target_pointer_width = "32")]
    // SAFETY: as above; mmap2 counts in 4096-byte units, so that offsets beyond 4 GiB fit.
    let ret = unsafe { sys!(SYS_mmap2, addr, len, prot, flags, fd, offset >> 12) }?;
    NonNull::new(ret as *mut u8).ok_or(Errno::ENOMEM)
}

/// `munmap` of a range that the caller owns.
pub fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the mapping; nothing refers to it any more.
    let _ = unsafe { sys!(SYS_munmap, base.as_ptr(), len) };
}

/// Device and inode of what a descriptor stands for: its identity, since numbers are reused.
pub fn identity(fd: RawFd) -> Result<(u64, u64)> {
    let mut st = mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one struct stat.
    unsafe { sys!(SYS_fstat, fd, st.as_mut_ptr()) }?;
    // SAFETY: fstat succeeded and filled it.
    let st = unsafe { st.assume_init() };
    Ok((st.st_dev, st.st_ino))
}

/// Monotonic time in nanoseconds. Uses the vDSO: no system call.
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one timespec; the clock always exists. clock_gettime is not interposed.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}
