//! Where the words of a ring stand in its mapping: the kernel's layout, which C programs learn through
//! `XDP_MMAP_OFFSETS` and rely on. Pure arithmetic.

use crate::uapi::RingOffset;

/// Offset of the producer index, a `u32`.
pub const PRODUCER: usize = 0;
/// Offset of the consumer index, a `u32`.
pub const CONSUMER: usize = 128;
/// Offset of the flags, a `u32`.
pub const FLAGS: usize = 196;
/// Offset of the first entry.
pub const ENTRIES: usize = 320;
/// Alignment that a ring's first byte must have.
pub const ALIGN: usize = 64;

/// Bytes of a ring with `ring_entries` entries of `entry_size` bytes, not rounded to pages.
///
/// Saturates, so a size that no machine has is refused by whoever maps it.
pub const fn bytes(ring_entries: u32, entry_size: usize) -> usize {
    (ring_entries as usize).saturating_mul(entry_size).saturating_add(ENTRIES)
}

/// The offsets as `XDP_MMAP_OFFSETS` reports them; the same for all four rings.
pub const fn offsets() -> RingOffset {
    RingOffset { producer: PRODUCER as u64, consumer: CONSUMER as u64, desc: ENTRIES as u64, flags: FLAGS as u64 }
}

const _: () = {
    // Each index on a line pair of its own; words and entries aligned to their size.
    assert!(CONSUMER - PRODUCER >= 128 && ENTRIES - CONSUMER >= 128);
    assert!(CONSUMER.is_multiple_of(4) && FLAGS.is_multiple_of(4) && ENTRIES.is_multiple_of(ALIGN));
};
