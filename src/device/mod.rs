//! Devices: what an engine interface is connected to.
//!
//! A device knows frames, queues and its peer. It knows nothing of rings, sockets or UMEMs: the engine hands it frames to
//! send as [`Frames`] and gives it a [`Port`] for each queue, into which it delivers what arrives. One file a kind.

mod copy;
mod looped;
mod null;
mod wire;

use core::fmt;
use std::os::fd::RawFd;

pub use wire::{EndState, WireState, set_link, wires, wires_directory};

pub(crate) use copy::{copy_frame, prefetch, prefetch_write};
use crossbeam_utils::CachePadded;

use crate::{
    config::{Kind, Spec},
    errno::{Errno, Result},
    sync::{Arc, AtomicU64, Ordering, RwLock},
};

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

    /// Send whole frames, none longer than the MTU allows. Frames that are not taken are refused for now: the sender gets EAGAIN and keeps them.
    fn transmit(&self, queue: u32, frames: Frames<'_>) -> Taken;

    /// Deliver up to `budget` frames that wait in the device into the port of `queue`; returns how many. Devices whose
    /// frames come with the sender's own thread have none. The caller is awake, so the doorbell need not tell of more
    /// ([`Device::doze`]) unless `others` sleep.
    fn receive(&self, queue: u32, budget: usize, others: &dyn Fn() -> bool) -> usize {
        let _ = (queue, budget, others);
        0
    }

    /// The last socket has left: let go of what only one may hold. Nothing is asked of the device afterwards.
    fn release(&self) {}

    /// Whether [`Device::receive`] can have something to do at all.
    fn is_polled(&self) -> bool {
        false
    }

    /// A descriptor that becomes readable when [`Device::attend`] should be called, if there is one.
    fn doorbell(&self) -> Option<RawFd> {
        None
    }

    /// Do what the doorbell asks for. Frames may have arrived, or room been made.
    fn attend(&self) {}

    /// Somebody is about to sleep until frames arrive for `queue`, and calls [`Device::receive`] once more after this: from
    /// now on the doorbell tells. False: it does not, or frames are there already. The `others` of a later receive say that
    /// he sleeps, from before this call on.
    fn doze(&self, queue: u32) -> bool {
        let _ = queue;
        false
    }

    /// Somebody is about to sleep until frames can be sent, and calls [`Device::transmit`] once more after this: from now on
    /// the doorbell tells. False: it does not.
    fn doze_for_room(&self) -> bool {
        false
    }

    /// The device's own counters.
    fn counters(&self) -> Counters;
}

/// A queue's port, if somebody receives there. Deliveries share a read lock, which no delivery waits for; connecting takes
/// the write lock, so that no delivery into the old port runs when it returns.
#[derive(Default)]
struct PortSlot(RwLock<Option<Arc<dyn Port>>>);

impl fmt::Debug for PortSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortSlot")
    }
}

impl PortSlot {
    fn connect(&self, port: Option<Arc<dyn Port>>) -> Result<()> {
        *self.0.write().map_err(|_| Errno::EIO)? = port;
        Ok(())
    }

    /// Whether somebody receives.
    fn is_connected(&self) -> bool {
        self.0.read().is_ok_and(|slot| slot.is_some())
    }

    /// Call `f` with the port. `None`: nobody receives.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&dyn Port) -> R) -> Option<R> {
        let slot = self.0.read().ok()?;
        slot.as_deref().map(f)
    }
}

/// Port slots of a number of queues.
fn slots(queues: u32) -> Box<[CachePadded<PortSlot>]> {
    (0..queues).map(|_| CachePadded::default()).collect()
}

/// The counters as a device keeps them; several senders add.
#[derive(Debug, Default)]
struct Tally {
    tx_frames: AtomicU64,
    tx_bytes: AtomicU64,
    tx_dropped: AtomicU64,
}

impl Tally {
    #[inline]
    fn sent(&self, frames: Frames<'_>) {
        let (n, bytes) = tally(frames);
        self.sent_some(n, bytes);
    }

    #[inline]
    fn sent_some(&self, frames: u64, bytes: u64) {
        self.tx_frames.fetch_add(frames, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    #[cold]
    fn dropped(&self, frames: u64) {
        self.tx_dropped.fetch_add(frames, Ordering::Relaxed);
    }

    fn read(&self) -> Counters {
        Counters {
            tx_frames: self.tx_frames.load(Ordering::Relaxed),
            tx_bytes: self.tx_bytes.load(Ordering::Relaxed),
            tx_dropped: self.tx_dropped.load(Ordering::Relaxed),
        }
    }
}

/// Whole frames and bytes in a run of pieces.
#[inline]
pub(crate) fn tally(frames: Frames<'_>) -> (u64, u64) {
    frames.iter().fold((0, 0), |(n, bytes), p| (n + u64::from(!p.more), bytes + u64::from(p.len)))
}

/// Whole frames in a run of pieces.
fn count(frames: Frames<'_>) -> u64 {
    tally(frames).0
}

/// Hand frames to a receiver; what several kinds of device do.
fn pass(frames: Frames<'_>, to: &PortSlot, wait: bool, tally: &Tally) -> Taken {
    let taken = to.with(|port| port.deliver(frames, wait)).unwrap_or_else(|| {
        // Nobody there: as on a card without a link, the frames are sent and lost.
        tally.dropped(count(frames));
        Taken { pieces: frames.len() }
    });
    tally.sent(&frames[..taken.pieces]);
    taken
}

/// What an interface of this specification looks like; nothing is opened.
pub fn facts(spec: &Spec) -> Facts {
    // A locally administered address that is the same in every process.
    let hash =
        spec.text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    Facts { queues: spec.queues, mtu: spec.mtu, mac: [0x02, a, b, c, d, e] }
}

/// Open the device that a specification names. `name` is the interface's name, for messages.
pub fn open(name: &str, spec: &Spec) -> Result<Arc<dyn Device>> {
    match &spec.kind {
        Kind::Loop => Ok(Arc::new(looped::Loop::new(spec))),
        Kind::Null => Ok(Arc::new(null::Null::new(spec))),
        Kind::Wire(wire, end) => Ok(Arc::new(wire::WireEnd::open(name, wire, *end, spec)?)),
        // The engine asks for its own interfaces only.
        Kind::Direct => Err(Errno::EOPNOTSUPP),
    }
}
