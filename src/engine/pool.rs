//! A pool: one (interface, queue, UMEM) with its fill ring and its completion ring, and the sockets bound to it.
//!
//! Three groups of cache lines, each on its own: what is only read once the pool exists (here), the state of the
//! reservation, and the state of the submission (both inside the shared rings of `crate::ring`).

use super::{iface::Interface, memory::Memory, umem::Umem};
use crate::{
    device::Device,
    errno::{Errno, Result},
    ring::{SharedConsumer, SharedProducer},
    sync::{Arc, AtomicU32, Mutex, Ordering},
    uapi::Ring,
    warn,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) umem: Arc<Umem>,
    pub(super) interface: Arc<Interface>,
    pub(super) device: Arc<dyn Device>,
    pub(super) queue: u32,
    pub(super) fill: SharedConsumer,
    pub(super) completion: SharedProducer<u64>,
    /// Chunks taken from the fill ring for a frame of several that then got too few. They are used before the fill ring.
    /// The count is looked at without the lock.
    spare: Mutex<Vec<u64>>,
    spares: AtomicU32,
    /// Keeps the two rings mapped.
    _rings: Arc<Memory>,
}

impl Pool {
    /// A pool over the fill and completion rings in `rings`. EINVAL: one of them was not made.
    pub(super) fn new(
        umem: Arc<Umem>,
        interface: Arc<Interface>,
        device: Arc<dyn Device>,
        queue: u32,
        rings: Arc<Memory>,
        start: u32,
    ) -> Result<Pool> {
        // SAFETY: the pool keeps `rings` for as long as it keeps the ring.
        let fill = unsafe { rings.ring(Ring::Fill) }.ok_or(Errno::EINVAL)?;
        // SAFETY: as above.
        let completion = unsafe { rings.ring(Ring::Completion) }.ok_or(Errno::EINVAL)?;
        Ok(Pool {
            umem,
            interface,
            device,
            queue,
            fill: SharedConsumer::new(fill, start),
            completion: SharedProducer::new(completion, start)?,
            spare: Mutex::new(Vec::new()),
            spares: AtomicU32::new(0),
            _rings: rings,
        })
    }

    /// Take free chunks for received frames: as many as fit in `out` and exist.
    #[inline]
    pub(super) fn take_chunks(&self, out: &mut [u64]) -> usize {
        let mut n = 0;
        if self.spares.load(Ordering::Relaxed) != 0 {
            n = self.take_spares(out);
        }
        n + self.fill.take(&mut out[n..])
    }

    #[cold]
    fn take_spares(&self, out: &mut [u64]) -> usize {
        let Ok(mut spare) = self.spare.lock() else { return 0 };
        let n = spare.len().min(out.len());
        for slot in &mut out[..n] {
            *slot = spare.pop().expect("n is at most its length");
        }
        self.spares.store(u32::try_from(spare.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
        n
    }

    /// Keep chunks that were taken and not used.
    #[cold]
    pub(super) fn keep_chunks(&self, chunks: &[u64]) {
        let Ok(mut spare) = self.spare.lock() else { return };
        spare.extend_from_slice(chunks);
        self.spares.store(u32::try_from(spare.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Free chunks now.
    #[inline]
    pub(super) fn chunks(&self) -> u32 {
        self.fill.available() + self.spares.load(Ordering::Relaxed)
    }

    /// Tell once that the program broke a ring.
    #[cold]
    pub(super) fn report_broken(&self, ring: Ring) {
        warn!(
            "{} queue {}: the indices of the {} ring are impossible (more entries than the ring has): the program wrote \
             over them; the ring is not used while it lasts",
            self.interface.name,
            self.queue,
            ring.name()
        );
    }
}
