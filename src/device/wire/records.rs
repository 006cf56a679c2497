//! How frames stand in a ring between two processes.
//!
//! A batch begins on a line of 64 bytes and is published as one:
//! ```text
//! u32          bits 0..8: frames in the batch, 1 to 64; bits 8..32: length of the frame if there is one
//! u32 each     lengths, if there are several
//! frames       one after the other, each to a multiple of four bytes
//! ```
//! So a frame of 60 bytes alone takes one line, and the lengths of a batch are read before the first frame has to be there.
//! The reader trusts none of it: [`read`] takes each word once and checks it against what was published.

#![expect(clippy::cast_possible_truncation, reason = "counts of a batch, at most BATCH, and lengths of frames")]

use core::{mem::MaybeUninit, slice};

use super::memory::LINE;
use crate::{
    device::{Piece, copy_frame, prefetch},
    sync::{AtomicU32, Ordering},
};

/// Most frames of a batch.
pub(super) const BATCH: usize = 64;
/// The longest frame that any device takes, in bytes.
pub(super) const LONGEST: u32 = 65535 + 18;
/// The shortest, a whole Ethernet header.
const SHORTEST: u32 = 14;
const WORD: u32 = size_of::<u32>() as u32;
/// Lines that are asked for ahead of the one that is read.
const AHEAD: u32 = 24;

/// A frame to be sent: where its pieces are in what the device was handed, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) first: u32,
    pub(super) pieces: u32,
    pub(super) len: u32,
}

/// Fill `list` with the frames from piece `at` on; returns how many, at least one.
#[inline]
pub(super) fn split(frames: &[Piece], at: usize, list: &mut [MaybeUninit<Frame>; BATCH]) -> usize {
    let (mut n, mut first, mut len) = (0, at, 0u32);
    for (i, piece) in frames.iter().enumerate().skip(at) {
        len = len.saturating_add(piece.len);
        if piece.more {
            continue;
        }
        list[n].write(Frame { first: first as u32, pieces: (i + 1 - first) as u32, len });
        (n, first, len) = (n + 1, i + 1, 0);
        if n == BATCH {
            break;
        }
    }
    n
}

/// Bytes before the first frame of a batch of `n`.
const fn head(n: u32) -> u32 {
    if n == 1 { WORD } else { WORD + n * WORD }
}

const fn padded(len: u32) -> u32 {
    len.next_multiple_of(WORD)
}

/// Lines of a batch.
pub(super) fn lines(frames: &[Frame]) -> u32 {
    let bytes: u32 = frames.iter().map(|f| padded(f.len)).sum();
    (head(frames.len() as u32) + bytes).div_ceil(LINE)
}

/// How many leading frames fit in a number of lines, fewer than all of them need.
#[cold]
pub(super) fn fitting(frames: &[Frame], lines: u32) -> usize {
    let room = lines * LINE;
    let mut bytes = 0;
    frames
        .iter()
        .enumerate()
        .take_while(|(i, frame)| {
            bytes += padded(frame.len);
            head(*i as u32 + 1) + bytes <= room
        })
        .count()
}

/// Write a batch of 1 to BATCH frames.
///
/// # Safety
/// 1. [`lines`] lines at `to` are writable, aligned to four, and nobody else's.
/// 2. Each frame's pieces are within `pieces`, as long together as it says, and readable (`Piece::data`).
#[inline]
pub(super) unsafe fn write(to: *mut u8, frames: &[Frame], pieces: &[Piece]) {
    let n = frames.len() as u32;
    let word = |at: u32, value: u32| {
        // SAFETY: inside the batch (condition 1).
        let place = unsafe { to.add(at as usize) };
        // SAFETY: as above; aligned, since `at` is a multiple of four.
        unsafe { AtomicU32::from_ptr(place.cast()) }.store(value, Ordering::Relaxed);
    };
    if n == 1 {
        word(0, 1 | frames[0].len << 8);
    } else {
        word(0, n);
        for (i, frame) in frames.iter().enumerate() {
            word(WORD + i as u32 * WORD, frame.len);
        }
    }
    let mut at = head(n) as usize;
    for frame in frames {
        let mut here = at;
        for piece in &pieces[frame.first as usize..(frame.first + frame.pieces) as usize] {
            // SAFETY: inside the batch: the frame's pieces are as long together as it says.
            let place = unsafe { to.add(here) };
            // SAFETY: `len` bytes are readable there (condition 2), and writable here.
            unsafe { copy_frame(piece.data, place, piece.len as usize) };
            here += piece.len as usize;
        }
        at += padded(frame.len) as usize;
    }
}

/// A batch that was read: its frames as pieces, and its length.
pub(super) struct Batch {
    pieces: [MaybeUninit<Piece>; BATCH],
    len: usize,
    /// Lines of the whole batch.
    pub(super) lines: u32,
}

impl Batch {
    pub(super) const fn new() -> Batch {
        Batch { pieces: [const { MaybeUninit::uninit() }; BATCH], len: 0, lines: 0 }
    }

    /// The frames.
    #[inline]
    pub(super) fn frames(&self) -> &[Piece] {
        // SAFETY: `read` wrote the first `len`; MaybeUninit<Piece> has Piece's layout.
        unsafe { slice::from_raw_parts(self.pieces.as_ptr().cast::<Piece>(), self.len) }
    }
}

