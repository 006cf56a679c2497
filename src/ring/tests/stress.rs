//! Eight threads on however many cores there are, small rings, indices that wrap on the way: nothing lost, nothing twice,
//! nothing torn, and no healthy ring called broken although threads are preempted between any two loads.

use std::time::{Duration, Instant};

use super::{super::*, Program};
use crate::{sync::thread, uapi::Desc};

const THREADS: u32 = 8;
/// Entries a thread.
const EACH: u32 = 4_000;
const START: u32 = u32::MAX - 10_000;

/// A cheap generator, so that each run of a thread does the same.
struct Dice(u32);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % sides
    }
}

/// Panics instead of hanging when something was lost.
fn rest(since: Instant) {
    assert!(since.elapsed() < Duration::from_secs(120), "entries are missing");
    thread::yield_now();
}

/// One sender: batches of 1 to 6, some places cancelled; the descriptor says who, which, and how many of the batch follow.
fn send(ring: &SharedProducer<Desc>, who: u32) {
    let (mut dice, mut next, began) = (Dice(who + 1), 0, Instant::now());
    while next < EACH {
        let got = ring.reserve(1 + dice.roll(6));
        assert!(ring.in_flight() <= ring.entries());
        let spare = dice.roll(got + 1);
        ring.cancel(spare);
        let n = (got - spare).min(EACH - next);
        ring.cancel(got - spare - n);
        let batch: Vec<Desc> = (0..n)
            .map(|i| Desc { addr: u64::from(who) << 32 | u64::from(next + i), len: n - i, options: who })
            .collect();
        ring.submit(&batch);
        next += n;
        if n == 0 {
            rest(began);
        }
    }
}

#[test]
fn eight_senders_and_the_program() {
    for entries in [4, 64] {
        let ring = SharedProducer::new(RingMemory::heap(entries, START).unwrap(), START).unwrap();
        let began = Instant::now();
        thread::scope(|scope| {
            for who in 0..THREADS {
                let ring = &ring;
                scope.spawn(move || send(ring, who));
            }
            let (mut next, mut total) = ([0; THREADS as usize], 0);
            let mut expected: Option<(u32, u32)> = None;
            while total < THREADS * EACH {
                let got = Program(ring.memory()).consume(u32::MAX);
                for desc in &got {
                    let (who, which) = (low(desc.addr >> 32), low(desc.addr));
                    assert_eq!(desc.options, who, "torn");
                    assert_eq!(which, next[who as usize], "lost, twice or out of order");
                    next[who as usize] += 1;
                    if let Some(chain) = expected {
                        assert_eq!((who, desc.len), chain, "something between the entries of a batch");
                    }
                    expected = (desc.len > 1).then_some((who, desc.len - 1));
                }
                assert_eq!(expected, None, "published in the middle of a batch");
                total += low(got.len() as u64);
                if got.is_empty() {
                    rest(began);
                }
            }
        });
        assert!(!ring.take_broken_report(), "a healthy ring of {entries} was called broken");
        assert_eq!((ring.free(), ring.in_flight()), (entries, 0));
        assert!(Program(ring.memory()).consume(1).is_empty());
    }
}

#[test]
fn eight_takers_and_the_program() {
    for entries in [4, 64] {
        let ring = SharedConsumer::new(RingMemory::heap(entries, START).unwrap(), START);
        let (began, total) = (Instant::now(), THREADS * EACH);
        let done = crate::sync::AtomicU32::new(0);
        let taken = thread::scope(|scope| {
            let take = |who: u32| {
                let (ring, done) = (&ring, &done);
                move || {
                    let (mut dice, mut taken, mut out) = (Dice(who + 1), vec![], [0; 6]);
                    while done.load(Ordering::Relaxed) < total {
                        let n = ring.take(&mut out[..1 + dice.roll(6) as usize]);
                        assert!(out[..n].windows(2).all(|w| w[0] + 1 == w[1]), "not what stood there: {out:?}");
                        taken.extend_from_slice(&out[..n]);
                        done.fetch_add(low(n as u64), Ordering::Relaxed);
                        if n == 0 {
                            rest(began);
                        }
                    }
                    taken
                }
            };
            let takers: Vec<_> = (0..THREADS).map(|who| scope.spawn(take(who))).collect();
            let mut next = 0;
            while next < u64::from(total) {
                let batch: Vec<u64> = (next..u64::from(total)).take(entries as usize).collect();
                let n = Program(ring.memory()).produce(&batch);
                next += u64::from(n);
                if n == 0 {
                    rest(began);
                }
            }
            takers.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(taken.iter().all(|t| t.is_sorted()), "a thread took backwards");
        let mut all = taken.concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..u64::from(total)), "lost or twice");
        assert!(!ring.take_broken_report(), "a healthy ring of {entries} was called broken");
        assert_eq!(ring.memory().consumer().load(Ordering::Relaxed), START.wrapping_add(total));
    }
}
