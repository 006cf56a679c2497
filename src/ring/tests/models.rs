//! loom models of the shared rings: `RUSTFLAGS="--cfg loom" cargo test --release --lib ring`.
//!
//! Every model counts the outcomes that it is there for, outside the model, and fails if one never occurred. Threads are
//! few and bounds low so that the exploration ends, in seconds each. By hand, and for hours, with one more preemption and
//! three senders: `LOOM_MAX_DURATION=7200 RUSTFLAGS="--cfg loom --cfg loom_long"`.

use core::time::Duration;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU32 as Count, Ordering::Relaxed},
    },
};

use super::{super::*, Program};
use crate::sync::{Arc, thread};

/// Two entries before the index wraps.
const START: u32 = u32::MAX - 1;

/// How often each outcome occurred over all runs of a model.
#[derive(Default)]
pub(super) struct Outcomes(Mutex<BTreeMap<&'static str, u64>>);

impl Outcomes {
    pub(super) fn saw(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }
}

/// Explore `model` and require that each of `expected` was an outcome.
pub(super) fn explore(
    name: &str,
    preemptions: usize,
    expected: &[&str],
    model: impl Fn(&Outcomes) + Send + Sync + 'static,
) {
    let outcomes = std::sync::Arc::new(Outcomes::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions + usize::from(cfg!(loom_long)));
    if !cfg!(loom_long) {
        builder.max_duration = Some(Duration::from_secs(300));
    }
    let (inside, runs) = (outcomes.clone(), std::sync::Arc::new(Count::new(0)));
    let counted = runs.clone();
    let began = std::time::Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model(&inside);
    });
    let outcomes = outcomes.0.lock().unwrap();
    println!("{name}: {} runs in {:.1?}, {outcomes:?}", runs.load(Relaxed), began.elapsed());
    for what in expected {
        assert!(outcomes.contains_key(what), "{name} never saw: {what}");
    }
}

/// Places that are reserved and not yet given back by cancel or by the program, counted outside the model.
///
/// Counted up right after the step that takes and down right before the step that gives back, so never too many.
struct Held {
    now: Count,
    most: u32,
}

impl Held {
    fn new(most: u32) -> std::sync::Arc<Held> {
        std::sync::Arc::new(Held { now: Count::new(0), most })
    }

    fn took(&self, n: u32) {
        let now = self.now.fetch_add(n, Relaxed) + n;
        assert!(now <= self.most, "over-reserved: {now} places of {}", self.most);
    }

    fn gives_back(&self, n: u32) {
        self.now.fetch_sub(n, Relaxed);
    }
}

fn completion_ring(entries: u32) -> Arc<SharedProducer<u64>> {
    Arc::new(SharedProducer::new(RingMemory::model(entries, START), START).unwrap())
}

/// Everything that was submitted is visible without another submit, once; nothing is reserved any more.
fn settle(ring: &SharedProducer<u64>, mut consumed: Vec<u64>, mut submitted: Vec<u64>) -> Vec<u64> {
    let rest = Program(ring.memory()).consume(u32::MAX);
    consumed.extend(rest);
    let in_order = consumed.clone();
    consumed.sort_unstable();
    submitted.sort_unstable();
    assert_eq!(consumed, submitted, "lost, twice, or made up");
    assert_eq!((ring.in_flight(), ring.free()), (0, ring.entries()));
    assert!(!ring.take_broken_report(), "a sound ring was called broken");
    in_order
}

