//! Another `xsk_*` provider that the program gets in place of ours: a copy in the program itself, or a library that comes
//! before ours, as with two preloads. One line says so.
//!
//! Asked when the program makes its first AF_XDP socket by libc's name, which such a provider has to do: other programs pay
//! nothing and see nothing. A copy whose functions are not in the dynamic symbol table (a program that is linked without
//! `-rdynamic`, or stripped) looks like a program that makes AF_XDP's system calls by itself; it is served as one.

use crate::{
    loaded,
    sync::{AtomicBool, Ordering},
    warn,
};

/// Say so once if there is one.
pub(super) fn tell() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    if ASKED.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(rival) = loaded::rival(c"xsk_socket__create") {
        warn!(
            "the program's xsk_* functions are those of {}, not Slipring's: Slipring sees only their system calls, which it \
             serves on interfaces of SLIPRING_DEVICES. To use Slipring's, name its library first in LD_PRELOAD, or link the \
             program without that copy",
            rival.to_string_lossy()
        );
    }
}
