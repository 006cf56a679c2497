//! Random operations on each ring beside a sequential model of it, with indices that start near 2^32 and a program that
//! writes nonsense over them. Concurrency is the business of `models.rs` and `stress.rs`; here a submit is cut in two, so
//! that claims finish in any order.

use proptest::{collection::vec, prelude::*};

use super::super::{shared::Claim, *};
use crate::uapi::Desc;

/// Rings of 1 to 32 entries.
fn entries() -> impl Strategy<Value = u32> {
    (0..6_u32).prop_map(|shift| 1 << shift)
}

/// Where indices start: mostly just before they wrap.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![4 => (u32::MAX - 64)..=u32::MAX, 1 => Just(0), 1 => any::<u32>()]
}

/// What a hostile program writes over an index, as a distance from where it belongs: near it, a ring away, far.
fn nonsense() -> impl Strategy<Value = u32> {
    prop_oneof![(0..80_u32), (0..80_u32).prop_map(u32::wrapping_neg), any::<u32>()]
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

fn write_word(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

fn word(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[derive(Clone, Debug)]
enum Producing {
    Reserve(u32),
    Cancel(u32),
    Claim(u32),
    /// Finish one of the unfinished claims, by choice.
    Finish(prop::sample::Index),
    Consume(u32),
    WriteConsumer(u32),
    WriteProducer(u32),
    /// The program keeps the rules again: it has consumed everything that is published.
    Sane,
}

fn producing() -> impl Strategy<Value = Producing> {
    prop_oneof![
        6 => (0..40_u32).prop_map(Producing::Reserve),
        2 => (0..10_u32).prop_map(Producing::Cancel),
        6 => (1..10_u32).prop_map(Producing::Claim),
        6 => any::<prop::sample::Index>().prop_map(Producing::Finish),
        4 => (0..40_u32).prop_map(Producing::Consume),
        1 => nonsense().prop_map(Producing::WriteConsumer),
        1 => nonsense().prop_map(Producing::WriteProducer),
        2 => Just(Producing::Sane),
    ]
}

/// What a ring that we produce should do. Positions count from the ring's start.
struct ProducerModel {
    entries: u32,
    start: u32,
    taken: u64,
    /// Values by position, as claimed.
    claimed: Vec<u64>,
    /// First position of each unfinished claim, in order, with what finishes it.
    unfinished: Vec<(u64, Claim)>,
    /// What the program has consumed while it kept the rules.
    consumed: u64,
    /// The consumer word is the program's honest one.
    sane: bool,
    reported: bool,
}

impl ProducerModel {
    fn index(&self, position: u64) -> u32 {
        self.start.wrapping_add(low(position))
    }

    fn head(&self) -> u64 {
        self.unfinished.first().map_or(self.claimed.len() as u64, |(first, _)| *first)
    }

    fn used(&self, consumer: u32) -> u32 {
        self.index(self.taken).wrapping_sub(consumer)
    }

    fn step(&mut self, ring: &SharedProducer<u64>, op: Producing) -> Result<(), TestCaseError> {
        let memory = ring.memory();
        let reserved = low(self.taken - self.claimed.len() as u64);
        match op {
            Producing::Reserve(n) => {
                let used = self.used(word(memory.consumer()));
                let expected = n.min(self.entries.saturating_sub(used));
                let got = ring.reserve(n);
                // The program says that it consumed what is not published: refused at the latest when claims would collide.
                let ahead = u64::from(used) < self.taken - self.head();
                prop_assert!(got == expected || ahead && got == 0, "reserved {got}, expected {expected}");
                self.taken += u64::from(got);
                prop_assert!(self.taken - self.head() <= u64::from(self.entries), "unfinished claims share entries");
                self.check_report(ring, used > self.entries, ahead)?;
            }
            Producing::Cancel(n) => {
                let n = n.min(reserved);
                ring.cancel(n);
                self.taken -= u64::from(n);
            }
            Producing::Claim(n) => {
                let n = n.min(reserved);
                if n > 0 {
                    let first = self.claimed.len() as u64;
                    let values: Vec<u64> = (0..u64::from(n)).map(|i| (first + i) * 0x1_0001).collect();
                    self.unfinished.push((first, ring.claim(&values)));
                    self.claimed.extend(values);
                }
            }
            Producing::Finish(which) => {
                if !self.unfinished.is_empty() {
                    let at = which.index(self.unfinished.len());
                    let (first, claim) = self.unfinished.remove(at);
                    ring.finish(claim);
                    // Finished behind an unfinished one: still counts as unpublished, so only the first moves the head.
                    prop_assert_eq!(word(memory.producer()), self.index(self.head()), "claim {}", first);
                }
            }
            Producing::Consume(n) => {
                let n = n.min(low(self.head() - self.consumed));
                for _ in 0..n * u32::from(self.sane) {
                    let at = usize::try_from(self.consumed).expect("small");
                    prop_assert_eq!(memory.read(self.index(self.consumed)), self.claimed[at]);
                    self.consumed += 1;
                    write_word(memory.consumer(), self.index(self.consumed));
                }
            }
            Producing::WriteConsumer(off) => {
                write_word(memory.consumer(), self.index(self.consumed).wrapping_add(off));
                self.sane = false;
            }
            Producing::WriteProducer(off) => write_word(memory.producer(), self.index(self.head()).wrapping_add(off)),
            Producing::Sane => {
                self.consumed = self.head();
                self.sane = true;
                write_word(memory.consumer(), self.index(self.consumed));
            }
        }
        prop_assert_eq!(u64::from(ring.in_flight()), self.taken - self.head());
        prop_assert_eq!(ring.free(), self.entries.saturating_sub(self.used(word(memory.consumer()))));
        Ok(())
    }

    fn check_report(&mut self, ring: &SharedProducer<u64>, must: bool, may: bool) -> Result<(), TestCaseError> {
        let report = ring.take_broken_report();
        prop_assert!(!report || (must || may) && !self.reported, "reported twice, or for a sound ring");
        prop_assert!(report || self.reported || !must, "not reported");
        self.reported |= report;
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Consuming {
    Produce(u32),
    Take(usize),
    WriteProducer(u32),
    WriteConsumer(u32),
    Sane,
}

fn consuming() -> impl Strategy<Value = Consuming> {
    prop_oneof![
        4 => (0..40_u32).prop_map(Consuming::Produce),
        4 => (0..40_usize).prop_map(Consuming::Take),
        1 => nonsense().prop_map(Consuming::WriteProducer),
        1 => nonsense().prop_map(Consuming::WriteConsumer),
        2 => Just(Consuming::Sane),
    ]
}

/// What a ring that we consume should do: an index, and whatever stands in the entries.
struct ConsumerModel {
    entries: u32,
    /// First index that we have not taken.
    index: u32,
    contents: Vec<u64>,
    /// The program's next value.
    value: u64,
    reported: bool,
}

impl ConsumerModel {
    fn new(entries: u32, start: u32) -> ConsumerModel {
        ConsumerModel { entries, index: start, contents: vec![0; entries as usize], value: 1, reported: false }
    }

    fn slot(&mut self, index: u32) -> &mut u64 {
        &mut self.contents[(index % self.entries) as usize]
    }

    /// What is there to take; `None` for a broken ring.
    fn ready<T: Entry>(&self, memory: &RingMemory<T>) -> Option<u32> {
        Some(word(memory.producer()).wrapping_sub(self.index)).filter(|n| *n <= self.entries)
    }

    /// The program's part of an operation; it trusts no word, as a program with cached indices.
    fn program<T: Entry>(&mut self, memory: &RingMemory<T>, op: &Consuming, entry: impl Fn(u64) -> T) {
        match *op {
            Consuming::Produce(n) => {
                let used = self.ready(memory).unwrap_or(self.entries);
                let producer = word(memory.producer());
                let n = n.min(self.entries - used);
                for i in 0..n {
                    let index = producer.wrapping_add(i);
                    *self.slot(index) = self.value;
                    memory.write(index, entry(self.value));
                    self.value += 1;
                }
                write_word(memory.producer(), producer.wrapping_add(n));
            }
            Consuming::WriteProducer(off) => write_word(memory.producer(), self.index.wrapping_add(off)),
            Consuming::WriteConsumer(off) => write_word(memory.consumer(), self.index.wrapping_add(off)),
            Consuming::Sane => write_word(memory.producer(), self.index),
            Consuming::Take(_) => {}
        }
    }

    fn check_report(&mut self, report: bool, broken: bool) -> Result<(), TestCaseError> {
        prop_assert_eq!(report, broken && !self.reported);
        self.reported |= report;
        Ok(())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn shared_producer(entries in entries(), start in start(), ops in vec(producing(), 0..120)) {
        let ring = SharedProducer::new(RingMemory::heap(entries, start).unwrap(), start).unwrap();
        let mut model = ProducerModel {
            entries, start, taken: 0, claimed: vec![], unfinished: vec![], consumed: 0, sane: true, reported: false,
        };
        for op in ops {
            model.step(&ring, op)?;
        }
    }

    #[test]
    fn shared_consumer(entries in entries(), start in start(), ops in vec(consuming(), 0..120)) {
        let ring = SharedConsumer::new(RingMemory::heap(entries, start).unwrap(), start);
        let mut model = ConsumerModel::new(entries, start);
        for op in ops {
            model.program(ring.memory(), &op, |value| value);
            let ready = model.ready(ring.memory());
            prop_assert_eq!(ring.available(), ready.unwrap_or(0));
            if let Consuming::Take(n) = op {
                let mut out = vec![u64::MAX; n];
                let got = ring.take(&mut out);
                prop_assert_eq!(got, n.min(ready.unwrap_or(0) as usize));
                for value in &out[..got] {
                    let index = model.index;
                    prop_assert_eq!(*value, *model.slot(index));
                    model.index = index.wrapping_add(1);
                }
                prop_assert!(out[got..].iter().all(|v| *v == u64::MAX), "wrote more than it took");
                if got > 0 {
                    prop_assert_eq!(word(ring.memory().consumer()), model.index);
                }
            }
            prop_assert_eq!(ring.index(), model.index);
            model.check_report(ring.take_broken_report(), ready.is_none())?;
        }
    }

    #[test]
    fn consumer(entries in entries(), start in start(), ops in vec(consuming(), 0..120)) {
        let entry = |n: u64| Desc { addr: n, len: low(n) ^ 0x55, options: 7 };
        let ring = Consumer::new(RingMemory::heap(entries, start).unwrap(), start);
        let mut model = ConsumerModel::new(entries, start);
        for op in ops {
            model.program(ring.memory(), &op, entry);
            let ready = model.ready(ring.memory());
            prop_assert_eq!(ring.available(), ready.map_or(Available::Broken, Available::Entries));
            prop_assert_eq!(ring.queued(), ready.unwrap_or(0));
            if let (Consuming::Take(n), Some(ready)) = (op, ready) {
                let n = ready.min(u32::try_from(n).expect("small"));
                for i in 0..n {
                    let index = model.index.wrapping_add(i);
                    let value = *model.slot(index);
                    prop_assert_eq!(ring.get(i), if value == 0 { Desc::default() } else { entry(value) });
                }
                ring.release(n);
                model.index = model.index.wrapping_add(n);
                prop_assert_eq!(word(ring.memory().consumer()), model.index);
            }
            prop_assert_eq!(ring.index(), model.index);
            model.check_report(ring.take_broken_report(), ready.is_none())?;
        }
    }
}