/// Two reservers, a canceller and the program over one free place: a place goes to one of them at a time, and what is
/// cancelled or consumed can be had again.
#[test]
fn a_place_is_never_given_twice() {
    let expected = ["one refused", "a place used again", "both refused for a place that was cancelled"];
    explore("reserve, cancel, consume", 2, &expected, |outcomes| {
        let (ring, held) = (completion_ring(1), Held::new(1));
        let send = |value: u64| {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let n = ring.reserve(1);
                held.took(n);
                if n == 1 {
                    ring.submit(&[value]);
                }
                if n == 1 { vec![value] } else { vec![] }
            })
        };
        let senders = [send(1), send(2)];
        let canceller = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let n = ring.reserve(1);
                held.took(n);
                held.gives_back(n);
                ring.cancel(n);
                n
            })
        };
        let program = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || Program(ring.memory()).consume_telling(1, |n| held.gives_back(n)))
        };
        let submitted: Vec<u64> = senders.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let cancelled = canceller.join().unwrap();
        let consumed = program.join().unwrap();
        match (submitted.len(), cancelled) {
            (2, _) => outcomes.saw("a place used again"),
            (1, _) => outcomes.saw("one refused"),
            (_, 1) => outcomes.saw("both refused for a place that was cancelled"),
            _ => panic!("a free place was refused to everyone"),
        }
        settle(&ring, consumed, submitted);
    });
}

/// The model above can fail: with the test for room apart from taking it, two senders both see the last place.
#[test]
#[should_panic(expected = "over-reserved")]
fn two_separate_steps_over_reserve() {
    explore("test, then take", 3, &[], |_| {
        let (memory, held) = (Arc::new(RingMemory::<u64>::model(1, START)), Held::new(1));
        let taken = Arc::new(AtomicU32::new(START));
        let senders = [(); 2].map(|()| {
            let (memory, held, taken) = (memory.clone(), held.clone(), taken.clone());
            thread::spawn(move || {
                let consumer = memory.consumer().load(Ordering::Acquire);
                if taken.load(Ordering::Acquire).wrapping_sub(consumer) < memory.entries() {
                    taken.fetch_add(1, Ordering::AcqRel);
                    held.took(1);
                }
            })
        });
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// Two submitters and the program: each submit is seen whole and in order, whoever publishes it, and none is left behind
/// when both have returned.
#[test]
fn nothing_is_lost_between_mark_and_look() {
    let expected = ["first before second", "second before first", "returned before it was visible", "seen half way"];
    explore("submit against submit", 3, &expected, |outcomes| {
        let ring = completion_ring(4);
        assert_eq!(ring.reserve(4), 4);
        let submit = |values: [u64; 2]| {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.submit(&values);
                // Had this thread published anything, or seen it published, this load could not be so old.
                ring.memory().producer().load(Ordering::Relaxed).wrapping_sub(START)
            })
        };
        let submitters = [submit([10, 11]), submit([20, 21])];
        let program = {
            let ring = ring.clone();
            thread::spawn(move || Program(ring.memory()).consume(4))
        };
        let visible = submitters.map(|t| t.join().unwrap());
        let consumed = program.join().unwrap();
        if visible.contains(&0) {
            outcomes.saw("returned before it was visible");
        }
        if consumed.len() == 2 {
            outcomes.saw("seen half way");
        }
        assert!(consumed.len() % 2 == 0, "published in the middle of a submit: {consumed:?}");
        match *settle(&ring, consumed, vec![10, 11, 20, 21]) {
            [10, 11, 20, 21] => outcomes.saw("first before second"),
            [20, 21, 10, 11] => outcomes.saw("second before first"),
            ref other => panic!("torn apart: {other:?}"),
        }
    });
}

/// Three claims that finish at once: one may wait for two others, and be published by a thread that has moved on twice.
#[test]
fn nothing_is_lost_behind_two_others() {
    let expected = ["left to another", "seen published"];
    explore("three finish", 3, &expected, |outcomes| {
        let ring = completion_ring(4);
        assert_eq!(ring.reserve(3), 3);
        let finishers = [1, 2, 3].map(|value| {
            let (ring, claim) = (ring.clone(), ring.claim(&[value]));
            thread::spawn(move || {
                ring.finish(claim);
                ring.memory().producer().load(Ordering::Relaxed).wrapping_sub(START)
            })
        });
        for finisher in finishers {
            outcomes.saw(if finisher.join().unwrap() == 0 { "left to another" } else { "seen published" });
        }
        settle(&ring, vec![], vec![1, 2, 3]);
    });
}

/// A claim that is late, two submits behind it, and the program: whoever publishes has the entries of all others in view.
#[test]
fn entries_are_written_before_others_publish_them() {
    let expected = ["nothing yet", "one", "all"];
    explore("publish for others", 2, &expected, |outcomes| {
        let ring = completion_ring(4);
        assert_eq!(ring.reserve(3), 3);
        let late = {
            let (ring, claim) = (ring.clone(), ring.claim(&[1]));
            thread::spawn(move || ring.finish(claim))
        };
        let submitters = [2, 3].map(|value| {
            let ring = ring.clone();
            thread::spawn(move || ring.submit(&[value]))
        });
        let program = {
            let ring = ring.clone();
            thread::spawn(move || Program(ring.memory()).consume(4))
        };
        late.join().unwrap();
        submitters.map(|t| t.join().unwrap());
        let consumed = program.join().unwrap();
        outcomes.saw(["nothing yet", "one", "two", "all"][consumed.len()]);
        settle(&ring, consumed, vec![1, 2, 3]);
    });
}

/// Two senders that go round a ring of two while the program consumes: reserved places are named late, so a sender may write
/// an entry whose release only the other sender has seen.
#[test]
fn entries_are_free_before_they_are_written_again() {
    let expected = ["three sent", "full", "early reservation, late place"];
    explore("reserve against submit", 3, &expected, |outcomes| {
        let (ring, held) = (completion_ring(2), Held::new(2));
        let first = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let n = ring.reserve(1);
                held.took(n);
                let sent = if n == 1 { vec![10] } else { vec![] };
                ring.submit(&sent);
                sent
            })
        };
        let second = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let mut sent = Vec::new();
                for value in [20, 21] {
                    let n = ring.reserve(1);
                    held.took(n);
                    if n == 1 {
                        ring.submit(&[value]);
                        sent.push(value);
                    }
                }
                sent
            })
        };
        let program = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || Program(ring.memory()).consume_telling(1, |n| held.gives_back(n)))
        };
        let submitted: Vec<u64> = [first, second].into_iter().flat_map(|t| t.join().unwrap()).collect();
        let consumed = program.join().unwrap();
        outcomes.saw(if submitted.len() == 3 { "three sent" } else { "full" });
        // The first sender's only reservation came before the entry that it wrote was consumed, or after.
        let order = settle(&ring, consumed, submitted);
        if order == [20, 21, 10] {
            outcomes.saw("early reservation, late place");
        }
    });
}

