//! The next definition of each interposed name, behind a pointer that is found once.
//!
//! A constructor looks all of them up with `dlsym(RTLD_NEXT)`. Until then, as in another library's constructor, a pointer
//! leads to a function that looks up that one name when it is called. In a fully static program there is nothing to look
//! up: there, and for a name that this libc does not have, the next definition is the system call itself.
//!
//! Called by every interposer of this directory, from any thread.

use core::{
    ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void},
    ptr,
};

use libc::{
    epoll_event, fd_set, mmsghdr, msghdr, nfds_t, off_t, off64_t, pollfd, sigset_t, size_t, sockaddr, socklen_t,
    ssize_t, syscall, timespec, timeval,
};

use super::{Answer, Returned};
use crate::{
    errno::Errno,
    sync::{AtomicPtr, Ordering},
    sys,
};

/// One name.
struct Slot {
    pointer: AtomicPtr<c_void>,
    name: &'static CStr,
    /// Used when there is no next definition.
    direct: *mut c_void,
}

// SAFETY: `direct` is the address of a function and is never written.
unsafe impl Sync for Slot {}

impl Slot {
    #[inline]
    extern "C" fn get(&self) -> *mut c_void {
        // Relaxed: the pointer leads to code, which was there before any thread of ours.
        self.pointer.load(Ordering::Relaxed)
    }

    /// Find the next definition and keep it.
    #[cold]
    extern "C" fn resolve(&self) -> *mut c_void {
        // SAFETY: a NUL-terminated name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let found = if found.is_null() {
            // The program must not find our failure when it asks for its own.
            // SAFETY: no preconditions.
            unsafe { libc::dlerror() };
            self.direct
        } else {
            found
        };
        self.pointer.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! next {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $direct:expr;)*) => {
        $(
            /// The next definition of the name.
            #[inline(always)]
            pub(in crate::interpose) unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
                let next = slots::$name.get();
                // SAFETY: the slot holds `first`, `direct` or libc's function, all of this type.
                let next = unsafe { core::mem::transmute::<*mut c_void, lookups::$name::Function>(next) };
                // SAFETY: the caller keeps to the rules of the function.
                unsafe { next($($arg),*) }
            }
        )*

        #[expect(non_upper_case_globals, reason = "named as the functions that they stand for")]
        mod slots {
            use super::*;
            $(
                pub(super) static $name: Slot = Slot {
                    pointer: AtomicPtr::new(lookups::$name::first as *mut c_void),
                    name: const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => unreachable!(),
                        }
                    },
                    direct: lookups::$name::direct as *mut c_void,
                };
            )*
        }

        mod lookups {
            $(
                pub(super) mod $name {
                    use super::super::*;

                    pub(in super::super) type Function = unsafe extern "C" fn($($type),*) $(-> $ret)?;

                    /// What the slot holds at first.
                    #[cold]
                    pub(in super::super) unsafe extern "C" fn first($($arg: $type),*) $(-> $ret)? {
                        let next = slots::$name.resolve();
                        // SAFETY: `direct`, or what libc has under this name.
                        let next = unsafe { core::mem::transmute::<*mut c_void, Function>(next) };
                        // SAFETY: the caller keeps to the rules of the function.
                        unsafe { next($($arg),*) }
                    }

                    /// The system call.
                    #[cold]
                    pub(in super::super) unsafe extern "C" fn direct($($arg: $type),*) $(-> $ret)? {
                        $direct
                    }
                }
            )*
        }

        static SLOTS: &[&Slot] = &[$(&slots::$name),*];
    };
}

/// A system call with the arguments of the C function, as the C function returns it.
macro_rules! call {
    ($number:ident, $($arg:expr),*) => {
        // SAFETY: the program's own arguments, which the kernel checks.
        Returned::returned(word(unsafe { syscall(libc::$number, $($arg),*) }))
    };
}

