//! The kernel's own AF_XDP as a provider.
//!
//! Sockets are real descriptors and every method is the system call of its name. The default XDP program lives in
//! [`program`]. May be called from any thread.

mod bpf;
mod busy;
mod calls;
mod netlink;
mod program;
mod socket;

pub use program::survey;
use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

use crate::{
    errno::Result,
    sys,
    uapi::{AF_XDP, Program, Provider, Socket},
};

/// The kernel as a provider.
pub fn provider() -> &'static dyn Provider {
    &Direct
}

/// Take over a descriptor that the program made itself. It is not looked at: a wrong one fails at the first call on it.
pub fn adopt(fd: RawFd) -> Arc<dyn Socket> {
    Arc::new(socket::DirectSocket::new(fd))
}

/// Whether a descriptor is an AF_XDP socket of the kernel's.
pub fn is_xdp_socket(fd: RawFd) -> bool {
    let mut domain = 0i32;
    sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain).is_ok() && domain == AF_XDP
}

#[derive(Debug)]
struct Direct;

impl Provider for Direct {
    fn socket(&self) -> Result<Arc<dyn Socket>> {
        Ok(Arc::new(socket::DirectSocket::open()?))
    }

    fn ifindex(&self, name: &CStr) -> Result<u32> {
        calls::ifindex(name)
    }

    fn default_program(&self, ifindex: u32, xdp_flags: u32) -> Result<Box<dyn Program>> {
        program::join(ifindex, xdp_flags)
    }

    fn permanent_program(&self, ifindex: u32) -> Result<RawFd> {
        program::permanent(ifindex)
    }

    fn update_map(&self, map_fd: RawFd, queue: u32, socket: &dyn Socket) -> Result<()> {
        bpf::map_update(map_fd, queue, &socket.fd().to_ne_bytes())
    }
}
