//! The engine: AF_XDP's copy path in user space.

mod table;

use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

pub use table::{SocketRef, duplicate, forget, lookup, lookup_verified, maybe_ours};

use crate::{
    device::{Counters, Facts},
    errno::{Errno, Result},
    uapi,
};

/// An engine socket. Its `uapi::Socket` methods answer as the kernel does.
#[derive(Debug)]
pub struct Socket {}

impl Socket {
    /// What the kernel's `poll` does before it looks: send what is in the TX ring, receive what waits; then
    /// [`uapi::Socket::readiness`].
    pub fn poll_turn(&self) -> i16 {
        0
    }

    /// From now on (a fence is included) whatever makes the socket ready also makes its descriptor readable (POLLIN), until
    /// [`Socket::end_wait`]. The caller must look at the readiness again between this call and sleeping. Calls nest.
    pub fn begin_wait(&self) {}

    /// Undo one [`Socket::begin_wait`], and take back the pending readability if nothing is ready.
    pub fn end_wait(&self) {}

    /// For edge-triggered epoll: make a fresh edge if something arrived since the last call.
    pub fn renew_edge(&self) {}

    /// The program asked for `XDP_MAX_TX_SKB_BUDGET`.
    pub fn set_budget(&self, frames: u32) -> Result<()> {
        let _ = frames;
        Err(Errno::EACCES)
    }
}

/// The engine as a provider.
pub fn provider() -> &'static dyn uapi::Provider {
    unimplemented!()
}

/// A new socket, owned by the descriptor table alone (raw programs); returns its number. `cloexec`, `nonblock`: SOCK_*.
pub fn raw_socket(cloexec: bool, nonblock: bool) -> Result<RawFd> {
    let _ = (cloexec, nonblock);
    Err(Errno::ENOSYS)
}

/// An interface on the engine, by SLIPRING_DEVICES or by a name that is a specification.
#[derive(Debug)]
pub struct Interface {
    /// Name as the program uses it.
    pub name: String,
    /// The real interface's number if one has this name, else one from a range that no kernel hands out.
    pub ifindex: u32,
}

impl Interface {
    /// Queues, MTU, hardware address.
    pub fn facts(&self) -> Facts {
        unimplemented!()
    }
    /// The device's counters.
    pub fn counters(&self) -> Counters {
        unimplemented!()
    }
    /// Number of bound sockets: above zero a default program counts as attached (id [`Interface::program_id`]).
    pub fn bound_sockets(&self) -> usize {
        0
    }
    /// The stand-in program id, never 0.
    pub fn program_id(&self) -> u32 {
        self.ifindex | 0x4000_0000
    }
}

/// The engine interface of a name; `None`: not on the engine. EINVAL (logged): a bad specification.
pub fn interface_named(name: &CStr) -> Result<Option<Arc<Interface>>> {
    let _ = name;
    Ok(None)
}

/// The engine interface of a number that [`interface_named`] has given out, or of a real interface that is mapped.
pub fn interface_numbered(ifindex: u32) -> Option<Arc<Interface>> {
    let _ = ifindex;
    None
}

/// `bpf_map_update_elem` / `bpf_map_delete_elem` on a descriptor that may be our stand-in map: `None` when it is not ours.
pub fn map_update(map_fd: RawFd, queue: u32, socket_fd: Option<RawFd>) -> Option<Result<()>> {
    let _ = (map_fd, queue, socket_fd);
    None
}

/// Whether any UMEM is registered: one relaxed load, for the interposed `free` and `munmap`.
#[inline]
pub fn any_umem() -> bool {
    false
}

/// The program is about to unmap or free `len` bytes at `addr`: retire every UMEM that overlaps. On return no thread of
/// ours touches it any more, nor will.
pub fn memory_going(addr: usize, len: usize) {
    let _ = (addr, len);
}
