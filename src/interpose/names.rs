//! `if_nameindex`: the kernel's interfaces and, behind them, those that SLIPRING_DEVICES names and the kernel does not have.
//!
//! A list is made as glibc makes it, an array and each name in blocks of their own, so that whichever `if_freenameindex` the
//! program has can free it. Cold; called from any thread.

use core::{
    ffi::{CStr, c_uint, c_void},
    ptr,
};
use std::ffi::CString;

use libc::if_nameindex as Entry;

use super::{guard, ifaces::kernel_index, next};
use crate::{
    config::{self, Pattern},
    engine,
    errno::{Errno, Result},
};

type Names = Vec<(c_uint, CString)>;

/// The interfaces of ours that have a name of their own. One that is longer than the kernel's can be is left out: programs
/// copy what they find here to a place of IF_NAMESIZE bytes.
fn ours() -> Names {
    let devices = config::devices();
    let named = devices.entries.iter().filter_map(|entry| {
        let Pattern::Name(name) = &entry.pattern else { return None };
        let name = CString::new(name.as_str()).ok().filter(|n| n.as_bytes().len() < libc::IFNAMSIZ)?;
        // A bad specification has been complained about.
        let interface = engine::interface_named(&name).ok().flatten()?;
        Some((interface.ifindex, name))
    });
    named.collect()
}

/// The list as the program gets it. ENOBUFS, as libc's: no memory.
fn give(names: &Names) -> Result<*mut Entry> {
    // SAFETY: no preconditions; zeroed memory is entries that end the list.
    let list = unsafe { libc::calloc(names.len() + 1, size_of::<Entry>()) }.cast::<Entry>();
    if list.is_null() {
        return Err(Errno::ENOBUFS);
    }
    for (at, (index, name)) in names.iter().enumerate() {
        // SAFETY: a NUL-terminated string.
        let copy = unsafe { libc::strdup(name.as_ptr()) };
        if copy.is_null() {
            // SAFETY: made here and ended by its zeroes.
            unsafe { free_list(list) };
            return Err(Errno::ENOBUFS);
        }
        // SAFETY: one of the names.len() + 1 places.
        unsafe { list.wrapping_add(at).write(Entry { if_index: *index, if_name: copy }) };
    }
    Ok(list)
}

/// What a list says. Its end is an entry without a name.
///
/// # Safety
/// `list` is a living list of `if_nameindex`.
unsafe fn read(list: *const Entry) -> Names {
    let mut names = Names::new();
    let mut at = list;
    loop {
        // SAFETY: no entry before this one was the end.
        let entry = unsafe { at.read() };
        if entry.if_name.is_null() {
            return names;
        }
        // SAFETY: the list's own string.
        names.push((entry.if_index, unsafe { CStr::from_ptr(entry.if_name) }.to_owned()));
        at = at.wrapping_add(1);
    }
}

/// `if_freenameindex` of programs that have no next definition.
///
/// # Safety
/// `list` is null or from `if_nameindex`, and not used afterwards.
pub(super) unsafe fn free_list(list: *mut Entry) {
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list, the end at the latest.
        let name = unsafe { (*at).if_name };
        if name.is_null() {
            break;
        }
        // SAFETY: the name is a block of its own.
        unsafe { libc::free(name.cast::<c_void>()) };
        at = at.wrapping_add(1);
    }
    // SAFETY: the array is a block of its own, or null.
    unsafe { libc::free(list.cast::<c_void>()) };
}

/// `if_nameindex` of programs that have no next definition.
pub(super) fn kernel_list() -> *mut Entry {
    guard(ptr::null_mut(), || {
        let table = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let names = table.lines().filter_map(|line| {
            // "  eth0: 1234 ...", below two lines of headings.
            let name = CString::new(line.split_once(':')?.0.trim()).ok()?;
            Some((kernel_index(&name), name)).filter(|(index, _)| *index != 0)
        });
        given(give(&names.collect()))
    })
}

fn given(list: Result<*mut Entry>) -> *mut Entry {
    list.unwrap_or_else(|error| {
        error.set();
        ptr::null_mut()
    })
}

/// The kernel's list and ours. The kernel's is freed if it is not what is returned.
extern "C" fn joined(kernel: *mut Entry) -> *mut Entry {
    guard(kernel, || {
        let mut ours = ours();
        // SAFETY: libc's list, which is not null.
        let mut all = unsafe { read(kernel) };
        ours.retain(|(_, name)| !all.iter().any(|(_, known)| known == name));
        if ours.is_empty() {
            return kernel;
        }
        all.append(&mut ours);
        let list = given(give(&all));
        // SAFETY: libc's list, which nobody has seen.
        unsafe { next::if_freenameindex(kernel) };
        list
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn if_nameindex() -> *mut Entry {
    // SAFETY: no preconditions.
    let kernel = unsafe { next::if_nameindex() };
    if kernel.is_null() || !config::engine_first() {
        return kernel;
    }
    joined(kernel)
}

// A static program must find both names in one object: libc's own have one, with names that are here.
#[unsafe(no_mangle)]
unsafe extern "C" fn if_freenameindex(list: *mut Entry) {
    // SAFETY: the program's own list.
    unsafe { next::if_freenameindex(list) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_libc_the_kernel_is_asked() {
        let list = kernel_list();
        assert!(!list.is_null());
        // SAFETY: just made.
        let names = unsafe { read(list) };
        assert!(names.iter().any(|(index, name)| *index == kernel_index(c"lo") && name.as_c_str() == c"lo"));
        // SAFETY: made here.
        unsafe { free_list(list) };
    }
}
