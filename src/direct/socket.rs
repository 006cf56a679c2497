//! A kernel AF_XDP socket.

use core::ptr::NonNull;
use std::{
    os::fd::RawFd,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::busy;
use crate::{
    errno::{Errno, Result},
    sync::{AtomicI32, Ordering},
    sys,
    uapi::{
        self, AF_XDP, Mapping, MmapOffsets, Ring, RingOffset, SO_NETNS_COOKIE, SOL_XDP, Setup, SockaddrXdp, Statistics,
        UmemReg, XDP_MMAP_OFFSETS, XDP_OPTIONS, XDP_STATISTICS, XDP_UMEM_REG,
    },
};

/// Stands in `fd` after close: a number that every system call answers with EBADF.
const CLOSED: RawFd = -1;

#[derive(Debug)]
pub(super) struct DirectSocket {
    fd: AtomicI32,
    state: Mutex<State>,
    cookie: OnceLock<u64>,
    /// The UMEM's own socket is asked twice: for its fill and completion ring, and for its RX and TX ring.
    offsets: OnceLock<MmapOffsets>,
}

#[derive(Debug, Default)]
struct State {
    setup: Setup,
    /// Where it is bound, for `busy`.
    bound: Option<busy::Queue>,
}

impl DirectSocket {
    /// Without close-on-exec, as libxdp does it: programs hand the descriptor on across exec.
    pub(super) fn open() -> Result<DirectSocket> {
        sys::socket(AF_XDP, libc::SOCK_RAW, 0).map(DirectSocket::new)
    }

    pub(super) fn new(fd: RawFd) -> DirectSocket {
        DirectSocket {
            fd: AtomicI32::new(fd),
            state: Mutex::default(),
            cookie: OnceLock::new(),
            offsets: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Changed by whole assignments only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> RawFd {
        // Published to other threads by whatever gave them the socket; close and renumber are rare and exclusive.
        self.fd.load(Ordering::Relaxed)
    }

    fn let_go(&self) {
        if let Some(queue) = self.state().bound.take() {
            busy::closed(queue);
        }
    }
}

impl uapi::Socket for DirectSocket {
    fn fd(&self) -> RawFd {
        self.number()
    }

    fn register_umem(&self, reg: &UmemReg) -> Result<()> {
        sys::setsockopt(self.number(), SOL_XDP, XDP_UMEM_REG, reg)?;
        self.state().setup.umem = Some(*reg);
        Ok(())
    }

    fn set_ring_size(&self, ring: Ring, entries: u32) -> Result<()> {
        sys::setsockopt(self.number(), SOL_XDP, ring.option(), &entries)?;
        self.state().setup.entries[ring.index()] = entries;
        Ok(())
    }

    fn mmap_offsets(&self) -> Result<MmapOffsets> {
        if let Some(offsets) = self.offsets.get() {
            return Ok(*offsets);
        }
        let mut words = [0u64; 16];
        let len = sys::getsockopt(self.number(), SOL_XDP, XDP_MMAP_OFFSETS, &mut words)?;
        let offsets = parse_offsets(&words, len)?;
        Ok(*self.offsets.get_or_init(|| offsets))
    }

    unsafe fn map_ring_at(&self, ring: Ring, len: usize, at: Option<NonNull<u8>>) -> Result<Mapping> {
        // SAFETY: the caller's promise.
        let base = unsafe { sys::map_shared_at(self.number(), ring.page_offset(), len, at) }?;
        self.state().setup.mapped[ring.index()] = Some((base.as_ptr() as usize, len));
        // SAFETY: just mapped with this length; the number of the range is handed to nobody else.
        Ok(unsafe { Mapping::new(base, len) })
    }

    fn bind(&self, addr: &SockaddrXdp) -> Result<()> {
        let queue = || {
            // Bound already: EBUSY is about this very socket, and waiting would not help.
            if self.state().bound.is_some() {
                return None;
            }
            Some((self.netns_cookie().ok()?, addr.ifindex, addr.queue_id))
        };
        busy::retry(queue, || sys::bind(self.number(), addr))?;
        if let Ok(cookie) = self.netns_cookie() {
            let queue = (cookie, addr.ifindex, addr.queue_id);
            busy::opened(queue);
            self.state().bound = Some(queue);
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        let mut statistics = Statistics::default();
        // Older kernels write the first three counters only; the rest stays 0.
        sys::getsockopt(self.number(), SOL_XDP, XDP_STATISTICS, &mut statistics)?;
        Ok(statistics)
    }

    fn options(&self) -> Result<u32> {
        let mut flags = 0u32;
        sys::getsockopt(self.number(), SOL_XDP, XDP_OPTIONS, &mut flags)?;
        Ok(flags)
    }

    fn netns_cookie(&self) -> Result<u64> {
        if let Some(cookie) = self.cookie.get() {
            return Ok(*cookie);
        }
        let mut cookie = 0u64;
        let cookie = match sys::getsockopt(self.number(), libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie) {
            Ok(_) => cookie,
            Err(Errno::ENOPROTOOPT) => 1,
            Err(e) => return Err(e),
        };
        // A socket never changes its namespace.
        Ok(*self.cookie.get_or_init(|| cookie))
    }

    fn take_error(&self) -> Result<i32> {
        let mut error = 0i32;
        sys::getsockopt(self.number(), libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
        Ok(error)
    }

    fn kick_tx(&self, flags: i32) -> Result<()> {
        sys::send(self.number(), &[], flags).map(drop)
    }

    fn kick_rx(&self, flags: i32) -> Result<()> {
        sys::recv(self.number(), &mut [], flags).map(drop)
    }

    fn readiness(&self) -> i16 {
        let mut fds = [libc::pollfd { fd: self.number(), events: libc::POLLIN | libc::POLLOUT, revents: 0 }];
        match sys::poll(&mut fds, 0) {
            Ok(_) => fds[0].revents,
            Err(_) => 0,
        }
    }

    fn close(&self) {
        let fd = self.fd.swap(CLOSED, Ordering::Relaxed);
        if fd >= 0 {
            sys::close(fd);
            self.let_go();
        }
    }

    fn setup(&self) -> Setup {
        self.state().setup
    }

    fn renumber(&self, fd: RawFd) -> Result<()> {
        let old = self.number();
        if old == fd {
            return Ok(());
        }
        sys::dup3(old, fd, sys::is_cloexec(fd).unwrap_or(false))?;
        self.fd.store(fd, Ordering::Relaxed);
        sys::close(old);
        Ok(())
    }

    fn relinquish(&self) {
        self.fd.store(CLOSED, Ordering::Relaxed);
        self.let_go();
    }
}

impl Drop for DirectSocket {
    fn drop(&mut self) {
        uapi::Socket::close(self);
    }
}

/// The kernel's answer to `XDP_MMAP_OFFSETS`, of which it wrote `len` bytes.
///
/// Kernels before 5.4 write three words a ring, without the flags: there the flags word follows the consumer index.
fn parse_offsets(words: &[u64; 16], len: usize) -> Result<MmapOffsets> {
    let ring = |n: usize| match len {
        128 => {
            let w = &words[n * 4..];
            Ok(RingOffset { producer: w[0], consumer: w[1], desc: w[2], flags: w[3] })
        }
        96 => {
            let w = &words[n * 3..];
            Ok(RingOffset { producer: w[0], consumer: w[1], desc: w[2], flags: w[1] + 4 })
        }
        _ => Err(Errno::EINVAL),
    };
    Ok(MmapOffsets { rx: ring(0)?, tx: ring(1)?, fr: ring(2)?, cr: ring(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c61_old_offsets_without_flags_are_understood() {
        let mut words = [0u64; 16];
        for (n, word) in words.iter_mut().take(12).enumerate() {
            *word = n as u64 * 64;
        }
        let offsets = parse_offsets(&words, 96).unwrap();
        assert_eq!(offsets.rx, RingOffset { producer: 0, consumer: 64, desc: 128, flags: 68 });
        assert_eq!(offsets.cr, RingOffset { producer: 9 * 64, consumer: 10 * 64, desc: 11 * 64, flags: 10 * 64 + 4 });
    }

    #[test]
    fn long_offsets_are_read_in_order() {
        let words: [u64; 16] = core::array::from_fn(|n| n as u64);
        let offsets = parse_offsets(&words, 128).unwrap();
        assert_eq!(offsets.tx, RingOffset { producer: 4, consumer: 5, desc: 6, flags: 7 });
        assert_eq!(offsets.fr, RingOffset { producer: 8, consumer: 9, desc: 10, flags: 11 });
    }

    #[test]
    fn d13_an_answer_of_another_length_is_an_error() {
        for len in [0, 24, 95, 97, 127, 129] {
            assert_eq!(parse_offsets(&[0; 16], len), Err(Errno::EINVAL));
        }
    }
}
