//! Moving a UMEM that no socket uses yet from one provider to the other.
//!
//! `xsk_umem__create` makes a descriptor and two rings before the program has named an interface, and the program may fill
//! the fill ring at once. When the interface turns out to be the other provider's, everything that was set up is done again
//! on a socket of that one, under the same descriptor number and at the same addresses, so that the program notices nothing.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use super::{MmapOffsets, Provider, Ring, Socket};
use crate::{
    errno::{Errno, Result},
    sync::{AtomicU32, Ordering},
    warn,
};

/// Make a socket of `to` that stands where the unbound socket `old` stood, and close `old`.
///
/// The ring mappings stay with whoever owned them: their addresses and lengths are the same, only what is behind them has
/// changed. What the program has put into them is carried over. On failure `old` is as before.
///
/// EOPNOTSUPP: the providers' rings have different layouts, or `old` has been in use. Else the error of the call that failed.
pub fn switch(old: &dyn Socket, to: &dyn Provider) -> Result<Arc<dyn Socket>> {
    let setup = old.setup();
    let new = to.socket()?;
    if let Some(umem) = &setup.umem {
        new.register_umem(umem)?;
    }
    for ring in Ring::ALL {
        let entries = setup.entries[ring.index()];
        if entries > 0 {
            new.set_ring_size(ring, entries)?;
        }
    }

    let mut saved = Vec::new();
    if setup.mapped.iter().any(Option::is_some) {
        let offsets = old.mmap_offsets()?;
        let theirs = new.mmap_offsets()?;
        for ring in Ring::ALL {
            let Some((base, len)) = setup.mapped[ring.index()] else { continue };
            if offsets.of(ring) != theirs.of(ring) {
                warn!(
                    "cannot move the UMEM to the interface's provider: the {} ring has another layout there ({:?}, here {:?})",
                    ring.name(),
                    theirs.of(ring),
                    offsets.of(ring)
                );
                return Err(Errno::EOPNOTSUPP);
            }
            saved.push(Contents::save(ring, base, len, &offsets)?);
        }
    }
    for (done, contents) in saved.iter().enumerate() {
        if let Err(error) = contents.put_on(&*new) {
            // The ranges replaced so far show the new socket's rings, and the kernel may have emptied this one: show the old
            // socket's again.
            for contents in &saved[..=done] {
                if let Err(again) = contents.put_on(old) {
                    warn!("the {} ring could not be mapped again after a failure: {again}", contents.ring.name());
                }
            }
            return Err(error);
        }
    }

    let number = old.fd();
    old.relinquish();
    // The number is open, so that dup3 has nothing to fail on.
    new.renumber(number)?;
    Ok(new)
}

/// A ring's indices and entries while the memory behind its address is exchanged.
struct Contents {
    ring: Ring,
    base: NonNull<u8>,
    len: usize,
    producer_at: usize,
    consumer_at: usize,
    entries_at: usize,
    producer: u32,
    consumer: u32,
    entries: Vec<u8>,
}

impl Contents {
    /// EOPNOTSUPP: the provider has taken or given entries, which only a bound socket does.
    fn save(ring: Ring, base: usize, len: usize, offsets: &MmapOffsets) -> Result<Contents> {
        let base = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(base)).ok_or(Errno::EFAULT)?;
        let offset = offsets.of(ring);
        let at = |offset: u64| usize::try_from(offset).ok().filter(|at| *at + 4 <= len).ok_or(Errno::EINVAL);
        let (producer_at, consumer_at, entries_at) = (at(offset.producer)?, at(offset.consumer)?, at(offset.desc)?);
        let mut contents = Contents {
            ring,
            base,
            len,
            producer_at,
            consumer_at,
            entries_at,
            producer: 0,
            consumer: 0,
            entries: vec![],
        };
        contents.producer = contents.index(producer_at).load(Ordering::Acquire);
        contents.consumer = contents.index(consumer_at).load(Ordering::Acquire);
        let moved_by_provider = match ring {
            Ring::Fill | Ring::Tx => contents.consumer,
            Ring::Completion | Ring::Rx => contents.producer,
        };
        if moved_by_provider != 0 {
            warn!("cannot move the UMEM to the interface's provider: its {} ring has been in use", ring.name());
            return Err(Errno::EOPNOTSUPP);
        }
        contents.entries = vec![0; len - entries_at];
        // SAFETY: `entries_at` lies inside the mapping, as checked above.
        let from = unsafe { base.as_ptr().add(entries_at) };
        // SAFETY: the mapping goes on for `entries.len()` bytes from there; the vector is as long and nobody else's. The
        // program is inside a call that makes a socket and does not write its rings meanwhile.
        unsafe { ptr::copy_nonoverlapping(from, contents.entries.as_mut_ptr(), contents.entries.len()) };
        Ok(contents)
    }

    /// Map the ring of `socket` at the same address and write the contents into it.
    fn put_on(&self, socket: &dyn Socket) -> Result<()> {
        // Whoever owned the range goes on owning it.
        // SAFETY: the program's mapping of the same ring of the socket that is replaced.
        unsafe { socket.map_ring_at(self.ring, self.len, Some(self.base)) }?.leak();
        // SAFETY: `entries_at` lies inside the mapping, as checked in `save`.
        let to = unsafe { self.base.as_ptr().add(self.entries_at) };
        // SAFETY: the mapping goes on for `entries.len()` bytes from there, and an unbound socket does not read it.
        unsafe { ptr::copy_nonoverlapping(self.entries.as_ptr(), to, self.entries.len()) };
        self.index(self.consumer_at).store(self.consumer, Ordering::Release);
        self.index(self.producer_at).store(self.producer, Ordering::Release);
        Ok(())
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at + 4` lies inside the mapping, as checked in `save`.
        let word = unsafe { self.base.as_ptr().add(at) }.cast::<u32>();
        // SAFETY: rings are page aligned and their indices word aligned; the range stays mapped while `self` lives, and
        // both sides of a ring reach its indices by atomic accesses.
        unsafe { AtomicU32::from_ptr(word) }
    }
}
