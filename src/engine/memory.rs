//! The shared memory of one socket: a memfd that holds a page of statistics and then its rings.
//!
//! The rings are in a memfd so that the program can map them with the page offsets of the kernel's interface and unmap
//! them with plain `munmap`. The engine has mappings of its own, so whatever the program does to its mappings, ours stay;
//! and whatever we do, the program's stay until it unmaps them. The first page is for `slipring stat`, which finds the
//! descriptor in `/proc/PID/fd`.

use core::ptr::NonNull;
use std::os::fd::RawFd;

use super::{stat::Page, table};
use crate::{
    errno::{Errno, Result},
    ring::{Entry, RingMemory, layout},
    sync::{Arc, Mutex, Ordering},
    sys,
    uapi::{Mapping, MmapOffsets, Ring, XDP_RING_NEED_WAKEUP},
};

/// Most entries of a ring: the RX and TX rings then take 256 MiB.
const MAX_ENTRIES: u32 = 1 << 24;

/// The memory. Dropping it closes the descriptor and our mappings; the program's mappings stay.
#[derive(Debug)]
pub(super) struct Memory {
    fd: RawFd,
    page: Mapping,
    rings: Mutex<Rings>,
}

#[derive(Debug, Default)]
struct Rings {
    /// Bytes of the memfd.
    end: usize,
    /// Per ring: offset in the memfd and our mapping.
    places: [Option<Place>; 4],
}

#[derive(Debug)]
struct Place {
    offset: usize,
    entries: u32,
    ours: Arc<Mapping>,
}

impl Memory {
    /// New memory without rings.
    pub(super) fn new() -> Result<Memory> {
        let fd = sys::memfd(c"slipring")?;
        let len = size_of::<Page>().next_multiple_of(sys::PAGE);
        let page =
            sys::ftruncate(fd, len).and_then(|()| sys::map_shared(fd, 0, len)).inspect_err(|_| sys::close(fd))?;
        // SAFETY: mapped by us just now, unmapped by nobody else.
        let page = unsafe { Mapping::new(page, len) };
        table::set_internal(fd, true);
        Ok(Memory { fd, page, rings: Mutex::new(Rings { end: len, ..Rings::default() }) })
    }

    /// The statistics page.
    #[inline]
    pub(super) fn page(&self) -> &Page {
        // SAFETY: a page-aligned mapping of at least size_of::<Page>() bytes that lives as long as self; `Page` is made of
        // atomics only.
        unsafe { self.page.base().cast::<Page>().as_ref() }
    }

    /// Make a ring. EINVAL: no power of two, or made already. ENOMEM: too large.
    pub(super) fn add(&self, ring: Ring, entries: u32) -> Result<()> {
        let mut rings = self.rings.lock().map_err(|_| Errno::EIO)?;
        if !entries.is_power_of_two() || rings.places[ring.index()].is_some() {
            return Err(Errno::EINVAL);
        }
        if entries > MAX_ENTRIES {
            return Err(Errno::ENOMEM);
        }
        let offset = rings.end;
        let len = layout::bytes(entries, ring.entry_size()).next_multiple_of(sys::PAGE);
        sys::ftruncate(self.fd, offset + len)?;
        let base = sys::map_shared(self.fd, offset as u64, len)?;
        // SAFETY: mapped by us just now, unmapped by nobody else.
        let ours = unsafe { Mapping::new(base, len) };
        rings.end = offset + len;
        rings.places[ring.index()] = Some(Place { offset, entries, ours: Arc::new(ours) });
        self.page().set_ring(ring, offset as u64, entries);
        Ok(())
    }

    /// Entries of a ring, 0 when it was not made.
    pub(super) fn entries(&self, ring: Ring) -> u32 {
        self.rings.lock().map_or(0, |r| r.places[ring.index()].as_ref().map_or(0, |p| p.entries))
    }

    /// Set NEED_WAKEUP in a ring's flags, if the ring was made.
    pub(super) fn set_wakeup(&self, ring: Ring) {
        // SAFETY: used in this call only.
        if let Some(memory) = unsafe { self.ring::<u64>(ring) } {
            memory.flags().store(XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        }
    }

    /// Map a ring for the program. EINVAL: not made, or longer than it is.
    ///
    /// # Safety
    /// The caller owns what is mapped at `at`.
    pub(super) unsafe fn map(&self, ring: Ring, len: usize, at: Option<NonNull<u8>>) -> Result<Mapping> {
        let rings = self.rings.lock().map_err(|_| Errno::EIO)?;
        let place = rings.places[ring.index()].as_ref().ok_or(Errno::EINVAL)?;
        if len == 0 || len > place.ours.len() {
            return Err(Errno::EINVAL);
        }
        // ThreadSanitizer knows memory by its address. With a mapping each, it would not see that the engine and the program
        // wait for each other by the ring's indices. So in its builds they share ours.
        #[cfg(slipring_tsan)]
        if at.is_none() {
            return Ok(Mapping::part(&place.ours, len));
        }
        // SAFETY: the caller's promise.
        let base = unsafe { sys::map_shared_at(self.fd, place.offset as u64, len, at) }?;
        // SAFETY: mapped just now (or placed over the caller's own mapping, whose owner asked for it).
        Ok(unsafe { Mapping::new(base, len) })
    }

    /// A ring for the engine's own use.
    ///
    /// # Safety
    /// The result must not be used after self is dropped.
    pub(super) unsafe fn ring<T: Entry>(&self, ring: Ring) -> Option<RingMemory<T>> {
        let rings = self.rings.lock().ok()?;
        let place = rings.places[ring.index()].as_ref()?;
        // SAFETY: the mapping has the layout and room for `entries`, is page-aligned, and lives as long as self, which
        // the caller outlives with self.
        Some(unsafe { RingMemory::from_raw(place.ours.base(), place.entries) })
    }
}

/// The offsets of every ring; those of the kernel since 5.4.
pub(super) fn offsets() -> MmapOffsets {
    let o = layout::offsets();
    MmapOffsets { rx: o, tx: o, fr: o, cr: o }
}

impl Drop for Memory {
    fn drop(&mut self) {
        table::set_internal(self.fd, false);
        sys::close(self.fd);
    }
}
