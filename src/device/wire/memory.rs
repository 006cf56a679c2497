//! The shared memory of a wire between two processes: one memfd an end, made and written by that end alone, read by the other.
//!
//! ```text
//! 0                 a line of 128 bytes for each of 64 queues, in four groups:
//!   producer[q]     the end sends to queue q of the other: how far it has written its ring q      (sender writes)
//!   consumer[q]     the end receives on its queue q: how far it has read the other's ring q       (receiver writes)
//!   receiver[q]     whether somebody receives on queue q, and whether he sleeps                   (receiver writes)
//!   sender[q]       whether somebody sleeps until there is room for the other's queue q           (sender writes)
//! HEADER            64 rings of equal size; only those of the other end's queues are ever touched
//! ```
//! So no line is written by both sides, and each side maps the other's memory for reading only. The maker may write to the
//! other's memory all the same: it owns the descriptor. Therefore no end reads its own words back as truth.
//!
//! The memory is sealed against shrinking, which the other side verifies along with its size and kind, so that no access can
//! fault. A ring is mapped twice in a row: what begins in it and is no longer than it is in one piece.

use core::ptr::NonNull;
use std::os::fd::RawFd;

use crate::{
    engine::InternalFd,
    errno::{Errno, Result},
    sync::AtomicU32,
    sys,
    uapi::Mapping,
};

/// Queues that an end can have.
pub(super) const QUEUES: u32 = 64;
/// Bytes of a line of a ring.
pub(super) const LINE: u32 = 64;
/// Lines of the smallest and of the largest ring.
pub(super) const LEAST_LINES: u32 = 64;
pub(super) const MOST_LINES: u32 = 1 << 23;
/// What is written together with its neighbour goes on a pair of cache lines.
const SLOT: usize = 128;
const HEADER: usize = (4 * QUEUES as usize * SLOT).next_multiple_of(sys::PAGE);
const TMPFS: libc::__fsword_t = 0x0102_1994;

/// The groups of lines.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Producer,
    Consumer,
    /// 1: somebody receives.
    Open,
    /// Not 0: the receiver sleeps.
    Dozing,
    /// Not 0: the sender sleeps.
    Waiting,
}

/// One end's memory, mapped.
#[derive(Debug)]
pub(super) struct Memory {
    fd: InternalFd,
    writable: bool,
    header: Mapping,
    lines: u32,
}

impl Memory {
    /// New memory with rings of `lines` lines.
    pub(super) fn new(lines: u32) -> Result<Memory> {
        let fd = InternalFd::new(sys::memfd(c"slipring-wire")?);
        sys::ftruncate(fd.number(), bytes(lines)?)?;
        sys::seal(fd.number(), libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)?;
        let header = map(fd.number(), HEADER, true)?;
        Ok(Memory { fd, writable: true, header, lines })
    }

    /// The other end's memory. EPROTO: it is not what an end makes.
    pub(super) fn of_peer(fd: InternalFd, lines: u32) -> Result<Memory> {
        check(fd.number(), lines)?;
        let header = map(fd.number(), HEADER, false)?;
        Ok(Memory { fd, writable: false, header, lines })
    }

    /// To be handed to the other end.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.number()
    }

    /// Lines of each ring, a power of two.
    pub(super) fn lines(&self) -> u32 {
        self.lines
    }

    /// Address of a word. `queue` is below [`QUEUES`].
    pub(super) fn address(&self, word: Word, queue: u32) -> NonNull<u32> {
        assert!(queue < QUEUES, "there are 64 queues");
        let (group, offset) = match word {
            Word::Producer => (0, 0),
            Word::Consumer => (1, 0),
            Word::Open => (2, 0),
            Word::Dozing => (2, 4),
            Word::Waiting => (3, 0),
        };
        let at = (group * QUEUES + queue) as usize * SLOT + offset;
        // SAFETY: four groups of 64 slots are within the header.
        unsafe { self.header.base().add(at) }.cast()
    }

    /// A word. Only written where the memory is ours.
    pub(super) fn word(&self, word: Word, queue: u32) -> &AtomicU32 {
        let at = self.address(word, queue);
        // SAFETY: aligned, mapped for as long as self, reached through atomics alone.
        unsafe { AtomicU32::from_ptr(at.as_ptr()) }
    }

    /// Map a ring, twice in a row.
    pub(super) fn ring(&self, queue: u32) -> Result<Mapping> {
        let len = self.lines as usize * LINE as usize;
        let offset = HEADER + queue as usize * len;
        let both = sys::map_private(2 * len)?;
        // SAFETY: mapped by us just now, unmapped by nobody else.
        let both = unsafe { Mapping::new(both, 2 * len) };
        for half in 0..2 {
            // SAFETY: inside the mapping.
            let at = unsafe { both.base().add(half * len) };
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: replaces a half of the mapping that was made for it.
            unsafe { sys::mmap(at.as_ptr(), len, self.protection(), flags, self.fd.number(), offset as u64) }?;
        }
        Ok(both)
    }

    fn protection(&self) -> i32 {
        libc::PROT_READ | if self.writable { libc::PROT_WRITE } else { 0 }
    }
}

