//! One thread, one behaviour a test.

use super::{super::*, Program};
use crate::{
    sync::Ordering,
    uapi::{Desc, RingOffset},
};

const START: u32 = u32::MAX - 2;

fn desc(n: u32) -> Desc {
    Desc { addr: u64::from(n) << 40 | 7, len: n, options: !n }
}

#[test]
fn the_layout_is_the_kernels() {
    assert_eq!(layout::offsets(), RingOffset { producer: 0, consumer: 128, desc: 320, flags: 196 });
    assert_eq!(layout::bytes(2048, 8), 320 + 2048 * 8);
    #[cfg(target_pointer_width = "64")]
    assert_eq!(layout::bytes(1 << 31, 16), 320 + (1 << 35));
    let memory = RingMemory::<Desc>::heap(4, 0).unwrap();
    let base = memory.producer().as_ptr().cast::<u8>();
    assert_eq!(memory.consumer().as_ptr().cast::<u8>(), base.wrapping_add(128));
    assert_eq!(memory.flags().as_ptr().cast::<u8>(), base.wrapping_add(196));
    memory.write(5, desc(9));
    // SAFETY: entry 1 of 4, inside the ring, as the program would read it.
    let seen = unsafe { base.wrapping_add(320 + 16).cast::<Desc>().read() };
    assert_eq!(seen, desc(9), "a descriptor's fields stand where C expects them");
}

#[test]
fn places_are_counted_first_and_named_last() {
    let ring = SharedProducer::new(RingMemory::<u64>::heap(4, START).unwrap(), START).unwrap();
    assert_eq!((ring.reserve(3), ring.reserve(3), ring.reserve(1)), (3, 1, 0), "up to n, never more than the ring");
    assert_eq!((ring.free(), ring.in_flight()), (0, 4));
    ring.cancel(2);
    assert_eq!((ring.free(), ring.in_flight()), (2, 2));
    ring.submit(&[10]);
    ring.submit(&[11]);
    assert_eq!(Program(ring.memory()).consume(9), [10, 11], "no hole where places were cancelled");
    assert_eq!((ring.free(), ring.in_flight()), (4, 0));
}

#[test]
fn a_large_ring_costs_no_memory_until_it_is_used() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let before = resident();
    let ring = SharedProducer::new(RingMemory::<Desc>::heap(1 << 26, 0).unwrap(), 0).unwrap();
    assert_eq!(ring.reserve(u32::MAX), 1 << 26);
    let pages = resident().saturating_sub(before);
    assert!(pages < (1 << 26) / 4096, "{pages} of {} pages", (1 << 26) * 24 / 4096);
}

#[test]
fn the_fill_ring_is_taken_in_order_and_given_back() {
    let ring = SharedConsumer::new(RingMemory::heap(4, START).unwrap(), START);
    let program = Program(ring.memory());
    assert_eq!(program.produce(&[1, 2, 3, 4, 5]), 4);
    let mut out = [0; 3];
    assert_eq!((ring.take(&mut out), out), (3, [1, 2, 3]));
    assert_eq!(program.produce(&[5, 6, 7, 8]), 3, "taken entries are free again");
    assert_eq!(ring.available(), 4);
    assert_eq!((ring.take(&mut out), out), (3, [4, 5, 6]));
    assert_eq!(ring.index(), START.wrapping_add(6));
}

#[test]
fn the_tx_ring_is_looked_at_before_it_is_given_back() {
    let ring = Consumer::new(RingMemory::heap(4, START).unwrap(), START);
    let program = Program(ring.memory());
    assert_eq!(ring.available(), Available::Entries(0));
    assert_eq!(program.produce(&[desc(0), desc(1), desc(2)]), 3);
    assert_eq!(ring.available(), Available::Entries(3));
    assert_eq!((ring.get(0), ring.get(2)), (desc(0), desc(2)));
    assert_eq!(program.produce(&[desc(3), desc(4)]), 1, "looking frees nothing");
    ring.release(2);
    assert_eq!((ring.queued(), ring.index()), (2, START.wrapping_add(2)));
    assert_eq!(ring.get(0), desc(2));
}

#[test]
fn a_broken_ring_is_reported_once_and_works_again_when_it_makes_sense_again() {
    let tx = Consumer::new(RingMemory::<Desc>::heap(4, START).unwrap(), START);
    let fill = SharedConsumer::new(RingMemory::heap(4, START).unwrap(), START);
    let cq = SharedProducer::new(RingMemory::<u64>::heap(4, START).unwrap(), START).unwrap();
    assert!(!tx.take_broken_report() && !fill.take_broken_report() && !cq.take_broken_report());
    for nonsense in [START.wrapping_add(5), START.wrapping_sub(1), START ^ 1 << 31] {
        tx.memory().producer().store(nonsense, Ordering::Relaxed);
        fill.memory().producer().store(nonsense, Ordering::Relaxed);
        // The consumer index is nonsense when it is ahead of us, or more than a ring behind.
        cq.memory().consumer().store(START.wrapping_sub(nonsense.wrapping_sub(START)), Ordering::Relaxed);
        assert_eq!((tx.available(), tx.queued()), (Available::Broken, 0));
        assert_eq!((fill.take(&mut [0; 4]), fill.available()), (0, 0));
        assert_eq!((cq.reserve(1), cq.free()), (0, 0));
        let first = nonsense == START.wrapping_add(5);
        assert_eq!((tx.take_broken_report(), tx.take_broken_report()), (first, false));
        assert_eq!((fill.take_broken_report(), fill.take_broken_report()), (first, false));
        assert_eq!((cq.take_broken_report(), cq.take_broken_report()), (first, false));
    }
    tx.memory().producer().store(START.wrapping_add(1), Ordering::Relaxed);
    fill.memory().producer().store(START.wrapping_add(1), Ordering::Relaxed);
    cq.memory().consumer().store(START, Ordering::Relaxed);
    assert_eq!(tx.available(), Available::Entries(1));
    assert_eq!(fill.take(&mut [0; 4]), 1);
    assert_eq!(cq.reserve(9), 4);
}

#[test]
fn consuming_what_nobody_published_gains_no_room() {
    let ring = SharedProducer::new(RingMemory::<u64>::heap(4, START).unwrap(), START).unwrap();
    assert_eq!(ring.reserve(4), 4);
    // Nothing is published, yet the program says that it has consumed everything.
    ring.memory().consumer().store(START.wrapping_add(4), Ordering::Relaxed);
    assert_eq!(ring.reserve(1), 0, "unfinished claims would share entries");
    assert!(ring.take_broken_report());
    ring.submit(&[1, 2, 3, 4]);
    assert_eq!(ring.reserve(4), 4, "now it may have");
}

#[test]
fn a_producer_word_that_the_program_wrote_is_put_right() {
    let ring = SharedProducer::new(RingMemory::<u64>::heap(4, START).unwrap(), START).unwrap();
    for nonsense in [START.wrapping_add(99), START.wrapping_sub(99), START.wrapping_add(1 << 31)] {
        ring.memory().producer().store(nonsense, Ordering::Relaxed);
        assert_eq!(ring.reserve(1), 1, "our own word is not what we count by");
        ring.submit(&[u64::from(nonsense)]);
        assert_eq!(Program(ring.memory()).consume(9), [u64::from(nonsense)]);
    }
}
