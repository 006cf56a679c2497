//! Thin system calls.
//!
//! Everything here goes through `syscall(2)`, never through libc's wrappers: `poll`, `sendto`, `close`, `mmap`, ... are
//! names that `crate::interpose` exports, so a call by name from inside the library would come back to us.

mod ipc;

use core::{mem, ptr, ptr::NonNull};
use std::os::fd::RawFd;

pub use ipc::{
    MESSAGE_FDS, Message, chmod, epoll_remove, fchmod, file_system, fstat, geteuid, lock, locked_by, mkdir, openat,
    pidfd, receive_message, seal, seals, send_message, unix_address, unlinkat,
};

use crate::errno::{Errno, Result, check};

/// Size of a page. The rings' and the UMEM's alignment.
pub const PAGE: usize = 4096;

macro_rules! sys {
    ($number:ident $(, $arg:expr)* $(,)?) => {
        check(libc::syscall(libc::$number $(, $arg)*))
    };
}

/// A descriptor that a system call returned.
#[expect(clippy::cast_possible_truncation, reason = "the kernel's descriptors are ints")]
fn number(fd: libc::c_long) -> RawFd {
    fd as RawFd
}

/// A count that a system call returned: at most the length that it was given.
#[expect(clippy::cast_possible_truncation, reason = "a C long is as wide as a pointer, and the count is not negative")]
fn count(n: libc::c_long) -> usize {
    n as usize
}

/// `socket`.
pub fn socket(domain: i32, kind: i32, protocol: i32) -> Result<RawFd> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_socket, domain, kind, protocol) }.map(number)
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
    #[expect(clippy::cast_possible_truncation, reason = "an option's struct has a few hundred bytes at the most")]
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a live, unique reference and the length to ours.
    unsafe { sys!(SYS_getsockopt, fd, level, name, ptr::from_mut(value), &raw mut len) }?;
    Ok(len as usize)
}

/// `sendto` without an address.
pub fn send(fd: RawFd, data: &[u8], flags: i32) -> Result<usize> {
    // SAFETY: the kernel reads data.len() bytes of a live slice.
    let n = unsafe { sys!(SYS_sendto, fd, data.as_ptr(), data.len(), flags, ptr::null::<u8>(), 0) }?;
    Ok(count(n))
}

/// `recvfrom` without an address.
pub fn recv(fd: RawFd, data: &mut [u8], flags: i32) -> Result<usize> {
    // SAFETY: the kernel writes at most data.len() bytes to a live, unique slice.
    let n =
        unsafe { sys!(SYS_recvfrom, fd, data.as_mut_ptr(), data.len(), flags, ptr::null::<u8>(), ptr::null::<u8>()) }?;
    Ok(count(n))
}

/// `poll`. `None` waits without end.
pub fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> Result<usize> {
    // SAFETY: the kernel reads and writes fds.len() structs of a live, unique slice.
    let n = unsafe { sys!(SYS_poll, fds.as_mut_ptr(), fds.len(), timeout_ms) }?;
    Ok(count(n))
}

/// Whether FD_CLOEXEC is set.
pub fn is_cloexec(fd: RawFd) -> Result<bool> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fcntl, fd, libc::F_GETFD, 0) }.map(|flags| flags & libc::c_long::from(libc::FD_CLOEXEC) != 0)
}

/// Set FD_CLOEXEC and O_NONBLOCK as told.
pub fn set_flags(fd: RawFd, cloexec: bool, nonblock: bool) -> Result<()> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fcntl, fd, libc::F_SETFD, if cloexec { libc::FD_CLOEXEC } else { 0 }) }?;
    // SAFETY: no pointers.
    unsafe { sys!(SYS_fcntl, fd, libc::F_SETFL, if nonblock { libc::O_NONBLOCK } else { 0 }) }.map(drop)
}

/// `memfd_create`, close-on-exec, sealing allowed.
pub fn memfd(name: &std::ffi::CStr) -> Result<RawFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(SYS_memfd_create, name.as_ptr(), flags) }.map(number)
}

/// `ftruncate`. EFBIG: above RLIMIT_FSIZE, for which the kernel, if asked, also ends the program by SIGXFSZ.
pub fn ftruncate(fd: RawFd, len: usize) -> Result<()> {
    let mut limit = libc::rlimit64 { rlim_cur: libc::RLIM64_INFINITY, rlim_max: libc::RLIM64_INFINITY };
    let none = core::ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel writes one live struct.
    let known = unsafe { sys!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit) };
    if known.is_ok() && len as u64 > limit.rlim_cur {
        return Err(Errno::EFBIG);
    }
    // SAFETY: no pointers.
    unsafe { sys!(SYS_ftruncate, fd, len) }.map(drop)
}

