//! The standard library's locks, such that ThreadSanitizer sees who waited for whom.
//!
//! The installed standard library is not built with the sanitizer. It sees the inlined half of a lock, not the half that
//! sleeps, and so takes much for a race that is none. Here each lock has atomics beside it that say the same as the lock:
//! what was done before a release is seen after the next acquisition. The real lock does the work, and what is not ordered by
//! one remains a race. Only in builds with `--cfg slipring_tsan`.

use std::{
    ops::{Deref, DerefMut},
    sync::{self, LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult},
    time::Duration,
};

use super::{AtomicU32, Ordering};

/// What earlier holders did, for later ones.
#[derive(Debug, Default)]
struct Trace(AtomicU32);

impl Trace {
    const fn new() -> Trace {
        Trace(AtomicU32::new(0))
    }

    /// To be called while the lock is held, last thing.
    fn leave(&self) {
        // A read-modify-write, so that it adds to what others left. Acquire would order readers among each other.
        self.0.fetch_add(1, Ordering::Release);
    }

    /// To be called once the lock is held.
    fn follow(&self) {
        self.0.load(Ordering::Acquire);
    }
}

fn map<A, B>(result: LockResult<A>, f: impl FnOnce(A) -> B) -> LockResult<B> {
    match result {
        Ok(a) => Ok(f(a)),
        Err(e) => Err(PoisonError::new(f(e.into_inner()))),
    }
}

/// As the standard library's.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    trace: Trace,
    lock: sync::Mutex<T>,
}

/// As the standard library's.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    trace: &'a Trace,
    /// `None` only while it waits for a [`Condvar`].
    guard: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// As the standard library's.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { trace: Trace::new(), lock: sync::Mutex::new(value) }
    }

    fn watch<'a>(&'a self, guard: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.trace.follow();
        MutexGuard { trace: &self.trace, guard: Some(guard) }
    }

    /// As the standard library's.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        map(self.lock.lock(), |guard| self.watch(guard))
    }

    /// As the standard library's.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.lock.try_lock() {
            Ok(guard) => Ok(self.watch(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(e)) => Err(TryLockError::Poisoned(PoisonError::new(self.watch(e.into_inner())))),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("there outside of a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("there outside of a wait")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.is_some() {
            self.trace.leave();
        }
    }
}

/// As the standard library's. Waiters are ordered by the mutex.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// As the standard library's.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let trace = guard.trace;
        trace.leave();
        let held = guard.guard.take().expect("there outside of a wait");
        map(self.0.wait(held), |held| {
            trace.follow();
            MutexGuard { trace, guard: Some(held) }
        })
    }

    /// As the standard library's.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let trace = guard.trace;
        trace.leave();
        let held = guard.guard.take().expect("there outside of a wait");
        map(self.0.wait_timeout(held, time), |(held, result)| {
            trace.follow();
            (MutexGuard { trace, guard: Some(held) }, result)
        })
    }

    /// As the standard library's.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As the standard library's.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    /// Left by writers, followed by all.
    written: Trace,
    /// Left by readers, followed by writers.
    read: Trace,
    lock: sync::RwLock<T>,
}

/// As the standard library's.
#[derive(Debug)]
pub struct ReadGuard<'a, T> {
    read: &'a Trace,
    guard: sync::RwLockReadGuard<'a, T>,
}

/// As the standard library's.
#[derive(Debug)]
pub struct WriteGuard<'a, T> {
    written: &'a Trace,
    guard: sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// As the standard library's.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { written: Trace::new(), read: Trace::new(), lock: sync::RwLock::new(value) }
    }

    /// As the standard library's.
    pub fn read(&self) -> LockResult<ReadGuard<'_, T>> {
        map(self.lock.read(), |guard| {
            self.written.follow();
            ReadGuard { read: &self.read, guard }
        })
    }

    /// As the standard library's.
    pub fn try_read(&self) -> TryLockResult<ReadGuard<'_, T>> {
        let watch = |guard| {
            self.written.follow();
            ReadGuard { read: &self.read, guard }
        };
        match self.lock.try_read() {
            Ok(guard) => Ok(watch(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(e)) => Err(TryLockError::Poisoned(PoisonError::new(watch(e.into_inner())))),
        }
    }

    /// As the standard library's.
    pub fn write(&self) -> LockResult<WriteGuard<'_, T>> {
        map(self.lock.write(), |guard| {
            self.written.follow();
            self.read.follow();
            WriteGuard { written: &self.written, guard }
        })
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.read.leave();
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.written.leave();
    }
}

/// As the standard library's.
#[derive(Debug)]
pub struct Once {
    trace: Trace,
    once: sync::Once,
}

impl Once {
    /// As the standard library's.
    #[expect(clippy::new_without_default, reason = "the standard library's has none")]
    pub const fn new() -> Once {
        Once { trace: Trace::new(), once: sync::Once::new() }
    }

    /// As the standard library's.
    pub fn call_once(&self, f: impl FnOnce()) {
        self.once.call_once(|| {
            f();
            self.trace.leave();
        });
        self.trace.follow();
    }
}
