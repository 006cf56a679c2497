//! Ways to submit to the completion queue that exist for comparison. The library's own, ready marks with helping, is in
//! `slipring::ring`.
//!
//! All but [`Wait`] fill the ring in the order of completion. The ring's producer word is the truth here: in the laboratory
//! nobody else writes it.

use slipring::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

use super::{layout::Layout, lock::SpinLock};

/// A way to submit.
pub(super) trait Submit: Send + Sync + 'static {
    /// What senders need besides the pool.
    type Extra: Send + Sync;
    fn extra(senders: u32, entries: u32) -> Self::Extra;
    /// Publish `addresses` in reserved places; `first` is the ring index of the first as it was reserved.
    fn submit<L: Layout>(layout: &L, extra: &Self::Extra, sender: &mut Sender, first: u32, addresses: &[u64]);
}

/// What one sender knows of itself.
#[derive(Debug)]
pub(super) struct Sender {
    number: u32,
    /// Its next node, free-running.
    node: u32,
}

impl Sender {
    /// The sender with this number, from 0.
    pub(super) fn new(number: u32) -> Sender {
        Sender { number, node: 0 }
    }
}

/// Under a lock on the completion side's line.
#[derive(Debug)]
pub(super) struct Lock;

/// Under a lock on the reserve state's line.
#[derive(Debug)]
pub(super) struct SharedLock;

/// As [`Lock`], but who waits lets others run after a while.
#[derive(Debug)]
pub(super) struct YieldLock;

impl Submit for Lock {
    type Extra = ();
    fn extra(_: u32, _: u32) {}

    #[inline]
    fn submit<L: Layout>(layout: &L, (): &(), _: &mut Sender, _: u32, addresses: &[u64]) {
        locked::<L, false>(layout, &layout.submitting().lock, addresses);
    }
}

impl Submit for SharedLock {
    type Extra = ();
    fn extra(_: u32, _: u32) {}

    #[inline]
    fn submit<L: Layout>(layout: &L, (): &(), _: &mut Sender, _: u32, addresses: &[u64]) {
        locked::<L, false>(layout, &layout.reserving().submit_lock, addresses);
    }
}

impl Submit for YieldLock {
    type Extra = ();
    fn extra(_: u32, _: u32) {}

    #[inline]
    fn submit<L: Layout>(layout: &L, (): &(), _: &mut Sender, _: u32, addresses: &[u64]) {
        locked::<L, true>(layout, &layout.submitting().lock, addresses);
    }
}

#[inline]
fn locked<L: Layout, const YIELDS: bool>(layout: &L, lock: &SpinLock, addresses: &[u64]) {
    let ring = layout.ring();
    let _held = lock.hold::<YIELDS>();
    let mut index = ring.producer().load(Ordering::Relaxed);
    for address in addresses {
        ring.write(index, *address);
        index = index.wrapping_add(1);
    }
    // B of `slipring::ring`.
    ring.producer().store(index, Ordering::Release);
}

/// Write where one has reserved, and wait until all before it is published, as multi-producer packet rings do.
#[derive(Debug)]
pub(super) struct Wait;

impl Submit for Wait {
    type Extra = ();
    fn extra(_: u32, _: u32) {}

    #[inline]
    fn submit<L: Layout>(layout: &L, (): &(), _: &mut Sender, first: u32, addresses: &[u64]) {
        let ring = layout.ring();
        let mut index = first;
        for address in addresses {
            ring.write(index, *address);
            index = index.wrapping_add(1);
        }
        // Acquire: the predecessors' entries, which the store below publishes along with ours.
        while ring.producer().load(Ordering::Acquire) != first {
            spin_loop();
        }
        // B of `slipring::ring`.
        ring.producer().store(index, Ordering::Release);
    }
}

/// A lock-free list. Who finds it idle is the one flusher, and drains it until it finds it empty; the others leave their
/// completions there and go on.
///
/// The list's word is the number of the node on its top, or [`IDLE`], or [`DRAINED`]: empty, with a flusher at work. It is as
/// long as there are places: each node in it stands for one that is reserved.
#[derive(Debug)]
pub(super) struct List;

const IDLE: u32 = 0;
const DRAINED: u32 = 1;
/// The number of the first node.
const FIRST: u32 = 2;

/// The nodes, as many for each sender as the ring has entries: a sender's node is flushed, and its place consumed, before so many
/// more places can be reserved.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    entries: u32,
}

#[derive(Debug)]
struct Node {
    address: AtomicU64,
    next: AtomicU32,
}

impl Nodes {
    fn at(&self, number: u32) -> &Node {
        &self.nodes[(number - FIRST) as usize]
    }

    /// The number of a sender's next node.
    fn take(&self, sender: &mut Sender) -> u32 {
        let number = FIRST + sender.number * self.entries + (sender.node & (self.entries - 1));
        sender.node = sender.node.wrapping_add(1);
        number
    }

    /// Turn a chain around; returns its other end and how long it is. The last one's `next` is left as it was.
    fn reverse(&self, top: u32) -> (u32, u32) {
        let (mut before, mut number, mut count) = (IDLE, top, 0);
        while number >= FIRST {
            let next = self.at(number).next.load(Ordering::Relaxed);
            self.at(number).next.store(before, Ordering::Relaxed);
            before = number;
            number = next;
            count += 1;
        }
        (before, count)
    }

    /// Write all that is in the list to the ring, oldest first, until nothing is left.
    fn flush<L: Layout>(&self, layout: &L) {
        let (list, ring) = (&layout.submitting().list, layout.ring());
        // One flusher at a time, and each takes over by an Acquire from the Release of the one before.
        let mut index = ring.producer().load(Ordering::Relaxed);
        loop {
            // Acquire: the nodes. Pairs with the push.
            let (mut number, count) = self.reverse(list.swap(DRAINED, Ordering::Acquire));
            for _ in 0..count {
                let node = self.at(number);
                ring.write(index, node.address.load(Ordering::Relaxed));
                index = index.wrapping_add(1);
                number = node.next.load(Ordering::Relaxed);
            }
            // B of `slipring::ring`.
            ring.producer().store(index, Ordering::Release);
            // Release: the producer index, for the next flusher.
            if list.compare_exchange(DRAINED, IDLE, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
}

impl Submit for List {
    type Extra = Nodes;

    fn extra(senders: u32, entries: u32) -> Nodes {
        let node = |_| Node { address: AtomicU64::new(0), next: AtomicU32::new(IDLE) };
        Nodes { nodes: (0..senders * entries).map(node).collect(), entries }
    }

    #[inline]
    fn submit<L: Layout>(layout: &L, nodes: &Nodes, sender: &mut Sender, _: u32, addresses: &[u64]) {
        let (mut bottom, mut top) = (IDLE, IDLE);
        for address in addresses {
            let number = nodes.take(sender);
            nodes.at(number).address.store(*address, Ordering::Relaxed);
            if bottom == IDLE {
                bottom = number;
            } else {
                nodes.at(number).next.store(top, Ordering::Relaxed);
            }
            top = number;
        }
        if bottom == IDLE {
            return;
        }
        let list = &layout.submitting().list;
        let mut seen = list.load(Ordering::Relaxed);
        loop {
            nodes.at(bottom).next.store(seen, Ordering::Relaxed);
            // Release: the nodes, for the flusher. Acquire: the last flusher's producer index, for when it is us.
            match list.compare_exchange_weak(seen, top, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if seen == IDLE {
            nodes.flush(layout);
        }
    }
}
