//! libbpf's print callback, which programs set that used AF_XDP when libbpf had it, or that let libbpf load a program.
//! (What libbpf does to interfaces and maps is in `crate::interpose`.)

use super::print::{self, PrintFn};

/// libbpf's: send its messages to `print` from now on, NULL: nowhere. Returns the callback until now. Slipring's messages go
/// there too where the program sets no callback that is nearer: libxdp's or Slipring's own.
///
/// # Safety
///
/// `print` has libbpf's callback type and may be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn libbpf_set_print(print: Option<PrintFn>) -> Option<PrintFn> {
    print::LIBBPF.set(print)
}
