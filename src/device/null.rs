//! `null`: swallows what is sent; with `gen=LEN` it makes frames of LEN bytes, as many as the receiver has room for.
//!
//! A made frame is addressed from the device to everybody, carries the local experimental EtherType 0x88b5, then its number
//! on the queue (eight bytes, big-endian), then zeroes.

use super::{CachePadded, Counters, Device, Facts, Frames, Piece, Port, PortSlot, Taken, Tally, facts, slots};
use crate::{
    config::Spec,
    errno::{Errno, Result},
    sync::{Arc, AtomicU64, Ordering},
};

/// Frames made at a time.
const BATCH: usize = 32;
const HEADER: usize = 14;

#[derive(Debug)]
pub(super) struct Null {
    facts: Facts,
    gen_len: Option<u32>,
    queues: Box<[CachePadded<Queue>]>,
    tally: CachePadded<Tally>,
}

#[derive(Debug)]
struct Queue {
    port: PortSlot,
    made: AtomicU64,
}

impl Null {
    pub(super) fn new(spec: &Spec) -> Null {
        let ports = slots(spec.queues).into_iter();
        Null {
            facts: facts(spec),
            gen_len: spec.gen_len,
            queues: ports
                .map(|port| CachePadded::new(Queue { port: port.into_inner(), made: AtomicU64::new(0) }))
                .collect(),
            tally: CachePadded::default(),
        }
    }

    /// One frame, `len` bytes.
    fn write(&self, frame: &mut [u8], number: u64) {
        let mut header = [0xff; HEADER + 8];
        header[6..12].copy_from_slice(&self.facts.mac);
        header[12..14].copy_from_slice(&[0x88, 0xb5]);
        header[14..].copy_from_slice(&number.to_be_bytes());
        let n = frame.len().min(header.len());
        frame[..n].copy_from_slice(&header[..n]);
    }
}

impl Device for Null {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn connect(&self, queue: u32, port: Option<Arc<dyn Port>>) -> Result<()> {
        self.queues.get(queue as usize).ok_or(Errno::EINVAL)?.port.connect(port)
    }

    #[inline]
    fn transmit(&self, _queue: u32, frames: Frames<'_>) -> Taken {
        self.tally.sent(frames);
        Taken { pieces: frames.len() }
    }

    fn receive(&self, queue: u32, budget: usize, _others: &dyn Fn() -> bool) -> usize {
        let (Some(queue), Some(len)) = (self.queues.get(queue as usize), self.gen_len) else { return 0 };
        queue
            .port
            .with(|port| {
                let mut done = 0;
                let mut memory = vec![0u8; BATCH * len as usize];
                while done < budget {
                    let n = port.room().min(budget - done).min(BATCH);
                    if n == 0 {
                        break;
                    }
                    let first = queue.made.fetch_add(n as u64, Ordering::Relaxed);
                    let mut pieces = [Piece { data: core::ptr::null(), len, more: false }; BATCH];
                    for (i, frame) in memory.chunks_exact_mut(len as usize).take(n).enumerate() {
                        self.write(frame, first + i as u64);
                        pieces[i].data = frame.as_ptr();
                    }
                    // Another thread may have taken the room meanwhile; then the frames were made in vain.
                    let taken = port.deliver(&pieces[..n], true).pieces;
                    done += taken;
                    if taken < n {
                        break;
                    }
                }
                done
            })
            .unwrap_or(0)
    }

    fn is_polled(&self) -> bool {
        self.gen_len.is_some()
    }

    fn counters(&self) -> Counters {
        self.tally.read()
    }
}
