//! `wire:NAME/END`: what one end sends, the other receives.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `local` | the wires of this process; with both ends here the sender's thread delivers straight to the receiver |
//! | `directory` | the private directory in which wires of different processes find each other, and the lock of an end |
//! | `post` | an end's socket in it, and messages |
//! | `far` | the far end in another process: attached, lost, attached anew |
//! | `session`, `records`, `memory` | the two directions while it is attached: rings of records in sealed shared memory |
//! | `command` | what the command line sees and does |
//! | `flow` | which queue of the receiving end a frame goes to |

mod command;
mod directory;
mod far;
mod flow;
mod local;
mod memory;
mod post;
mod records;
mod session;

use std::os::fd::RawFd;

pub use self::command::{EndState, WireState, directory as wires_directory, set_link, wires};
use self::{
    directory::{Directory, Held, Names},
    far::Far,
    flow::Key,
    local::{Opening, Side, Wire},
    session::{About, Session},
};
use super::{CachePadded, Counters, Device, Facts, Frames, Port, PortSlot, Taken, Tally, facts, pass, slots};
use crate::{
    config::{End, Full, Spec},
    errno::{Errno, Result},
    sync::{Arc, AtomicBool, Mutex},
    warn,
};

/// One end, as an interface has it.
#[derive(Debug)]
pub(super) struct WireEnd {
    facts: Facts,
    wait: bool,
    end: End,
    wire: Arc<Wire>,
    own: Arc<Side>,
    far: Far,
    tally: CachePadded<Tally>,
}

/// Lines of a ring for `depth` frames of the largest size, at least a few lines and at most half a gigabyte.
fn lines(depth: u32, mtu: u32) -> u32 {
    let frame = u64::from(mtu) + 18 + 8;
    let lines = (u64::from(depth) * frame).div_ceil(memory::LINE.into()).next_power_of_two();
    u32::try_from(lines).unwrap_or(u32::MAX).clamp(memory::LEAST_LINES, memory::MOST_LINES)
}

impl WireEnd {
    /// EBUSY (logged): another interface of this process, or another process, has the end.
    pub(super) fn open(name: &str, wire_name: &str, end: End, spec: &Spec) -> Result<WireEnd> {
        let facts = facts(spec);
        let wait = spec.full == Full::Wait;
        let key = if spec.symmetric { Key::Symmetric } else { Key::Usual };
        let about = About { queues: facts.queues, mtu: facts.mtu, lines: lines(spec.depth, facts.mtu), wait, key };
        let title = format!("{name}: end {} of wire {wire_name}", end.name());
        let mut opening = Opening::begin()?;
        let wire = opening.wire(wire_name);
        if let Some(side) = &*wire.side(end).read().map_err(|_| Errno::EIO)? {
            warn!(
                "{title} is held by interface {} of this process; give {name} the other end or another wire",
                side.holder
            );
            return Err(Errno::EBUSY);
        }
        let directory = Directory::open()?;
        let others = Names::new(wire_name, end.other());
        if !wire.has(end.other()) {
            // What a killed process has left of it.
            directory.sweep(&others);
        }
        let path = directory.path.clone();
        let held = Held::take(directory, Names::new(wire_name, end)).map_err(|why| match why {
            Ok(pid) => {
                let holder =
                    if pid == 0 { "a process of another PID namespace".to_owned() } else { format!("process {pid}") };
                warn!("{title} is held by {holder}; give {name} the other end or another wire, or end that process");
                Errno::EBUSY
            }
            Err(error) => {
                warn!("{title}: cannot take its lock in {path}: {error}; see that the directory can be written");
                error
            }
        })?;
        let own = Arc::new(Side {
            holder: name.to_owned(),
            ports: slots(spec.queues),
            key,
            link: AtomicBool::new(true),
            held: Mutex::new(Some(held)),
        });
        let far = Far::open(title.clone(), facts, about, (&wire, end), &own, others).inspect_err(|error| {
            warn!(
                "{title}: cannot make its memory and its socket in {path}: {error}; see the limits on files, their size and memory"
            );
        })?;
        wire.set(end, Some(Arc::clone(&own)))?;
        drop(opening);
        if !wire.has(end.other()) {
            far.greet()?;
        }
        Ok(WireEnd { facts, wait, end, wire, own, far, tally: CachePadded::default() })
    }

