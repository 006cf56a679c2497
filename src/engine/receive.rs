//! The receive path: frames from a device into chunks of the UMEM and descriptors of the RX ring.
//!
//! Any number of threads deliver at once and none waits for another: places in the RX ring and fill entries are taken in
//! one compare-and-swap each, the copies run side by side, and publication is in order with helping (`crate::ring`).

use core::mem::MaybeUninit;

use super::{
    bell::Bell,
    memory::Memory,
    pool::Pool,
    stat::{Receive, add_shared},
    umem::Place,
};
use crate::{
    device::{Frames, Piece, Port, Taken, copy_frame, prefetch},
    errno::{Errno, Result},
    ring::SharedProducer,
    sync::{Arc, Ordering},
    uapi::{Desc, Ring, XDP_PKT_CONTD},
};

/// Frames that one reservation covers.
const BATCH: usize = 64;
/// Chunks that one frame may take: the kernel's limit for a packet buffer.
const MAX_CHAIN: usize = 18;

/// Where frames for one socket arrive.
#[derive(Debug)]
pub(super) struct RxPort {
    pool: Arc<Pool>,
    ring: SharedProducer<Desc>,
    memory: Arc<Memory>,
    bell: Arc<Bell>,
    /// Frames may span several descriptors.
    chains: bool,
}

impl RxPort {
    /// EINVAL: the socket has no RX ring.
    pub(super) fn new(
        pool: Arc<Pool>,
        memory: Arc<Memory>,
        bell: Arc<Bell>,
        chains: bool,
        start: u32,
    ) -> Result<RxPort> {
        // SAFETY: the port keeps `memory` for as long as it keeps the ring.
        let ring = unsafe { memory.ring(Ring::Rx) }.ok_or(Errno::EINVAL)?;
        Ok(RxPort { pool, ring: SharedProducer::new(ring, start)?, memory, bell, chains })
    }

    fn counters(&self) -> &Receive {
        &self.memory.page().rx
    }

