//! One run: senders that reserve, work and submit, and a consumer that takes everything and checks it.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use slipring::{
    ring::RingMemory,
    sync::{AtomicBool, Ordering, thread},
};

use super::{
    super::state::{Processors, pin, pin_to_any},
    clock::Clock,
    latency::Latency,
    layout::Geometry,
    queue::{Queue, Size, UnderTest},
    submit::Sender,
};

/// How long the consumer sleeps between two looks at the ring.
const NAP: Duration = Duration::from_micros(500);
/// How late the kernel may wake it.
const SLACK_NS: libc::c_ulong = 1000;

/// What is done with a packet between reserve and submit: arithmetic in four parts, before each a read of the geometry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Steps of a part.
    steps: u32,
}

impl Work {
    const PARTS: u32 = 4;

    /// Work that takes about `ns` nanoseconds on an idle processor of this machine.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and `as` saturates")]
    pub(super) fn of(ns: u32) -> Work {
        const STEPS: u32 = 200_000;
        let step = |_| {
            let start = Instant::now();
            std::hint::black_box(think(1, STEPS));
            start.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        // The fastest of several: load only slows them.
        let step_ns = (0..9).map(step).fold(f64::INFINITY, f64::min).max(0.01);
        Work { steps: (f64::from(ns) / f64::from(Work::PARTS) / step_ns).round() as u32 }
    }

    #[inline]
    fn on(self, geometry: &Geometry, mut value: u64) -> u64 {
        for part in 0..Work::PARTS {
            value = think(value.wrapping_add(geometry.read(part)), self.steps);
        }
        value
    }
}

/// Steps that each need the one before.
#[inline]
fn think(mut value: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    value
}

/// What a run is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    pub clock: &'a Clock,
    pub processors: Processors,
    pub size: Size,
    /// Places of a reservation.
    pub batch: u32,
    /// Submit them at once instead of one by one.
    pub at_once: bool,
    pub work: Work,
    pub time: Duration,
    /// Packets after which a sender stops before the time is over.
    pub packets: u64,
}

/// What a sender is told.
#[derive(Debug)]
pub(super) struct Task<'a> {
    plan: Plan<'a>,
    number: u32,
    go: &'a CachePadded<AtomicBool>,
    stop: &'a CachePadded<AtomicBool>,
}

/// What a sender did.
#[derive(Debug)]
pub(super) struct Sent {
    packets: u64,
    /// Compare-and-swaps of reserve that did not succeed.
    lost: u64,
    /// Calls of reserve that found the queue full.
    refused: u64,
    reserve: Latency,
    submit: Latency,
    /// Longest time without a successful reserve.
    starved_ns: f64,
}

/// What came out of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub seconds: f64,
    /// Of each sender.
    pub packets: Vec<u64>,
    pub lost: u64,
    pub refused: u64,
    pub reserve: Latency,
    pub submit: Latency,
    pub starved_ns: f64,
}

/// The sender's loop, compiled for each queue.
pub(super) fn send<Q: Queue>(queue: &Q, task: &Task<'_>) -> Sent {
    let Plan { clock, batch, at_once, work, packets: most, .. } = task.plan;
    let mut sent =
        Sent { packets: 0, lost: 0, refused: 0, reserve: Latency::new(), submit: Latency::new(), starved_ns: 0.0 };
    let mut sender = Sender::new(task.number);
    let mut addresses = vec![0; batch as usize];
    let mut value = u64::from(task.number);
    while !task.go.load(Ordering::Acquire) {
        thread::yield_now();
    }
    let mut last = clock.stop();
    let mut longest = 0;
    while !task.stop.load(Ordering::Relaxed) && sent.packets < most {
        let want = u64::from(batch).min(most - sent.packets);
        let start = clock.start();
        let places = queue.reserve(u32::try_from(want).unwrap_or(batch), &mut sent.lost);
        let stop = clock.stop();
        let Some(places) = places else {
            sent.refused += 1;
            thread::yield_now();
            continue;
        };
        sent.reserve.record(clock, start, stop);
        longest = longest.max(stop.saturating_sub(last));
        last = stop;
        let addresses = &mut addresses[..places.count as usize];
        let mut index = places.first;
        for slot in addresses.iter_mut() {
            value = work.on(queue.geometry(), value);
            sent.packets += 1;
            *slot = Check::address(task.number, sent.packets);
            if !at_once {
                let start = clock.start();
                queue.submit(&mut sender, index, &[*slot]);
                sent.submit.record(clock, start, clock.stop());
            }
            index = index.wrapping_add(1);
        }
        if at_once {
            let start = clock.start();
            queue.submit(&mut sender, places.first, addresses);
            sent.submit.record(clock, start, clock.stop());
        }
    }
    if sent.packets < most {
        longest = longest.max(clock.stop().saturating_sub(last));
    }
    sent.starved_ns = clock.ns(longest);
    std::hint::black_box(value);
    sent
}