/// What a system call returned, which is a word.
#[expect(clippy::cast_possible_truncation, reason = "a C long is as wide as a pointer here")]
#[inline]
extern "C" fn word(value: c_long) -> Answer {
    Answer { value: value as isize, ours: 1 }
}

/// [`call!`] for a cancellation point, as libc's own does it: while the call lasts, cancellation takes effect at once.
macro_rules! point {
    ($number:ident, $($arg:expr),*) => {{
        let before = asynchronous();
        let result = call!($number, $($arg),*);
        deferred(before);
        result
    }};
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// Let cancellation take effect at once; a thread that was cancelled already ends here. Returns how it was.
extern "C" fn asynchronous() -> c_int {
    const ASYNCHRONOUS: c_int = 1;
    let mut before = 0;
    // SAFETY: the thread makes one system call and then sets it back; our frames need no clean-up.
    unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut before) };
    before
}

extern "C" fn deferred(before: c_int) {
    let mut unused = 0;
    // SAFETY: what `asynchronous` returned.
    unsafe { pthread_setcanceltype(before, &raw mut unused) };
}

/// A cancellation handler of the kind that needs no set-up in the frame: `struct _pthread_cleanup_buffer`.
#[repr(C)]
pub(super) struct Handler {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    kind: c_int,
    previous: *mut Handler,
}

impl Handler {
    pub(super) const NEW: Handler =
        Handler { routine: None, argument: ptr::null_mut(), kind: 0, previous: ptr::null_mut() };
}

unsafe extern "C" {
    pub(super) fn _pthread_cleanup_push(
        handler: *mut Handler,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    pub(super) fn _pthread_cleanup_pop(handler: *mut Handler, execute: c_int);
}

/// Size of the kernel's signal set.
const MASK: size_t = 8;

extern "C" fn ppoll_call(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // The kernel writes the rest of the time back, libc does not.
    // SAFETY: null, or the program's own timespec.
    let mut time = unsafe { timeout.as_ref() }.copied();
    let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    point!(SYS_ppoll, fds, count, time, mask, MASK)
}

extern "C" fn select_call(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // Some architectures have no select.
    // SAFETY: null, or the program's own timeval.
    let timeout = unsafe { timeout.as_mut() };
    let mut time = timeout.as_ref().map(|t| timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec * 1000 });
    let at = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    let ready = point!(SYS_pselect6, count, read, write, except, at, ptr::null::<c_void>());
    if let (Some(timeout), Some(left)) = (timeout, time) {
        *timeout = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
    }
    ready
}

/// # Safety
/// As for the kernel's `mmap`: with MAP_FIXED, what is mapped in the range is the caller's.
unsafe fn mmap_call(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    match unsafe { sys::mmap(addr.cast(), len, prot, flags, fd, offset.cast_unsigned()) } {
        Ok(base) => base.as_ptr().cast(),
        Err(error) => {
            error.set();
            libc::MAP_FAILED
        }
    }
}

extern "C" fn fcntl_call(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if command == libc::F_SETLKW || command == libc::F_OFD_SETLKW {
        point!(SYS_fcntl, fd, command, argument)
    } else {
        call!(SYS_fcntl, fd, command, argument)
    }
}

/// What the fortified calls check: end the program if the buffer that its compiler knows is too small.
fn fits(len: size_t, room: size_t) {
    if len > room {
        crate::warn!("*** buffer overflow detected ***: {len} in {room}");
        std::process::abort();
    }
}