    /// Take up to `out.len()` chunks that exist. Entries that name none are skipped, as in the kernel.
    #[inline]
    fn places(&self, out: &mut [MaybeUninit<Place>], raw: &mut [u64]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let got = self.pool.take_chunks(&mut raw[n..out.len()]);
            if got == 0 {
                break;
            }
            let mut kept = n;
            for i in n..n + got {
                if let Some(place) = self.pool.umem.place(raw[i]) {
                    raw[kept] = raw[i];
                    out[kept].write(place);
                    kept += 1;
                }
            }
            add_shared(&self.counters().bad_fill, (n + got - kept) as u64);
            n = kept;
        }
        n
    }

    /// Frames of one piece that fit in one chunk each. Returns how many of them were delivered.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "counts of a batch, at most BATCH")]
    fn deliver_plain(&self, frames: Frames<'_>) -> usize {
        let mut raw = [0u64; BATCH];
        let mut places = [const { MaybeUninit::<Place>::uninit() }; BATCH];
        let mut descs = [const { MaybeUninit::<Desc>::uninit() }; BATCH];
        // A batch is at most BATCH frames.
        let reserved = self.ring.reserve(frames.len() as u32) as usize;
        let n = self.places(&mut places[..reserved], &mut raw);
        for (frame, place) in frames[..n].iter().zip(&places) {
            prefetch(frame.data);
            // SAFETY: `places` wrote the first n.
            prefetch(self.pool.umem.at(unsafe { place.assume_init_ref() }.at));
        }
        let mut bytes = 0u64;
        for (i, frame) in frames[..n].iter().enumerate() {
            // SAFETY: `places` wrote the first n.
            let place = unsafe { places[i].assume_init() };
            // SAFETY: the sender's piece is readable (`Piece::data`); the place has `room` bytes, of which `len` are used
            // (the caller looked), in a UMEM that is not gone; the two UMEMs may be one, hence the memmove.
            unsafe { copy_frame(frame.data, self.pool.umem.at(place.at), frame.len as usize) };
            descs[i].write(Desc { addr: place.addr, len: frame.len, options: 0 });
            bytes += u64::from(frame.len);
        }
        if n != 0 {
            // SAFETY: the first n were written in the loop; MaybeUninit<Desc> has Desc's layout.
            let descs = unsafe { core::slice::from_raw_parts(descs.as_ptr().cast::<Desc>(), n) };
            self.ring.submit(descs);
            add_shared(&self.counters().frames, n as u64);
            add_shared(&self.counters().bytes, bytes);
        }
        if n < reserved {
            self.ring.cancel((reserved - n) as u32);
        }
        n
    }

    /// One frame, of any number of pieces, into as many chunks as it takes. False: no room.
    #[cold]
    #[expect(clippy::cast_possible_truncation, reason = "the caller has seen that MAX_CHAIN chunks are enough")]
    fn deliver_chain(&self, frame: Frames<'_>, total: u64) -> bool {
        let room = self.pool.umem.room();
        let chunks = usize::try_from(total.div_ceil(u64::from(room))).unwrap_or(usize::MAX);
        let mut raw = [0u64; MAX_CHAIN];
        let mut places = [const { MaybeUninit::<Place>::uninit() }; MAX_CHAIN];
        let mut descs = [Desc::default(); MAX_CHAIN];
        if self.pool.chunks() < chunks as u32 {
            return false;
        }
        let reserved = self.ring.reserve(chunks as u32);
        let got = if reserved as usize == chunks { self.places(&mut places[..chunks], &mut raw) } else { 0 };
        if got < chunks {
            self.ring.cancel(reserved);
            self.pool.keep_chunks(&raw[..got]);
            return false;
        }
        let mut used = 0usize;
        let mut filled = 0u32;
        for piece in frame {
            let mut at = 0u32;
            while at < piece.len {
                if filled == room {
                    descs[used].options = XDP_PKT_CONTD;
                    used += 1;
                    filled = 0;
                }
                // SAFETY: `places` wrote the first `chunks`, and `used` stays below: the chunks hold `total` bytes.
                let place = unsafe { places[used].assume_init() };
                let part = (piece.len - at).min(room - filled);
                let to = self.pool.umem.at(place.at + u64::from(filled));
                // SAFETY: `at` is within the piece.
                let from = unsafe { piece.data.add(at as usize) };
                // SAFETY: `part` bytes remain in the piece and in the chunk.
                unsafe { core::ptr::copy(from, to, part as usize) };
                filled += part;
                at += part;
                descs[used] = Desc { addr: place.addr, len: filled, options: 0 };
            }
        }
        self.ring.submit(&descs[..=used]);
        add_shared(&self.counters().frames, 1);
        add_shared(&self.counters().bytes, total);
        true
    }

    /// Count `n` frames that found no room, as the kernel does.
    #[cold]
    fn count_lost(&self, n: u64) {
        let counters = self.counters();
        if self.pool.chunks() == 0 {
            add_shared(&counters.dropped, n);
            add_shared(&counters.fill_empty, n);
            if self.pool.fill.take_broken_report() {
                self.pool.report_broken(Ring::Fill);
            }
            return;
        }
        add_shared(&counters.ring_full, n);
        if self.ring.take_broken_report() {
            self.pool.report_broken(Ring::Rx);
        }
    }

    /// Whether the program has RX entries to read.
    #[inline]
    pub(super) fn has_entries(&self) -> bool {
        // As the kernel's poll: the two words as they stand, whatever the program wrote there.
        let memory = self.ring.memory();
        memory.producer().load(Ordering::Acquire) != memory.consumer().load(Ordering::Relaxed)
    }

    /// The producer index as the program sees it.
    pub(super) fn published(&self) -> u32 {
        self.ring.memory().producer().load(Ordering::Relaxed)
    }
}

/// The first whole frame: its pieces and its bytes.
#[inline]
fn first_frame(frames: Frames<'_>) -> (usize, u64) {
    let mut bytes = 0u64;
    for (i, piece) in frames.iter().enumerate() {
        bytes += u64::from(piece.len);
        if !piece.more {
            return (i + 1, bytes);
        }
    }
    (frames.len(), bytes)
}

impl Port for RxPort {
    fn deliver(&self, frames: Frames<'_>, wait: bool) -> Taken {
        if self.pool.umem.is_gone() {
            return Taken { pieces: frames.len() };
        }
        let room = self.pool.umem.room();
        let plain = |p: &Piece| !p.more && p.len <= room;
        let mut at = 0;
        let mut delivered = false;
        while at < frames.len() {
            let run = frames[at..].iter().take(BATCH).take_while(|p| plain(p)).count();
            let (pieces, done, lost) = if run != 0 {
                let done = self.deliver_plain(&frames[at..at + run]);
                (run, done, (run - done) as u64)
            } else {
                let (pieces, bytes) = first_frame(&frames[at..]);
                if (bytes > u64::from(room) && !self.chains) || bytes > u64::from(room) * MAX_CHAIN as u64 {
                    add_shared(&self.counters().dropped, 1);
                    at += pieces;
                    continue;
                }
                let ok = self.deliver_chain(&frames[at..at + pieces], bytes);
                (pieces, if ok { pieces } else { 0 }, u64::from(!ok))
            };
            delivered |= done != 0;
            if lost != 0 && wait {
                at += done;
                break;
            }
            if lost != 0 {
                self.count_lost(lost);
            }
            at += pieces;
        }
        if delivered {
            self.bell.ring();
        }
        Taken { pieces: at }
    }

    fn room(&self) -> usize {
        self.ring.free().min(self.pool.chunks()) as usize
    }
}
