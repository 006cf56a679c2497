//! The control path: UMEMs, sockets and the default program.
//!
//! Ring structs and configurations belong to the caller. They are read and written during the call that they are passed to
//! and never afterwards.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use super::{
    guard, guard_short,
    types::{
        __u32, __u64, xsk_ring_cons, xsk_ring_prod, xsk_socket, xsk_socket_config, xsk_socket_opts, xsk_umem,
        xsk_umem_config, xsk_umem_opts,
    },
};
use crate::{
    errno::{Errno, Result},
    sys,
    uapi::select,
    warn,
    xsk::{Socket, SocketOptions, Umem, UmemOptions, View, setup_program},
};

/// Register a UMEM, `size` bytes at `umem_area`, and make its fill and completion ring.
///
/// `umem_area` must be page aligned, `size` a multiple of the chunk size. `fill` and `comp` are filled in. `config`
/// is NULL for the defaults, for which 0 in a member stands too. `*umem` is written on success only. Delete with
/// `xsk_umem__delete`; until then the area must stay mapped.
///
/// Returns 0, or -EFAULT: a NULL pointer; -EINVAL: alignment, sizes or flags; -EPERM: no CAP_NET_RAW; -ENOBUFS: more
/// memory than RLIMIT_MEMLOCK allows; -ENOMEM; or what the system call that failed gave. The log says which value was
/// wrong.
///
/// # Safety
/// Pointers are NULL or valid for their type. The area stays mapped until `xsk_umem__delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_umem__create(
    umem: *mut *mut xsk_umem,
    umem_area: *mut c_void,
    size: __u64,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    config: *const xsk_umem_config,
) -> c_int {
    guard("xsk_umem__create", || {
        // SAFETY: NULL or valid, by the caller.
        let options = UmemOptions::from_config(None, size, unsafe { config.as_ref() });
        let place = Place::new(umem)?;
        // SAFETY: NULL or valid, by the caller.
        place.put(unsafe { create_umem(umem_area, fill, comp, options) }?)
    })
}

/// As `xsk_umem__create`, on the AF_XDP socket `fd`, so that the caller needs no privilege.
///
/// The library owns `fd` from then on and closes it in `xsk_umem__delete`, and also when the kernel refuses the UMEM;
/// not when a pointer is NULL. Below 0, or 0 where that is no AF_XDP socket: the library makes a socket.
///
/// # Safety
/// As `xsk_umem__create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_umem__create_with_fd(
    umem: *mut *mut xsk_umem,
    fd: c_int,
    umem_area: *mut c_void,
    size: __u64,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    config: *const xsk_umem_config,
) -> c_int {
    guard("xsk_umem__create_with_fd", || {
        let given = fd > 0 || (fd == 0 && select::is_xdp_socket(fd));
        // SAFETY: NULL or valid, by the caller.
        let options = UmemOptions::from_config(given.then_some(fd), size, unsafe { config.as_ref() });
        let place = Place::new(umem)?;
        // SAFETY: NULL or valid, by the caller.
        place.put(unsafe { create_umem(umem_area, fill, comp, options) }?)
    })
}

/// As `xsk_umem__create_with_fd`, with the size and everything else in `opts`; `opts->size` cannot be left out.
///
/// Returns the UMEM, or NULL with errno set.
///
/// # Safety
/// As `xsk_umem__create`; `opts` points to as many bytes as its `sz` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_umem__create_opts(
    umem_area: *mut c_void,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    opts: *mut xsk_umem_opts,
) -> *mut xsk_umem {
    guard("xsk_umem__create_opts", || {
        // Missing rings come before bad options.
        check_umem_pointers(&[(umem_area.is_null(), "umem_area"), (fill.is_null(), "fill"), (comp.is_null(), "comp")])?;
        // SAFETY: NULL or valid, by the caller.
        let options = unsafe { UmemOptions::from_opts(opts) }?;
        // SAFETY: as above.
        unsafe { create_umem(umem_area, fill, comp, options) }
    })
}