/// Read the batch at `from`, of which `published` lines (at least one) can be there, this batch's and others'. False: it is none.
///
/// # Safety
/// `published` lines at `from` are readable, aligned to four.
#[inline]
pub(super) unsafe fn read(batch: &mut Batch, from: *const u8, published: u32) -> bool {
    for line in 0..published.min(AHEAD) {
        prefetch(from.wrapping_add((line * LINE) as usize));
    }
    let word = |at: u32| {
        // SAFETY: `at` is below `published` lines: checked before each call.
        let place = unsafe { from.add(at as usize) };
        // SAFETY: as above; aligned, since `at` is a multiple of four.
        unsafe { AtomicU32::from_ptr(place.cast_mut().cast()) }.load(Ordering::Relaxed)
    };
    let room = published * LINE;
    let first = word(0);
    let (n, alone) = (first & 0xff, first >> 8);
    if n == 0 || n as usize > BATCH || head(n) > room || (n > 1 && alone != 0) {
        return false;
    }
    let mut at = head(n);
    for i in 0..n {
        let len = if n == 1 { alone } else { word(WORD + i * WORD) };
        // The first half keeps the sum below 2^23.
        if !(SHORTEST..=LONGEST).contains(&len) || room - at < padded(len) {
            return false;
        }
        let data = from.wrapping_add(at as usize);
        batch.pieces[i as usize].write(Piece { data, len, more: false });
        at += padded(len);
    }
    batch.len = n as usize;
    batch.lines = at.div_ceil(LINE);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lens: &[u32]) -> (Vec<Frame>, Vec<Vec<u8>>) {
        let frames = lens.iter().enumerate().map(|(i, len)| Frame { first: i as u32, pieces: 1, len: *len }).collect();
        let bytes = lens.iter().enumerate().map(|(i, len)| vec![i as u8 + 1; *len as usize]).collect();
        (frames, bytes)
    }

    /// The ring's memory for a test: aligned as the real one.
    fn memory(lines: u32) -> Vec<u64> {
        vec![0; (lines * LINE / 8) as usize]
    }

    #[test]
    fn what_is_written_is_read() {
        for lens in [&[60][..], &[14], &[65553], &[64, 65, 66, 67, 1518], &[14; 64], &[1500; 64]] {
            let (frames, bytes) = frames(lens);
            let pieces: Vec<Piece> =
                bytes.iter().map(|b| Piece { data: b.as_ptr(), len: b.len() as u32, more: false }).collect();
            let n = lines(&frames);
            let mut memory = memory(n);
            // SAFETY: as many lines as the batch needs; the pieces are the frames.
            unsafe { write(memory.as_mut_ptr().cast(), &frames, &pieces) };
            let mut batch = Batch::new();
            // SAFETY: as many lines as were made.
            assert!(unsafe { read(&mut batch, memory.as_ptr().cast(), n) });
            assert_eq!(batch.lines, n);
            let read: Vec<Vec<u8>> = batch
                .frames()
                .iter()
                // SAFETY: inside the memory, as `read` has checked.
                .map(|p| unsafe { slice::from_raw_parts(p.data, p.len as usize) }.to_vec())
                .collect();
            assert_eq!(read, bytes);
            // SAFETY: fewer lines than were made.
            assert!(n == 1 || !unsafe { read_some(&mut batch, &memory, n - 1) }, "cut short");
            assert_eq!(fitting(&frames, n), frames.len());
            assert_eq!(fitting(&frames, n - 1), frames.len() - 1, "the last does not fit in a line less");
        }
        assert_eq!(lines(&frames(&[60]).0), 1, "a small frame alone takes one line");
    }

    unsafe fn read_some(batch: &mut Batch, memory: &[u64], lines: u32) -> bool {
        // SAFETY: the caller's condition.
        unsafe { read(batch, memory.as_ptr().cast(), lines) }
    }

    /// Whatever stands there: no frame outside of what was published, and no batch of nothing.
    #[test]
    fn nonsense_is_refused() {
        let mut memory = memory(4);
        let mut batch = Batch::new();
        for first in [0u32, 65, 255, 0x100, 13 << 8 | 1, u32::MAX, 253 << 8 | 1, 1 << 8 | 2, 64] {
            memory[0] = u64::from(first);
            // SAFETY: four lines.
            assert!(!unsafe { read_some(&mut batch, &memory, 4) }, "{first:#x}");
        }
        let mut state = 88172645463325252u64;
        for _ in 0..200_000 {
            for word in &mut memory {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Mostly small lengths.
                *word = if state & 1 == 0 { state & 0x0000_007f_0000_007f } else { state };
            }
            // SAFETY: four lines.
            if unsafe { read_some(&mut batch, &memory, 4) } {
                assert!((1..=4).contains(&batch.lines) && !batch.frames().is_empty());
                let bounds = memory.as_ptr_range();
                for p in batch.frames() {
                    let end = p.data.wrapping_add(p.len as usize);
                    assert!(p.data >= bounds.start.cast() && end <= bounds.end.cast());
                }
            }
        }
    }
}
