//! Faults on purpose, by which `scripts/sanitize` sees that the sanitizers watch this library's Rust code.
//!
//! Only with the feature `planted-faults`, which no build that is installed has. Declared in `c-tests/sanitize/planted.c`.

use core::cell::UnsafeCell;

/// Write the byte behind the `len` bytes at `block`.
///
/// # Safety
/// None can be given: that byte is not the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_planted_overflow(block: *mut u8, len: usize) {
    let behind = block.wrapping_add(len);
    // SAFETY: not safe, which is the purpose. Volatile, so that the compiler does not use what it knows about that.
    unsafe { behind.write_volatile(1) }
}

/// Allocate `len` bytes and forget them.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_planted_leak(len: usize) {
    core::hint::black_box(vec![1u8; len].leak());
}

struct Counter(UnsafeCell<u32>);

// SAFETY: not safe, which is the purpose: nothing orders the accesses of two threads.
unsafe impl Sync for Counter {}

static COUNTER: Counter = Counter(UnsafeCell::new(0));

/// Count a call, and return the number of calls so far: a race if two threads call.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_planted_race() -> u32 {
    let counter = COUNTER.0.get();
    // SAFETY: not safe, see above. Volatile, so that there is one read and one write a call.
    let calls = unsafe { counter.read_volatile() }.wrapping_add(1);
    // SAFETY: as above.
    unsafe { counter.write_volatile(calls) }
    calls
}
