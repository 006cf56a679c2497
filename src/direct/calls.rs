//! System calls that only the direct provider makes.

use std::{ffi::CStr, os::fd::RawFd};

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

/// Whether a descriptor is close-on-exec; a number that is not open is not.
pub(super) fn is_cloexec(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer.
    let flags = check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) });
    flags.is_ok_and(|flags| flags & libc::c_long::from(libc::FD_CLOEXEC) != 0)
}

/// `ioctl` with a plain struct that the kernel reads and writes.
fn ioctl<T: Copy>(fd: RawFd, request: libc::c_ulong, arg: &mut T) -> Result<()> {
    // SAFETY: the callers pass the struct that belongs to the request; the reference is live and unique.
    check(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, core::ptr::from_mut(arg)) }).map(drop)
}

/// The socket that interface ioctls are made on: any family does, and this one needs no network.
fn ioctl_socket() -> Result<OwnedFd> {
    sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).map(OwnedFd)
}

/// `struct ifreq`: a name and, for the requests made here, a number or a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Ifreq {
    name: [u8; libc::IFNAMSIZ],
    data: IfreqData,
}

#[repr(C)]
#[derive(Clone, Copy)]
union IfreqData {
    index: i32,
    pointer: *mut core::ffi::c_void,
    // The kernel copies the whole struct, which is as large as its largest member.
    room: [u64; 3],
}

impl Ifreq {
    /// ENODEV: a name that no ioctl can carry.
    fn new(name: &[u8]) -> Result<Ifreq> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(Errno::ENODEV);
        }
        let mut request = Ifreq { name: [0; libc::IFNAMSIZ], data: IfreqData { room: [0; 3] } };
        request.name[..name.len()].copy_from_slice(name);
        Ok(request)
    }
}

/// The interface number of a name in the current namespace. ENODEV: there is none.
pub(super) fn ifindex(name: &CStr) -> Result<u32> {
    let bytes = name.to_bytes();
    if bytes.len() >= libc::IFNAMSIZ {
        // An alternative name may be longer than an ioctl can carry.
        return netlink::ifindex_of_altname(name);
    }
    let mut request = Ifreq::new(bytes)?;
    ioctl(ioctl_socket()?.raw(), libc::SIOCGIFINDEX as libc::c_ulong, &mut request)?;
    // SAFETY: SIOCGIFINDEX stores the number in this member.
    let index = unsafe { request.data.index };
    u32::try_from(index).map_err(|_| Errno::ENODEV)
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
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = Ifreq::new(name)?;
    request.data.pointer = (&raw mut channels).cast();
    ioctl(ioctl_socket()?.raw(), libc::SIOCETHTOOL as libc::c_ulong, &mut request)?;
    Ok(channels.max_rx.max(channels.max_tx).max(channels.max_combined))
}
