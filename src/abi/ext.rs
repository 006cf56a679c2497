//! What Slipring adds to libxdp's interface; `include/slipring.h` is made from this file. Any thread may call any of it.

#![allow(non_camel_case_types, reason = "these are the C names")]

use core::ffi::{c_char, c_int, c_void};

use super::{
    guard, print,
    types::{xsk_ring_cons, xsk_umem, xsk_umem_opts},
    xsk,
};

/// Level of a message: something failed, or will not work as asked.
pub const SLIPRING_WARN: c_int = 0;
/// Level of a message: worth knowing.
pub const SLIPRING_INFO: c_int = 1;
/// Level of a message: for the developers of the library.
pub const SLIPRING_DEBUG: c_int = 2;

/// Takes a message: a SLIPRING_* level and a line that ends in a newline. `line` is valid during the call. Called on
/// whatever thread met the failure, also on several at once, just before the failing call returns. It may call the
/// library; messages about those calls go to stderr.
pub type slipring_print_fn = Option<extern "C" fn(level: c_int, line: *const c_char)>;

/// Version of the library that the program runs with, as in "0.1.0". Never NULL, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Send messages to `print` from now on, unless the program has given libxdp_set_print() a callback, which then gets
/// them. NULL: to the callback of libbpf_set_print() if the program has set one, else warnings and infos to stderr,
/// which is what happens before the first call. Returns the callback until now, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn slipring_set_print(print: slipring_print_fn) -> slipring_print_fn {
    print::set_ours(print)
}

/// As xsk_umem__create_opts() for a program that only sends and has no use for a fill ring.
///
/// The fill ring exists, as the kernel wants one, with opts->fill_size entries, and stays empty. A socket that receives
/// is -EFAULT on this UMEM unless it brings fill and completion ring structs (xsk_socket__create_shared). Delete with
/// xsk_umem__delete().
///
/// Returns the UMEM, or NULL with errno set as by xsk_umem__create_opts().
///
/// # Safety
/// As `xsk_umem__create_opts`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipring_umem_create_tx(
    umem_area: *mut c_void,
    comp: *mut xsk_ring_cons,
    opts: *mut xsk_umem_opts,
) -> *mut xsk_umem {
    guard("slipring_umem_create_tx", || {
        // SAFETY: passed on.
        unsafe { xsk::create_umem_tx(umem_area, comp, opts) }
    })
}