/// `mmap`, shared, readable and writable, populated.
pub fn map_shared(fd: RawFd, offset: u64, len: usize) -> Result<NonNull<u8>> {
    // SAFETY: no fixed address.
    unsafe { map_shared_at(fd, offset, len, None) }
}

/// [`map_shared`]; with `at` exactly there, replacing what is mapped (MAP_FIXED).
///
/// # Safety
/// The caller owns what is mapped at `at`, and nothing refers to it.
pub unsafe fn map_shared_at(fd: RawFd, offset: u64, len: usize, at: Option<NonNull<u8>>) -> Result<NonNull<u8>> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE | fixed;
    let at = at.map_or(ptr::null_mut(), NonNull::as_ptr);
    // SAFETY: at a fixed address only where the caller owns what is mapped there, as it promises.
    unsafe { mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) }
}

/// `mmap`, private anonymous memory.
pub fn map_private(len: usize) -> Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: no fixed address.
    unsafe { mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
}

/// `mmap` as it is. The offset is 64 bits wide on every architecture.
///
/// # Safety
/// With MAP_FIXED, nothing that the caller does not own is mapped in the range.
pub unsafe fn mmap(addr: *mut u8, len: usize, prot: i32, flags: i32, fd: RawFd, offset: u64) -> Result<NonNull<u8>> {
    #[cfg(target_pointer_width = "64")]
    // SAFETY: a fresh mapping, or one at an address whose owner asked for it.
    let ret = unsafe { sys!(SYS_mmap, addr, len, prot, flags, fd, offset) }?;
    // mmap2 counts in 4096-byte units, so that the rings' offsets, which are beyond 4 GiB, fit in its word.
    #[cfg(target_pointer_width = "32")]
    let units = usize::try_from(offset >> 12).map_err(|_| Errno::EINVAL)?;
    #[cfg(target_pointer_width = "32")]
    // SAFETY: as above.
    let ret = unsafe { sys!(SYS_mmap2, addr, len, prot, flags, fd, units) }?;
    NonNull::new(ret as *mut u8).ok_or(Errno::ENOMEM)
}

/// `madvise(MADV_WIPEONFORK)`: a child sees zeroes.
pub fn wipe_on_fork(base: NonNull<u8>, len: usize) -> Result<()> {
    // SAFETY: the caller owns the mapping; its content in this process is untouched.
    unsafe { sys!(SYS_madvise, base.as_ptr(), len, libc::MADV_WIPEONFORK) }.map(drop)
}

/// Make every page of a range present and writable. EFAULT: some page is not mapped or not writable.
pub fn populate_write(addr: usize, len: usize) -> Result<()> {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: changes no content; a range that is not mapped is an error, not an access.
    match unsafe { sys!(SYS_madvise, addr, len, MADV_POPULATE_WRITE) } {
        Ok(_) => Ok(()),
        // Before 5.14 the advice is unknown: at least see that everything is mapped.
        Err(Errno::EINVAL) => resident(addr, len),
        Err(Errno::ENOMEM) => Err(Errno::EFAULT),
        Err(e) => Err(e),
    }
}

/// EFAULT unless every page of the range is mapped.
fn resident(addr: usize, len: usize) -> Result<()> {
    let mut map = [0u8; 4096];
    let mut at = 0;
    while at < len {
        let part = (len - at).min(map.len() * PAGE);
        // SAFETY: the kernel writes one byte a page of `part`, which the array holds.
        unsafe { sys!(SYS_mincore, addr + at, part, map.as_mut_ptr()) }.map_err(|_| Errno::EFAULT)?;
        at += part;
    }
    Ok(())
}

/// `munmap` of a range that the caller owns.
pub fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the mapping; nothing refers to it any more.
    let _ = unsafe { sys!(SYS_munmap, base.as_ptr(), len) };
}

