//! A wire while its far end is held by another process: what both share, and the two directions.
//!
//! Sending: any thread reserves lines of a ring, writes a batch and publishes it, with the rings' own algorithm
//! (`crate::ring::SharedProducer`), whose state is in this process's memory. Of the ring itself only the producer index is
//! shared, so whatever happens to this process, the other sees whole batches.
//! Receiving: one thread at a time for each queue; who finds the token taken asks its holder to look again.
//!
//! The far process may be anything: its indices and what stands in its rings are checked, and once they make no sense the
//! session is *faulty*: nothing is sent or received any more until the far end is attached anew.

#![expect(clippy::cast_possible_truncation, reason = "counts of pieces and frames of one turn")]

use core::{mem::MaybeUninit, ptr::NonNull};
use std::os::fd::RawFd;

use super::{
    Facts, Frames, Port, Taken,
    flow::{self, Key},
    memory::{LINE, Memory, Word},
    records::{self, BATCH, Batch, Frame},
};
use crate::{
    device::{CachePadded, prefetch_write},
    engine::InternalFd,
    errno::{Errno, Result},
    ring::{Available, Consumer, Line, RingMemory, Ringer, SharedProducer, Sleeper, Token},
    sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Ordering},
    sys,
    uapi::Mapping,
    warn,
};

/// Rounds that a receiver does for others who found the token taken.
const ROUNDS: u32 = 8;

/// What was read is given back when it is this part of the ring.
const GIVE_BACK: u32 = 8;

/// What an end tells the other about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) queues: u32,
    pub(super) mtu: u32,
    /// Lines of each of its rings.
    pub(super) lines: u32,
    /// It would rather wait than lose frames.
    pub(super) wait: bool,
    /// How frames for it are spread over its queues.
    pub(super) key: Key,
}

/// Our ring to one queue of the far end.
#[derive(Debug)]
struct Outlet {
    ring: SharedProducer<Line>,
    /// The ring's consumer index as it was when there was no room last. The real one is on a line that the far end writes.
    seen: Arc<CachePadded<AtomicU32>>,
    bytes: Mapping,
    /// For the far receiver, when frames were published.
    ringer: Ringer,
    /// Ours who wait for room.
    sleeper: Sleeper,
}

/// The far end's ring to one of our queues.
#[derive(Debug)]
struct Inlet {
    ring: Consumer<Line>,
    bytes: Mapping,
    token: Token,
    /// Frames of the first batch that were delivered. Only written with the token.
    done: AtomicU32,
    /// Lines that were read and not given back yet. Only written with the token.
    kept: AtomicU32,
    /// For the far sender, when room was made.
    ringer: Ringer,
    /// Ours who wait for frames.
    sleeper: Sleeper,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    /// For messages: the wire's end.
    name: String,
    ours: Memory,
    theirs: Memory,
    /// What the far end says of itself.
    pub(super) about: About,
    /// The far process.
    pub(super) pid: u32,
    /// Number of the far end's memory.
    pub(super) generation: u64,
    /// The far end's bell, a socket that it handed over.
    bell: InternalFd,
    outlets: Box<[CachePadded<Outlet>]>,
    inlets: Box<[CachePadded<Inlet>]>,
    faulty: AtomicBool,
    /// The far end has gone. What it has sent can still be received.
    gone: AtomicBool,
    /// Frames taken from the far end.
    pub(super) received: CachePadded<AtomicU64>,
}

