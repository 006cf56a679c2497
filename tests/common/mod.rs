//! The program's side of an AF_XDP socket, as a program without libxdp writes it: rings, UMEM, set-up through the trait.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the program's side, as a C program would write it"
)]

use std::{
    ffi::CString,
    ptr::NonNull,
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
    },
};

use slipring::{
    engine,
    errno::Result,
    sys,
    uapi::{AF_XDP, Desc, Mapping, Provider, Ring, SockaddrXdp, Socket, UmemReg},
};

/// One ring as the program maps it.
#[derive(Debug)]
pub(crate) struct User<T> {
    pub(crate) mapping: Mapping,
    pub(crate) size: u32,
    producer: usize,
    consumer: usize,
    flags: usize,
    desc: usize,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> User<T> {
    pub(crate) fn new(socket: &dyn Socket, ring: Ring, size: u32) -> Result<User<T>> {
        socket.set_ring_size(ring, size)?;
        let o = socket.mmap_offsets()?.of(ring);
        let len = o.desc as usize + size as usize * ring.entry_size();
        let mapping = socket.map_ring(ring, len)?;
        Ok(User {
            mapping,
            size,
            producer: o.producer as usize,
            consumer: o.consumer as usize,
            flags: o.flags as usize,
            desc: o.desc as usize,
            entry: std::marker::PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the mapping holds the word, aligned, for as long as self.
        unsafe { self.mapping.base().add(offset).cast::<AtomicU32>().as_ref() }
    }

    pub(crate) fn producer(&self) -> &AtomicU32 {
        self.word(self.producer)
    }

    pub(crate) fn consumer(&self) -> &AtomicU32 {
        self.word(self.consumer)
    }

    pub(crate) fn flags(&self) -> u32 {
        self.word(self.flags).load(Ordering::Relaxed)
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        let i = (index & (self.size - 1)) as usize;
        // SAFETY: masked, so inside the mapping.
        unsafe { self.mapping.base().add(self.desc).cast::<T>().add(i) }
    }

    /// Produce one entry; false when the ring is full.
    pub(crate) fn push(&self, entry: T) -> bool {
        let p = self.producer().load(Ordering::Relaxed);
        if p.wrapping_sub(self.consumer().load(Ordering::Acquire)) == self.size {
            return false;
        }
        // SAFETY: a free slot of ours.
        unsafe { self.slot(p).write(entry) };
        self.producer().store(p.wrapping_add(1), Ordering::Release);
        true
    }

    /// Consume one entry.
    pub(crate) fn pop(&self) -> Option<T> {
        let c = self.consumer().load(Ordering::Relaxed);
        if c == self.producer().load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: published by the other side.
        let entry = unsafe { self.slot(c).read() };
        self.consumer().store(c.wrapping_add(1), Ordering::Release);
        Some(entry)
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.producer().load(Ordering::Acquire).wrapping_sub(self.consumer().load(Ordering::Acquire))
    }
}

/// Memory for a UMEM.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: plain memory, used by tests that take care themselves.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    pub(crate) fn new(len: usize) -> Area {
        Area { base: sys::map_private(len).expect("memory"), len }
    }

    pub(crate) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        assert!(addr as usize + len <= self.len);
        // SAFETY: inside the area, and the frame is the program's.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(addr as usize), len).to_vec() }
    }

    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        assert!(addr as usize + bytes.len() <= self.len);
        // SAFETY: inside the area, and the frame is the program's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(addr as usize), bytes.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        sys::unmap(self.base, self.len);
    }
}

/// A socket with everything.
#[derive(Debug)]
pub(crate) struct Xsk {
    pub(crate) socket: Arc<dyn Socket>,
    pub(crate) rx: User<Desc>,
    pub(crate) tx: User<Desc>,
    pub(crate) fill: Option<User<u64>>,
    pub(crate) comp: Option<User<u64>>,
    pub(crate) area: Arc<Area>,
}

