//! libbpf's calls about the XDP program of an interface and about maps, for interfaces and descriptors of the engine.
//!
//! On the engine no XDP program runs. What `xsk_socket__create` would have loaded counts as attached while a socket is bound,
//! under a stand-in id; detaching it does nothing; any other program is refused, since nothing would run it.
//!
//! libbpf need not be there, and a program may have it where `dlsym(RTLD_NEXT)` does not look (DPDK opens its drivers, and
//! with them libbpf, with `dlopen`): the real one is then found by its soname.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem, ptr,
};

use super::{Answer, guarded};
use crate::{
    engine::{self, Interface},
    errno::{Errno, Result},
    sync::{Arc, AtomicPtr, Ordering},
    uapi, warn,
};

/// Sonames of libbpf, newest first.
const LIBRARIES: [&CStr; 2] = [c"libbpf.so.1", c"libbpf.so.0"];

/// How programs that an interface's owner attaches are told apart, in `bpf_xdp_query`.
const XDP_ATTACHED_NONE: u8 = 0;
const XDP_ATTACHED_DRV: u8 = 1;

/// The next definition of a name of libbpf; null: there is none. Found again each time until there is one, since libbpf may
/// be loaded later.
fn find(cache: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = look_up(name);
    cache.store(found, Ordering::Relaxed);
    found
}

#[cold]
fn look_up(name: &CStr) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: a NUL-terminated name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    // By name, so that linking a fully static program, where it could not work, does not warn about it.
    // SAFETY: a NUL-terminated name.
    let open = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if open.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: libc's `dlopen` has this type.
    let open = unsafe { mem::transmute::<*mut c_void, Open>(open) };
    for mode in [libc::RTLD_NOLOAD | libc::RTLD_LAZY, libc::RTLD_NOW] {
        for library in LIBRARIES {
            // SAFETY: a NUL-terminated name. The handle is kept, so that what is found in it stays.
            let handle = unsafe { open(library.as_ptr(), mode) };
            if handle.is_null() {
                continue;
            }
            // SAFETY: a live handle and a NUL-terminated name.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if !found.is_null() {
                return found;
            }
        }
    }
    ptr::null_mut()
}

/// An interposer of a libbpf call that returns 0 or a negative error number, and sets `errno` as well.
macro_rules! on_our_interface {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

            #[cold]
            #[inline(never)]
            extern "C" fn ours($($arg: $type),*) -> Answer {
                guarded(|| $body)
            }

            extern "C" fn next() -> *mut c_void {
                // The name, with its NUL.
                let name = concat!(stringify!($name), "\0");
                let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
                super::guard(ptr::null_mut(), || find(&NEXT, name))
            }

            let answer = ours($($arg),*);
            if answer.ours != 0 {
                return if answer.value < 0 { Errno::last().negative() } else { answer.int() };
            }
            let next = next();
            if next.is_null() {
                Errno::ENOSYS.set();
                return Errno::ENOSYS.negative();
            }
            // SAFETY: libbpf's function of this name has this type.
            let next = unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(next) };
            // SAFETY: the program's own arguments.
            unsafe { next($($arg),*) }
        }
    )*};
}

fn interface(ifindex: c_int) -> Option<Arc<Interface>> {
    engine::interface_numbered(u32::try_from(ifindex).ok()?)
}

/// The id that counts as attached in the mode that `flags` ask for; 0: none.
fn program(interface: &Interface, flags: u32) -> u32 {
    let offloaded = flags & uapi::XDP_FLAGS_HW_MODE != 0;
    if offloaded || interface.bound_sockets() == 0 { 0 } else { interface.program_id() }
}

fn attach(interface: &Interface, program: c_int) -> Result<usize> {
    if program < 0 {
        return Ok(0);
    }
    warn!(
        "an XDP program of its own was to be attached to {}, which SLIPRING_DEVICES puts on the engine, where no XDP program \
         runs: every frame of a queue goes to the socket bound to it. Use the default program of xsk_socket__create (no \
         XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD), or put the interface on `direct`",
        interface.name
    );
    Err(Errno::EOPNOTSUPP)
}

