//! What one process has once: interfaces, stand-in maps, registered UMEMs, the worker.
//!
//! A forked child must not touch its parent's, whose locks may have been held by other threads at the time of the fork:
//! it gets a new set on first use and the old one is left as it is.

use core::{cell::Cell, ptr};

use super::{
    iface::{Maps, Registry},
    owner::Owner,
    umem::Umem,
    worker::Worker,
};
use crate::{
    errno::{Errno, Result},
    sync::{Arc, AtomicPtr, AtomicUsize, Mutex, Ordering, Weak},
    sys,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) owner: Owner,
    pub(super) pid: u32,
    pub(super) interfaces: Registry,
    pub(super) maps: Maps,
    pub(super) worker: Worker,
    /// Sockets with a UMEM, to be told when its memory goes.
    pub(super) umems: Mutex<Vec<(Weak<Umem>, Weak<super::Socket>)>>,
}

static CURRENT: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The ranges of registered UMEMs, for a look without a lock by every `free` and `munmap` of the program: start and end,
/// equal when the place is free. What does not fit is covered by the last place, from the lowest to the highest.
static RANGES: [(AtomicUsize, AtomicUsize); 32] = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 32];

/// Places of `RANGES` in use; 0: no UMEM.
static UMEMS: AtomicUsize = AtomicUsize::new(0);

/// This process's runtime if it has one.
pub(super) fn existing() -> Option<&'static Runtime> {
    // Acquire: pairs with the publication in `get`.
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: null, or leaked by `get`.
    unsafe { current.as_ref() }.filter(|r| r.owner.is_us())
}

/// This process's runtime, made on first use.
pub(super) fn get() -> Result<&'static Runtime> {
    if let Some(runtime) = existing() {
        return Ok(runtime);
    }
    let old = CURRENT.load(Ordering::Acquire);
    let fresh = Box::into_raw(Box::new(Runtime {
        owner: Owner::new()?,
        pid: sys::getpid(),
        interfaces: Registry::default(),
        maps: Maps::default(),
        worker: Worker::default(),
        umems: Mutex::default(),
    }));
    if CURRENT.compare_exchange(old, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above and seen by nobody.
        drop(unsafe { Box::from_raw(fresh) });
    } else if !old.is_null() {
        // A forked child: its parent's UMEMs are no concern of its.
        UMEMS.store(0, Ordering::Relaxed);
    }
    existing().ok_or(Errno::EIO)
}

/// The registered UMEMs and the sockets that use them.
type List = Vec<(Weak<Umem>, Weak<super::Socket>)>;

thread_local! {
    /// This thread holds the list's lock. What it frees meanwhile is the library's own and comes to `memory_going` through
    /// the interposed `free`.
    static IN_LIST: Cell<bool> = const { Cell::new(false) };
}

/// Write the ranges anew. Called with the list's lock held.
fn publish_ranges(umems: &[(Weak<Umem>, Weak<super::Socket>)]) {
    // Memory that was let go may be anybody's by now, the library's own included.
    let living = umems.iter().filter_map(|(u, _)| u.upgrade()).filter(|u| !u.is_let_go());
    let mut ranges: Vec<(usize, usize)> = living.map(|u| u.range()).collect();
    ranges.sort_unstable();
    ranges.dedup();
    if ranges.len() > RANGES.len() {
        let end = ranges.iter().map(|r| r.1).max().unwrap_or(0);
        let start = ranges[RANGES.len() - 1].0;
        ranges.truncate(RANGES.len());
        ranges[RANGES.len() - 1] = (start, end);
    }
    for (i, place) in RANGES.iter().enumerate() {
        let (start, end) = ranges.get(i).copied().unwrap_or((0, 0));
        place.0.store(start, Ordering::Relaxed);
        place.1.store(end, Ordering::Relaxed);
    }
    UMEMS.store(ranges.len(), Ordering::Release);
}

/// Whether a range may overlap a registered UMEM.
fn near_umem(addr: usize, len: usize) -> bool {
    let n = UMEMS.load(Ordering::Acquire);
    RANGES[..n.min(RANGES.len())].iter().any(|(start, end)| {
        addr < end.load(Ordering::Relaxed) && start.load(Ordering::Relaxed) < addr.saturating_add(len)
    })
}

/// Whether any UMEM is registered: one relaxed load, for the interposed `free` and `munmap`.
#[inline]
pub fn any_umem() -> bool {
    UMEMS.load(Ordering::Relaxed) != 0
}

impl Runtime {
    /// Work on the list with its lock held.
    fn with_list<R>(&self, change: impl FnOnce(&mut List) -> R) -> Option<R> {
        let mut umems = self.umems.lock().ok()?;
        IN_LIST.set(true);
        let result = change(&mut umems);
        IN_LIST.set(false);
        Some(result)
    }

    /// Remember that `socket` uses `umem`.
    pub(super) fn watch(&self, umem: &Arc<Umem>, socket: &Weak<super::Socket>) {
        self.with_list(|umems| {
            umems.retain(|(u, s)| u.strong_count() != 0 && s.strong_count() != 0);
            umems.push((Arc::downgrade(umem), Weak::clone(socket)));
            publish_ranges(umems);
        });
    }

    /// A socket is finished.
    pub(super) fn unwatch(&self, socket: &super::Socket) {
        self.with_list(|umems| {
            umems.retain(|(u, s)| u.strong_count() != 0 && s.strong_count() != 0 && !ptr::eq(s.as_ptr(), socket));
            publish_ranges(umems);
        });
    }
}

/// The program is about to unmap or free `len` bytes at `addr`: retire every UMEM that overlaps. On return no thread of
/// ours touches it any more, nor will: also when another thread takes another part of the same UMEM away and came first.
pub fn memory_going(addr: usize, len: usize) {
    // Not only memory of a UMEM is near one: with many UMEMs the last range covers what lies between them.
    if !near_umem(addr, len) || IN_LIST.get() {
        return;
    }
    let Some(runtime) = existing() else { return };
    let hit = runtime.with_list(|umems| {
        // Only sockets that are returned are held: the end of one does not happen in here.
        let using = umems.iter().filter_map(|(umem, socket)| {
            let umem = umem.upgrade().filter(|u| !u.is_let_go() && u.overlaps(addr, len))?;
            Some((umem, socket.upgrade()?))
        });
        let hit: Vec<_> = using.collect();
        hit.iter().for_each(|(u, _)| u.set_gone());
        hit
    });
    let Some(hit) = hit.filter(|hit| !hit.is_empty()) else { return };
    for (_, socket) in &hit {
        socket.memory_gone();
    }
    hit.iter().for_each(|(umem, _)| umem.set_let_go());
    runtime.with_list(|umems| publish_ranges(umems));
}
