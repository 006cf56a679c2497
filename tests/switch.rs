//! Moving a UMEM between providers: what the program has set up and put into the rings is there afterwards, under the same
//! number and at the same addresses; a refusal changes nothing.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "ring memory is poked at"
)]

mod direct_support;

use std::{
    ffi::CStr,
    os::fd::RawFd,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use direct_support::{FRAME, Peer, World, index_of, map_area};
use slipring::{
    errno::{Errno, Result},
    sys,
    uapi::{
        Mapping, MmapOffsets, Program, Provider, Ring, RingOffset, Setup, SockaddrXdp, Socket, Statistics, UmemReg,
        XDP_COPY, switch::switch,
    },
};

const OFFSETS: RingOffset = RingOffset { producer: 0, consumer: 64, desc: 192, flags: 128 };

/// Rings in a memory file, without anything behind them.
#[derive(Debug)]
struct Fake {
    fd: Mutex<RawFd>,
    offset: RingOffset,
    /// The ring that cannot be mapped.
    broken: Option<Ring>,
    setup: Mutex<Setup>,
}

/// A source of such sockets.
#[derive(Debug)]
struct Fakes {
    offset: RingOffset,
    broken: Option<Ring>,
}

impl Fake {
    fn new(offset: RingOffset, broken: Option<Ring>) -> Fake {
        let fd = sys::memfd(c"fake").unwrap();
        sys::ftruncate(fd, 4 * sys::PAGE).unwrap();
        Fake { fd: Mutex::new(fd), offset, broken, setup: Mutex::default() }
    }
}

impl Provider for Fakes {
    fn socket(&self) -> Result<Arc<dyn Socket>> {
        Ok(Arc::new(Fake::new(self.offset, self.broken)))
    }
    fn ifindex(&self, _: &CStr) -> Result<u32> {
        Ok(1)
    }
    fn default_program(&self, _: u32, _: u32) -> Result<Box<dyn Program>> {
        Err(Errno::EOPNOTSUPP)
    }
    fn permanent_program(&self, _: u32) -> Result<RawFd> {
        Err(Errno::EOPNOTSUPP)
    }
    fn update_map(&self, _: RawFd, _: u32, _: &dyn Socket) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }
}

impl Socket for Fake {
    fn fd(&self) -> RawFd {
        *self.fd.lock().unwrap()
    }
    fn register_umem(&self, reg: &UmemReg) -> Result<()> {
        self.setup.lock().unwrap().umem = Some(*reg);
        Ok(())
    }
    fn set_ring_size(&self, ring: Ring, entries: u32) -> Result<()> {
        self.setup.lock().unwrap().entries[ring.index()] = entries;
        Ok(())
    }
    fn mmap_offsets(&self) -> Result<MmapOffsets> {
        Ok(MmapOffsets { rx: self.offset, tx: self.offset, fr: self.offset, cr: self.offset })
    }
    unsafe fn map_ring_at(&self, ring: Ring, len: usize, at: Option<NonNull<u8>>) -> Result<Mapping> {
        if self.broken == Some(ring) {
            return Err(Errno::ENOMEM);
        }
        let base = unsafe { sys::map_shared_at(self.fd(), (ring.index() * sys::PAGE) as u64, len, at) }?;
        self.setup.lock().unwrap().mapped[ring.index()] = Some((base.as_ptr() as usize, len));
        Ok(unsafe { Mapping::new(base, len) })
    }
    fn bind(&self, _: &SockaddrXdp) -> Result<()> {
        Ok(())
    }
    fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics::default())
    }
    fn options(&self) -> Result<u32> {
        Ok(0)
    }
    fn netns_cookie(&self) -> Result<u64> {
        Ok(1)
    }
    fn take_error(&self) -> Result<i32> {
        Ok(0)
    }
    fn kick_tx(&self, _: i32) -> Result<()> {
        Ok(())
    }
    fn kick_rx(&self, _: i32) -> Result<()> {
        Ok(())
    }
    fn readiness(&self) -> i16 {
        0
    }
    fn close(&self) {
        let fd = std::mem::replace(&mut *self.fd.lock().unwrap(), -1);
        if fd >= 0 {
            sys::close(fd);
        }
    }
    fn setup(&self) -> Setup {
        *self.setup.lock().unwrap()
    }
    fn renumber(&self, to: RawFd) -> Result<()> {
        let mut fd = self.fd.lock().unwrap();
        sys::dup3(*fd, to, false)?;
        sys::close(*fd);
        *fd = to;
        Ok(())
    }
    fn relinquish(&self) {
        *self.fd.lock().unwrap() = -1;
    }
}

fn word(ring: &Mapping, at: u64) -> *mut u32 {
    unsafe { ring.base().as_ptr().add(at as usize) }.cast()
}

