//! The engine as a provider.

use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

use super::{
    Socket,
    iface::{Interface, interface_named, interface_numbered},
    lookup_verified, map_update, runtime,
};
use crate::{
    errno::{Errno, Result},
    sys,
    uapi::{self, Program, Provider},
};

#[derive(Debug)]
struct Engine;

/// The engine as a provider.
pub fn provider() -> &'static dyn Provider {
    &Engine
}

/// A new socket, owned by the descriptor table alone (programs that do without libxdp); returns its number. `cloexec` and
/// `nonblock` are SOCK_CLOEXEC and SOCK_NONBLOCK.
pub fn raw_socket(cloexec: bool, nonblock: bool) -> Result<RawFd> {
    Socket::create(cloexec, nonblock).map(|(number, _)| number)
}

fn engine_interface(ifindex: u32) -> Result<Arc<Interface>> {
    interface_numbered(ifindex).ok_or(Errno::ENODEV)
}

impl Provider for Engine {
    fn socket(&self) -> Result<Arc<dyn uapi::Socket>> {
        Ok(Socket::create(false, false)?.1)
    }

    fn ifindex(&self, name: &CStr) -> Result<u32> {
        interface_named(name)?.map(|i| i.ifindex).ok_or(Errno::ENODEV)
    }

    /// No program runs on the engine: a bound socket receives. The attach flags are those of a device and mean nothing.
    fn default_program(&self, ifindex: u32, _xdp_flags: u32) -> Result<Box<dyn Program>> {
        Ok(Box::new(StandIn { interface: engine_interface(ifindex)? }))
    }

    fn permanent_program(&self, ifindex: u32) -> Result<RawFd> {
        runtime::get()?.maps.give(engine_interface(ifindex)?.ifindex)
    }

    fn update_map(&self, map_fd: RawFd, queue: u32, socket: &dyn uapi::Socket) -> Result<()> {
        map_update(map_fd, queue, Some(socket.fd())).unwrap_or_else(|| {
            sys::identity(map_fd)?;
            // A map of the kernel cannot hold an engine socket: its own answer for a descriptor of another kind.
            let is_map = std::fs::read_link(format!("/proc/self/fd/{map_fd}"))
                .is_ok_and(|link| link.as_os_str() == "anon_inode:bpf-map");
            Err(if is_map { Errno::EOPNOTSUPP } else { Errno::EINVAL })
        })
    }
}

/// What stands in for the default program: the routing of an interface's queues.
#[derive(Debug)]
struct StandIn {
    interface: Arc<Interface>,
}

impl Program for StandIn {
    fn insert(&self, queue: u32, socket: &dyn uapi::Socket) -> Result<()> {
        // Before bind there is nothing to route to: bind itself does it.
        let socket = lookup_verified(socket.fd()).ok_or(Errno::EBADF)?;
        socket.receiver().map_or(Ok(()), |receiver| self.interface.route(queue, Some(receiver)))
    }

    /// Closing the socket does it, and lets a sibling take over.
    fn remove(&self, _queue: u32) -> Result<()> {
        Ok(())
    }
}
