//! Descriptor numbers to engine sockets.

use core::ops::Deref;
use std::os::fd::RawFd;

use super::Socket;

/// Whether `fd` may be an engine socket: one relaxed load. No false negative.
#[inline]
pub fn maybe_ours(fd: RawFd) -> bool {
    let _ = fd;
    false
}

/// An engine socket in use by the caller; it stays alive until this is dropped.
#[derive(Debug)]
pub struct SocketRef {}

impl Deref for SocketRef {
    type Target = Socket;
    fn deref(&self) -> &Socket {
        unimplemented!()
    }
}

/// The engine socket of a number, without asking the kernel whether the number was reused. For the two kick forms only.
#[inline]
pub fn lookup(fd: RawFd) -> Option<SocketRef> {
    let _ = fd;
    None
}

/// The engine socket of a number, after `fstat` said that the number still stands for it; if not, the number is forgotten.
pub fn lookup_verified(fd: RawFd) -> Option<SocketRef> {
    let _ = fd;
    None
}

/// The program closed this number (the native close is the caller's).
pub fn forget(fd: RawFd) {
    let _ = fd;
}

/// `new` is now another number for the engine socket `old` (after the native dup).
pub fn duplicate(old: RawFd, new: RawFd) {
    let _ = (old, new);
}