next! {
    fn sendto(fd: c_int, data: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t
        = point!(SYS_sendto, fd, data, len, flags, addr, addr_len);
    fn send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t
        = point!(SYS_sendto, fd, data, len, flags, ptr::null::<c_void>(), 0);
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = point!(SYS_sendmsg, fd, message, flags);
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int
        = point!(SYS_sendmmsg, fd, messages, count, flags);
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t = point!(SYS_write, fd, data, len);
    fn writev(fd: c_int, iov: *const libc::iovec, count: c_int) -> ssize_t = point!(SYS_writev, fd, iov, count);
    fn recvfrom(fd: c_int, data: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t
        = point!(SYS_recvfrom, fd, data, len, flags, addr, addr_len);
    fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t
        = point!(SYS_recvfrom, fd, data, len, flags, ptr::null::<c_void>(), ptr::null::<c_void>());
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = point!(SYS_recvmsg, fd, message, flags);
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int
        = point!(SYS_recvmmsg, fd, messages, count, flags, timeout);
    fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t = point!(SYS_read, fd, data, len);
    fn readv(fd: c_int, iov: *const libc::iovec, count: c_int) -> ssize_t = point!(SYS_readv, fd, iov, count);
    fn __recv_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t = {
        fits(len, room);
        point!(SYS_recvfrom, fd, data, len, flags, ptr::null::<c_void>(), ptr::null::<c_void>())
    };
    fn __recvfrom_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t = {
        fits(len, room);
        point!(SYS_recvfrom, fd, data, len, flags, addr, addr_len)
    };
    fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, room: size_t) -> ssize_t = {
        fits(len, room);
        point!(SYS_read, fd, data, len)
    };

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = {
        let time = timespec { tv_sec: (timeout / 1000).into(), tv_nsec: c_long::from(timeout % 1000) * 1_000_000 };
        let time = if timeout < 0 { ptr::null() } else { &raw const time };
        point!(SYS_ppoll, fds, count, time, ptr::null::<c_void>(), MASK)
    };
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = ppoll_call(fds, count, timeout, mask);
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int = {
        fits(usize::try_from(count).unwrap_or(usize::MAX), room / size_of::<pollfd>());
        // SAFETY: the program's own arguments.
        unsafe { poll(fds, count, timeout) }
    };
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int = {
        fits(usize::try_from(count).unwrap_or(usize::MAX), room / size_of::<pollfd>());
        ppoll_call(fds, count, timeout, mask)
    };
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = {
        select_call(count, read, write, except, timeout)
    };
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int = {
        // The kernel writes the rest of the time back, libc does not.
        // SAFETY: null, or the program's own timespec.
        let mut time = unsafe { timeout.as_ref() }.copied();
        let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let mask = (mask, MASK);
        point!(SYS_pselect6, count, read, write, except, time, &raw const mask)
    };
    fn epoll_create(size: c_int) -> c_int = {
        if size <= 0 { Errno::EINVAL.set(); -1 } else { call!(SYS_epoll_create1, 0) }
    };
    fn epoll_create1(flags: c_int) -> c_int = call!(SYS_epoll_create1, flags);
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int = call!(SYS_epoll_ctl, epoll, op, fd, event);
    fn epoll_wait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int
        = point!(SYS_epoll_pwait, epoll, events, count, timeout, ptr::null::<c_void>(), MASK);
    fn epoll_pwait(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int
        = point!(SYS_epoll_pwait, epoll, events, count, timeout, mask, MASK);
    fn epoll_pwait2(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int
        = point!(SYS_epoll_pwait2, epoll, events, count, timeout, mask, MASK);

    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int
        = call!(SYS_getsockopt, fd, level, name, value, len);
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int
        = call!(SYS_setsockopt, fd, level, name, value, len);
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = call!(SYS_getsockname, fd, addr, len);
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = call!(SYS_getpeername, fd, addr, len);
    fn shutdown(fd: c_int, how: c_int) -> c_int = call!(SYS_shutdown, fd, how);
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = point!(SYS_connect, fd, addr, len);
    fn listen(fd: c_int, backlog: c_int) -> c_int = call!(SYS_listen, fd, backlog);
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = point!(SYS_accept4, fd, addr, len, 0);
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = point!(SYS_accept4, fd, addr, len, flags);
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = call!(SYS_socket, domain, kind, protocol);
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = call!(SYS_bind, fd, addr, len);
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = call!(SYS_ioctl, fd, request, argument);

    fn close(fd: c_int) -> c_int = point!(SYS_close, fd);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = call!(SYS_close_range, first, last, flags);
    fn closefrom(first: c_int) = {
        // SAFETY: no pointers.
        unsafe { syscall(libc::SYS_close_range, first.max(0), c_uint::MAX, 0) };
    };
    fn dup(fd: c_int) -> c_int = call!(SYS_dup, fd);
    fn dup2(fd: c_int, to: c_int) -> c_int = {
        // dup3 refuses what dup2 takes for a question whether `fd` is open.
        if fd == to {
            // SAFETY: no pointers.
            if unsafe { syscall(libc::SYS_fcntl, fd, libc::F_GETFD) } < 0 { -1 } else { to }
        } else {
            call!(SYS_dup3, fd, to, 0)
        }
    };
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = call!(SYS_dup3, fd, to, flags);
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = fcntl_call(fd, command, argument);
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int = fcntl_call(fd, command, argument);

    fn mmap(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void
        // SAFETY: the program's own arguments, for which it answers.
        = unsafe { mmap_call(addr, len, prot, flags, fd, offset as off64_t) };
    fn mmap64(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off64_t) -> *mut c_void
        // SAFETY: as above.
        = unsafe { mmap_call(addr, len, prot, flags, fd, offset) };
    fn munmap(addr: *mut c_void, len: size_t) -> c_int = call!(SYS_munmap, addr, len);
    fn mprotect(addr: *mut c_void, len: size_t, prot: c_int) -> c_int = call!(SYS_mprotect, addr, len, prot);
    fn pkey_mprotect(addr: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int
        = if key == -1 { call!(SYS_mprotect, addr, len, prot) } else { call!(SYS_pkey_mprotect, addr, len, prot, key) };
    fn mremap(addr: *mut c_void, len: size_t, new_len: size_t, flags: c_int, new_addr: *mut c_void) -> *mut c_void
        // SAFETY: the program's own arguments, which the kernel checks.
        = unsafe { syscall(libc::SYS_mremap, addr, len, new_len, flags, new_addr) as *mut c_void };

    fn if_nametoindex(name: *const c_char) -> c_uint = {
        // SAFETY: the program's own string.
        crate::interpose::ifaces::kernel_index(unsafe { CStr::from_ptr(name) })
    };
    fn if_nameindex() -> *mut libc::if_nameindex = crate::interpose::names::kernel_list();
    fn if_freenameindex(list: *mut libc::if_nameindex) = {
        // SAFETY: the program's own list.
        unsafe { crate::interpose::names::free_list(list) }
    };
    fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char = {
        // SAFETY: the program gives room for IF_NAMESIZE bytes.
        unsafe { crate::interpose::ifaces::kernel_name(index, name) }
    };
}

/// Look up everything before `main`, so that it is not done in a signal handler or between vfork and exec.
extern "C" fn init() {
    for slot in SLOTS {
        slot.resolve();
    }
    #[cfg(feature = "heap-guard")]
    heap::resolve();
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

/// The program's allocator: as above, but a lookup may itself come through here.
#[cfg(feature = "heap-guard")]
pub(super) mod heap {
    use core::{
        ffi::{CStr, c_void},
        mem, ptr,
    };

    use libc::size_t;

    use crate::{
        loaded,
        sync::{AtomicBool, AtomicPtr, Ordering},
    };

    type Free = unsafe extern "C" fn(*mut c_void);
    type Realloc = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;

    static FREE: AtomicPtr<c_void> = AtomicPtr::new(first_free as *mut c_void);
    static REALLOC: AtomicPtr<c_void> = AtomicPtr::new(first_realloc as *mut c_void);
    static SIZED: AtomicBool = AtomicBool::new(false);
    static LOOKING: AtomicBool = AtomicBool::new(false);

    /// The next `free`.
    #[inline(always)]
    pub(in crate::interpose) unsafe fn free(block: *mut c_void) {
        // SAFETY: the slot holds functions of this type only.
        let next = unsafe { mem::transmute::<*mut c_void, Free>(FREE.load(Ordering::Relaxed)) };
        // SAFETY: the caller gives a block back, as `free` wants it.
        unsafe { next(block) }
    }

    /// The next `realloc`.
    #[inline(always)]
    pub(in crate::interpose) unsafe fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
        // SAFETY: the slot holds functions of this type only.
        let next = unsafe { mem::transmute::<*mut c_void, Realloc>(REALLOC.load(Ordering::Relaxed)) };
        // SAFETY: the caller gives a block, as `realloc` wants it.
        unsafe { next(block, size) }
    }

    /// Bytes of a block, or 1 where the allocator cannot be asked: then only its first byte counts as given back.
    pub(in crate::interpose) fn size(block: *mut c_void) -> usize {
        if !SIZED.load(Ordering::Relaxed) {
            return 1;
        }
        // SAFETY: a live block of the allocator that `malloc_usable_size` belongs to, see `resolve`.
        unsafe { libc::malloc_usable_size(block) }.max(1)
    }

    /// Find the program's allocator. False: a lookup is going on, perhaps this very call's caller.
    #[cold]
    pub(super) fn resolve() -> bool {
        if LOOKING.swap(true, Ordering::Acquire) {
            return false;
        }
        let (free, realloc) = (allocators(c"free"), allocators(c"realloc"));
        FREE.store(if free.is_null() { leak as *mut c_void } else { free }, Ordering::Relaxed);
        REALLOC.store(if realloc.is_null() { copy as *mut c_void } else { realloc }, Ordering::Relaxed);
        // An allocator that brings no malloc_usable_size would be asked through another's, which reads its own headers.
        SIZED.store(
            !free.is_null() && loaded::base(free) == loaded::base(libc::malloc_usable_size as *mut c_void),
            Ordering::Relaxed,
        );
        LOOKING.store(false, Ordering::Release);
        true
    }

    /// The function of this name that belongs to the `malloc` which this library calls. An allocator that comes before us in
    /// the program's order, in the program itself or as a sanitizer's runtime, is not a next one of ours: the program's calls
    /// do not come through us then, but our own do. Another interposer like ourselves (a second Slipring in the process) that
    /// comes first brings no `malloc`, and asks its own next.
    fn allocators(name: &CStr) -> *mut c_void {
        // SAFETY: a NUL-terminated name.
        let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
        // SAFETY: a NUL-terminated name.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !first.is_null() && loaded::base(first) == loaded::base(malloc) {
            return first;
        }
        // SAFETY: a NUL-terminated name.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    }

    unsafe extern "C" fn first_free(block: *mut c_void) {
        if resolve() {
            // SAFETY: the caller's own block.
            unsafe { free(block) }
        }
        // Else the lookup itself frees: a few bytes, lost.
    }

    unsafe extern "C" fn first_realloc(block: *mut c_void, size: size_t) -> *mut c_void {
        if resolve() {
            // SAFETY: the caller's own block.
            return unsafe { realloc(block, size) };
        }
        // SAFETY: the caller's own block.
        unsafe { copy(block, size) }
    }

    unsafe extern "C" fn leak(_: *mut c_void) {}

    /// `realloc` that loses the old block.
    unsafe extern "C" fn copy(block: *mut c_void, size: size_t) -> *mut c_void {
        // SAFETY: no preconditions.
        let new = unsafe { libc::malloc(size) };
        if !new.is_null() && !block.is_null() {
            // SAFETY: a live block.
            let old_size = unsafe { libc::malloc_usable_size(block) };
            // SAFETY: both blocks have that many bytes, and the new one is fresh.
            unsafe { ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old_size.min(size)) };
        }
        new
    }
}