/// The members of `struct bpf_xdp_query_opts` that are given, as far as the struct has them.
fn put_query(opts: *mut c_void, id: u32) -> Result<()> {
    // SAFETY: null, or the program's struct, which begins with its size.
    let size = unsafe { opts.cast::<usize>().as_ref() }.copied().ok_or(Errno::EINVAL)?;
    if size < mem::size_of::<usize>() {
        return Err(Errno::EINVAL);
    }
    let base = opts.cast::<u8>();
    // prog_id, drv_prog_id, hw_prog_id, skb_prog_id
    for (place, id) in [id, id, 0, 0].into_iter().enumerate() {
        let at = mem::size_of::<usize>() + place * mem::size_of::<u32>();
        if at + mem::size_of::<u32>() <= size {
            // SAFETY: inside the struct, by its own size.
            unsafe { base.wrapping_add(at).cast::<u32>().write_unaligned(id) };
        }
    }
    let mode_at = mem::size_of::<usize>() + 4 * mem::size_of::<u32>();
    if mode_at < size {
        let mode = if id == 0 { XDP_ATTACHED_NONE } else { XDP_ATTACHED_DRV };
        // SAFETY: inside the struct, by its own size.
        unsafe { base.wrapping_add(mode_at).write(mode) };
    }
    Ok(())
}

fn put_id(id: *mut u32, interface: &Interface, flags: u32) -> Result<usize> {
    // SAFETY: null, or the program's own.
    *unsafe { id.as_mut() }.ok_or(Errno::EINVAL)? = program(interface, flags);
    Ok(0)
}

/// A map update or deletion. The key and value of a socket map are 32 bits wide; those of other maps are not looked at.
fn map(fd: c_int, key: *const c_void, value: Option<*const c_void>) -> Option<Result<usize>> {
    if !engine::is_map(fd) {
        return None;
    }
    if key.is_null() || value.is_some_and(|v| v.is_null()) {
        return Some(Err(Errno::EFAULT));
    }
    // SAFETY: the program's own; a socket map has keys and values of 32 bits.
    let queue = unsafe { key.cast::<u32>().read_unaligned() };
    // SAFETY: as above.
    let socket = value.map(|v| unsafe { v.cast::<c_int>().read_unaligned() });
    engine::map_update(fd, queue, socket).map(|result| result.map(|()| 0))
}

on_our_interface! {
    fn bpf_xdp_query_id(ifindex: c_int, flags: c_int, id: *mut u32) {
        interface(ifindex).map(|i| put_id(id, &i, flags.cast_unsigned()))
    }

    fn bpf_xdp_query(ifindex: c_int, flags: c_int, opts: *mut c_void) {
        interface(ifindex).map(|i| put_query(opts, program(&i, flags.cast_unsigned())).map(|()| 0))
    }

    fn bpf_xdp_attach(ifindex: c_int, fd: c_int, flags: u32, opts: *const c_void) {
        let _ = (flags, opts);
        interface(ifindex).map(|i| attach(&i, fd))
    }

    fn bpf_xdp_detach(ifindex: c_int, flags: u32, opts: *const c_void) {
        let _ = (flags, opts);
        interface(ifindex).map(|_| Ok(0))
    }

    // The names of libbpf before 0.7.
    fn bpf_set_link_xdp_fd(ifindex: c_int, fd: c_int, flags: u32) {
        let _ = flags;
        interface(ifindex).map(|i| attach(&i, fd))
    }

    fn bpf_get_link_xdp_id(ifindex: c_int, id: *mut u32, flags: u32) {
        interface(ifindex).map(|i| put_id(id, &i, flags))
    }

    fn bpf_map_update_elem(fd: c_int, key: *const c_void, value: *const c_void, flags: u64) {
        let _ = flags;
        map(fd, key, Some(value))
    }

    fn bpf_map_delete_elem(fd: c_int, key: *const c_void) {
        map(fd, key, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_fills_what_the_struct_has() {
        #[repr(C)]
        struct Opts {
            size: usize,
            ids: [u32; 4],
            mode: u8,
            later: [u8; 15],
        }
        let ask = |size| {
            let mut opts = Opts { size, ids: [9; 4], mode: 9, later: [9; 15] };
            (put_query(ptr::from_mut(&mut opts).cast(), 5), opts)
        };
        let (result, opts) = ask(mem::size_of::<Opts>());
        assert_eq!((result, opts.ids, opts.mode, opts.later), (Ok(()), [5, 5, 0, 0], XDP_ATTACHED_DRV, [9; 15]));
        let (result, opts) = ask(mem::size_of::<usize>() + 4);
        assert_eq!((result, opts.ids, opts.mode), (Ok(()), [5, 9, 9, 9], 9));
        assert_eq!(ask(3).0, Err(Errno::EINVAL));
        assert_eq!(put_query(ptr::null_mut(), 5), Err(Errno::EINVAL));
    }

    #[test]
    fn libbpf_is_found_only_where_it_is() {
        assert!(look_up(c"no_such_name_in_libbpf").is_null());
    }
}
