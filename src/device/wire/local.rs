//! The wires of this process that have an end open, and what their ends know of each other.
//!
//! With both ends in one process the sender's thread delivers straight into the receiver's rings and UMEM. A forked child must
//! not touch its parent's list, whose lock may have been held by a thread that it does not have: it gets a new one.

use core::ptr;
use std::{collections::HashMap, sync::TryLockError};

use super::{CachePadded, PortSlot, directory::Held, flow::Key};
use crate::{
    config::End,
    errno::{Errno, Result},
    sync::{Arc, AtomicBool, AtomicPtr, Mutex, MutexGuard, Once, Ordering, RwLock, Weak},
    sys,
};

/// A wire: the receiving sides of its two ends, each there while this process has the end open.
#[derive(Debug, Default)]
pub(super) struct Wire {
    ends: [CachePadded<RwLock<Option<Arc<Side>>>>; 2],
    /// Which of them are there, for a look without a lock.
    there: CachePadded<[AtomicBool; 2]>,
}

/// The receiving side of an end.
#[derive(Debug)]
pub(super) struct Side {
    /// Interface that has it.
    pub(super) holder: String,
    pub(super) ports: Box<[CachePadded<PortSlot>]>,
    /// How frames are spread over the ports.
    pub(super) key: Key,
    /// The cable is plugged in at this end.
    pub(super) link: AtomicBool,
    /// The end's lock and files; taken out with the end's release.
    pub(super) held: Mutex<Option<Held>>,
}

impl Side {
    /// Whether the cable is plugged in at this end.
    #[inline]
    pub(super) fn is_plugged(&self) -> bool {
        self.link.load(Ordering::Relaxed)
    }
}

impl Wire {
    /// What this process has of an end.
    pub(super) fn side(&self, end: End) -> &RwLock<Option<Arc<Side>>> {
        &self.ends[end as usize]
    }

    /// The end is opened or given back. Returns when nobody delivers to what was there before.
    pub(super) fn set(&self, end: End, side: Option<Arc<Side>>) -> Result<()> {
        let mut slot = self.side(end).write().map_err(|_| Errno::EIO)?;
        self.there[end as usize].store(side.is_some(), Ordering::Relaxed);
        *slot = side;
        Ok(())
    }

    /// Whether it is worth while to look at an end.
    #[inline]
    pub(super) fn may_have(&self, end: End) -> bool {
        self.there[end as usize].load(Ordering::Relaxed)
    }

    /// Whether this process has an end.
    pub(super) fn has(&self, end: End) -> bool {
        self.side(end).read().is_ok_and(|side| side.is_some())
    }
}

type Wires = HashMap<String, Weak<Wire>>;

#[derive(Debug)]
struct List {
    pid: u32,
    wires: Mutex<Wires>,
}

static CURRENT: AtomicPtr<List> = AtomicPtr::new(ptr::null_mut());

fn list() -> &'static List {
    let pid = sys::getpid();
    loop {
        // Acquire: pairs with the publication below.
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or leaked below.
        if let Some(list) = unsafe { current.as_ref() }.filter(|list| list.pid == pid) {
            return list;
        }
        let fresh = Box::into_raw(Box::new(List { pid, wires: Mutex::default() }));
        if CURRENT.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: made above and seen by nobody.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

/// The wires of this process, for one thread at a time.
#[derive(Debug)]
pub(super) struct Opening(MutexGuard<'static, Wires>);

impl Opening {
    /// Waits for others who open an end.
    pub(super) fn begin() -> Result<Opening> {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: a function of ours that the process does not outlive. A failure leaves files for the next attach.
            let _ = unsafe { libc::atexit(leave) };
        });
        list().wires.lock().map(Opening).map_err(|_| Errno::EIO)
    }

    /// The wire of a name.
    pub(super) fn wire(&mut self, name: &str) -> Arc<Wire> {
        self.0.retain(|_, wire| wire.strong_count() != 0);
        let found = self.0.get(name).and_then(Weak::upgrade);
        found.unwrap_or_else(|| {
            let fresh = Arc::<Wire>::default();
            self.0.insert(name.to_owned(), Arc::downgrade(&fresh));
            fresh
        })
    }
}

/// The process exits with ends open, as most programs do: their files go, the locks go with the process. Other threads may
/// still run, and one of them may hold a lock for good.
extern "C" fn leave() {
    let list = list();
    let wires = match list.wires.try_lock() {
        Ok(wires) => wires,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    for wire in wires.values().filter_map(Weak::upgrade) {
        for end in [End::A, End::B] {
            let side = wire.side(end).try_read().ok().and_then(|side| side.clone());
            if let Some(held) = side.as_ref().and_then(|side| side.held.try_lock().ok())
                && let Some(held) = &*held
            {
                held.remove_files();
            }
        }
    }
}
