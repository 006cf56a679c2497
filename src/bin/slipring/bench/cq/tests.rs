//! Every variant is correct: a wrong one's figure would be worthless. The consumer's books are those of every run.

use std::time::Duration;

use super::{
    super::state::Processors,
    clock::Clock,
    queue::{Size, make},
    run::{Check, Plan, Work, run},
    variant::{Variant, select},
};

/// A small ring whose indices wrap early on: full most of the time, each entry used many times.
const ENTRIES: u32 = 64;
const START: u32 = u32::MAX - 1000;

/// Each of `senders` sends so many packets through the variant.
fn send(variant: Variant, senders: u32, packets: u64, work: u32) {
    let clock = Clock::of_nanoseconds();
    let size = Size { senders, entries: ENTRIES, start: START };
    let plan = Plan {
        clock: &clock,
        processors: Processors::choose(None).unwrap(),
        size,
        // More than fits, so that some reservations get less than they ask for.
        batch: if variant.is_batched() { 48 } else { 1 },
        at_once: variant.at_once,
        work: Work::of(work),
        time: Duration::from_secs(120),
        packets,
    };
    let outcome = run(&*make(variant, size).unwrap(), &plan).unwrap_or_else(|e| panic!("{variant}: {e}"));
    assert_eq!(outcome.packets, vec![packets; senders as usize], "{variant}: not all was sent");
    assert_eq!(
        outcome.reserve.calls() == outcome.submit.calls(),
        variant.at_once || !variant.is_batched(),
        "{variant}"
    );
}

/// Protects the figures: every place written once, nothing lost, doubled or out of its sender's order, over the wrap of the
/// indices, with more senders than processors.
#[test]
fn every_variant_delivers_each_packet_once_and_in_order() {
    for variant in select(&[]).unwrap() {
        // Those who wait for their turn need a turn of the scheduler for each packet when senders outnumber processors.
        let waits = variant.to_string().contains("/wait");
        send(variant, if waits { 2 } else { 6 }, if waits { 800 } else { 1500 }, 0);
    }
}

/// Protects combinations that are not measured unless they are asked for.
#[test]
fn combinations_by_hand_deliver_too() {
    for name in ["batch/wait-batch", "pool-lock/list/packed", "batch/list/packed", "batch/shared-lock-batch/packed"] {
        send(name.parse().unwrap(), 2, 1500, 50);
    }
}

/// Protects the protection: the books notice what a wrong variant would do.
#[test]
fn the_books_notice_what_is_wrong() {
    let books = |taken: &[(u32, u64)], sent: &[u64]| {
        let mut check = Check::new(2);
        taken.iter().for_each(|(sender, packet)| check.take(Check::address(*sender, *packet)));
        check.end(sent)
    };
    books(&[(0, 1), (1, 1), (1, 2), (0, 2)], &[2, 2]).unwrap();
    for (taken, sent, why) in [
        (&[(0, 1), (0, 1)][..], [1, 0], "packet 1 of sender 0 came after 1"),
        (&[(0, 1), (0, 3)], [3, 0], "packet 3 of sender 0 came after 1"),
        (&[(0, 1), (0, 0)], [1, 0], "packet 0 of sender 0 came after 1"),
        (&[(7, 1)], [0, 0], "was never submitted"),
        (&[(0, 1)], [1, 1], "sent were [1, 1]"),
    ] {
        let message = books(taken, &sent).unwrap_err();
        assert!(message.contains(why), "{message}");
    }
}