/// Take a UMEM down and close its descriptor. Returns 0, also for NULL; -EBUSY, and does nothing, while it has
/// sockets.
///
/// # Safety
/// `umem` is NULL or a living UMEM of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_umem__delete(umem: *mut xsk_umem) -> c_int {
    guard("xsk_umem__delete", || {
        // SAFETY: NULL or valid, by the caller.
        let Some(handle) = (unsafe { umem.as_ref() }) else { return Ok(0) };
        handle.0.delete()?;
        // SAFETY: every handle came from `Box::into_raw` in `create_umem`, and the caller gives this one up.
        drop(unsafe { Box::from_raw(umem) });
        Ok(0)
    })
}

/// The UMEM's descriptor, which stays the library's; -EINVAL for NULL.
///
/// # Safety
/// `umem` is NULL or a living UMEM of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_umem__fd(umem: *const xsk_umem) -> c_int {
    guard_short("xsk_umem__fd", || {
        // SAFETY: NULL or valid, by the caller.
        unsafe { umem.as_ref() }.map(|umem| umem.0.fd()).ok_or(Errno::EINVAL)
    })
}

/// Make a socket on queue `queue_id` of interface `ifname`, with the fill and completion ring of its UMEM.
///
/// `rx` or `tx` may be NULL, not both; what is given is filled in. The UMEM's first socket settles where its fill and
/// completion ring are used: a second socket there shares them, one on another interface or queue needs its own
/// (`xsk_socket__create_shared`). `bind_flags` count for the first socket of an interface and queue only. `config` is
/// NULL for the defaults. `*xsk` is written on success only. Delete with `xsk_socket__delete`, before the UMEM.
///
/// Unless XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD is set, the default XDP program is on the interface and directs the
/// queue's packets to the socket when this returns.
///
/// Returns 0, or -EFAULT: a NULL pointer, or no fill and completion ring for this queue; -EINVAL: queue, sizes or
/// flags; -ENODEV: no such interface; -EBUSY: the queue is taken, or another XDP program is on the interface;
/// -EOPNOTSUPP: no such mode here; -EPERM; -ENOMEM; or what the system call that failed gave. The log says what was
/// wrong.
///
/// # Safety
/// Pointers are NULL or valid for their type, `umem` a living UMEM of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__create(
    xsk: *mut *mut xsk_socket,
    ifname: *const c_char,
    queue_id: __u32,
    umem: *mut xsk_umem,
    rx: *mut xsk_ring_cons,
    tx: *mut xsk_ring_prod,
    config: *const xsk_socket_config,
) -> c_int {
    guard("xsk_socket__create", || {
        if umem.is_null() {
            return Err(no_umem());
        }
        let place = Place::new(xsk)?;
        // SAFETY: NULL or valid, by the caller.
        let options = SocketOptions { rx, tx, ..unsafe { SocketOptions::from_config(config) } };
        // SAFETY: as above.
        place.put(unsafe { create_socket(ifname, queue_id, umem, &options) }?)
    })
}

/// As `xsk_socket__create`, with a fill and a completion ring for this interface and queue. They are made by the
/// UMEM's first socket there; later ones find them made. Both structs are filled in either way.
///
/// # Safety
/// As `xsk_socket__create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__create_shared(
    xsk: *mut *mut xsk_socket,
    ifname: *const c_char,
    queue_id: __u32,
    umem: *mut xsk_umem,
    rx: *mut xsk_ring_cons,
    tx: *mut xsk_ring_prod,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    config: *const xsk_socket_config,
) -> c_int {
    guard("xsk_socket__create_shared", || {
        let place = Place::new(xsk)?;
        // SAFETY: NULL or valid, by the caller.
        let options = SocketOptions { rx, tx, fill, comp, ..unsafe { SocketOptions::from_config(config) } };
        // SAFETY: as above.
        place.put(unsafe { create_socket(ifname, queue_id, umem, &options) }?)
    })
}

/// As `xsk_socket__create_shared`, with everything else in `opts`.
///
/// Returns the socket, or NULL with errno set.
///
/// # Safety
/// As `xsk_socket__create`; `opts` points to as many bytes as its `sz` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__create_opts(
    ifname: *const c_char,
    queue_id: __u32,
    umem: *mut xsk_umem,
    opts: *mut xsk_socket_opts,
) -> *mut xsk_socket {
    guard("xsk_socket__create_opts", || {
        // SAFETY: NULL or valid, by the caller.
        let options = unsafe { SocketOptions::from_opts(opts) }?;
        // SAFETY: as above.
        unsafe { create_socket(ifname, queue_id, umem, &options) }
    })
}

