//! The structs that cross libxdp's interface, with their layouts asserted.
//!
//! The numbers are those of libxdp's x86-64 ABI; `c-tests` asserts the same ones from the C side. The 32-bit layout follows
//! from the same declarations.

#![allow(non_camel_case_types, reason = "these are the C names")]

use core::{
    ffi::c_void,
    mem::{align_of, offset_of, size_of},
};

/// The kernel's 16-bit type.
pub type __u16 = u16;
/// The kernel's 32-bit type.
pub type __u32 = u32;
/// The kernel's 64-bit type.
pub type __u64 = u64;

/// The program's side of a ring that the program produces into (fill, TX).
///
/// Owned by the caller: read and written by the inline helpers, and written once by the call that makes the ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xsk_ring_prod {
    /// Next entry to reserve.
    pub cached_prod: __u32,
    /// The kernel's consumer index as last seen, plus `size`.
    pub cached_cons: __u32,
    /// `size - 1`.
    pub mask: __u32,
    /// Number of entries, a power of two.
    pub size: __u32,
    /// Shared: entries handed over.
    pub producer: *mut __u32,
    /// Shared: entries taken.
    pub consumer: *mut __u32,
    /// Shared: the entries.
    pub ring: *mut c_void,
    /// Shared: `XDP_RING_NEED_WAKEUP`.
    pub flags: *mut __u32,
}

/// The program's side of a ring that the program consumes from (completion, RX).
///
/// Owned by the caller, as [`xsk_ring_prod`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xsk_ring_cons {
    /// The kernel's producer index as last seen.
    pub cached_prod: __u32,
    /// Next entry to look at.
    pub cached_cons: __u32,
    /// `size - 1`.
    pub mask: __u32,
    /// Number of entries, a power of two.
    pub size: __u32,
    /// Shared: entries handed over.
    pub producer: *mut __u32,
    /// Shared: entries taken.
    pub consumer: *mut __u32,
    /// Shared: the entries.
    pub ring: *mut c_void,
    /// Shared: flags word.
    pub flags: *mut __u32,
}

/// UMEM parameters of `xsk_umem__create` and `xsk_umem__create_with_fd`. Zero stands for the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct xsk_umem_config {
    /// Entries of the fill ring; default 2048.
    pub fill_size: __u32,
    /// Entries of the completion ring; default 2048.
    pub comp_size: __u32,
    /// Bytes of a chunk; default 4096.
    pub frame_size: __u32,
    /// Extra bytes left free before received data.
    pub frame_headroom: __u32,
    /// `XDP_UMEM_*`.
    pub flags: __u32,
}

/// UMEM parameters of `xsk_umem__create_opts`. A field counts if it lies wholly inside `sz`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct xsk_umem_opts {
    /// `sizeof` this struct, as the caller knows it.
    pub sz: usize,
    /// AF_XDP socket to use, owned by the library from then on; 0 or less: make one.
    pub fd: i32,
    /// Bytes of the area.
    pub size: __u64,
    /// Entries of the fill ring; default 2048.
    pub fill_size: __u32,
    /// Entries of the completion ring; default 2048.
    pub comp_size: __u32,
    /// Bytes of a chunk; default 4096.
    pub frame_size: __u32,
    /// Extra bytes left free before received data.
    pub frame_headroom: __u32,
    /// `XDP_UMEM_*`.
    pub flags: __u32,
    /// Bytes of TX metadata before a packet; counts only with `XDP_UMEM_TX_METADATA_LEN`.
    pub tx_metadata_len: __u32,
}

/// Socket parameters of `xsk_socket__create` and `xsk_socket__create_shared`. Zero stands for the default.
///
/// Bytes 18 and 19 are padding, which callers leave uninitialised: never read this struct as a whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct xsk_socket_config {
    /// Entries of the RX ring; default 2048.
    pub rx_size: __u32,
    /// Entries of the TX ring; default 2048.
    pub tx_size: __u32,
    /// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`. In C a union of `libbpf_flags` and `libxdp_flags`.
    pub libxdp_flags: __u32,
    /// `XDP_FLAGS_*`: mode of the default program.
    pub xdp_flags: __u32,
    /// `XDP_COPY`, `XDP_ZEROCOPY`, `XDP_USE_NEED_WAKEUP`, `XDP_USE_SG`.
    pub bind_flags: __u16,
}

