//! The only file that names atomics and threads: the standard library's, or loom's under `--cfg loom`.
//!
//! loom's types have no const constructors and must be made inside a model, so modules that hold atomics in statics are
//! not compiled under loom (`lib.rs`); the ring algorithms, which loom checks, hold no statics.
//!
//! `--cfg slipring_tsan`, set by `scripts/sanitize` alone, is for builds with ThreadSanitizer: locks that it can see
//! (`watched`), and rings at one address for the engine and the program (`crate::engine`).

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::{Arc, Weak},
    thread,
};

#[cfg(not(any(loom, slipring_tsan)))]
pub use std::sync::{Condvar, Mutex, MutexGuard, Once, RwLock};

#[cfg(all(slipring_tsan, not(loom)))]
mod watched;
#[cfg(all(slipring_tsan, not(loom)))]
pub use watched::{Condvar, Mutex, MutexGuard, Once, RwLock};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// A cell whose accesses loom can see.
#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// A cell whose accesses loom can see; without loom a plain `UnsafeCell` with loom's two accessors.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Call `f` with a pointer for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get().cast_const())
    }

    /// Call `f` with a pointer for writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
