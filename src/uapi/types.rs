//! `linux/if_xdp.h` in Rust: constants and the structs that cross the boundary, with their layouts asserted.
//!
//! Numbers and layouts are those of the kernel's user-space interface (`Documentation/networking/af_xdp.rst`).

use core::mem::{offset_of, size_of};

/// Address family of AF_XDP sockets.
pub const AF_XDP: i32 = 44;
/// Level of AF_XDP's socket options.
pub const SOL_XDP: i32 = 283;

/// getsockopt: offsets of the rings in their mappings.
pub const XDP_MMAP_OFFSETS: i32 = 1;
/// setsockopt: entries of the RX ring.
pub const XDP_RX_RING: i32 = 2;
/// setsockopt: entries of the TX ring.
pub const XDP_TX_RING: i32 = 3;
/// setsockopt: register a UMEM.
pub const XDP_UMEM_REG: i32 = 4;
/// setsockopt: entries of the fill ring.
pub const XDP_UMEM_FILL_RING: i32 = 5;
/// setsockopt: entries of the completion ring.
pub const XDP_UMEM_COMPLETION_RING: i32 = 6;
/// getsockopt: counters.
pub const XDP_STATISTICS: i32 = 7;
/// getsockopt: flags of a bound socket.
pub const XDP_OPTIONS: i32 = 8;
/// setsockopt: frames a transmit call may send.
pub const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Bind flag: use the UMEM of the socket named in the address.
pub const XDP_SHARED_UMEM: u16 = 1 << 0;
/// Bind flag: copy mode.
pub const XDP_COPY: u16 = 1 << 1;
/// Bind flag: zero-copy mode.
pub const XDP_ZEROCOPY: u16 = 1 << 2;
/// Bind flag: the program asks the rings whether a wake-up is needed.
pub const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
/// Bind flag: received frames may span several descriptors.
pub const XDP_USE_SG: u16 = 1 << 4;

/// UMEM flag: chunks at any offset.
pub const XDP_UMEM_UNALIGNED_CHUNK_FLAG: u32 = 1 << 0;
/// UMEM flag: checksum offload is done in software (TX metadata).
pub const XDP_UMEM_TX_SW_CSUM: u32 = 1 << 1;
/// UMEM flag: `tx_metadata_len` counts.
pub const XDP_UMEM_TX_METADATA_LEN: u32 = 1 << 2;

/// Ring flag: the other side sleeps and wants a system call.
pub const XDP_RING_NEED_WAKEUP: u32 = 1 << 0;

/// Descriptor option: the packet goes on in the next descriptor.
pub const XDP_PKT_CONTD: u32 = 1 << 0;
/// Descriptor option: TX metadata stands before the packet.
pub const XDP_TX_METADATA: u32 = 1 << 1;

/// Unaligned mode: an address carries its offset from this bit on.
pub const XSK_UNALIGNED_BUF_OFFSET_SHIFT: u32 = 48;
/// Unaligned mode: the base address of a chunk.
pub const XSK_UNALIGNED_BUF_ADDR_MASK: u64 = (1 << XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1;

/// Bytes that the kernel keeps free before received data, besides the UMEM's own head room.
pub const XDP_PACKET_HEADROOM: u32 = 256;

/// libxdp attach flag: do not replace a program. Accepted and implied.
pub const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1 << 0;
/// libxdp attach flag: generic mode.
pub const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
/// libxdp attach flag: native mode.
pub const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// libxdp attach flag: offload to the device.
pub const XDP_FLAGS_HW_MODE: u32 = 1 << 3;

/// `SO_NETNS_COOKIE` (level SOL_SOCKET).
pub const SO_NETNS_COOKIE: i32 = 71;

/// The four rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ring {
    /// Received descriptors: the kernel produces.
    Rx,
    /// Descriptors to send: the program produces.
    Tx,
    /// Addresses of free chunks: the program produces.
    Fill,
    /// Addresses of sent chunks: the kernel produces.
    Completion,
}

impl Ring {
    /// All four, in the order of `struct xdp_mmap_offsets`.
    pub const ALL: [Ring; 4] = [Ring::Rx, Ring::Tx, Ring::Fill, Ring::Completion];

    /// Index into an array of four.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The page offset for `mmap`.
    pub const fn page_offset(self) -> u64 {
        match self {
            Ring::Rx => 0,
            Ring::Tx => 0x8000_0000,
            Ring::Fill => 0x1_0000_0000,
            Ring::Completion => 0x1_8000_0000,
        }
    }