/// The consumer's books: from each sender the packets 1, 2, 3, ... and nothing else, whoever's come first.
#[derive(Debug)]
pub(super) struct Check {
    /// The last packet of each sender.
    last: Vec<u64>,
    /// The first thing that was wrong.
    fault: Option<String>,
}

impl Check {
    /// Bits of a packet's number.
    const NUMBER: u32 = 48;

    pub(super) fn new(senders: u32) -> Check {
        Check { last: vec![0; senders as usize], fault: None }
    }

    /// What a sender writes for its `packet`-th packet, from 1; never 0.
    #[inline]
    pub(super) fn address(sender: u32, packet: u64) -> u64 {
        u64::from(sender) << Self::NUMBER | packet
    }

    /// What stood in the next entry.
    #[inline]
    pub(super) fn take(&mut self, address: u64) {
        let (sender, packet) = (address >> Self::NUMBER, address & ((1 << Self::NUMBER) - 1));
        match self.last.get_mut(usize::try_from(sender).unwrap_or(usize::MAX)) {
            Some(last) if packet == *last + 1 => *last = packet,
            Some(last) => {
                let after = *last;
                self.fault.get_or_insert_with(|| format!("packet {packet} of sender {sender} came after {after}"));
            }
            None => {
                self.fault.get_or_insert_with(|| format!("{address:#x} was never submitted"));
            }
        }
    }

    /// Whether all that was sent, by each sender, has come.
    pub(super) fn end(self, sent: &[u64]) -> Result<(), String> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.last != sent => Err(format!("sent were {sent:?} packets, and {:?} came", self.last)),
            None => Ok(()),
        }
    }
}

/// Take what is in the ring, from the index `from`; returns the index behind it.
fn drain(ring: &RingMemory<u64>, mut from: u32, check: &mut Check) -> u32 {
    // C and D of `slipring::ring`; the consumer is the program here.
    let ready = ring.producer().load(Ordering::Acquire);
    if ready.wrapping_sub(from) > ring.entries() {
        check.fault.get_or_insert_with(|| format!("the producer index {ready} is more than a ring ahead of {from}"));
        return from;
    }
    while from != ready {
        check.take(ring.read(from));
        // An entry that is published without having been written is found out.
        ring.write(from, 0);
        from = from.wrapping_add(1);
    }
    ring.consumer().store(from, Ordering::Release);
    from
}

/// Do one run on a new queue. The error says what was lost, doubled or misplaced.
pub(super) fn run(queue: &dyn UnderTest, plan: &Plan<'_>) -> Result<Outcome, String> {
    let flag = || CachePadded::new(AtomicBool::new(false));
    let (go, stop, over) = (flag(), flag(), flag());
    let senders = plan.size.senders;
    let (sent, check, seconds) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            pin_to_any(plan.processors.all());
            // SAFETY: a number of this thread's; no pointers.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
            let (mut check, mut index) = (Check::new(senders), plan.size.start);
            loop {
                // Before the look at the ring: what was submitted before `over` is in it.
                let last = over.load(Ordering::Acquire);
                index = drain(queue.ring(), index, &mut check);
                if last {
                    return check;
                }
                thread::sleep(NAP);
            }
        });
        let start = |number| {
            let task = Task { plan: *plan, number, go: &go, stop: &stop };
            scope.spawn(move || {
                let processor = plan.processors.all().nth(number as usize % plan.processors.all().count());
                processor.into_iter().for_each(pin);
                queue.send(&task)
            })
        };
        let threads: Vec<_> = (0..senders).map(start).collect();
        thread::sleep(Duration::from_millis(3));
        let began = Instant::now();
        go.store(true, Ordering::Release);
        while began.elapsed() < plan.time && !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(plan.time.saturating_sub(began.elapsed()).min(Duration::from_millis(50)));
        }
        let seconds = began.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let sent: Vec<Sent> = threads.into_iter().map(|t| t.join().expect("a sender does not panic")).collect();
        over.store(true, Ordering::Release);
        (sent, consumer.join().expect("the consumer does not panic"), seconds)
    });
    let packets: Vec<u64> = sent.iter().map(|s| s.packets).collect();
    check.end(&packets)?;
    let mut outcome = Outcome {
        seconds,
        packets,
        lost: 0,
        refused: 0,
        reserve: Latency::new(),
        submit: Latency::new(),
        starved_ns: 0.0,
    };
    for sent in sent {
        outcome.lost += sent.lost;
        outcome.refused += sent.refused;
        outcome.reserve.add(&sent.reserve);
        outcome.submit.add(&sent.submit);
        outcome.starved_ns = outcome.starved_ns.max(sent.starved_ns);
    }
    Ok(outcome)
}