/// Reserving more than one: each gets what is free and no more, in one step.
#[test]
fn a_batch_takes_what_is_there() {
    let expected = ["shared out", "one got all"];
    explore("reserve batches", 3, &expected, |outcomes| {
        let (ring, held) = (completion_ring(2), Held::new(2));
        let reservers = [(); 2].map(|()| {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let n = ring.reserve(2);
                held.took(n);
                let kept = n.min(1);
                held.gives_back(n - kept);
                ring.cancel(n - kept);
                n
            })
        });
        let got = reservers.map(|t| t.join().unwrap());
        outcomes.saw(if got.contains(&0) { "one got all" } else { "shared out" });
        let kept = got.map(|n| n.min(1)).iter().sum::<u32>();
        assert_eq!((ring.in_flight(), ring.free()), (kept, 2 - kept));
    });
}

/// Two takers and a program that refills: every entry is taken once, whole runs in order, and only entries that are there.
///
/// loom does not let a load see a later store, so that the copies come before the claim (F2, Release) rests on the
/// argument in `fill.rs` alone.
#[test]
fn a_fill_entry_is_taken_once() {
    let expected = ["both took", "one took all", "a refilled entry was taken"];
    explore("fill", 3, &expected, |outcomes| {
        let ring = Arc::new(SharedConsumer::new(RingMemory::model(2, START), START));
        assert_eq!(Program(ring.memory()).produce(&[1]), 1);
        let take = |max: usize| {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut out = [0; 2];
                let n = ring.take(&mut out[..max]);
                out[..n].to_vec()
            })
        };
        let takers = [take(1), take(2)];
        let program = {
            let ring = ring.clone();
            thread::spawn(move || Program(ring.memory()).produce(&[2, 3]))
        };
        let [first, second] = takers.map(|t| t.join().unwrap());
        let produced = 1 + program.join().unwrap();
        assert!(first.is_sorted() && second.is_sorted(), "{first:?} {second:?}");
        if first.iter().chain(&second).any(|v| *v > 2) {
            outcomes.saw("a refilled entry was taken");
        }
        outcomes.saw(if first.is_empty() || second.is_empty() { "one took all" } else { "both took" });
        let taken = low((first.len() + second.len()) as u64);
        let word = ring.memory().consumer().load(Ordering::Acquire);
        assert_eq!(word, START.wrapping_add(taken), "the program is told what was taken");
        let mut rest = [0; 2];
        let n = ring.take(&mut rest);
        let mut all = [first, second, rest[..n].to_vec()].concat();
        all.sort_unstable();
        assert_eq!(all, (1..=u64::from(produced)).collect::<Vec<_>>(), "lost, twice, or made up");
        assert!(!ring.take_broken_report(), "a sound ring was called broken");
    });
}

