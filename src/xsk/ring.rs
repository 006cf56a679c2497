//! One mapped ring, and what the caller's ring struct is to hold.

use core::{ffi::c_void, ptr::NonNull};

use crate::{
    errno::{Errno, Result},
    sync::{AtomicU32, Ordering},
    uapi::{self, Mapping, Ring, RingOffset},
};

/// The values of a ring struct (`struct xsk_ring_prod`, `struct xsk_ring_cons`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Next entry to reserve; for a consumer the provider's producer index.
    pub cached_prod: u32,
    /// For a producer the provider's consumer index plus `size`; for a consumer the next entry to look at.
    pub cached_cons: u32,
    /// Number of entries.
    pub size: u32,
    /// Shared producer index.
    pub producer: *mut u32,
    /// Shared consumer index.
    pub consumer: *mut u32,
    /// Shared entries.
    pub ring: *mut c_void,
    /// Shared flags.
    pub flags: *mut u32,
}

/// A view for a ring struct that may be in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewFor {
    /// The values.
    pub view: View,
    /// The struct's address was given to an earlier call for this very ring. If the struct still is a view of the ring it
    /// must be left alone: the program may have reserved or looked at entries, which only the struct knows.
    pub known: bool,
}

/// A ring of a socket, mapped; dropping it unmaps.
#[derive(Debug)]
pub(super) struct MappedRing {
    ring: Ring,
    entries: u32,
    mapping: Mapping,
    offset: RingOffset,
}

impl MappedRing {
    /// Map a ring whose size has been set. `offset`: from `mmap_offsets` of the same socket.
    pub(super) fn map(socket: &dyn uapi::Socket, ring: Ring, entries: u32, offset: RingOffset) -> Result<MappedRing> {
        let slots = (entries as usize).checked_mul(ring.entry_size()).ok_or(Errno::ENOMEM)?;
        let start = usize::try_from(offset.desc).map_err(|_| Errno::EINVAL)?;
        let len = start.checked_add(slots).ok_or(Errno::ENOMEM)?;
        let word_ok = |at: u64| at.is_multiple_of(4) && usize::try_from(at).is_ok_and(|at| at < len && len - at >= 4);
        if !(word_ok(offset.producer) && word_ok(offset.consumer) && word_ok(offset.flags)) {
            return Err(Errno::EINVAL);
        }
        let mapping = socket.map_ring(ring, len)?;
        Ok(MappedRing { ring, entries, mapping, offset })
    }

    /// What a struct for this ring holds that has neither reserved nor looked at anything.
    pub(super) fn view(&self) -> View {
        let producer = self.load(self.offset.producer);
        let consumer = self.load(self.offset.consumer);
        let ahead = match self.ring {
            // A producer's copy of the consumer index is kept `size` ahead, so that free entries are a difference.
            Ring::Fill | Ring::Tx => self.entries,
            Ring::Completion | Ring::Rx => 0,
        };
        View {
            cached_prod: producer,
            cached_cons: consumer.wrapping_add(ahead),
            size: self.entries,
            producer: self.at(self.offset.producer).cast().as_ptr(),
            consumer: self.at(self.offset.consumer).cast().as_ptr(),
            ring: self.at(self.offset.desc).cast().as_ptr(),
            flags: self.at(self.offset.flags).cast().as_ptr(),
        }
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        let offset = usize::try_from(offset).expect("`map` checked that the offset lies in the mapping");
        // SAFETY: `map` checked that the offset lies inside the mapping.
        unsafe { self.mapping.base().add(offset) }
    }

    fn load(&self, offset: u64) -> u32 {
        let word = self.at(offset).cast::<u32>().as_ptr();
        // SAFETY: four aligned bytes of the mapping, as `map` checked; both sides reach a ring's indices atomically.
        unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire)
    }
}
