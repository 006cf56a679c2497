//! What an engine socket shows to `slipring stat`: the first page of its memory.
//!
//! Layout (native endianness, fixed offsets, asserted below): identity, names, ring places, then the counters, those of
//! the receiving and of the sending side on lines of their own. Written by the process that owns the socket, read by
//! anyone who may open its descriptors (the same user, or root).

use core::mem::offset_of;

use crate::{
    sync::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    uapi::{Ring, Statistics},
};

/// First eight bytes of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"slipring");
/// Raised when the layout changes.
pub const VERSION: u32 = 1;

/// Counters of the receiving side. Several delivering threads add.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Receive {
    /// Frames put into the RX ring.
    pub frames: AtomicU64,
    /// Bytes put into the UMEM.
    pub bytes: AtomicU64,
    /// `xdp_statistics.rx_dropped`
    pub dropped: AtomicU64,
    /// `xdp_statistics.rx_ring_full`
    pub ring_full: AtomicU64,
    /// `xdp_statistics.rx_fill_ring_empty_descs`: of the pool, kept with the socket that was to receive.
    pub fill_empty: AtomicU64,
    /// Fill entries that name no chunk. The kernel skips such an entry without counting; this counts for people only.
    pub bad_fill: AtomicU64,
}

/// Counters of the sending side. Only the holder of the drain token writes.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Send {
    /// Frames that the device took.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// `xdp_statistics.tx_invalid_descs`
    pub invalid: AtomicU64,
    /// Turns of the transmit path.
    pub kicks: AtomicU64,
    /// Turns that ended with EAGAIN: budget used up, completion ring full, or the device held the sender back.
    pub again: AtomicU64,
    /// `xdp_statistics.tx_ring_empty_descs`
    pub ring_empty: AtomicU64,
    /// Frames that no device takes: shorter than an Ethernet header, or longer than the MTU allows.
    pub dropped: AtomicU64,
    /// The device's own counters after this socket's last turn, those of its other senders included: frames, bytes, and
    /// frames that the device lost.
    pub device: [AtomicU64; 3],
}

/// The page.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// [`MAGIC`]; written last.
    pub magic: AtomicU64,
    /// [`VERSION`]
    pub version: AtomicU32,
    /// Process that made the socket.
    pub pid: AtomicU32,
    /// The socket's first number.
    pub fd: AtomicU32,
    /// 0: open, 1: bound, 2: failed.
    pub state: AtomicU32,
    /// Interface number, once bound.
    pub ifindex: AtomicU32,
    /// Queue, once bound.
    pub queue: AtomicU32,
    /// Offset of each ring in the memory, 0 when there is none; by `Ring::index`. Index words and entries follow the
    /// kernel's ring layout.
    pub ring_offset: [AtomicU64; 4],
    /// Entries of each ring.
    pub ring_entries: [AtomicU32; 4],
    /// UMEM: first address, bytes.
    pub umem: [AtomicU64; 2],
    /// UMEM: chunk size, head room, flags, and bind flags.
    pub geometry: [AtomicU32; 4],
    /// Interface name, NUL padded.
    pub name: [AtomicU8; 64],
    /// Device specification, NUL padded, cut if longer.
    pub spec: [AtomicU8; 256],
    /// Receiving side.
    pub rx: Receive,
    /// Sending side.
    pub tx: Send,
}

const _: () = {
    assert!(offset_of!(Page, ring_offset) == 32 && offset_of!(Page, ring_entries) == 64);
    assert!(offset_of!(Page, umem) == 80 && offset_of!(Page, geometry) == 96 && offset_of!(Page, name) == 112);
    assert!(offset_of!(Page, spec) == 176 && offset_of!(Page, rx) == 512 && offset_of!(Page, tx) == 640);
    assert!(size_of::<Page>() == 768);
};

/// Store `text` NUL padded, cut to fit.
pub(super) fn store_text(to: &[AtomicU8], text: &str) {
    for (i, slot) in to.iter().enumerate() {
        let byte = if i + 1 < to.len() { text.as_bytes().get(i).copied().unwrap_or(0) } else { 0 };
        slot.store(byte, Ordering::Relaxed);
    }
}

impl Page {
    pub(super) fn set_ring(&self, ring: Ring, offset: u64, entries: u32) {
        self.ring_entries[ring.index()].store(entries, Ordering::Relaxed);
        self.ring_offset[ring.index()].store(offset, Ordering::Relaxed);
    }

    /// The counters in the kernel's form.
    pub fn statistics(&self) -> Statistics {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Statistics {
            rx_dropped: get(&self.rx.dropped),
            rx_invalid_descs: 0,
            tx_invalid_descs: get(&self.tx.invalid),
            rx_ring_full: get(&self.rx.ring_full),
            rx_fill_ring_empty_descs: get(&self.rx.fill_empty),
            tx_ring_empty_descs: get(&self.tx.ring_empty),
        }
    }
}

/// Add to a counter that only one thread at a time writes.
#[inline]
pub(super) fn add_owned(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// Add to a counter that several threads write.
#[inline]
pub(super) fn add_shared(counter: &AtomicU64, n: u64) {
    if n != 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}
