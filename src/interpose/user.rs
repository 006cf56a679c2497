//! The program's memory where it may not be there: a wild pointer is EFAULT, as from the kernel, and no crash.
//!
//! For the cold calls only: it costs a system call, which tries the memory. Where that is not allowed (a sandbox) the memory
//! is just used.

use core::{
    ffi::c_void,
    mem::{MaybeUninit, size_of},
    ptr,
};

use libc::{c_long, c_ulong, iovec};

use crate::errno::{Errno, Result, check};

/// Try a copy between our memory and the program's. EFAULT. Where the call is not allowed: nothing is
/// known, which counts as good.
fn probe(call: c_long, ours: *mut u8, theirs: *mut u8, len: usize) -> Result<()> {
    // As wide as the kernel's: the sixth argument of a system call passes through memory.
    const ONE: c_ulong = 1;
    const NO_FLAGS: c_ulong = 0;
    let local = iovec { iov_base: ours.cast::<c_void>(), iov_len: len };
    let remote = iovec { iov_base: theirs.cast::<c_void>(), iov_len: len };
    // SAFETY: no arguments.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: `ours` has `len` bytes, see the callers; the kernel checks the program's side.
    let result = unsafe { libc::syscall(call, process, &raw const local, ONE, &raw const remote, ONE, NO_FLAGS) };
    match check(result) {
        Ok(done) if usize::try_from(done) != Ok(len) => Err(Errno::EFAULT),
        Err(Errno::EFAULT) => Err(Errno::EFAULT),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Copy bytes from the program. EFAULT.
pub(super) fn copy_in(to: &mut [u8], from: *const u8) -> Result<()> {
    if to.is_empty() {
        return Ok(());
    }
    if from.is_null() {
        return Err(Errno::EFAULT);
    }
    probe(libc::SYS_process_vm_readv, to.as_mut_ptr(), from.cast_mut(), to.len())?;
    // Once more by hand, for checkers that follow what is initialised.
    // SAFETY: the kernel could read the bytes just now.
    unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    Ok(())
}

/// Copy bytes to the program. EFAULT.
pub(super) fn copy_out(to: *mut u8, from: &[u8]) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    if to.is_null() {
        return Err(Errno::EFAULT);
    }
    // The kernel only reads ours in this direction.
    probe(libc::SYS_process_vm_writev, from.as_ptr().cast_mut(), to, from.len())?;
    // Once more by hand, as above.
    // SAFETY: the kernel could write the bytes just now.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    Ok(())
}

/// A plain value, an integer or a struct of integers, from the program. EFAULT.
pub(super) fn take<T: Copy>(from: *const c_void) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: as many bytes as the value has, all of them written.
    let bytes = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    copy_in(bytes, from.cast())?;
    // SAFETY: any bits are a value of such a type.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wild_pointers_are_errors() {
        assert_eq!(take::<u32>(ptr::without_provenance(1)), Err(Errno::EFAULT));
        assert_eq!(take::<u32>(ptr::null()), Err(Errno::EFAULT));
        assert_eq!(copy_out(ptr::without_provenance_mut(8), &[1]), Err(Errno::EFAULT));
        assert_eq!(copy_out(ptr::null_mut(), &[1]), Err(Errno::EFAULT));
        assert_eq!(copy_out(ptr::null_mut(), &[]), Ok(()));
    }

    #[test]
    fn good_ones_are_followed() {
        let mut place = 7u64;
        assert_eq!(take::<u64>(ptr::from_ref(&place).cast()), Ok(7));
        assert_eq!(copy_out(ptr::from_mut(&mut place).cast(), &9u64.to_ne_bytes()), Ok(()));
        assert_eq!(place, 9);
    }
}