/// What was not sent although it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Lost {
    fn of(frames: &[Frame]) -> Lost {
        Lost { frames: frames.len() as u64, bytes: frames.iter().map(|f| u64::from(f.len)).sum() }
    }

    fn and(self, other: Lost) -> Lost {
        Lost { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Put {
    /// Leading frames that were sent or lost; the rest was refused.
    taken: usize,
    lost: Lost,
}

/// What a session begins with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) name: String,
    pub(super) facts: Facts,
    pub(super) ours: Memory,
    pub(super) theirs: Memory,
    pub(super) about: About,
    pub(super) pid: u32,
    pub(super) generation: u64,
    pub(super) bell: InternalFd,
}

impl Session {
    /// A session over both memories.
    pub(super) fn new(start: Start) -> Result<Session> {
        let Start { name, facts, ours, theirs, about, pid, generation, bell } = start;
        let outlet = |queue: u32| -> Result<_> {
            let seen = Arc::new(CachePadded::new(AtomicU32::new(0)));
            let consumer = NonNull::new(seen.as_ptr()).expect("an address");
            // SAFETY: our memory stays mapped, and `seen` allocated, while the outlet lives; the producer index is ours.
            let ring = unsafe { RingMemory::of_lines(ours.address(Word::Producer, queue), consumer, ours.lines()) };
            Ok(CachePadded::new(Outlet {
                ring: SharedProducer::new(ring, 0)?,
                seen,
                bytes: ours.ring(queue)?,
                ringer: Ringer::new(),
                sleeper: Sleeper::new(),
            }))
        };
        let inlet = |queue: u32| -> Result<_> {
            let (producer, consumer) = (theirs.address(Word::Producer, queue), ours.address(Word::Consumer, queue));
            // SAFETY: both memories stay mapped while the session lives; the consumer index is ours to write.
            let ring = unsafe { RingMemory::of_lines(producer, consumer, theirs.lines()) };
            Ok(CachePadded::new(Inlet {
                ring: Consumer::new(ring, 0),
                bytes: theirs.ring(queue)?,
                token: Token::new(),
                done: AtomicU32::new(0),
                kept: AtomicU32::new(0),
                ringer: Ringer::new(),
                sleeper: Sleeper::new(),
            }))
        };
        let outlets = (0..about.queues).map(outlet).collect::<Result<_>>()?;
        let inlets = (0..facts.queues).map(inlet).collect::<Result<_>>()?;
        Ok(Session {
            name,
            ours,
            theirs,
            about,
            pid,
            generation,
            bell,
            outlets,
            inlets,
            faulty: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            received: CachePadded::default(),
        })
    }

    /// Whether the far end has shown that it is not to be believed.
    #[inline]
    pub(super) fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::Relaxed)
    }

    /// Whether frames can be sent.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        !self.is_faulty() && !self.gone.load(Ordering::Relaxed)
    }

    /// The far end has gone.
    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn fault(&self, what: &str, queue: u32) {
        if !self.faulty.swap(true, Ordering::Relaxed) {
            warn!(
                "{}: {what} of the far end (process {}, queue {queue}) make no sense; no frame passes until that end is attached \
                 anew: restart that program, and see that both use the same version of the library",
                self.name, self.pid
            );
        }
    }

    /// Wake the far process. Its socket never lets us wait, and when it is full the process is awake already.
    #[cold]
    fn ring_far(&self) {
        let _ = sys::send(self.bell.number(), &[1], libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }

    /// Whether frames for this queue of the far end arrive anywhere.
    fn is_open(&self, queue: u32) -> bool {
        self.theirs.word(Word::Open, queue).load(Ordering::Acquire) != 0
    }

    /// Send whole frames of our queue `from`; without `wait` those for which there is no room are lost. Returns the pieces that were taken, and what
    /// of them was lost.
    pub(super) fn send(&self, from: u32, frames: Frames<'_>, wait: bool) -> (Taken, Lost) {
        let mut list = [const { MaybeUninit::<Frame>::uninit() }; BATCH];
        let (mut at, mut lost) = (0, Lost::default());
        while at < frames.len() {
            let n = records::split(frames, at, &mut list);
            // SAFETY: `split` wrote the first n; MaybeUninit<Frame> has Frame's layout.
            let batch = unsafe { core::slice::from_raw_parts(list.as_ptr().cast::<Frame>(), n) };
            let put = if self.outlets.len() == 1 {
                self.put(0, batch, frames, wait)
            } else {
                self.spread(from, batch, frames, wait)
            };
            lost = lost.and(put.lost);
            if let Some(refused) = batch.get(put.taken) {
                return (Taken { pieces: refused.first as usize }, lost);
            }
            at = (batch[n - 1].first + batch[n - 1].pieces) as usize;
        }
        (Taken { pieces: at }, lost)
    }

    /// A batch over several queues.
    fn spread(&self, from: u32, batch: &[Frame], pieces: Frames<'_>, wait: bool) -> Put {
        let mut queues = [0u32; BATCH];
        for (queue, frame) in queues.iter_mut().zip(batch) {
            *queue = flow::queue(self.about.key, self.about.queues, from, &pieces[frame.first as usize..]);
        }
        let queues = &queues[..batch.len()];
        let mut all = Put::default();
        if wait {
            // In order, so that what is refused is a tail.
            while all.taken < batch.len() {
                let rest = &queues[all.taken..];
                let run = rest.iter().take_while(|q| **q == rest[0]).count();
                let put = self.put(rest[0], &batch[all.taken..all.taken + run], pieces, true);
                all = Put { taken: all.taken + put.taken, lost: all.lost.and(put.lost) };
                if put.taken < run {
                    break;
                }
            }
            return all;
        }
        let mut left = u64::MAX >> (BATCH - batch.len());
        while left != 0 {
            let queue = queues[left.trailing_zeros() as usize];
            let mut group = [batch[0]; BATCH];
            let mut n = 0;
            for (i, frame) in batch.iter().enumerate() {
                if queues[i] == queue {
                    group[n] = *frame;
                    n += 1;
                    left &= !(1 << i);
                }
            }
            let put = self.put(queue, &group[..n], pieces, false);
            all = Put { taken: all.taken + put.taken, lost: all.lost.and(put.lost) };
        }
        all
    }

    /// Put a batch into the ring of a queue: as many leading frames as there is room for. Where nobody receives, all are lost.
    #[inline]
    fn put(&self, queue: u32, batch: &[Frame], pieces: Frames<'_>, wait: bool) -> Put {
        let all_lost = || Put { taken: batch.len(), lost: Lost::of(batch) };
        if !self.is_live() || !self.is_open(queue) {
            return all_lost();
        }
        let outlet = &self.outlets[queue as usize];
        let mut n = batch.len();
        let mut lines = records::lines(batch);
        prefetch_write(outlet.ring.memory().producer().as_ptr().cast());
        let mut reserved = outlet.ring.reserve(lines);
        if reserved < lines {
            outlet.ring.cancel(reserved);
            self.look_for_room(outlet, queue);
            reserved = outlet.ring.reserve(lines);
        }
        if reserved < lines {
            n = records::fitting(batch, reserved);
            lines = if n == 0 { 0 } else { records::lines(&batch[..n]) };
            outlet.ring.cancel(reserved - lines);
            if outlet.ring.take_broken_report() {
                self.fault("the indices", queue);
            }
            if n == 0 {
                return if wait { Put::default() } else { all_lost() };
            }
        }
        let claim = outlet.ring.claim_places(u64::from(lines));
        let at = (claim.index() & (self.ours.lines() - 1)) as usize * LINE as usize;
        // SAFETY: within the first half of the doubled mapping.
        let to = unsafe { outlet.bytes.base().add(at) };
        // SAFETY: the lines were reserved and claimed by us, and the ring is mapped twice in a row; `split` made the frames.
        unsafe { records::write(to.as_ptr(), &batch[..n], pieces) };
        outlet.ring.finish(claim);
        // Where the next batch begins: its line is with the far end.
        prefetch_write(to.as_ptr().wrapping_add((lines * LINE) as usize));
        if outlet.ringer.must_ring(self.theirs.word(Word::Dozing, queue)) {
            self.ring_far();
        }
        if n == batch.len() || wait {
            return Put { taken: n, lost: Lost::default() };
        }
        Put { taken: batch.len(), lost: Lost::of(&batch[n..]) }
    }

    /// Learn how far the far end has read.
    #[cold]
    fn look_for_room(&self, outlet: &Outlet, queue: u32) {
        // A: pairs with the far end's D, and hands on to A in `reserve`.
        let now = self.theirs.word(Word::Consumer, queue).load(Ordering::Acquire);
        let mut seen = outlet.seen.load(Ordering::Relaxed);
        // Forward only: another thread may have learnt something newer.
        while now.wrapping_sub(seen).cast_signed() > 0 {
            match outlet.seen.compare_exchange(seen, now, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => seen = other,
            }
        }
    }

    /// Deliver up to `budget` frames and a batch from the ring of one of our queues; returns how many. Frames need not ring
    /// from now on, unless `others` sleep.
    pub(super) fn receive(&self, queue: u32, budget: usize, port: &dyn Port, others: &dyn Fn() -> bool) -> usize {
        let Some(inlet) = self.inlets.get(queue as usize) else { return 0 };
        inlet.sleeper.retract(self.ours.word(Word::Dozing, queue), others);
        if self.is_faulty() || !inlet.token.take() {
            return 0;
        }
        let mut n = 0;
        for round in 1.. {
            n += self.drain(inlet, queue, budget, port);
            if round == ROUNDS {
                inlet.token.put_anyway();
                break;
            }
            if inlet.token.put() {
                break;
            }
        }
        n
    }

    /// With the token.
    fn drain(&self, inlet: &Inlet, queue: u32, budget: usize, port: &dyn Port) -> usize {
        let mut n = 0;
        let mut batch = Batch::new();
        while n < budget {
            let kept = inlet.kept.load(Ordering::Relaxed);
            let Available::Entries(published) = inlet.ring.available() else {
                self.fault("the indices", queue);
                break;
            };
            let Some(published) = published.checked_sub(kept) else {
                self.fault("the indices", queue);
                break;
            };
            if published == 0 {
                // Nothing else to do: the time to give back the rest. Before anybody sleeps, since he looks once more.
                if n == 0 && kept != 0 {
                    self.release(inlet, queue);
                }
                break;
            }
            let index = inlet.ring.index().wrapping_add(kept);
            let at = (index & (self.theirs.lines() - 1)) as usize * LINE as usize;
            // SAFETY: within the first half of the doubled mapping.
            let from = unsafe { inlet.bytes.base().add(at) };
            // SAFETY: at most a ring of lines, and the ring is mapped twice in a row.
            if !unsafe { records::read(&mut batch, from.as_ptr(), published) } {
                self.fault("the lengths", queue);
                break;
            }
            let frames = batch.frames();
            let done = inlet.done.load(Ordering::Relaxed) as usize;
            // The far process may have changed a batch that we have seen once.
            let Some(rest) = frames.get(done..).filter(|rest| !rest.is_empty()) else {
                self.fault("the lengths", queue);
                break;
            };
            let taken = port.deliver(rest, self.about.wait).pieces;
            n += taken;
            if taken < rest.len() {
                inlet.done.store((done + taken) as u32, Ordering::Relaxed);
                break;
            }
            inlet.done.store(0, Ordering::Relaxed);
            inlet.kept.store(kept + batch.lines, Ordering::Relaxed);
            if kept + batch.lines >= self.theirs.lines() / GIVE_BACK {
                self.release(inlet, queue);
            }
        }
        if n != 0 {
            self.received.fetch_add(n as u64, Ordering::Relaxed);
        }
        n
    }

    /// With the token: the far sender may overwrite what was read.
    ///
    /// Not after each batch, for that costs a line that goes to and fro. A sender without room still has so much in the ring
    /// that reading it brings us here, or it is all read, and the next look finds nothing and brings us here.
    fn release(&self, inlet: &Inlet, queue: u32) {
        inlet.ring.release(inlet.kept.load(Ordering::Relaxed));
        inlet.kept.store(0, Ordering::Relaxed);
        if inlet.ringer.must_ring(self.theirs.word(Word::Waiting, queue)) {
            self.ring_far();
        }
    }

    /// Whether somebody receives on one of our queues from now on. What was sent before is lost.
    pub(super) fn set_open(&self, queue: u32, open: bool) {
        let Some(inlet) = self.inlets.get(queue as usize) else { return };
        let word = self.ours.word(Word::Open, queue);
        if !open {
            word.store(0, Ordering::Release);
        }
        // Nobody delivers while the port changes, so the token is free or about to be.
        while !inlet.token.take() {
            crate::sync::thread::yield_now();
        }
        if let Available::Entries(lines) = inlet.ring.available() {
            inlet.done.store(0, Ordering::Relaxed);
            inlet.kept.store(lines, Ordering::Relaxed);
            self.release(inlet, queue);
        }
        inlet.token.put_anyway();
        if open {
            word.store(1, Ordering::Release);
        }
    }

    /// Somebody is about to sleep until frames arrive: from now on they ring. False: some are there.
    pub(super) fn doze(&self, queue: u32) -> bool {
        let Some(inlet) = self.inlets.get(queue as usize) else { return true };
        inlet.sleeper.announce(self.ours.word(Word::Dozing, queue));
        // Whoever reads more meanwhile, or gives back, makes the difference smaller, or looks like more than there is.
        let queued = inlet.ring.queued();
        self.is_faulty() || queued <= inlet.kept.load(Ordering::Relaxed)
    }

    /// Number of the memory that the far end reads.
    pub(super) fn memory_fd(&self) -> RawFd {
        self.ours.fd()
    }

    /// Somebody is about to sleep until there is room: from now on room rings.
    pub(super) fn doze_for_room(&self) {
        for (queue, outlet) in (0..).zip(&self.outlets) {
            outlet.sleeper.announce(self.ours.word(Word::Waiting, queue));
        }
    }
}

/// Errors of a far end that is not to be believed are `EPROTO`.
pub(super) fn check(about: &About) -> Result<()> {
    let queues = (1..=super::memory::QUEUES).contains(&about.queues);
    let mtu = (1..=65535).contains(&about.mtu);
    if queues && mtu { Ok(()) } else { Err(Errno::EPROTO) }
}
