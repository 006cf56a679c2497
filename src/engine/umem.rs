//! A registered UMEM: its geometry, and the checks of everything that names a place in it.

use crate::{
    errno::{Errno, Result},
    sync::{AtomicBool, Ordering},
    sys,
    uapi::{
        Desc, UmemReg, XDP_PACKET_HEADROOM, XDP_PKT_CONTD, XDP_UMEM_TX_METADATA_LEN, XDP_UMEM_TX_SW_CSUM,
        XDP_UMEM_UNALIGNED_CHUNK_FLAG, XSK_UNALIGNED_BUF_ADDR_MASK, XSK_UNALIGNED_BUF_OFFSET_SHIFT,
    },
};

/// What 6.18 keeps of a chunk for itself: `XDP_PACKET_HEADROOM` and its packet buffer's tail.
const KERNEL_RESERVE: u32 = 704;
const LEAST_CHUNK: u32 = 2048;

/// Read-mostly geometry, shared by every socket of the UMEM.
#[derive(Debug)]
pub(super) struct Umem {
    pub(super) reg: UmemReg,
    /// Offset of received data in a chunk.
    offset: u32,
    /// Bytes of data that a chunk takes.
    room: u32,
    unaligned: bool,
    /// Every socket has stopped after the memory went.
    let_go: AtomicBool,
    /// The program took the memory away: nothing may be touched any more.
    gone: AtomicBool,
}

/// Where a fill entry says that received data may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Offset of the first byte of data in the area.
    pub(super) at: u64,
    /// The address as the RX descriptor carries it.
    pub(super) addr: u64,
}

impl Umem {
    /// Check a registration as the kernel does. EINVAL: alignment, sizes, flags. EFAULT: not mapped or not writable.
    #[expect(clippy::cast_possible_truncation, reason = "a page has 4096 bytes")]
    pub(super) fn new(reg: UmemReg) -> Result<Umem> {
        let unaligned = reg.flags & XDP_UMEM_UNALIGNED_CHUNK_FLAG != 0;
        let known = XDP_UMEM_UNALIGNED_CHUNK_FLAG | XDP_UMEM_TX_SW_CSUM | XDP_UMEM_TX_METADATA_LEN;
        let metadata = reg.flags & XDP_UMEM_TX_METADATA_LEN != 0;
        let bad = !(LEAST_CHUNK..=sys::PAGE as u32).contains(&reg.chunk_size)
            || reg.flags & !known != 0
            || (!unaligned && !reg.chunk_size.is_power_of_two())
            || !reg.addr.is_multiple_of(sys::PAGE as u64)
            || reg.len < u64::from(reg.chunk_size)
            || reg.len > u64::from(u32::MAX) * sys::PAGE as u64
            || reg.addr.checked_add(reg.len).is_none_or(|end| end > isize::MAX as u64)
            || (!unaligned && !reg.len.is_multiple_of(u64::from(reg.chunk_size)))
            || reg.headroom > reg.chunk_size - KERNEL_RESERVE
            || (metadata && (reg.tx_metadata_len >= 256 || !reg.tx_metadata_len.is_multiple_of(8)));
        if bad {
            return Err(Errno::EINVAL);
        }
        let first = usize::try_from(reg.addr).map_err(|_| Errno::EINVAL)?;
        let bytes = usize::try_from(reg.len).map_err(|_| Errno::EINVAL)?;
        sys::populate_write(first, bytes.next_multiple_of(sys::PAGE))?;
        let offset = XDP_PACKET_HEADROOM + reg.headroom;
        let reg = UmemReg { tx_metadata_len: if metadata { reg.tx_metadata_len } else { 0 }, ..reg };
        Ok(Umem {
            reg,
            offset,
            room: reg.chunk_size - offset,
            unaligned,
            let_go: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// Bytes of data that one chunk takes.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.room
    }

    /// The memory at an offset that `place` or `piece` has checked.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses of this process: `Umem::new` has checked that they fit"
    )]
    pub(super) fn at(&self, offset: u64) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut((self.reg.addr + offset) as usize)
    }

    /// A fill entry as a place for data; `None`: it names no chunk.
    #[inline]
    pub(super) fn place(&self, entry: u64) -> Option<Place> {
        let chunk = u64::from(self.reg.chunk_size);
        if self.unaligned {
            let base = entry & XSK_UNALIGNED_BUF_ADDR_MASK;
            let start = base.wrapping_add(entry >> XSK_UNALIGNED_BUF_OFFSET_SHIFT);
            if start >= self.reg.len || self.reg.len - start < chunk {
                return None;
            }
            let at = start + u64::from(self.offset);
            return Some(Place { at, addr: start + (u64::from(self.offset) << XSK_UNALIGNED_BUF_OFFSET_SHIFT) });
        }
        let start = entry & !(chunk - 1);
        if start >= self.reg.len {
            return None;
        }
        let at = start + u64::from(self.offset);
        Some(Place { at, addr: at })
    }

    /// The rules for TX descriptors, by value, for a batch.
    #[inline]
    pub(super) fn rules(&self) -> Rules {
        Rules {
            base: self.at(0),
            len: self.reg.len,
            chunk: u64::from(self.reg.chunk_size),
            metadata: u64::from(self.reg.tx_metadata_len),
            unaligned: self.unaligned,
        }
    }

    /// First address of the area and the one behind it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses of this process: `Umem::new` has checked that they fit"
    )]
    pub(super) fn range(&self) -> (usize, usize) {
        (self.reg.addr as usize, (self.reg.addr + self.reg.len) as usize)
    }

    /// Whether a range of the program's memory overlaps the area.
    pub(super) fn overlaps(&self, addr: usize, len: usize) -> bool {
        let (addr, len) = (addr as u64, len as u64);
        addr < self.reg.addr + self.reg.len && self.reg.addr < addr.saturating_add(len)
    }

    /// The memory is about to go.
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// The memory has gone and nothing touches it any more.
    pub(super) fn set_let_go(&self) {
        self.let_go.store(true, Ordering::SeqCst);
    }

    /// Whether nothing touches the memory any more.
    pub(super) fn is_let_go(&self) -> bool {
        self.let_go.load(Ordering::SeqCst)
    }

    /// Whether the memory has gone.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }
}

