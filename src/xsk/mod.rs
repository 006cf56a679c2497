//! libxdp's semantics, once, over the two providers.
//!
//! [`Umem`] and [`Socket`] are what the C handles `struct xsk_umem *` and `struct xsk_socket *` point to. Any thread may call
//! anything: what sockets of one UMEM share is behind that UMEM's lock, and separate UMEMs share nothing.
//!
//! The caller's ring structs are the caller's: nothing here keeps a pointer to read them later. A call that makes a ring
//! answers with a [`View`], which `abi` writes into the struct that was passed to that very call.

mod context;
mod explain;
mod options;
mod ring;
mod socket;
mod umem;

use core::ffi::c_int;

pub use options::{INHIBIT_PROG_LOAD, SocketOptions, UmemOptions};
pub use ring::{View, ViewFor};
pub use socket::{Created, Socket};
pub use umem::{NewUmem, Umem};

use crate::{
    errno::{Errno, Result},
    uapi::select,
    warn,
};

/// `xsk_setup_xdp_prog`: see that the default program is on an interface, and take a reference that is never given back.
/// Returns a new descriptor of its socket map. EINVAL: there is no such interface.
pub fn setup_program(ifindex: c_int) -> Result<c_int> {
    let number = u32::try_from(ifindex).ok().filter(|n| *n != 0).ok_or(Errno::EINVAL)?;
    match select::provider_numbered(number).provider().permanent_program(number) {
        Err(Errno::ENODEV) => {
            warn!("xsk_setup_xdp_prog: there is no interface number {ifindex}");
            Err(Errno::EINVAL)
        }
        other => other,
    }
}