/// Device and inode of what a descriptor stands for: its identity, since numbers are reused.
pub fn identity(fd: RawFd) -> Result<(u64, u64)> {
    #[cfg(target_pointer_width = "64")]
    let mut st = mem::MaybeUninit::<libc::stat>::uninit();
    #[cfg(target_pointer_width = "64")]
    // SAFETY: the kernel writes one struct stat.
    unsafe { sys!(SYS_fstat, fd, st.as_mut_ptr()) }?;
    // With inode numbers of 64 bits.
    #[cfg(target_pointer_width = "32")]
    let mut st = mem::MaybeUninit::<libc::stat64>::uninit();
    #[cfg(target_pointer_width = "32")]
    // SAFETY: the kernel writes one struct stat64.
    unsafe { sys!(SYS_fstat64, fd, st.as_mut_ptr()) }?;
    // SAFETY: fstat succeeded and filled it.
    let st = unsafe { st.assume_init() };
    Ok((st.st_dev, st.st_ino))
}

/// A number that differs between a process and those that it forked, without a system call: an unprivileged program in a
/// sandbox may have none to spare (`c-tests/sandbox.c`). A child made by a raw `clone` or `vfork` counts as its parent.
#[cfg(not(loom))]
pub fn generation() -> u32 {
    use crate::sync::{AtomicU32, Once, Ordering};

    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCHED: Once = Once::new();

    extern "C" fn in_child() {
        // The child has one thread.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    WATCHED.call_once(|| {
        // SAFETY: the handler is async-signal-safe, and the library is never unloaded. Out of memory: nobody counts, and a
        // child counts as its parent.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// `getpid`, from the kernel: libc's is right too, but this cannot be interposed by the program.
#[expect(clippy::cast_possible_truncation, reason = "the kernel's process numbers are ints")]
pub fn getpid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_getpid) as u32 }
}

/// `eventfd`, close-on-exec, non-blocking.
pub fn eventfd() -> Result<RawFd> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }.map(number)
}

/// `write`.
pub fn write(fd: RawFd, data: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads data.len() bytes of a live slice.
    unsafe { sys!(SYS_write, fd, data.as_ptr(), data.len()) }.map(count)
}

/// `read`.
pub fn read(fd: RawFd, data: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most data.len() bytes of a live, unique slice.
    unsafe { sys!(SYS_read, fd, data.as_mut_ptr(), data.len()) }.map(count)
}

/// `epoll_create1`, close-on-exec.
pub fn epoll() -> Result<RawFd> {
    // SAFETY: no pointers.
    unsafe { sys!(SYS_epoll_create1, libc::EPOLL_CLOEXEC) }.map(number)
}

/// `epoll_ctl(EPOLL_CTL_ADD)`.
pub fn epoll_add(epoll: RawFd, fd: RawFd, events: u32, token: u64) -> Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: the kernel reads one live struct.
    unsafe { sys!(SYS_epoll_ctl, epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }.map(drop)
}

/// `epoll_wait`; -1 waits without end.
pub fn epoll_wait(epoll: RawFd, events: &mut [libc::epoll_event], timeout_ms: i32) -> Result<usize> {
    // epoll_pwait with no mask, since some architectures have no epoll_wait.
    // SAFETY: the kernel writes at most events.len() structs of a live, unique slice.
    let n = unsafe {
        sys!(SYS_epoll_pwait, epoll, events.as_mut_ptr(), events.len(), timeout_ms, ptr::null::<u8>(), 8usize)
    }?;
    Ok(count(n))
}

/// `epoll_wait` for less than a millisecond; for one where the kernel (before 5.11) has no `epoll_pwait2`.
pub fn epoll_wait_briefly(epoll: RawFd, events: &mut [libc::epoll_event], nanoseconds: u32) -> Result<usize> {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999) as _ };
    let (at, len) = (events.as_mut_ptr(), events.len());
    // SAFETY: the kernel reads one live struct and writes at most `len` structs of a live, unique slice.
    let n = unsafe { sys!(SYS_epoll_pwait2, epoll, at, len, &raw const time, ptr::null::<u8>(), 8usize) };
    match n {
        Err(Errno::ENOSYS) => epoll_wait(epoll, events, 1),
        other => other.map(count),
    }
}

/// How late the calling thread may be woken, in nanoseconds.
pub fn set_timer_slack(nanoseconds: u32) {
    // SAFETY: no pointers.
    let _ = unsafe { sys!(SYS_prctl, libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) };
}