/// What makes a TX descriptor valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    base: *mut u8,
    len: u64,
    chunk: u64,
    metadata: u64,
    unaligned: bool,
}

impl Rules {
    /// The memory of a TX descriptor; `None`: the kernel calls it invalid. It never spans two chunks in aligned mode,
    /// never leaves the area, and is never empty.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses of this process: `Umem::new` has checked that they fit"
    )]
    pub(super) fn piece(&self, desc: &Desc) -> Option<*const u8> {
        let len = u64::from(desc.len);
        if len == 0 || desc.options & !XDP_PKT_CONTD != 0 {
            return None;
        }
        let data = if self.unaligned {
            (desc.addr & XSK_UNALIGNED_BUF_ADDR_MASK).wrapping_add(desc.addr >> XSK_UNALIGNED_BUF_OFFSET_SHIFT)
        } else {
            desc.addr
        };
        // The metadata stands before the data and belongs to the same chunk.
        let start = data.wrapping_sub(self.metadata);
        let whole = len + self.metadata;
        if start >= self.len || self.len - start < whole || data < self.metadata {
            return None;
        }
        let in_chunk = if self.unaligned { 0 } else { start & (self.chunk - 1) };
        // Inside the area: `start + whole` is at most its length.
        (in_chunk + whole <= self.chunk).then(|| self.base.wrapping_add(data as usize).cast_const())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UMEM over addresses that are never touched.
    fn umem(chunk_size: u32, headroom: u32, flags: u32, tx_metadata_len: u32) -> Umem {
        let reg = UmemReg { addr: 0x10000, len: 16 * 4096, chunk_size, headroom, flags, tx_metadata_len };
        let unaligned = flags & XDP_UMEM_UNALIGNED_CHUNK_FLAG != 0;
        let offset = XDP_PACKET_HEADROOM + headroom;
        Umem {
            reg,
            offset,
            room: chunk_size - offset,
            unaligned,
            let_go: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Offset of the memory that a descriptor names.
    fn at(u: &Umem, desc: &Desc) -> Option<u64> {
        u.rules().piece(desc).map(|p| p.addr() as u64 - u.reg.addr)
    }

    /// The kernel's rules for descriptors: outside, across the end, across a chunk, empty, unknown options.
    #[test]
    fn tx_descriptors_are_judged_as_the_kernel_does() {
        let u = umem(4096, 0, 0, 0);
        let desc = |addr, len, options| Desc { addr, len, options };
        assert_eq!(at(&u, &desc(0, 4096, 0)), Some(0));
        assert_eq!(at(&u, &desc(4096 + 100, 60, XDP_PKT_CONTD)), Some(4196));
        assert_eq!(at(&u, &desc(15 * 4096, 4096, 0)), Some(15 * 4096));
        for bad in [
            desc(0, 0, 0),
            desc(0, 4097, 0),
            desc(100, 4000, 0),
            desc(16 * 4096, 60, 0),
            desc(u64::MAX, 60, 0),
            desc(u64::MAX - 30, 60, 0),
            desc(0, u32::MAX, 0),
            desc(0, 60, 2),
            desc(0, 60, 0x8000_0000),
        ] {
            assert_eq!(at(&u, &bad), None, "{bad:?}");
        }
        let u = umem(3000, 0, XDP_UMEM_UNALIGNED_CHUNK_FLAG, 0);
        assert_eq!(at(&u, &desc(4000, 3000, 0)), Some(4000), "may cross a page");
        assert_eq!(at(&u, &desc(4000 | 96 << 48, 100, 0)), Some(4096));
        assert_eq!(at(&u, &desc(0, 3001, 0)), None);
        assert_eq!(at(&u, &desc(16 * 4096 - 10, 11, 0)), None);
        assert_eq!(at(&u, &desc(XSK_UNALIGNED_BUF_ADDR_MASK | 0xffff << 48, 60, 0)), None);
        let u = umem(2048, 0, XDP_UMEM_TX_METADATA_LEN, 16);
        assert_eq!(at(&u, &desc(16, 60, 0)), Some(16));
        assert_eq!(at(&u, &desc(8, 60, 0)), None, "no room for the metadata before it");
    }

    /// Received data begins at chunk + 256 + head room whatever offset the fill entry carries (C27, C28).
    #[test]
    fn fill_entries_are_rounded_down_to_their_chunk() {
        let u = umem(2048, 100, 0, 0);
        assert_eq!(u.place(2048 + 356).map(|p| p.addr), Some(2048 + 356));
        assert_eq!(u.place(2048).map(|p| (p.at, p.addr)), Some((2404, 2404)));
        assert_eq!(u.room(), 2048 - 356);
        assert_eq!(u.place(16 * 4096), None);
        assert_eq!(u.place(u64::MAX), None);
        let u = umem(3000, 0, XDP_UMEM_UNALIGNED_CHUNK_FLAG, 0);
        assert_eq!(u.place(5000), Some(Place { at: 5256, addr: 5000 | 256 << 48 }));
        assert_eq!(u.place(16 * 4096 - 2999), None);
        assert_eq!(u.place(XSK_UNALIGNED_BUF_ADDR_MASK | 0xffff << 48), None);
    }

    /// C23, C24, C26: what the kernel refuses at registration, without touching memory.
    #[test]
    fn registrations_are_judged_as_the_kernel_does() {
        let area = sys::map_private(16 * 4096).expect("memory");
        let reg = |chunk_size, headroom, flags, tx_metadata_len| UmemReg {
            addr: area.as_ptr() as u64,
            len: 16 * 4096,
            chunk_size,
            headroom,
            flags,
            tx_metadata_len,
        };
        let good = [
            reg(4096, 0, 0, 0),
            reg(2048, 1344, 0, 0),
            reg(4096, 3392, 0, 0),
            reg(3000, 0, 1, 0),
            reg(2304, 0, 1, 0),
            reg(4096, 0, 4, 248),
            reg(4096, 0, 0, 13),
        ];
        let bad = [
            reg(1024, 0, 0, 0),
            reg(3000, 0, 0, 0),
            reg(8192, 0, 0, 0),
            reg(1800, 0, 1, 0),
            reg(2047, 0, 1, 0),
            reg(4097, 0, 1, 0),
            reg(9728, 0, 1, 0),
            reg(2048, 1345, 0, 0),
            reg(4096, 4096, 0, 0),
            reg(4096, 0, 8, 0),
            reg(4096, 0, 4, 12),
            reg(4096, 0, 4, 256),
            UmemReg { addr: area.as_ptr() as u64 + 64, ..reg(4096, 0, 0, 0) },
            UmemReg { len: 0, ..reg(4096, 0, 0, 0) },
            UmemReg { len: 4096 + 1, ..reg(4096, 0, 0, 0) },
            UmemReg { len: !4095, ..reg(4096, 0, 0, 0) },
        ];
        for r in good {
            assert!(Umem::new(r).is_ok(), "{r:?}");
        }
        for r in bad {
            assert_eq!(Umem::new(r).err(), Some(Errno::EINVAL), "{r:?}");
        }
        sys::unmap(area, 16 * 4096);
        assert_eq!(Umem::new(reg(4096, 0, 0, 0)).err(), Some(Errno::EFAULT));
    }
}
