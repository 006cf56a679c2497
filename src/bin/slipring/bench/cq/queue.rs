//! A queue under test: a way to reserve, one to submit, and a layout, put together; and the library's own queue.

use core::marker::PhantomData;

use slipring::ring::{RingMemory, SharedProducer};

use super::{
    layout::{Geometry, Layout, Packed, Separated},
    reserve::{self, Places, Reserve},
    run::{Sent, Task, send},
    submit::{self, Sender, Submit},
    variant::{self, Variant},
};

/// What a sender does with a queue.
pub(super) trait Queue: Send + Sync {
    /// Take up to `n` places; `None`: full. `lost` counts compare-and-swaps that did not succeed.
    fn reserve(&self, n: u32, lost: &mut u64) -> Option<Places>;
    /// Publish `addresses` in reserved places.
    fn submit(&self, sender: &mut Sender, first: u32, addresses: &[u64]);
    /// What a packet is built from.
    fn geometry(&self) -> &Geometry;
    /// What the consumer maps.
    fn ring(&self) -> &RingMemory<u64>;
}

/// A queue whose sender's loop is compiled for it, so that nothing in the loop is called through a pointer.
pub(super) trait UnderTest: Send + Sync {
    /// Be a sender until the task is over.
    fn send(&self, task: &Task<'_>) -> Sent;
    fn ring(&self) -> &RingMemory<u64>;
}

impl<Q: Queue> UnderTest for Q {
    fn send(&self, task: &Task<'_>) -> Sent {
        send(self, task)
    }

    fn ring(&self) -> &RingMemory<u64> {
        Queue::ring(self)
    }
}

/// One of the laboratory's queues.
struct Built<L: Layout, R: Reserve, S: Submit> {
    layout: L,
    extra: S::Extra,
    reserve: PhantomData<R>,
}

impl<L: Layout, R: Reserve, S: Submit> Queue for Built<L, R, S> {
    #[inline]
    fn reserve(&self, n: u32, lost: &mut u64) -> Option<Places> {
        R::reserve(&self.layout, n, lost)
    }

    #[inline]
    fn submit(&self, sender: &mut Sender, first: u32, addresses: &[u64]) {
        S::submit(&self.layout, &self.extra, sender, first, addresses);
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        self.layout.geometry()
    }

    #[inline]
    fn ring(&self) -> &RingMemory<u64> {
        self.layout.ring()
    }
}

/// The library's queue, as the engine uses it.
struct Library {
    geometry: Geometry,
    producer: SharedProducer<u64>,
}

impl Queue for Library {
    #[inline]
    fn reserve(&self, n: u32, lost: &mut u64) -> Option<Places> {
        let count = self.producer.reserve_with(n, || *lost += 1);
        (count != 0).then_some(Places { first: 0, count })
    }

    #[inline]
    fn submit(&self, _: &mut Sender, _: u32, addresses: &[u64]) {
        self.producer.submit(addresses);
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn ring(&self) -> &RingMemory<u64> {
        self.producer.memory()
    }
}

/// What a queue is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub senders: u32,
    /// Entries of the ring, a power of two.
    pub entries: u32,
    /// The ring's first index.
    pub start: u32,
}

/// A new queue of this kind.
pub(super) fn make(variant: Variant, size: Size) -> Result<Box<dyn UnderTest>, String> {
    use variant::Submit as Kind;
    let memory = RingMemory::heap(size.entries, size.start).map_err(|e| format!("a ring of {}: {e}", size.entries))?;
    Ok(match variant.submit {
        Kind::Lock => with_submit::<submit::Lock>(variant, memory, size),
        Kind::SharedLock => with_submit::<submit::SharedLock>(variant, memory, size),
        Kind::YieldLock => with_submit::<submit::YieldLock>(variant, memory, size),
        Kind::Wait => with_submit::<submit::Wait>(variant, memory, size),
        Kind::List => with_submit::<submit::List>(variant, memory, size),
        Kind::Marks => {
            let producer = SharedProducer::new(memory, size.start).map_err(|e| format!("ready marks: {e}"))?;
            Box::new(Library { geometry: Geometry::new(), producer })
        }
    })
}

fn with_submit<S: Submit>(variant: Variant, memory: RingMemory<u64>, size: Size) -> Box<dyn UnderTest> {
    match variant.layout {
        variant::Layout::Packed => with_layout::<Packed, S>(variant, memory, size),
        variant::Layout::Separated => with_layout::<Separated, S>(variant, memory, size),
    }
}

fn with_layout<L: Layout, S: Submit>(variant: Variant, memory: RingMemory<u64>, size: Size) -> Box<dyn UnderTest> {
    use variant::Reserve as Kind;
    match variant.reserve {
        Kind::PoolLock => built::<L, reserve::PoolLock, S>(memory, size),
        Kind::QueueLock => built::<L, reserve::QueueLock, S>(memory, size),
        Kind::YieldLock => built::<L, reserve::YieldLock, S>(memory, size),
        Kind::Cas | Kind::Batch => built::<L, reserve::Cas, S>(memory, size),
    }
}

fn built<L: Layout, R: Reserve, S: Submit>(memory: RingMemory<u64>, size: Size) -> Box<dyn UnderTest> {
    let extra = S::extra(size.senders, size.entries);
    Box::new(Built::<L, R, S> { layout: L::new(memory, size.start), extra, reserve: PhantomData })
}
