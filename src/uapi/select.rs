//! Which provider serves an interface, and what a UMEM begins on before any interface is known.

use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

use super::{Provider, Socket};
use crate::{config, direct, engine, errno::Result};

/// One of the two providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's AF_XDP.
    Direct,
    /// The user-space engine.
    Engine,
}

impl Side {
    /// The provider itself.
    pub fn provider(self) -> &'static dyn Provider {
        match self {
            Side::Direct => direct::provider(),
            Side::Engine => engine::provider(),
        }
    }
}

/// Where a UMEM begins: creating one makes a descriptor and rings before the program names an interface. If that turns out
/// to be served by the other provider, the first socket moves the UMEM there ([`super::switch::switch`]).
pub fn initial() -> Side {
    if config::engine_first() { Side::Engine } else { Side::Direct }
}

/// Who serves the interface of a name. EINVAL, with a message, for a bad device specification.
pub fn provider_for(ifname: &CStr) -> Result<Side> {
    Ok(if engine::interface_named(ifname)?.is_some() { Side::Engine } else { Side::Direct })
}

/// Who serves the interface of a number.
pub fn provider_numbered(ifindex: u32) -> Side {
    if engine::interface_numbered(ifindex).is_some() { Side::Engine } else { Side::Direct }
}

/// The socket of a descriptor that the program made itself, and its provider. Nothing is checked: a descriptor that is no
/// AF_XDP socket fails at the first call on it.
pub fn adopt(fd: RawFd) -> (Side, Arc<dyn Socket>) {
    match engine::lookup_verified(fd) {
        Some(socket) => (Side::Engine, socket.share()),
        None => (Side::Direct, direct::adopt(fd)),
    }
}

/// Whether a descriptor is an AF_XDP socket of either provider.
pub fn is_xdp_socket(fd: RawFd) -> bool {
    engine::lookup_verified(fd).is_some() || direct::is_xdp_socket(fd)
}