/// Bytes of the memory. ENOMEM: more than an address can tell.
fn bytes(lines: u32) -> Result<usize> {
    let rings = (lines as usize).checked_mul((LINE * QUEUES) as usize).ok_or(Errno::ENOMEM)?;
    rings.checked_add(HEADER).filter(|n| isize::try_from(*n).is_ok()).ok_or(Errno::ENOMEM)
}

fn map(fd: RawFd, len: usize, writable: bool) -> Result<Mapping> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: no fixed address.
    let base = unsafe { sys::mmap(core::ptr::null_mut(), len, protection, flags, fd, 0) }?;
    // SAFETY: mapped by us just now, unmapped by nobody else.
    Ok(unsafe { Mapping::new(base, len) })
}

/// Whether a descriptor is a memfd that can be mapped without fear: it cannot be cut short, its pages need no reserve of huge
/// ones, and it is as large as it should be.
fn check(fd: RawFd, lines: u32) -> Result<()> {
    if !lines.is_power_of_two() || !(LEAST_LINES..=MOST_LINES).contains(&lines) {
        return Err(Errno::EPROTO);
    }
    let sealed = sys::seals(fd).is_ok_and(|seals| seals & libc::F_SEAL_SHRINK != 0);
    let plain = sys::file_system(fd) == Ok(TMPFS);
    let size = sys::fstat(fd)?.st_size;
    let enough = bytes(lines)?;
    if sealed && plain && usize::try_from(size).is_ok_and(|n| n >= enough) { Ok(()) } else { Err(Errno::EPROTO) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    fn refused(fd: RawFd, lines: u32) -> bool {
        Memory::of_peer(InternalFd::new(fd), lines).err() == Some(Errno::EPROTO)
    }

    /// What could fault under us is refused: memory that can be cut short, memory that is too short, files, huge pages.
    #[test]
    fn only_sealed_memory_is_taken() {
        let memfd = || sys::memfd(c"test").expect("a memfd");
        let size = bytes(64).expect("small");
        let open = memfd();
        sys::ftruncate(open, size).expect("sparse");
        assert!(refused(open, 64), "not sealed");
        let short = memfd();
        sys::ftruncate(short, size - 1).expect("sparse");
        sys::seal(short, libc::F_SEAL_SHRINK).expect("sealed");
        assert!(refused(short, 64), "too short");
        let null = sys::openat(libc::AT_FDCWD, c"/dev/null", libc::O_RDWR, 0).expect("a device");
        assert!(refused(null, 64), "no memory at all");
        for lines in [0, 32, 65, 1 << 24] {
            let fd = memfd();
            sys::seal(fd, libc::F_SEAL_SHRINK).expect("sealed");
            assert!(refused(fd, lines), "{lines} lines");
        }
    }

    /// A ring goes on behind its end with its beginning, on both sides.
    #[test]
    fn a_ring_is_mapped_twice() {
        let ours = Memory::new(64).expect("memory");
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", ours.fd())).unwrap();
        let again = sys::openat(libc::AT_FDCWD, &path, libc::O_RDWR, 0).expect("the same file");
        let theirs = Memory::of_peer(InternalFd::new(again), 64).expect("taken");
        let (out, back) = (ours.ring(63).expect("mapped"), theirs.ring(63).expect("mapped"));
        let (to, from) = (out.base().as_ptr().wrapping_add(4096 + 5), back.base().as_ptr().wrapping_add(5));
        // SAFETY: inside the mapping of 2 * 4096 bytes.
        unsafe { to.write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { from.read() }, 7);
        ours.word(Word::Waiting, 63).store(9, Ordering::Relaxed);
        assert_eq!(theirs.word(Word::Waiting, 63).load(Ordering::Relaxed), 9);
    }
}
