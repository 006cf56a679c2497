//! What Slipring adds to libxdp's interface; `include/slipring.h` is made from this file. Any thread may call any of it.

#![allow(non_camel_case_types, reason = "these are the C names")]

use core::ffi::{c_char, c_int};

use super::print;

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