/// Take a socket down: its rings, its share of the default program, and its descriptor unless that is the UMEM's.
/// NULL is nothing. The UMEM's first socket's queue stays taken until `xsk_umem__delete`.
///
/// # Safety
/// `xsk` is NULL or a living socket of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__delete(xsk: *mut xsk_socket) {
    guard::<()>("xsk_socket__delete", || {
        if !xsk.is_null() {
            // SAFETY: every handle came from `Box::into_raw` in `create_socket`, and the caller gives this one up.
            let handle = unsafe { Box::from_raw(xsk) };
            handle.0.delete();
        }
        Ok(())
    });
}

/// The socket's descriptor, for sendto(), poll(), getsockopt() and the like; it stays the library's. -EINVAL for
/// NULL.
///
/// # Safety
/// `xsk` is NULL or a living socket of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__fd(xsk: *const xsk_socket) -> c_int {
    guard_short("xsk_socket__fd", || {
        // SAFETY: NULL or valid, by the caller.
        unsafe { xsk.as_ref() }.map(|xsk| xsk.0.fd()).ok_or(Errno::EINVAL)
    })
}

/// Store the socket under its queue in the XSKMAP `fd`, which stays the caller's. Returns 0, or the map update's
/// negative error number.
///
/// # Safety
/// `xsk` is NULL or a living socket of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_socket__update_xskmap(xsk: *mut xsk_socket, fd: c_int) -> c_int {
    guard("xsk_socket__update_xskmap", || {
        // SAFETY: NULL or valid, by the caller.
        let xsk = unsafe { xsk.as_ref() }.ok_or(Errno::EFAULT)?;
        xsk.0.update_map(fd)?;
        Ok(0)
    })
}

/// See that the default XDP program is on interface number `ifindex`, for good, and store a new descriptor of its
/// XSKMAP, which the caller closes. `xsks_map_fd` may be NULL. Returns 0, or a negative error number.
///
/// # Safety
/// `xsks_map_fd` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_setup_xdp_prog(ifindex: c_int, xsks_map_fd: *mut c_int) -> c_int {
    guard("xsk_setup_xdp_prog", || {
        let map = setup_program(ifindex)?;
        if xsks_map_fd.is_null() {
            sys::close(map);
        } else {
            // SAFETY: valid, by the caller.
            unsafe { xsks_map_fd.write(map) };
        }
        Ok(0)
    })
}

/// Where a new handle goes; written on success only.
struct Place<T>(*mut *mut T);

impl<T> Place<T> {
    /// EFAULT: NULL.
    fn new(place: *mut *mut T) -> Result<Place<T>> {
        if place.is_null() {
            warn!("the pointer for the new handle is NULL");
            return Err(Errno::EFAULT);
        }
        Ok(Place(place))
    }

    fn put(self, handle: *mut T) -> Result<c_int> {
        // SAFETY: not NULL, so valid by the caller of the exported function.
        unsafe { self.0.write(handle) };
        Ok(0)
    }
}

fn check_umem_pointers(pointers: &[(bool, &str)]) -> Result<()> {
    for (missing, name) in pointers {
        if *missing {
            warn!("xsk_umem__create: {name} is NULL");
            return Err(Errno::EFAULT);
        }
    }
    Ok(())
}

/// # Safety
/// `fill` and `comp` are NULL or valid.
unsafe fn create_umem(
    area: *mut c_void,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    options: UmemOptions,
) -> Result<*mut xsk_umem> {
    check_umem_pointers(&[(area.is_null(), "umem_area"), (fill.is_null(), "fill"), (comp.is_null(), "comp")])?;
    // SAFETY: valid by the caller.
    unsafe { create_umem_rings(area, fill, comp, options) }
}