impl Drop for Xsk {
    fn drop(&mut self) {
        self.socket.close();
    }
}

/// How a socket is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) chunk: u32,
    pub(crate) chunks: u32,
    pub(crate) headroom: u32,
    pub(crate) umem_flags: u32,
    pub(crate) ring: u32,
    pub(crate) queue: u32,
    pub(crate) flags: u16,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { chunk: 2048, chunks: 256, headroom: 0, umem_flags: 0, ring: 64, queue: 0, flags: 0 }
    }
}

pub(crate) fn provider() -> &'static dyn Provider {
    static WIRES: Once = Once::new();
    WIRES.call_once(|| {
        // Wires of the tests' own, whatever else this user has running. A child process gets its parent's.
        if std::env::var_os("WIRES_OF_TEST").is_none() {
            let dir = concat!(env!("CARGO_TARGET_TMPDIR"), "/wires");
            std::fs::create_dir_all(dir).expect("a directory for wires");
            // SAFETY: nothing in this process reads the environment before its first socket.
            unsafe { std::env::set_var("XDG_RUNTIME_DIR", dir) };
        }
    });
    engine::provider()
}

pub(crate) fn ifindex(name: &str) -> u32 {
    provider().ifindex(&CString::new(name).expect("no NUL")).expect("an engine name")
}

pub(crate) fn address(name: &str, shape: &Shape) -> SockaddrXdp {
    SockaddrXdp {
        family: AF_XDP as u16,
        flags: shape.flags,
        ifindex: ifindex(name),
        queue_id: shape.queue,
        shared_umem_fd: 0,
    }
}

impl Xsk {
    /// A socket of its own.
    pub(crate) fn open(name: &str, shape: Shape) -> Result<Xsk> {
        let area = Arc::new(Area::new((shape.chunk * shape.chunks).next_multiple_of(4096) as usize));
        let socket = provider().socket()?;
        socket.register_umem(&UmemReg {
            addr: area.base.as_ptr() as u64,
            len: u64::from(shape.chunk) * u64::from(shape.chunks),
            chunk_size: shape.chunk,
            headroom: shape.headroom,
            flags: shape.umem_flags,
            tx_metadata_len: 0,
        })?;
        let fill = Some(User::new(&*socket, Ring::Fill, shape.ring)?);
        let comp = Some(User::new(&*socket, Ring::Completion, shape.ring)?);
        let rx = User::new(&*socket, Ring::Rx, shape.ring)?;
        let tx = User::new(&*socket, Ring::Tx, shape.ring)?;
        let xsk = Xsk { rx, tx, fill, comp, area, socket };
        xsk.socket.bind(&address(name, &shape))?;
        Ok(xsk)
    }

    /// A sibling on the same queue.
    pub(crate) fn sibling(&self, name: &str, shape: Shape) -> Result<Xsk> {
        let socket = provider().socket()?;
        let rx = User::new(&*socket, Ring::Rx, shape.ring)?;
        let tx = User::new(&*socket, Ring::Tx, shape.ring)?;
        let xsk = Xsk { rx, tx, fill: None, comp: None, area: Arc::clone(&self.area), socket };
        let shape = Shape { flags: 1, ..shape };
        xsk.socket.bind(&SockaddrXdp { shared_umem_fd: self.socket.fd() as u32, ..address(name, &shape) })?;
        Ok(xsk)
    }

    pub(crate) fn fill(&self) -> &User<u64> {
        self.fill.as_ref().expect("a socket of its own")
    }

    pub(crate) fn comp(&self) -> &User<u64> {
        self.comp.as_ref().expect("a socket of its own")
    }

    pub(crate) fn send(&self, addr: u64, bytes: &[u8]) {
        self.area.write(addr, bytes);
        assert!(self.tx.push(Desc { addr, len: bytes.len() as u32, options: 0 }), "TX ring full");
    }

    pub(crate) fn kick(&self) -> Result<()> {
        self.socket.kick_tx(libc::MSG_DONTWAIT)
    }
}
