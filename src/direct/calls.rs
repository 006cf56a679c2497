//! System calls that only the direct provider makes.

use std::{
    ffi::{CStr, CString},
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
};

use super::netlink;
use crate::{
    errno::{Errno, Result, check},
    sys,
};

/// A descriptor of our own, closed when dropped. Always close-on-exec.
#[derive(Debug)]
pub(super) struct OwnedFd(RawFd);

impl OwnedFd {
    /// Own `fd`, which nobody else closes.
    pub(super) fn new(fd: RawFd) -> OwnedFd {
        OwnedFd(fd)
    }

    /// The number.
    pub(super) fn raw(&self) -> RawFd {
        self.0
    }

    /// Hand the number to somebody who closes it.
    pub(super) fn into_raw(self) -> RawFd {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

/// The interface number of a name in the current namespace. ENODEV: there is none.
pub(super) fn ifindex(name: &CStr) -> Result<u32> {
    if name.count_bytes() < libc::IFNAMSIZ {
        return sys::interface_index(name);
    }
    // An alternative name may be longer than an ioctl can carry.
    netlink::ifindex_of_altname(name)
}

/// `ETHTOOL_GCHANNELS`.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// The largest number of queues that an interface can have by `ETHTOOL_GCHANNELS`. EOPNOTSUPP: its driver does not say.
pub(super) fn max_channels(name: &[u8]) -> Result<u32> {
    let name = CString::new(name).map_err(|_| Errno::ENODEV)?;
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = sys::interface_request(&name)?;
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    sys::interface_ioctl(libc::SIOCETHTOOL, &mut request)?;
    Ok(channels.max_rx.max(channels.max_tx).max(channels.max_combined))
}

/// Whether a directory is the root of, or in, a BPF file system.
pub(super) fn is_bpffs(path: &Path) -> bool {
    const MAGIC: u64 = 0xcafe_4a11;
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut facts = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a NUL-terminated path and room for one struct.
    if unsafe { libc::statfs(path.as_ptr(), facts.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: statfs succeeded and filled it.
    let kind = unsafe { facts.assume_init() }.f_type;
    // The kernel's type for it is signed on some architectures; the magic number is 32 bits.
    kind as u64 & 0xffff_ffff == MAGIC
}

/// Mount a BPF file system, which a program asks for by `LIBXDP_BPFFS_AUTOMOUNT`. A failure shows when it is looked for.
pub(super) fn mount_bpffs(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: NUL-terminated strings.
    unsafe { libc::mount(c"bpf".as_ptr(), path.as_ptr(), c"bpf".as_ptr(), 0, c"mode=0700".as_ptr().cast()) };
}

/// Open a directory.
pub(super) fn open_directory(path: &CStr) -> Result<OwnedFd> {
    open_at(libc::AT_FDCWD, path, libc::O_DIRECTORY | libc::O_RDONLY)
}

/// Open a file of a directory; a new one is for its owner alone.
pub(super) fn open_at(directory: RawFd, name: &CStr, flags: i32) -> Result<OwnedFd> {
    const MODE: u32 = 0o600;
    // SAFETY: a NUL-terminated path.
    let fd =
        check(unsafe { libc::syscall(libc::SYS_openat, directory, name.as_ptr(), flags | libc::O_CLOEXEC, MODE) })?;
    RawFd::try_from(fd).map(OwnedFd).map_err(|_| Errno::EBADF)
}

/// Give a file of a directory another name, which must be free or may be lost.
pub(super) fn rename_at(directory: RawFd, from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: NUL-terminated paths.
    check(unsafe { libc::syscall(libc::SYS_renameat2, directory, from.as_ptr(), directory, to.as_ptr(), 0) }).map(drop)
}

/// Remove a file of a directory.
pub(super) fn unlink_at(directory: RawFd, name: &CStr) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::syscall(libc::SYS_unlinkat, directory, name.as_ptr(), 0) }).map(drop)
}

/// The user whose rights the process has.
pub(super) fn effective_user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

/// Owner and permission bits of an open file.
pub(super) fn owner_and_mode(fd: RawFd) -> Result<(u32, u32)> {
    let mut facts = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one struct stat.
    check(unsafe { libc::syscall(libc::SYS_fstat, fd, facts.as_mut_ptr()) })?;
    // SAFETY: fstat succeeded and filled it.
    let facts = unsafe { facts.assume_init() };
    Ok((facts.st_uid, facts.st_mode & 0o7777))
}

/// Lock a file or directory for this open of it alone. EAGAIN: somebody else has it.
pub(super) fn try_lock(fd: RawFd) -> Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// The process that made something, as its forks remember it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Creator {
    pid: u32,
    /// Where that number means it.
    namespace: Option<u64>,
}

impl Creator {
    /// This process.
    pub(super) fn this() -> Creator {
        Creator { pid: std::process::id(), namespace: pid_namespace() }
    }

    /// Whether this process is to look after what was made: it made it, or whoever did is no more. A fork in another
    /// process namespace cannot tell, and leaves it alone. Without /proc, as after a chroot, the number alone tells.
    pub(super) fn is_us_or_gone(self) -> bool {
        let same = self.pid == std::process::id();
        match (pid_namespace(), self.namespace) {
            (None, _) | (_, None) => same,
            (here, there) => here == there && (same || !is_alive(self.pid)),
        }
    }
}

fn pid_namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|facts| facts.ino())
}

/// Whether a process still runs; one that has exited and was not waited for does not.
fn is_alive(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    // SAFETY: no pointers; signal 0 only asks.
    if check(unsafe { libc::syscall(libc::SYS_kill, pid, 0) }) == Err(Errno::ESRCH) {
        return false;
    }
    // "PID (NAME) STATE ...", where NAME may hold anything.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}
