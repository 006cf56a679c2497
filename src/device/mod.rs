//! Devices: what an engine interface is connected to.
//!
//! A device knows frames, queues and its peer. It knows nothing of rings, sockets or UMEMs: the engine hands it frames to
//! send as [`Frames`] and gives it a [`Port`] for each queue, into which it delivers what arrives. One file a kind.

use core::fmt;
use std::sync::Arc;

use crate::{config::Spec, errno::Result};

/// One piece of a frame in memory that the program owns and may write at any time.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// First byte. Valid for reading `len` bytes while the call that received it runs.
    pub data: *const u8,
    /// Bytes; never 0.
    pub len: u32,
    /// The frame goes on in the next piece.
    pub more: bool,
}

/// Whole frames, as a run of pieces; the last piece has `more == false`.
pub type Frames<'a> = &'a [Piece];

/// What became of frames handed to [`Device::transmit`] or [`Port::deliver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Leading pieces that were taken (whole frames): sent, delivered, or dropped and counted. The rest stays with the sender.
    pub pieces: usize,
}

/// What an interface looks like from outside.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Number of queues.
    pub queues: u32,
    /// Largest frame without the Ethernet header, in bytes.
    pub mtu: u32,
    /// Hardware address.
    pub mac: [u8; 6],
}

/// Counters of the device itself, as against those of a socket. Shown by `slipring stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the device itself lost: no far end, link down, no receiver.
    pub tx_dropped: u64,
}

/// The receiving side of one queue, as the engine offers it to a device. Any number of threads may deliver at once.
pub trait Port: Send + Sync {
    /// Deliver whole frames. With `wait`, frames for which there is no room are left with the caller; without it they are
    /// dropped and counted as the kernel does for a receiver without room.
    fn deliver(&self, frames: Frames<'_>, wait: bool) -> Taken;

    /// How many one-piece frames could be delivered now. For devices that make frames.
    fn room(&self) -> usize;
}

/// An engine interface's far side. Methods may be called from any thread at once.
pub trait Device: fmt::Debug + Send + Sync {
    /// Queues, MTU, address.
    fn facts(&self) -> Facts;

    /// Whether frames can leave and arrive.
    fn link_up(&self) -> bool {
        true
    }

    /// Frames of `queue` go into `port` from now on; `None`: nobody receives there any more. When this returns no
    /// delivery into the port that was there before is running.
    fn connect(&self, queue: u32, port: Option<Arc<dyn Port>>) -> Result<()>;

    /// Send whole frames. Frames that are not taken are refused for now: the sender gets EAGAIN and keeps them.
    fn transmit(&self, queue: u32, frames: Frames<'_>) -> Taken;

    /// Deliver up to `budget` frames that wait in the device into `port`; returns how many. Devices whose frames come
    /// with the sender's own thread have none.
    fn receive(&self, queue: u32, port: &dyn Port, budget: usize) -> usize {
        let _ = (queue, port, budget);
        0
    }

    /// Whether [`Device::receive`] can have something to do at all.
    fn is_polled(&self) -> bool {
        false
    }

    /// The device's own counters.
    fn counters(&self) -> Counters;
}

/// Open the device that a specification names. `name` is the interface's name, for messages.
pub fn open(name: &str, spec: &Spec) -> Result<Arc<dyn Device>> {
    let _ = (name, spec);
    Err(crate::errno::Errno::EOPNOTSUPP)
}