/// A UMEM's set-up with two submitted fill entries on a fake socket.
fn prepared() -> (Fake, Mapping, Mapping) {
    let old = Fake::new(OFFSETS, None);
    old.register_umem(&UmemReg { addr: 0x10000, len: 65536, chunk_size: 4096, ..UmemReg::default() }).unwrap();
    old.set_ring_size(Ring::Fill, 64).unwrap();
    old.set_ring_size(Ring::Completion, 32).unwrap();
    let fill = old.map_ring(Ring::Fill, 192 + 64 * 8).unwrap();
    let comp = old.map_ring(Ring::Completion, 192 + 32 * 8).unwrap();
    unsafe {
        word(&fill, 192).cast::<u64>().write(0x1000);
        word(&fill, 200).cast::<u64>().write(0x2000);
        word(&fill, 0).write(2);
    }
    (old, fill, comp)
}

fn contents(fill: &Mapping) -> (u32, u64, u64) {
    unsafe { (word(fill, 0).read(), word(fill, 192).cast::<u64>().read(), word(fill, 200).cast::<u64>().read()) }
}

#[test]
fn everything_is_there_after_the_move() {
    let (old, fill, _comp) = prepared();
    let number = old.fd();
    let new = switch(&old, &Fakes { offset: OFFSETS, broken: None }).unwrap();
    assert_eq!((new.fd(), old.fd()), (number, -1));
    let setup = new.setup();
    assert_eq!(setup.umem.unwrap().addr, 0x10000);
    assert_eq!(setup.entries, [0, 0, 64, 32]);
    assert_eq!(setup.mapped[Ring::Fill.index()], Some((fill.base().as_ptr() as usize, fill.len())));
    assert_eq!(contents(&fill), (2, 0x1000, 0x2000));
    // The memory is the new socket's: another mapping of it sees the same.
    let again = new.map_ring(Ring::Fill, fill.len()).unwrap();
    unsafe { word(&fill, 0).write(3) };
    assert_eq!(contents(&again), (3, 0x1000, 0x2000));
    new.close();
}

#[test]
fn another_ring_layout_is_refused_and_nothing_changes() {
    let (old, fill, _comp) = prepared();
    let number = old.fd();
    let other = RingOffset { desc: 320, ..OFFSETS };
    assert_eq!(switch(&old, &Fakes { offset: other, broken: None }).err(), Some(Errno::EOPNOTSUPP));
    assert_eq!((old.fd(), contents(&fill)), (number, (2, 0x1000, 0x2000)));
    old.close();
}

#[test]
fn a_ring_that_cannot_be_mapped_gives_the_old_ones_back() {
    let (old, fill, _comp) = prepared();
    let broken = Fakes { offset: OFFSETS, broken: Some(Ring::Completion) };
    assert_eq!(switch(&old, &broken).err(), Some(Errno::ENOMEM));
    assert_eq!(contents(&fill), (2, 0x1000, 0x2000));
    let again = old.map_ring(Ring::Fill, fill.len()).unwrap();
    unsafe { word(&fill, 0).write(4) };
    assert_eq!(contents(&again).0, 4);
    old.close();
}

#[test]
fn a_socket_that_was_in_use_is_refused() {
    let (old, fill, _comp) = prepared();
    unsafe { word(&fill, 64).write(1) };
    assert_eq!(switch(&old, &Fakes { offset: OFFSETS, broken: None }).err(), Some(Errno::EOPNOTSUPP));
    old.close();
}

#[test]
fn a_moved_kernel_socket_receives_into_the_chunks_that_were_filled_before() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let direct = slipring::direct::provider();
    let area = map_area(16 * FRAME);
    let old = direct.socket().unwrap();
    let reg = UmemReg { addr: area as u64, len: 16 * FRAME as u64, chunk_size: 4096, ..UmemReg::default() };
    old.register_umem(&reg).unwrap();
    for (ring, entries) in [(Ring::Fill, 16), (Ring::Completion, 16)] {
        old.set_ring_size(ring, entries).unwrap();
    }
    let offsets = old.mmap_offsets().unwrap();
    let len = |ring| offsets.of(ring).desc as usize + 16 * ring.entry_size();
    let fill = old.map_ring(Ring::Fill, len(Ring::Fill)).unwrap();
    let _comp = old.map_ring(Ring::Completion, len(Ring::Completion)).unwrap();
    unsafe {
        word(&fill, offsets.fr.desc).cast::<u64>().write(5 * FRAME as u64);
        word(&fill, offsets.fr.producer).write(1);
    }

    let number = old.fd();
    let new = switch(&*old, direct).unwrap();
    drop(old);
    assert_eq!(new.fd(), number);
    new.set_ring_size(Ring::Rx, 16).unwrap();
    let rx = new.map_ring(Ring::Rx, len(Ring::Rx)).unwrap();
    let ifindex = index_of("va");
    let program = direct.default_program(ifindex, 0).unwrap();
    new.bind(&SockaddrXdp { family: 44, flags: XDP_COPY, ifindex, queue_id: 0, shared_umem_fd: 0 }).unwrap();
    program.insert(0, &*new).unwrap();
    peer.send(1);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while unsafe { word(&rx, offsets.rx.producer).read_volatile() } == 0 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let received = unsafe { word(&rx, offsets.rx.desc).cast::<u64>().read() };
    assert_eq!(received, (5 * FRAME + 256) as u64);
    drop(program);
    new.close();
}
