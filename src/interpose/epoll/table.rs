//! Which numbers stand for epoll instances that watch sockets of ours.
//!
//! Looked at by every epoll wait and every `close` and `dup` of the program, from any thread: a bitmap says in one load
//! whether a number may be one. The child of a fork begins with an empty table, the child of a `vfork` leaves it alone.

use core::{ffi::c_int, ptr};
use std::sync::PoisonError;

use super::set::Set;
use crate::{
    errno::{Errno, Result},
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, Mutex, MutexGuard, Once, Ordering},
};

/// Numbers below this have a bit in [`MARKS`]; of higher ones there is one flag.
const MARKED: usize = 1 << 16;
static MARKS: [AtomicU64; MARKED / 64] = [const { AtomicU64::new(0) }; MARKED / 64];
static HIGH: AtomicBool = AtomicBool::new(false);

/// Whether a number may be an epoll instance that watches a socket of ours.
#[inline]
pub(in crate::interpose) extern "C" fn maybe(fd: c_int) -> bool {
    let number = fd.cast_unsigned() as usize;
    match MARKS.get(number / 64) {
        Some(word) => word.load(Ordering::Relaxed) & 1 << (number % 64) != 0,
        None => fd >= 0 && HIGH.load(Ordering::Relaxed),
    }
}

fn mark(fd: c_int, known: bool) {
    let number = fd.cast_unsigned() as usize;
    match MARKS.get(number / 64) {
        Some(word) if known => drop(word.fetch_or(1 << (number % 64), Ordering::Relaxed)),
        Some(word) => drop(word.fetch_and(!(1 << (number % 64)), Ordering::Relaxed)),
        None => HIGH.store(true, Ordering::Relaxed),
    }
}

/// Everything that is known in one process. Never freed.
pub(super) struct Table {
    process: i32,
    /// Numbers and what they stand for; a duplicated number stands for the same.
    instances: Mutex<Vec<(c_int, Arc<Instance>)>>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn process() -> i32 {
    // SAFETY: no arguments. From the kernel: the child of a vfork must not see its parent's.
    let id = unsafe { libc::syscall(libc::SYS_getpid) };
    i32::try_from(id).unwrap_or(0)
}

impl Table {
    /// The table, unless the caller is another process: the child of a vfork, or of a clone that ran no fork handlers.
    pub(super) fn get() -> Option<&'static Table> {
        // Pairs with the store in `made`.
        // SAFETY: null, or leaked by `made`.
        let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
        (table.process == process()).then_some(table)
    }

    /// The table, made if need be.
    pub(super) fn made() -> Result<&'static Table> {
        static HANDLER: Once = Once::new();
        if TABLE.load(Ordering::Acquire).is_null() {
            HANDLER.call_once(|| {
                // SAFETY: the handler touches statics only.
                unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            });
            let fresh = Box::into_raw(Box::new(Table { process: process(), instances: Mutex::new(Vec::new()) }));
            if TABLE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above and seen by nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        Table::get().ok_or(Errno::EBADF)
    }

    fn instances(&self) -> MutexGuard<'_, Vec<(c_int, Arc<Instance>)>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn instance(&self, epoll: c_int) -> Option<Arc<Instance>> {
        self.instances().iter().find(|(number, _)| *number == epoll).map(|(_, instance)| instance.clone())
    }

    pub(super) fn instance_made(&self, epoll: c_int) -> Arc<Instance> {
        if let Some(known) = self.instance(epoll) {
            return known;
        }
        let instance = Arc::new(Instance(Mutex::new(Set::default())));
        self.instances().push((epoll, instance.clone()));
        mark(epoll, true);
        instance
    }
}

/// A forked child begins with no table: its parent's may have been locked by another thread.
extern "C" fn forked() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
    for word in &MARKS {
        word.store(0, Ordering::Relaxed);
    }
    HIGH.store(false, Ordering::Relaxed);
}

/// One epoll instance.
pub(super) struct Instance(Mutex<Set>);

impl Instance {
    pub(super) fn set(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program closed a number.
pub(in crate::interpose) fn forget(fd: c_int) {
    if !maybe(fd) {
        return;
    }
    let Some(table) = Table::get() else { return };
    // Taken out first and dropped after the lock, since dropping the last number drops the registrations.
    let mut gone = None;
    {
        let mut instances = table.instances();
        if let Some(at) = instances.iter().position(|(number, _)| *number == fd) {
            gone = Some(instances.swap_remove(at));
        }
        mark(fd, false);
    }
    drop(gone);
}

/// `new` is another number for what `old` stands for.
pub(in crate::interpose) fn duplicate(old: c_int, new: c_int) {
    if !maybe(old) || old == new {
        return;
    }
    let Some(table) = Table::get() else { return };
    let mut instances = table.instances();
    let Some(instance) = instances.iter().find(|(number, _)| *number == old).map(|(_, i)| i.clone()) else { return };
    instances.retain(|(number, _)| *number != new);
    instances.push((new, instance));
    mark(new, true);
}

/// Drop the registrations of sockets that are closed.
pub(in crate::interpose) fn sweep() {
    let Some(table) = Table::get() else { return };
    let all: Vec<Arc<Instance>> = table.instances().iter().map(|(_, instance)| instance.clone()).collect();
    for instance in all {
        instance.set().entries.retain(|e| e.socket.is_open());
    }
}