    /// The ring that an `mmap` offset names.
    pub fn from_page_offset(offset: u64) -> Option<Ring> {
        Ring::ALL.into_iter().find(|r| r.page_offset() == offset)
    }

    /// The option that sets its size.
    pub const fn option(self) -> i32 {
        match self {
            Ring::Rx => XDP_RX_RING,
            Ring::Tx => XDP_TX_RING,
            Ring::Fill => XDP_UMEM_FILL_RING,
            Ring::Completion => XDP_UMEM_COMPLETION_RING,
        }
    }

    /// Bytes of one entry.
    pub const fn entry_size(self) -> usize {
        match self {
            Ring::Rx | Ring::Tx => size_of::<Desc>(),
            Ring::Fill | Ring::Completion => size_of::<u64>(),
        }
    }

    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Ring::Rx => "RX",
            Ring::Tx => "TX",
            Ring::Fill => "fill",
            Ring::Completion => "completion",
        }
    }
}

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    /// Offset into the UMEM (unaligned mode: offset of the data in the top 16 bits).
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub options: u32,
}

/// `struct xdp_umem_reg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UmemReg {
    /// First byte of the area, page aligned.
    pub addr: u64,
    /// Bytes of the area.
    pub len: u64,
    /// Bytes of a chunk, 2048 to the page size.
    pub chunk_size: u32,
    /// Extra bytes left free before received data.
    pub headroom: u32,
    /// `XDP_UMEM_*` flags.
    pub flags: u32,
    /// Bytes of TX metadata before a packet; counts only with `XDP_UMEM_TX_METADATA_LEN`.
    pub tx_metadata_len: u32,
}

/// `struct xdp_ring_offset`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOffset {
    /// Of the producer index.
    pub producer: u64,
    /// Of the consumer index.
    pub consumer: u64,
    /// Of the first entry.
    pub desc: u64,
    /// Of the flags word.
    pub flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmapOffsets {
    /// RX ring.
    pub rx: RingOffset,
    /// TX ring.
    pub tx: RingOffset,
    /// Fill ring.
    pub fr: RingOffset,
    /// Completion ring.
    pub cr: RingOffset,
}

impl MmapOffsets {
    /// The offsets of one ring.
    pub fn of(&self, ring: Ring) -> RingOffset {
        match ring {
            Ring::Rx => self.rx,
            Ring::Tx => self.tx,
            Ring::Fill => self.fr,
            Ring::Completion => self.cr,
        }
    }
}

/// `struct xdp_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames dropped for other reasons than a bad descriptor or a full ring.
    pub rx_dropped: u64,
    /// Dropped for an invalid fill descriptor.
    pub rx_invalid_descs: u64,
    /// Dropped for an invalid TX descriptor.
    pub tx_invalid_descs: u64,
    /// Dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Failed to take an entry from the fill ring.
    pub rx_fill_ring_empty_descs: u64,
    /// Failed to take an entry from the TX ring.
    pub tx_ring_empty_descs: u64,
}

/// `struct sockaddr_xdp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockaddrXdp {
    /// `AF_XDP`.
    pub family: u16,
    /// Bind flags.
    pub flags: u16,
    /// Interface number.
    pub ifindex: u32,
    /// Queue of the interface.
    pub queue_id: u32,
    /// With `XDP_SHARED_UMEM`: the socket whose UMEM is used.
    pub shared_umem_fd: u32,
}

const _: () = {
    assert!(size_of::<Desc>() == 16 && offset_of!(Desc, len) == 8 && offset_of!(Desc, options) == 12);
    assert!(
        size_of::<UmemReg>() == 32
            && offset_of!(UmemReg, chunk_size) == 16
            && offset_of!(UmemReg, tx_metadata_len) == 28
    );
    assert!(size_of::<RingOffset>() == 32 && offset_of!(RingOffset, desc) == 16 && offset_of!(RingOffset, flags) == 24);
    assert!(size_of::<MmapOffsets>() == 128 && offset_of!(MmapOffsets, fr) == 64 && offset_of!(MmapOffsets, cr) == 96);
    assert!(size_of::<Statistics>() == 48 && offset_of!(Statistics, rx_ring_full) == 24);
    assert!(
        size_of::<SockaddrXdp>() == 16
            && offset_of!(SockaddrXdp, ifindex) == 4
            && offset_of!(SockaddrXdp, shared_umem_fd) == 12
    );
};