/// Ask for short turns on the processor for the calling thread, so that it is let in soon where others run without a pause.
/// Kernels before 6.12 have no such thing for ordinary threads, and change nothing.
pub fn take_short_turns(nanoseconds: u64) {
    // SAFETY: all fields are numbers.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes of one live struct.
    if unsafe { sys!(SYS_sched_getattr, 0, &raw mut attributes, size, 0) }.is_ok()
        && attributes.sched_policy == libc::SCHED_OTHER.cast_unsigned()
    {
        attributes.sched_runtime = nanoseconds;
        // SAFETY: the kernel reads one live struct.
        let _ = unsafe { sys!(SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// The number of a real interface in the current network namespace, by its name.
pub fn interface_index(name: &std::ffi::CStr) -> Result<u32> {
    let mut request = interface_request(name)?;
    interface_ioctl(libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: SIOCGIFINDEX filled this member of the union.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(|_| Errno::ENODEV)
}

/// The name of a real interface in the current network namespace, by its number.
pub fn interface_name(index: u32) -> Result<std::ffi::CString> {
    let mut request = interface_request(c"")?;
    request.ifr_ifru.ifru_ifindex = i32::try_from(index).map_err(|_| Errno::ENODEV)?;
    interface_ioctl(libc::SIOCGIFNAME, &mut request)?;
    let name = request.ifr_name.map(|c| c.cast_unsigned());
    std::ffi::CStr::from_bytes_until_nul(&name).map(Into::into).map_err(|_| Errno::ENODEV)
}

/// The struct of an interface ioctl with the interface's name in it. ENODEV: the name is longer than it can hold.
pub fn interface_request(name: &std::ffi::CStr) -> Result<libc::ifreq> {
    // SAFETY: a struct of integers and a union of integers and pointers: zero is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let bytes = name.to_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(Errno::ENODEV);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Ok(request)
}

/// One interface ioctl, through a UNIX socket as an unprivileged process does it.
pub fn interface_ioctl(number: libc::c_ulong, request: &mut libc::ifreq) -> Result<()> {
    let fd = socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    // SAFETY: the kernel reads and writes one live, unique ifreq.
    let ret = unsafe { sys!(SYS_ioctl, fd, number, ptr::from_mut(request)) };
    close(fd);
    ret.map(drop)
}

/// Block every signal in the calling thread; a helper thread must not run the program's handlers. Not 32 and 33: by these the C
/// library changes the user of all threads (`setuid` waits for each of them) and cancels threads.
pub fn block_signals() {
    let mask = !(1u64 << (32 - 1) | 1 << (33 - 1));
    // SAFETY: the kernel reads eight bytes; SIGKILL and SIGSTOP stay as they are.
    let _ = unsafe { sys!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, ptr::null::<u8>(), 8usize) };
}

/// An environment variable, unless the process has more rights than its caller (set-id, file capabilities).
pub fn secure_env(name: &std::ffi::CStr) -> Option<std::ffi::OsString> {
    use std::os::unix::ffi::OsStrExt;
    unsafe extern "C" {
        // In every C library of Linux; the libc crate does not declare it.
        fn secure_getenv(name: *const libc::c_char) -> *const libc::c_char;
    }
    // SAFETY: a NUL-terminated name; the function only reads the environment.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated string of the environment, copied before anything else can change it.
    let value = unsafe { std::ffi::CStr::from_ptr(value) };
    Some(std::ffi::OsStr::from_bytes(value.to_bytes()).to_os_string())
}

/// Monotonic time in nanoseconds. Uses the vDSO: no system call.
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library writes one timespec; the clock always exists. clock_gettime is not interposed.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::FromRawFd, os::unix::fs::FileExt};

    use super::*;

    /// Where the kernel has the fill and the completion ring of an AF_XDP socket: a word of 32 bits cannot say it.
    #[test]
    fn c61_an_offset_beyond_four_gibibytes_maps_what_is_there() {
        let fd = memfd(c"c61").expect("a memfd");
        // SAFETY: the descriptor was just made and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        for offset in [0, 0x8000_0000, 0x1_0000_0000, 0x1_8000_0000_u64] {
            file.write_all_at(&offset.to_ne_bytes(), offset).expect("a sparse file may be large");
        }
        for offset in [0, 0x8000_0000, 0x1_0000_0000, 0x1_8000_0000_u64] {
            // SAFETY: a fresh mapping of a page that is in the file.
            let page = unsafe { mmap(ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, fd, offset) };
            let page = page.expect("the page is mapped");
            // SAFETY: a page has room for the word, at its beginning.
            assert_eq!(unsafe { page.cast::<u64>().read() }, offset);
            unmap(page, PAGE);
        }
    }
}
