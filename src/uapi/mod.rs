//! The kernel's AF_XDP interface: its structs and constants, and the traits that both providers implement.
//!
//! libxdp's semantics (`crate::xsk`) are written once over these traits. A provider gives what the *kernel* gives, with
//! the kernel's errors; it knows nothing of libxdp's objects.

#[cfg(not(loom))]
pub mod select;
#[cfg(not(loom))]
pub mod switch;
mod types;

use core::{fmt, ptr::NonNull};
use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

pub use types::*;

use crate::errno::Result;

/// One AF_XDP socket, before or after bind.
///
/// Every method is one system call of the kernel's interface and fails with that call's error numbers. All methods may
/// be called from any thread; two threads that send on one socket at once are allowed (the second returns at once).
pub trait Socket: fmt::Debug + Send + Sync {
    /// The number of the descriptor. It belongs to the program until [`Socket::close`].
    fn fd(&self) -> RawFd;

    /// `setsockopt(XDP_UMEM_REG)`. EBUSY: this socket has a UMEM. EINVAL: alignment, sizes or flags.
    fn register_umem(&self, reg: &UmemReg) -> Result<()>;

    /// `setsockopt(XDP_*_RING)` with a number of entries. EINVAL: zero, no power of two, or set already.
    fn set_ring_size(&self, ring: Ring, entries: u32) -> Result<()>;

    /// `getsockopt(XDP_MMAP_OFFSETS)`, in the long form whatever the kernel's age.
    fn mmap_offsets(&self) -> Result<MmapOffsets>;

    /// `mmap` of a ring, writable and shared, `len` bytes.
    fn map_ring(&self, ring: Ring, len: usize) -> Result<Mapping> {
        // SAFETY: no fixed address.
        unsafe { self.map_ring_at(ring, len, None) }
    }

    /// [`Socket::map_ring`]; with `at` exactly there, replacing what is mapped (MAP_FIXED).
    ///
    /// # Safety
    /// The caller owns what is mapped at `at`, and nothing refers to it but as to this ring's memory.
    unsafe fn map_ring_at(&self, ring: Ring, len: usize, at: Option<NonNull<u8>>) -> Result<Mapping>;

    /// `bind`.
    fn bind(&self, addr: &SockaddrXdp) -> Result<()>;

    /// `getsockopt(XDP_STATISTICS)`.
    fn statistics(&self) -> Result<Statistics>;

    /// `getsockopt(XDP_OPTIONS)`: bit 0 says that the socket is in zero-copy mode.
    fn options(&self) -> Result<u32>;

    /// `getsockopt(SO_NETNS_COOKIE)`: 1 where the kernel does not know the option.
    fn netns_cookie(&self) -> Result<u64>;

    /// `getsockopt(SO_ERROR)`: the pending error, cleared by the call; 0 when there is none.
    fn take_error(&self) -> Result<i32>;

    /// `sendto(fd, NULL, 0, flags, NULL, 0)`: transmit what is in the TX ring. EAGAIN: more is left.
    fn kick_tx(&self, flags: i32) -> Result<()>;

    /// `recvfrom(fd, NULL, 0, flags, NULL, NULL)`: give the receive path a turn.
    fn kick_rx(&self, flags: i32) -> Result<()>;

    /// What `poll` would report now, of `POLLIN`, `POLLOUT`, `POLLERR`, `POLLHUP`.
    fn readiness(&self) -> i16;

    /// Close the descriptor. The rings stay mapped until their [`Mapping`]s are dropped. A second call does nothing.
    fn close(&self);

    /// What has been set up so far, so that it can be done again on another provider.
    fn setup(&self) -> Setup;

    /// Put the socket under the descriptor number `fd`, closing what was there (`dup3`), and give up the old number.
    fn renumber(&self, fd: RawFd) -> Result<()>;

    /// Give up the descriptor number without closing it, because another socket takes it over at once
    /// ([`Socket::renumber`] closes what was there). From then on this socket is closed. Without an implementation of its
    /// own a socket closes the number, and for a moment anybody may be given it.
    fn relinquish(&self) {
        self.close();
    }
}

/// What a socket has been given before bind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The registered UMEM.
    pub umem: Option<UmemReg>,
    /// Entries of each ring, by [`Ring::index`]; 0: not set.
    pub entries: [u32; 4],
    /// Where each ring is mapped in the program (address, length), as far as it was mapped through [`Socket::map_ring`].
    pub mapped: [Option<(usize, usize)>; 4],
}

/// One reference to the default XDP program of an interface, as one socket holds it.
///
/// Dropping it gives the reference back, and detaches the program when it was the last (`xsk-api-spec` 4.7).
pub trait Program: fmt::Debug + Send + Sync {
    /// Make frames of `queue` go to `socket`, replacing the entry that is there.
    fn insert(&self, queue: u32, socket: &dyn Socket) -> Result<()>;

    /// Take away the entry of `queue`.
    fn remove(&self, queue: u32) -> Result<()>;

    /// Whether [`Program::insert`] has a place for `queue`, asked before bind, which cannot be undone. E2BIG: the device
    /// has such a queue, but the program's map, which somebody else made, does not.
    fn check(&self, queue: u32) -> Result<()> {
        let _ = queue;
        Ok(())
    }
}

/// Where sockets come from.
pub trait Provider: fmt::Debug + Send + Sync {
    /// `socket(AF_XDP, SOCK_RAW, 0)`, without close-on-exec, as libxdp makes it.
    fn socket(&self) -> Result<Arc<dyn Socket>>;

    /// The interface number of a name, alternative names included. ENODEV: there is none.
    fn ifindex(&self, name: &CStr) -> Result<u32>;

    /// Take a reference on the default program of an interface in the current network namespace, loading and attaching it
    /// if it is not there. `xdp_flags` are libxdp's attach flags.
    fn default_program(&self, ifindex: u32, xdp_flags: u32) -> Result<Box<dyn Program>>;

    /// `xsk_setup_xdp_prog`: as [`Provider::default_program`], native mode, with a reference that is never given back.
    /// Returns a new descriptor of the socket map, which the caller owns.
    fn permanent_program(&self, ifindex: u32) -> Result<RawFd>;

    /// `bpf(BPF_MAP_UPDATE_ELEM)`: store the socket under `queue` in the caller's map.
    fn update_map(&self, map_fd: RawFd, queue: u32, socket: &dyn Socket) -> Result<()>;
}

/// A mapped ring. Dropping it unmaps.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The mapping that this is a part of, and which unmaps.
    #[cfg(slipring_tsan)]
    whole: Option<Arc<Mapping>>,
}

// SAFETY: a mapping is an address range of the process; unmapping it may happen on any thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing is reached through &Mapping but the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Own `len` bytes mapped at `base`.
    ///
    /// # Safety
    /// The range was returned by `mmap` with this length and nobody else unmaps it.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Mapping {
        Mapping {
            base,
            len,
            #[cfg(slipring_tsan)]
            whole: None,
        }
    }

    /// The first `len` bytes of a mapping, which stays mapped while one of its parts is.
    #[cfg(slipring_tsan)]
    pub(crate) fn part(whole: &Arc<Mapping>, len: usize) -> Mapping {
        Mapping { base: whole.base, len: len.min(whole.len), whole: Some(Arc::clone(whole)) }
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes; it never has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Give up ownership: the range stays mapped.
    pub fn leak(self) {
        core::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(slipring_tsan)]
        if self.whole.is_some() {
            return;
        }
        crate::sys::unmap(self.base, self.len);
    }
}