/// Socket parameters of `xsk_socket__create_opts`. A field counts if it lies wholly inside `sz`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct xsk_socket_opts {
    /// `sizeof` this struct, as the caller knows it.
    pub sz: usize,
    /// RX ring to make, or NULL.
    pub rx: *mut xsk_ring_cons,
    /// TX ring to make, or NULL.
    pub tx: *mut xsk_ring_prod,
    /// Fill ring of this interface and queue; NULL together with `comp`: the UMEM's.
    pub fill: *mut xsk_ring_prod,
    /// Completion ring of this interface and queue.
    pub comp: *mut xsk_ring_cons,
    /// Entries of the RX ring; default 2048.
    pub rx_size: __u32,
    /// Entries of the TX ring; default 2048.
    pub tx_size: __u32,
    /// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`.
    pub libxdp_flags: __u32,
    /// `XDP_FLAGS_*`: mode of the default program.
    pub xdp_flags: __u32,
    /// `XDP_COPY`, `XDP_ZEROCOPY`, `XDP_USE_NEED_WAKEUP`, `XDP_USE_SG`.
    pub bind_flags: __u16,
    /// Zero. A member, so that an initialiser which does not name it clears it: bytes after the last known member must be
    /// zero, and padding need not be.
    pub reserved: [__u16; 3],
}

/// A UMEM; opaque to C.
#[derive(Debug)]
pub struct xsk_umem(pub(super) crate::xsk::Umem);

/// A socket; opaque to C.
#[derive(Debug)]
pub struct xsk_socket(pub(super) crate::xsk::Socket);

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<xsk_ring_prod>() == 48 && align_of::<xsk_ring_prod>() == 8);
    assert!(size_of::<xsk_ring_cons>() == 48 && align_of::<xsk_ring_cons>() == 8);
    assert!(offset_of!(xsk_ring_prod, cached_prod) == 0 && offset_of!(xsk_ring_cons, cached_prod) == 0);
    assert!(offset_of!(xsk_ring_prod, cached_cons) == 4 && offset_of!(xsk_ring_cons, cached_cons) == 4);
    assert!(offset_of!(xsk_ring_prod, mask) == 8 && offset_of!(xsk_ring_cons, mask) == 8);
    assert!(offset_of!(xsk_ring_prod, size) == 12 && offset_of!(xsk_ring_cons, size) == 12);
    assert!(offset_of!(xsk_ring_prod, producer) == 16 && offset_of!(xsk_ring_cons, producer) == 16);
    assert!(offset_of!(xsk_ring_prod, consumer) == 24 && offset_of!(xsk_ring_cons, consumer) == 24);
    assert!(offset_of!(xsk_ring_prod, ring) == 32 && offset_of!(xsk_ring_cons, ring) == 32);
    assert!(offset_of!(xsk_ring_prod, flags) == 40 && offset_of!(xsk_ring_cons, flags) == 40);

    assert!(size_of::<xsk_umem_opts>() == 48 && align_of::<xsk_umem_opts>() == 8);
    assert!(offset_of!(xsk_umem_opts, sz) == 0 && offset_of!(xsk_umem_opts, fd) == 8);
    assert!(offset_of!(xsk_umem_opts, size) == 16 && offset_of!(xsk_umem_opts, fill_size) == 24);
    assert!(offset_of!(xsk_umem_opts, comp_size) == 28 && offset_of!(xsk_umem_opts, frame_size) == 32);
    assert!(offset_of!(xsk_umem_opts, frame_headroom) == 36 && offset_of!(xsk_umem_opts, flags) == 40);
    assert!(offset_of!(xsk_umem_opts, tx_metadata_len) == 44);

    assert!(size_of::<xsk_socket_opts>() == 64 && align_of::<xsk_socket_opts>() == 8);
    assert!(offset_of!(xsk_socket_opts, sz) == 0 && offset_of!(xsk_socket_opts, rx) == 8);
    assert!(offset_of!(xsk_socket_opts, tx) == 16 && offset_of!(xsk_socket_opts, fill) == 24);
    assert!(offset_of!(xsk_socket_opts, comp) == 32 && offset_of!(xsk_socket_opts, rx_size) == 40);
    assert!(offset_of!(xsk_socket_opts, tx_size) == 44 && offset_of!(xsk_socket_opts, libxdp_flags) == 48);
    assert!(offset_of!(xsk_socket_opts, xdp_flags) == 52 && offset_of!(xsk_socket_opts, bind_flags) == 56);
};

const _: () = {
    assert!(size_of::<xsk_umem_config>() == 20 && align_of::<xsk_umem_config>() == 4);
    assert!(offset_of!(xsk_umem_config, fill_size) == 0 && offset_of!(xsk_umem_config, comp_size) == 4);
    assert!(offset_of!(xsk_umem_config, frame_size) == 8 && offset_of!(xsk_umem_config, frame_headroom) == 12);
    assert!(offset_of!(xsk_umem_config, flags) == 16);

    assert!(size_of::<xsk_socket_config>() == 20 && align_of::<xsk_socket_config>() == 4);
    assert!(offset_of!(xsk_socket_config, rx_size) == 0 && offset_of!(xsk_socket_config, tx_size) == 4);
    assert!(offset_of!(xsk_socket_config, libxdp_flags) == 8 && offset_of!(xsk_socket_config, xdp_flags) == 12);
    assert!(offset_of!(xsk_socket_config, bind_flags) == 16);
};