    /// To an end in this process: each run of frames for one queue at a time.
    fn pass(&self, side: &Side, from: u32, frames: Frames<'_>) -> Taken {
        let queues = u32::try_from(side.ports.len()).expect("at most 64");
        if queues == 1 {
            return pass(frames, &side.ports[0], self.wait, &self.tally);
        }
        let mut at = 0;
        while at < frames.len() {
            let queue = flow::queue(side.key, queues, from, &frames[at..]);
            let mut end = at;
            while end < frames.len() && (end == at || flow::queue(side.key, queues, from, &frames[end..]) == queue) {
                end += frames[end..].iter().take_while(|p| p.more).count() + 1;
            }
            let taken = pass(&frames[at..end], &side.ports[queue as usize], self.wait, &self.tally).pieces;
            at += taken;
            if at < end {
                break;
            }
        }
        Taken { pieces: at }
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        self.release();
    }
}

impl Device for WireEnd {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn link_up(&self) -> bool {
        self.own.is_plugged() && (self.wire.has(self.end.other()) || self.far.with(Session::is_live) == Some(true))
    }

    fn connect(&self, queue: u32, port: Option<Arc<dyn Port>>) -> Result<()> {
        let slot = self.own.ports.get(queue as usize).ok_or(Errno::EINVAL)?;
        let somebody = port.is_some();
        self.far.connect(queue, || slot.connect(port).map(|()| somebody))
    }

    fn transmit(&self, queue: u32, frames: Frames<'_>) -> Taken {
        let nobody = || {
            self.tally.dropped(super::count(frames));
            Taken { pieces: frames.len() }
        };
        if !self.own.is_plugged() {
            return nobody();
        }
        if self.wire.may_have(self.end.other())
            && let Ok(far) = self.wire.side(self.end.other()).read()
            && let Some(side) = &*far
        {
            return if side.is_plugged() { self.pass(side, queue, frames) } else { nobody() };
        }
        self.far.with(|session| session.send(queue, frames, self.wait)).map_or_else(nobody, |(taken, lost)| {
            let (n, bytes) = super::tally(&frames[..taken.pieces]);
            self.tally.sent_some(n - lost.frames, bytes - lost.bytes);
            if lost.frames != 0 {
                self.tally.dropped(lost.frames);
            }
            taken
        })
    }

    fn receive(&self, queue: u32, budget: usize, others: &dyn Fn() -> bool) -> usize {
        let Some(slot) = self.own.ports.get(queue as usize) else { return 0 };
        if !self.far.has_session() {
            return 0;
        }
        let receive = |session: &Session| slot.with(|port| session.receive(queue, budget, port, others));
        self.far.with(receive).flatten().unwrap_or(0)
    }

    /// As long as another process may come.
    fn is_polled(&self) -> bool {
        true
    }

    fn doorbell(&self) -> Option<RawFd> {
        Some(self.far.epoll.number())
    }

    fn attend(&self) {
        self.far.attend().answer(&self.tally);
    }

    fn doze(&self, queue: u32) -> bool {
        self.far.with(|session| session.doze(queue)).unwrap_or(true) && self.far.is_settled()
    }

    fn doze_for_room(&self) -> bool {
        self.far.with(Session::doze_for_room).is_some()
    }

    fn release(&self) {
        let is_own = |side: &Option<Arc<Side>>| side.as_ref().is_some_and(|side| Arc::ptr_eq(side, &self.own));
        if self.wire.side(self.end).read().is_ok_and(|side| is_own(&side)) && self.wire.set(self.end, None).is_ok() {
            self.far.close();
            if let Ok(mut held) = self.own.held.lock() {
                *held = None;
            }
        }
    }

    fn counters(&self) -> Counters {
        self.tally.read()
    }
}