/// Of `slipring_umem_create_tx`.
///
/// # Safety
/// As `xsk_umem__create_opts`.
pub(super) unsafe fn create_umem_tx(
    area: *mut c_void,
    comp: *mut xsk_ring_cons,
    opts: *const xsk_umem_opts,
) -> Result<*mut xsk_umem> {
    check_umem_pointers(&[(area.is_null(), "umem_area"), (comp.is_null(), "comp")])?;
    // SAFETY: NULL or valid, by the caller.
    let options = unsafe { UmemOptions::from_opts(opts) }?;
    // SAFETY: valid by the caller; NULL for the fill ring is allowed.
    unsafe { create_umem_rings(area, ptr::null_mut(), comp, options) }
}

/// # Safety
/// `fill` is NULL or valid, `comp` is valid.
unsafe fn create_umem_rings(
    area: *mut c_void,
    fill: *mut xsk_ring_prod,
    comp: *mut xsk_ring_cons,
    options: UmemOptions,
) -> Result<*mut xsk_umem> {
    let new = Umem::create(area.expose_provenance(), options, fill.addr(), comp.addr())?;
    if !fill.is_null() {
        // SAFETY: not NULL, so valid by the caller.
        unsafe { fill.write(producer(&new.fill)) };
    }
    // SAFETY: valid by the caller.
    unsafe { comp.write(consumer(&new.comp)) };
    Ok(Box::into_raw(Box::new(xsk_umem(new.umem))))
}

fn no_umem() -> Errno {
    warn!("xsk_socket__create: umem is NULL");
    Errno::EFAULT
}

/// # Safety
/// Pointers, also those in `options`, are NULL or valid.
unsafe fn create_socket(
    ifname: *const c_char,
    queue: u32,
    umem: *mut xsk_umem,
    options: &SocketOptions,
) -> Result<*mut xsk_socket> {
    // SAFETY: NULL or valid, by the caller.
    let Some(umem) = (unsafe { umem.as_ref() }) else { return Err(no_umem()) };
    // SAFETY: not NULL, so a NUL-terminated string, by the caller.
    let name = (!ifname.is_null()).then(|| unsafe { CStr::from_ptr(ifname) });
    let new = Socket::create(&umem.0, name, queue, options)?;
    if let Some(view) = &new.rx {
        // SAFETY: there is a view only where the pointer is not NULL.
        unsafe { options.rx.write(consumer(view)) };
    }
    if let Some(view) = &new.tx {
        // SAFETY: as above.
        unsafe { options.tx.write(producer(view)) };
    }
    if let Some(new) = &new.fill {
        // SAFETY: as above. A known struct was written by an earlier call, so reading it is defined.
        let in_use = new.known && unsafe { shows_prod(options.fill, &new.view) };
        if !in_use {
            // SAFETY: as above.
            unsafe { options.fill.write(producer(&new.view)) };
        }
    }
    if let Some(new) = &new.comp {
        // SAFETY: as above.
        let in_use = new.known && unsafe { shows_cons(options.comp, &new.view) };
        if !in_use {
            // SAFETY: as above.
            unsafe { options.comp.write(consumer(&new.view)) };
        }
    }
    Ok(Box::into_raw(Box::new(xsk_socket(new.socket))))
}

fn producer(view: &View) -> xsk_ring_prod {
    let View { cached_prod, cached_cons, size, producer, consumer, ring, flags } = *view;
    xsk_ring_prod { cached_prod, cached_cons, mask: size - 1, size, producer, consumer, ring, flags }
}

fn consumer(view: &View) -> xsk_ring_cons {
    let View { cached_prod, cached_cons, size, producer, consumer, ring, flags } = *view;
    xsk_ring_cons { cached_prod, cached_cons, mask: size - 1, size, producer, consumer, ring, flags }
}

/// Whether the caller's struct already stands for the ring of `view`.
///
/// # Safety
/// `ring` is valid and initialised.
unsafe fn shows_prod(ring: *const xsk_ring_prod, view: &View) -> bool {
    // SAFETY: by the caller.
    let ring = unsafe { ring.read() };
    ring.producer == view.producer && ring.consumer == view.consumer && ring.ring == view.ring && ring.size == view.size
}

/// As [`shows_prod`].
///
/// # Safety
/// `ring` is valid and initialised.
unsafe fn shows_cons(ring: *const xsk_ring_cons, view: &View) -> bool {
    // SAFETY: by the caller.
    let ring = unsafe { ring.read() };
    ring.producer == view.producer && ring.consumer == view.consumer && ring.ring == view.ring && ring.size == view.size
}
