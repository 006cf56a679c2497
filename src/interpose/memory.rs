//! `mmap` of rings, and the program's memory going away under a UMEM.
//!
//! The kernel pins the pages of a UMEM. We cannot, so the engine is told before the program unmaps or frees any of it, or takes
//! away the right to read or write it, and has let go of it when the call that does so is made. Not noticed: raw system calls,
//! memory that an allocator other than the first in the program's scope gives back, `shmdt`, a stack that ends, a file under the
//! memory that is truncated, and rights taken by `pkey_set`. `madvise` needs no notice: pages that it drops come back, empty.

use core::{
    ffi::{c_int, c_void},
    ptr::NonNull,
};

use libc::{off_t, off64_t, size_t};

use super::{Answer, guard, next};
use crate::{
    engine,
    errno::{Errno, Result},
    sys,
    uapi::{Ring, Socket as _},
};

/// The program is about to take `len` bytes at `addr` away, if the call is one that the kernel accepts.
#[cold]
#[inline(never)]
extern "C" fn going(addr: usize, len: size_t) {
    guard((), || {
        if addr.is_multiple_of(sys::PAGE) && len > 0 {
            engine::memory_going(addr, len);
        }
    });
}

/// The ring that a program which does without libxdp maps.
fn map_ring(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> Option<Result<usize>> {
    const KINDS: c_int = libc::MAP_SHARED | libc::MAP_PRIVATE;
    let socket = engine::lookup_verified(fd)?;
    let ring = u64::try_from(offset).ok().and_then(Ring::from_page_offset);
    let (Some(ring), true) = (ring, flags & KINDS != 0 && len > 0) else {
        return Some(Err(Errno::EINVAL));
    };
    if prot & libc::PROT_EXEC != 0 {
        return Some(Err(Errno::EPERM));
    }
    let place = match place(addr, len, flags) {
        Ok(place) => place,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: the program insists on the place and answers for what is there, as with the kernel's mmap.
    let mapping = match unsafe { socket.map_ring_at(ring, len, place) } {
        Ok(mapping) => mapping,
        Err(error) => return Some(Err(error)),
    };
    let base = mapping.base();
    // The program unmaps it, when it likes.
    mapping.leak();
    if prot != libc::PROT_READ | libc::PROT_WRITE {
        // SAFETY: the fresh mapping, of which the program wants less than we map.
        unsafe { libc::syscall(libc::SYS_mprotect, base.as_ptr(), len, prot) };
    }
    Some(Ok(base.as_ptr() as usize))
}

/// Where the program insists to have a mapping.
fn place(addr: *mut c_void, len: size_t, flags: c_int) -> Result<Option<NonNull<u8>>> {
    if flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == 0 {
        return Ok(None);
    }
    let place = NonNull::new(addr.cast::<u8>()).ok_or(Errno::EPERM)?;
    if !(place.as_ptr() as usize).is_multiple_of(sys::PAGE) {
        return Err(Errno::EINVAL);
    }
    if flags & libc::MAP_FIXED_NOREPLACE != 0 {
        // Take the place, if it is free; the ring then replaces that.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: replaces nothing that is mapped.
        let got = unsafe { sys::mmap(addr.cast(), len, libc::PROT_NONE, flags, -1, 0) }?;
        if got != place {
            sys::unmap(got, len);
            return Err(Errno::EEXIST);
        }
    }
    Ok(Some(place))
}

#[cold]
#[inline(never)]
extern "C" fn map_ours(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> Answer {
    // MAP_FAILED is -1.
    guard(Answer { value: -1, ours: 1 }, || match map_ring(addr, len, prot, flags, fd, offset) {
        None => Answer::NOT_OURS,
        Some(Ok(base)) => Answer::new(base.cast_signed()),
        Some(Err(error)) => Answer::error(error),
    })
}

/// Whether an `mmap` is anything to us.
#[inline]
extern "C" fn maybe_map(flags: c_int, fd: c_int) -> bool {
    (flags & libc::MAP_FIXED != 0 && engine::any_umem()) || (flags & libc::MAP_ANONYMOUS == 0 && engine::suspect(fd))
}

/// What both forms of `mmap` do before the kernel gets to see such a call.
fn map(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off64_t) -> Answer {
    if flags & libc::MAP_FIXED != 0 && engine::any_umem() {
        going(addr as usize, len);
    }
    if flags & libc::MAP_ANONYMOUS == 0 && engine::maybe_ours(fd) {
        return map_ours(addr, len, prot, flags, fd, offset);
    }
    Answer::NOT_OURS
}

macro_rules! mmap {
    ($($name:ident, $offset:ty;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            addr: *mut c_void,
            len: size_t,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            offset: $offset,
        ) -> *mut c_void {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn perhaps(
                addr: *mut c_void,
                len: size_t,
                prot: c_int,
                flags: c_int,
                fd: c_int,
                offset: $offset,
            ) -> *mut c_void {
                let answer = map(addr, len, prot, flags, fd, offset.into());
                if answer.ours != 0 {
                    return answer.value as *mut c_void;
                }
                // SAFETY: the program's own arguments.
                unsafe { next::$name(addr, len, prot, flags, fd, offset) }
            }
            if maybe_map(flags, fd) {
                // SAFETY: the program's own arguments.
                return unsafe { perhaps(addr, len, prot, flags, fd, offset) };
            }
            // SAFETY: the program's own arguments.
            unsafe { next::$name(addr, len, prot, flags, fd, offset) }
        }
    )*};
}

mmap! {
    mmap, off_t;
    mmap64, off64_t;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    if engine::any_umem() {
        going(addr as usize, len);
    }
    // SAFETY: the program's own arguments.
    unsafe { next::munmap(addr, len) }
}

/// Whether memory with such protection cannot be a UMEM any more.
#[inline]
extern "C" fn takes_rights(prot: c_int) -> bool {
    const NEEDED: c_int = libc::PROT_READ | libc::PROT_WRITE;
    prot & NEEDED != NEEDED && engine::any_umem()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(addr: *mut c_void, len: size_t, prot: c_int) -> c_int {
    if takes_rights(prot) {
        going(addr as usize, len);
    }
    // SAFETY: the program's own arguments.
    unsafe { next::mprotect(addr, len, prot) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pkey_mprotect(addr: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int {
    if takes_rights(prot) {
        going(addr as usize, len);
    }
    // SAFETY: the program's own arguments.
    unsafe { next::pkey_mprotect(addr, len, prot, key) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    addr: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    new_addr: *mut c_void,
) -> *mut c_void {
    if engine::any_umem() {
        going(addr as usize, len);
        if flags & libc::MREMAP_FIXED != 0 {
            going(new_addr as usize, new_len);
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::mremap(addr, len, new_len, flags, new_addr) }
}

#[cfg(feature = "heap-guard")]
mod heap {
    //! `free` and `realloc`, because libc unmaps large blocks without passing `munmap`.
    //!
    //! The engine and this directory free memory too, and come through here. They never free what is a UMEM, so that
    //! `memory_going`, which asks that first and without a lock, does nothing and is not entered again from inside. libc's `reallocarray` calls `realloc`
    //! by name, so it needs nothing.

    use core::ffi::c_void;

    use libc::size_t;

    use super::super::{SavedErrno, guard, next::heap as next};
    use crate::engine;

    #[cold]
    #[inline(never)]
    extern "C" fn block_going(block: *mut c_void) {
        let errno = SavedErrno::save();
        guard((), || engine::memory_going(block as usize, next::size(block)));
        errno.restore();
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn free(block: *mut c_void) {
        if engine::any_umem() && !block.is_null() {
            block_going(block);
        }
        // SAFETY: the program's own block.
        unsafe { next::free(block) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
        if engine::any_umem() && !block.is_null() {
            block_going(block);
        }
        // SAFETY: the program's own block.
        unsafe { next::realloc(block, size) }
    }
}
