//! UMEMs.

use std::{
    mem,
    os::fd::RawFd,
    sync::{Arc, PoisonError, TryLockError},
};

use super::{
    context::{Context, Key, RingPair, Structs},
    explain,
    options::UmemOptions,
    ring::{MappedRing, View},
};
use crate::{
    errno::{Errno, Result},
    sync::{Mutex, MutexGuard},
    sys::{self, PAGE},
    uapi::{
        self, Ring, UmemReg,
        select::{self, Side},
    },
    warn,
};

/// What `struct xsk_umem *` points to.
#[derive(Debug)]
pub struct Umem(pub(super) Arc<Shared>);

/// A UMEM and its sockets: reached from the UMEM's handle and from the handle of each socket.
#[derive(Debug)]
pub(super) struct Shared {
    /// The UMEM's own descriptor number, which stays the same whatever the provider.
    fd: RawFd,
    pub(super) options: UmemOptions,
    pub(super) reg: UmemReg,
    /// Who made it: [`sys::generation`].
    process: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Whose descriptor the UMEM's own is.
    pub(super) side: Side,
    pub(super) socket: Arc<dyn uapi::Socket>,
    /// The rings that were made with the UMEM, until the first socket's context has them.
    pub(super) saved: Option<RingPair>,
    /// RX and TX rings set up on the UMEM's own descriptor by a first socket that failed later. A ring can be set up only
    /// once, so the next attempt goes on with these.
    pub(super) own_rx: Option<MappedRing>,
    pub(super) own_tx: Option<MappedRing>,
    /// Where the UMEM's own descriptor is bound, with which flags.
    pub(super) bound: Option<(Key, u16)>,
    /// Living sockets.
    pub(super) sockets: usize,
    /// There were sockets and the last one is gone: the descriptor is bound for good, no new first socket is possible.
    pub(super) spent: bool,
    pub(super) contexts: Vec<Context>,
    pub(super) next_id: u64,
}

/// A new UMEM and what the caller's two ring structs are to hold.
#[derive(Debug)]
pub struct NewUmem {
    /// The handle.
    pub umem: Umem,
    /// Fill ring.
    pub fill: View,
    /// Completion ring.
    pub comp: View,
}

/// Closes the socket unless it is kept.
pub(super) struct Closing(Option<Arc<dyn uapi::Socket>>);

impl Closing {
    pub(super) fn new(socket: Arc<dyn uapi::Socket>) -> Closing {
        Closing(Some(socket))
    }

    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.close();
        }
    }
}

impl Umem {
    /// Register `options.size` bytes at `area` and make the fill and completion ring. `fill_struct` and `comp_struct`:
    /// addresses of the caller's ring structs; 0: it wants none, and can send only. A descriptor in `options` is owned from the first system call on it, also when that fails.
    ///
    /// Errors: see [`explain`]'s rules for EINVAL; EPERM, EAFNOSUPPORT, EMFILE from making the socket; ENOBUFS beyond
    /// RLIMIT_MEMLOCK; EBADF, ENOTSOCK, EBUSY for a given descriptor.
    pub fn create(area: usize, options: UmemOptions, fill_struct: usize, comp_struct: usize) -> Result<NewUmem> {
        let reg = UmemReg {
            addr: area as u64,
            len: options.size,
            chunk_size: options.frame_size,
            headroom: options.frame_headroom,
            flags: options.flags,
            tx_metadata_len: options.tx_metadata_len,
        };
        if options.size == 0 && !area.is_multiple_of(PAGE) {
            explain::umem(&reg, options.fd, Errno::EINVAL);
            return Err(Errno::EINVAL);
        }
        let (side, socket) = match options.fd {
            Some(fd) => select::adopt(fd),
            None => {
                let side = select::initial();
                (side, side.provider().socket().inspect_err(|e| explain::socket(side, *e))?)
            }
        };
        let fd = socket.fd();
        let closing = Closing::new(Arc::clone(&socket));
        socket.register_umem(&reg).inspect_err(|e| explain::umem(&reg, options.fd, *e))?;
        explain::metadata_ignored(&reg);
        let mut rings = make_fill_and_completion(&*socket, &options)?;
        rings.remember(Structs { fill: fill_struct, comp: comp_struct });
        closing.keep();

        let (fill, comp) = (rings.fill.view(), rings.comp.view());
        let state = State {
            side,
            socket,
            saved: Some(rings),
            own_rx: None,
            own_tx: None,
            bound: None,
            sockets: 0,
            spent: false,
            contexts: Vec::new(),
            next_id: 0,
        };
        let shared = Shared { fd, options, reg, process: sys::generation(), state: Mutex::new(state) };
        Ok(NewUmem { umem: Umem(Arc::new(shared)), fill, comp })
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.fd()
    }

    /// Close the descriptor and unmap the rings. EBUSY: sockets still use the UMEM, and nothing was done.
    pub fn delete(&self) -> Result<()> {
        let Some(mut state) = self.0.lock_unless_left() else { return Ok(()) };
        if state.sockets > 0 {
            warn!("xsk_umem__delete: {} socket(s) still use the UMEM; delete them first", state.sockets);
            return Err(Errno::EBUSY);
        }
        state.saved = None;
        state.contexts.clear();
        state.own_rx = None;
        state.own_tx = None;
        state.socket.close();
        Ok(())
    }
}

impl Shared {
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside leaves at worst a socket too many in the counts, as the caller is told by EIO.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the caller is the child of a fork, and a thread of its parent held the lock at that time. It does not exist in
    /// the child and may have left anything half done: what the lock protects stays there as it is until the child ends.
    pub(super) fn lock_unless_left(self: &Arc<Self>) -> Option<MutexGuard<'_, State>> {
        if sys::generation() == self.process {
            return Some(self.lock());
        }
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                mem::forget(Arc::clone(self));
                None
            }
        }
    }
}

/// Set the size of one ring and map it. EINVAL: no power of two, or set already.
pub(super) fn make_ring(
    socket: &dyn uapi::Socket,
    offsets: &uapi::MmapOffsets,
    ring: Ring,
    entries: u32,
) -> Result<MappedRing> {
    MappedRing::map(socket, ring, entries, offsets.of(ring))
        .inspect_err(|e| warn!("cannot map the {} ring of {entries} entries: {e}", ring.name()))
}

/// Set a ring's size, with a message when that fails.
pub(super) fn set_size(socket: &dyn uapi::Socket, ring: Ring, entries: u32) -> Result<()> {
    socket.set_ring_size(ring, entries).inspect_err(|e| explain::ring_size(ring, entries, *e))
}

/// Ask for the rings' layout, with a message when that fails.
pub(super) fn offsets(socket: &dyn uapi::Socket) -> Result<uapi::MmapOffsets> {
    socket.mmap_offsets().inspect_err(|e| warn!("cannot learn the layout of the rings (XDP_MMAP_OFFSETS): {e}"))
}

/// The fill and completion ring of a socket that has none yet.
pub(super) fn make_fill_and_completion(socket: &dyn uapi::Socket, options: &UmemOptions) -> Result<RingPair> {
    set_size(socket, Ring::Fill, options.fill_size)?;
    set_size(socket, Ring::Completion, options.comp_size)?;
    let offsets = offsets(socket)?;
    let fill = make_ring(socket, &offsets, Ring::Fill, options.fill_size)?;
    let comp = make_ring(socket, &offsets, Ring::Completion, options.comp_size)?;
    Ok(RingPair { fill, comp, known: Vec::new() })
}
