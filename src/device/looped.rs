//! `loop`: what is sent on queue q comes back on queue q.

use super::{CachePadded, Counters, Device, Facts, Frames, Port, PortSlot, Taken, Tally, facts, pass, slots};
use crate::{
    config::{Full, Spec},
    errno::{Errno, Result},
    sync::Arc,
};

#[derive(Debug)]
pub(super) struct Loop {
    facts: Facts,
    wait: bool,
    ports: Box<[CachePadded<PortSlot>]>,
    tally: CachePadded<Tally>,
}

impl Loop {
    pub(super) fn new(spec: &Spec) -> Loop {
        Loop {
            facts: facts(spec),
            wait: spec.full == Full::Wait,
            ports: slots(spec.queues),
            tally: CachePadded::default(),
        }
    }
}

impl Device for Loop {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn connect(&self, queue: u32, port: Option<Arc<dyn Port>>) -> Result<()> {
        self.ports.get(queue as usize).ok_or(Errno::EINVAL)?.connect(port)
    }

    fn transmit(&self, queue: u32, frames: Frames<'_>) -> Taken {
        match self.ports.get(queue as usize) {
            Some(port) => pass(frames, port, self.wait, &self.tally),
            None => Taken { pieces: frames.len() },
        }
    }

    fn counters(&self) -> Counters {
        self.tally.read()
    }
}