/// The TX ring passes from thread to thread with the token, while a third looks at how full it is.
#[test]
fn the_tx_ring_follows_its_token() {
    let expected = ["each thread took one", "one thread took both", "refilled", "entries waiting"];
    explore("tx", 1, &expected, |outcomes| {
        let ring = Arc::new(Consumer::new(RingMemory::<u64>::model(2, START), START));
        let token = Arc::new(crate::sync::Mutex::new(()));
        let drain = || {
            let (ring, token) = (ring.clone(), token.clone());
            thread::spawn(move || {
                let _token = token.lock().unwrap();
                let Available::Entries(n) = ring.available() else { panic!("a sound ring was called broken") };
                let got: Vec<u64> = (0..n).map(|i| ring.get(i)).collect();
                ring.release(n);
                got
            })
        };
        let drains = [drain(), drain()];
        let program = {
            let ring = ring.clone();
            thread::spawn(move || {
                let program = Program(ring.memory());
                assert_eq!(program.produce(&[1]), 1);
                program.produce(&[2, 3])
            })
        };
        let observer = {
            let ring = ring.clone();
            thread::spawn(move || ring.queued())
        };
        let [first, second] = drains.map(|t| t.join().unwrap());
        let (produced, queued) = (1 + program.join().unwrap(), observer.join().unwrap());
        if queued > 0 {
            outcomes.saw("entries waiting");
        }
        match (first.len(), second.len()) {
            (1, 1) => outcomes.saw("each thread took one"),
            (2, 0) | (0, 2) => outcomes.saw("one thread took both"),
            _ => {}
        }
        if produced == 3 {
            outcomes.saw("refilled");
        }
        let Available::Entries(rest) = ring.available() else { panic!("a sound ring was called broken") };
        let mut all = [first, second, (0..rest).map(|i| ring.get(i)).collect()].concat();
        all.sort_unstable();
        assert_eq!(all, (1..=u64::from(produced)).collect::<Vec<_>>(), "lost, twice, or made up");
    });
}

/// Three reservers, which takes hours: by hand.
#[cfg(loom_long)]
#[test]
fn three_senders() {
    explore("three senders", 2, &["all sent", "one refused"], |outcomes| {
        let (ring, held) = (completion_ring(2), Held::new(2));
        let senders = [1, 2, 3].map(|value| {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || {
                let n = ring.reserve(1);
                held.took(n);
                let sent = if n == 1 { vec![value] } else { vec![] };
                ring.submit(&sent);
                sent
            })
        });
        let program = {
            let (ring, held) = (ring.clone(), held.clone());
            thread::spawn(move || Program(ring.memory()).consume_telling(1, |n| held.gives_back(n)))
        };
        let submitted: Vec<u64> = senders.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let consumed = program.join().unwrap();
        outcomes.saw(if submitted.len() == 3 { "all sent" } else { "one refused" });
        settle(&ring, consumed, submitted);
    });
}
