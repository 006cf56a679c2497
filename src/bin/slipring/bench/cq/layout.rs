//! Where the words of a pool stand: as in the structure that the reservation was first made lock-free in, or apart.
//!
//! Senders read the geometry for every packet. What they share besides is the reserve state and the submit state. Packed, the
//! pool's locks stand on the geometry's line, and the queue's words on one line with the pointer to the ring; separated, each
//! group has a line pair of its own.

use core::mem::offset_of;

use slipring::{
    ring::RingMemory,
    sync::{AtomicU32, AtomicU64, Ordering},
};

use super::lock::SpinLock;

/// What a sender reads of the pool while it builds a packet. Never written during a run.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Geometry {
    base: AtomicU64,
    chunk_size: AtomicU32,
    headroom: AtomicU32,
    metadata: AtomicU32,
    unaligned: AtomicU32,
}

impl Geometry {
    pub(super) fn new() -> Geometry {
        let word = AtomicU32::new;
        Geometry {
            base: AtomicU64::new(1 << 21),
            chunk_size: word(2048),
            headroom: word(256),
            metadata: word(0),
            unaligned: word(0),
        }
    }

    /// The four reads that lie between the four parts of the work on a packet.
    #[inline]
    pub(super) fn read(&self, part: u32) -> u64 {
        let word = |word: &AtomicU32| u64::from(word.load(Ordering::Relaxed));
        match part {
            0 => word(&self.unaligned),
            1 => word(&self.metadata) + self.base.load(Ordering::Relaxed),
            2 => word(&self.chunk_size),
            _ => word(&self.headroom),
        }
    }
}

/// The queue's words.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Reserving {
    /// Index behind the last reserved place.
    pub reserved: AtomicU32,
    /// A consumer index that was read earlier: the locked variants look at the ring only when this one says "full".
    pub consumer_seen: AtomicU32,
    /// The reviewer's proposal: the lock on the line of the word that it guards.
    pub lock: SpinLock,
    /// The experiment that got worse: the lock of submit on the same line.
    pub submit_lock: SpinLock,
}

impl Reserving {
    fn new(start: u32) -> Reserving {
        Reserving {
            reserved: AtomicU32::new(start),
            consumer_seen: AtomicU32::new(start),
            lock: SpinLock::new(),
            submit_lock: SpinLock::new(),
        }
    }
}

/// The words of the completion side.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Submitting {
    pub lock: SpinLock,
    /// Top of the list of completions that wait for the flusher; see `submit::List`.
    pub list: AtomicU32,
}

impl Submitting {
    fn new() -> Submitting {
        Submitting { lock: SpinLock::new(), list: AtomicU32::new(0) }
    }
}

/// The words of a pool, in some place.
pub(super) trait Layout: Send + Sync + 'static {
    /// A pool whose ring begins at the index `start`.
    fn new(ring: RingMemory<u64>, start: u32) -> Self;
    fn ring(&self) -> &RingMemory<u64>;
    fn geometry(&self) -> &Geometry;
    fn reserving(&self) -> &Reserving;
    fn submitting(&self) -> &Submitting;
    /// The lock of the reservation where it was "before".
    fn pool_lock(&self) -> &SpinLock;
}

/// As in the original structure.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Packed {
    /// The pool's first line: pointers that nobody writes.
    _head: [u64; 8],
    geometry: Geometry,
    submitting: Submitting,
    pool_lock: SpinLock,
    queue: PackedQueue,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct PackedQueue {
    ring: Box<RingMemory<u64>>,
    reserving: Reserving,
}

impl Layout for Packed {
    fn new(ring: RingMemory<u64>, start: u32) -> Packed {
        Packed {
            _head: [0; 8],
            geometry: Geometry::new(),
            submitting: Submitting::new(),
            pool_lock: SpinLock::new(),
            queue: PackedQueue { ring: Box::new(ring), reserving: Reserving::new(start) },
        }
    }

    #[inline]
    fn ring(&self) -> &RingMemory<u64> {
        &self.queue.ring
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn reserving(&self) -> &Reserving {
        &self.queue.reserving
    }

    #[inline]
    fn submitting(&self) -> &Submitting {
        &self.submitting
    }

    #[inline]
    fn pool_lock(&self) -> &SpinLock {
        &self.pool_lock
    }
}

/// Each group on a line pair of its own.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Separated {
    fixed: Apart<(Geometry, Box<RingMemory<u64>>)>,
    pool_lock: Apart<SpinLock>,
    reserving: Apart<Reserving>,
    submitting: Apart<Submitting>,
}

/// A line pair, which is what neighbouring-line prefetch moves.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

impl Layout for Separated {
    fn new(ring: RingMemory<u64>, start: u32) -> Separated {
        Separated {
            fixed: Apart((Geometry::new(), Box::new(ring))),
            pool_lock: Apart(SpinLock::new()),
            reserving: Apart(Reserving::new(start)),
            submitting: Apart(Submitting::new()),
        }
    }

    #[inline]
    fn ring(&self) -> &RingMemory<u64> {
        &self.fixed.0.1
    }

    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.fixed.0.0
    }

    #[inline]
    fn reserving(&self) -> &Reserving {
        &self.reserving.0
    }

    #[inline]
    fn submitting(&self) -> &Submitting {
        &self.submitting.0
    }

    #[inline]
    fn pool_lock(&self) -> &SpinLock {
        &self.pool_lock.0
    }
}

const LINE: usize = 64;

const _: () = {
    let line = offset_of!(Packed, geometry) / LINE;
    assert!((offset_of!(Packed, geometry) + size_of::<Geometry>() - 1) / LINE == line);
    assert!(offset_of!(Packed, submitting) / LINE == line && offset_of!(Packed, pool_lock) / LINE == line);
    assert!(offset_of!(PackedQueue, ring) / LINE == offset_of!(PackedQueue, reserving) / LINE);
    assert!(offset_of!(PackedQueue, reserving) + size_of::<Reserving>() <= LINE);
    assert!(size_of::<Separated>() == 4 * 2 * LINE);
};
