//! loom models of sleeping across a ring: whoever slept was rung for, or had nothing to be rung for.

use super::{super::*, models::explore};
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, thread};

/// A ring, the word by which its receiver announces his sleep, and whether the bell was rung.
struct Wire {
    ring: SharedProducer<u64>,
    sleeper: Sleeper,
    ringer: Ringer,
    word: AtomicU32,
    rung: AtomicBool,
    waiters: AtomicU64,
}

impl Wire {
    fn new() -> Arc<Wire> {
        Arc::new(Wire {
            ring: SharedProducer::new(RingMemory::model(2, 0), 0).unwrap(),
            sleeper: Sleeper::new(),
            ringer: Ringer::new(),
            word: AtomicU32::new(0),
            rung: AtomicBool::new(false),
            waiters: AtomicU64::new(0),
        })
    }

    fn publish(&self, value: u64) {
        assert_eq!(self.ring.reserve(1), 1);
        self.ring.submit(&[value]);
        if self.ringer.must_ring(&self.word) {
            self.rung.store(true, Ordering::Relaxed);
        }
    }

    fn is_empty(&self) -> bool {
        self.ring.memory().producer().load(Ordering::Acquire) == 0
    }

    /// As a thread that is about to sleep. True: it would.
    fn would_sleep(&self) -> bool {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.sleeper.announce(&self.word);
        self.is_empty()
    }

    fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }
}

/// One who sleeps, and two who publish, of whom one may leave the publication to the other.
#[test]
fn no_wake_up_is_lost_between_two_publishers() {
    explore("sleep, publish, publish", 2, &["slept and rung", "awake"], |outcomes| {
        let wire = Wire::new();
        let publishers = [1, 2].map(|value| {
            let wire = wire.clone();
            thread::spawn(move || wire.publish(value))
        });
        let slept = wire.would_sleep();
        for publisher in publishers {
            publisher.join().unwrap();
        }
        assert!(!slept || wire.is_rung(), "asleep, and nobody rang");
        outcomes.saw(if slept { "slept and rung" } else { "awake" });
    });
}

/// Somebody who is awake takes an announcement back while another thread announces itself: the other's stays.
#[test]
fn no_wake_up_is_lost_when_another_thread_is_awake() {
    let expected = ["slept and rung", "awake", "taken back"];
    explore("sleep, be awake, publish", 3, &expected, |outcomes| {
        let wire = Wire::new();
        // Left by an earlier sleep.
        wire.sleeper.announce(&wire.word);
        let publisher = {
            let wire = wire.clone();
            thread::spawn(move || wire.publish(1))
        };
        let awake = {
            let wire = wire.clone();
            thread::spawn(move || {
                wire.sleeper.retract(&wire.word, || wire.waiters.load(Ordering::SeqCst) != 0);
                wire.word.load(Ordering::Relaxed) == 0
            })
        };
        let slept = wire.would_sleep();
        publisher.join().unwrap();
        assert!(!slept || wire.is_rung(), "asleep, and nobody rang");
        if awake.join().unwrap() {
            outcomes.saw("taken back");
        }
        outcomes.saw(if slept { "slept and rung" } else { "awake" });
    });
}
