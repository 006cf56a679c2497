//! `wire:NAME/END`: what one end sends, the other receives. Both ends are in this process: the sender's thread delivers
//! straight into the receiver's rings and UMEM.
//!
//! Queue q of one end leads to queue q of the other, or, where that end has fewer queues, to q modulo their number.

use std::collections::HashMap;

use once_cell::sync::Lazy;

use super::{CachePadded, Counters, Device, Facts, Frames, Port, PortSlot, Taken, Tally, facts, pass, slots};
use crate::{
    config::{End, Full, Spec},
    errno::{Errno, Result},
    sync::{Arc, Mutex, RwLock, Weak},
    warn,
};

/// The wires of this process that have an end open, by name.
static WIRES: Lazy<Mutex<HashMap<String, Weak<Wire>>>> = Lazy::new(Mutex::default);

/// A wire: the receiving sides of its two ends, each there while somebody has the end open.
#[derive(Debug, Default)]
struct Wire {
    ends: [CachePadded<RwLock<Option<Arc<Side>>>>; 2],
}

/// The receiving side of an end.
#[derive(Debug)]
struct Side {
    /// Interface that holds it.
    holder: String,
    ports: Box<[CachePadded<PortSlot>]>,
}

/// One end, as an interface has it.
#[derive(Debug)]
pub(super) struct WireEnd {
    facts: Facts,
    wait: bool,
    end: End,
    wire: Arc<Wire>,
    own: Arc<Side>,
    tally: CachePadded<Tally>,
}

impl WireEnd {
    /// EBUSY (logged): another interface of this process has the end.
    pub(super) fn open(name: &str, wire_name: &str, end: End, spec: &Spec) -> Result<WireEnd> {
        let wire = {
            let mut wires = WIRES.lock().map_err(|_| Errno::EIO)?;
            wires.retain(|_, w| w.strong_count() != 0);
            let found = wires.get(wire_name).and_then(Weak::upgrade);
            found.unwrap_or_else(|| {
                let fresh = Arc::<Wire>::default();
                wires.insert(wire_name.to_owned(), Arc::downgrade(&fresh));
                fresh
            })
        };
        let own = Arc::new(Side { holder: name.to_owned(), ports: slots(spec.queues) });
        {
            let mut slot = wire.ends[end as usize].write().map_err(|_| Errno::EIO)?;
            if let Some(side) = &*slot {
                warn!(
                    "{name}: end {} of wire {wire_name} is held by interface {} of this process; give {name} the other end \
                     or another wire",
                    end.name(),
                    side.holder
                );
                return Err(Errno::EBUSY);
            }
            *slot = Some(Arc::clone(&own));
        }
        let wait = spec.full == Full::Wait;
        Ok(WireEnd { facts: facts(spec), wait, end, wire, own, tally: CachePadded::default() })
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

    fn connect(&self, queue: u32, port: Option<Arc<dyn Port>>) -> Result<()> {
        self.own.ports.get(queue as usize).ok_or(Errno::EINVAL)?.connect(port)
    }

    fn transmit(&self, queue: u32, frames: Frames<'_>) -> Taken {
        let Ok(far) = self.wire.ends[self.end.other() as usize].read() else {
            return Taken { pieces: frames.len() };
        };
        match &*far {
            Some(side) => {
                let port = &side.ports[queue as usize % side.ports.len()];
                pass(frames, port, self.wait, &self.tally)
            }
            None => {
                self.tally.dropped(super::count(frames));
                Taken { pieces: frames.len() }
            }
        }
    }

    fn release(&self) {
        if let Ok(mut slot) = self.wire.ends[self.end as usize].write()
            && slot.as_ref().is_some_and(|side| Arc::ptr_eq(side, &self.own))
        {
            *slot = None;
        }
    }

    fn counters(&self) -> Counters {
        self.tally.read()
    }
}
