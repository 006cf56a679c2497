//! Which loaded object an address belongs to, and what other libraries of the process define.
//!
//! Called where the library meets others of its kind in one process: cold, from any thread.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem, ptr,
};
use std::ffi::CString;

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Sym as Symbol;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Sym as Symbol;

/// An address of ours that no other object can stand in for: the names that we export may mean somebody else's.
static HERE: u8 = 0;

/// What the loader knows about the object that `address` lies in, and the object's symbol there.
fn look_up(address: *const c_void) -> Option<(libc::Dl_info, *const Symbol)> {
    /// Ask for the symbol as well (`RTLD_DL_SYMENT`).
    const SYMBOL: c_int = 1;
    let mut info = mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol = ptr::null_mut::<c_void>();
    // SAFETY: dladdr1 accepts any address and fills both when it returns non-zero.
    if unsafe { libc::dladdr1(address, info.as_mut_ptr(), &raw mut symbol, SYMBOL) } == 0 {
        return None;
    }
    // SAFETY: filled, as dladdr1 said.
    Some((unsafe { info.assume_init() }, symbol.cast::<Symbol>().cast_const()))
}

/// Where the object that `address` lies in is loaded.
pub(crate) fn base(address: *const c_void) -> Option<usize> {
    look_up(address).map(|(info, _)| info.dli_fbase.addr())
}

/// Whether `address` lies in the object that this very code is in.
pub(crate) fn is_ours(address: *const c_void) -> bool {
    base(address).is_some_and(|there| Some(there) == base(ptr::from_ref(&HERE).cast()))
}

/// The next definition of `name` after ours, or, where its library came in by dlopen and so is not in the global scope, the
/// one of the first library of `libraries` that is loaded. Loads nothing. Null: there is none.
pub(crate) fn next_definition(name: &CStr, libraries: &[&CStr]) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    // The program must not find our failure when it asks for its own.
    // SAFETY: no preconditions.
    unsafe { libc::dlerror() };
    for library in libraries {
        let Some(handle) = open(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) else { continue };
        // SAFETY: a handle from dlopen and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(handle.0.as_ptr(), name.as_ptr()) };
        if !symbol.is_null() && !is_ours(symbol) {
            return symbol;
        }
    }
    ptr::null_mut()
}

/// A reference on a loaded library. Given back at once: whoever loaded the library keeps it.
struct Handle(ptr::NonNull<c_void>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: a handle from dlopen, given back once.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

fn open(library: &CStr, mode: c_int) -> Option<Handle> {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // Looked up, since a reference would make the linker of a fully static program warn: there it is not found.
    // SAFETY: a NUL-terminated name.
    let open = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if open.is_null() {
        return None;
    }
    // SAFETY: libc's function of this name has this type.
    let open = unsafe { mem::transmute::<*mut c_void, Open>(open) };
    // SAFETY: a NUL-terminated name; RTLD_NOLOAD runs no constructor.
    ptr::NonNull::new(unsafe { open(library.as_ptr(), mode) }).map(Handle)
}

/// The file whose definition of `name` the program gets, where that is not ours.
pub(crate) fn rival(name: &CStr) -> Option<CString> {
    // SAFETY: a NUL-terminated name.
    let chosen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if chosen.is_null() || is_ours(chosen) {
        return None;
    }
    let (info, symbol) = look_up(chosen)?;
    // SAFETY: null, or the loader's own entry, which lives as long as the object.
    let symbol = unsafe { symbol.as_ref() }?;
    // A program that is not position-independent and takes the function's address defines no more than a way to it.
    if symbol.st_shndx == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's NUL-terminated string, which lives as long as the object.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}
