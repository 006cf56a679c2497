//! bpf(2), as far as the default program needs it.
//!
//! Descriptors that come out of here are close-on-exec, as the kernel makes all BPF descriptors.

use core::{ffi::CStr, mem::size_of, ptr};
use std::os::fd::RawFd;

use super::calls::OwnedFd;
use crate::errno::{Errno, Result, check};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const OBJ_GET: i32 = 7;
const PROG_TEST_RUN: i32 = 10;
const PROG_GET_FD_BY_ID: i32 = 13;
const MAP_GET_FD_BY_ID: i32 = 14;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const BTF_LOAD: i32 = 18;
const BTF_GET_FD_BY_ID: i32 = 19;
const LINK_GET_FD_BY_ID: i32 = 30;
const LINK_GET_NEXT_ID: i32 = 31;
const LINK_DETACH: i32 = 34;

/// `BPF_MAP_TYPE_ARRAY`.
pub(super) const MAP_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_XSKMAP`.
pub(super) const MAP_XSKMAP: u32 = 17;
/// `BPF_F_MMAPABLE`.
pub(super) const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_RDONLY_PROG`.
pub(super) const RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_XDP_HAS_FRAGS`.
pub(super) const HAS_FRAGS: u32 = 1 << 5;
/// `BPF_PROG_TYPE_XDP`.
const PROG_XDP: u32 = 6;
/// `BPF_XDP`, the attach type.
const ATTACH_XDP: u32 = 37;
/// `BPF_LINK_TYPE_XDP`.
const LINK_XDP: u32 = 6;

/// Bytes of an object's name with its NUL.
const NAME: usize = 16;

/// The call itself. `T` is the part of `union bpf_attr` that the command reads; the kernel takes a shorter union as one
/// that ends in zeros.
fn bpf<T: Copy>(command: i32, attr: &mut T) -> Result<RawFd> {
    // SAFETY: a live, unique reference of the stated size; what its members point to is alive in every caller below.
    let ret = check(unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attr), size_of::<T>()) })?;
    RawFd::try_from(ret).map_err(|_| Errno::EIO)
}

fn name_of(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

fn text_of(name: &[u8; NAME]) -> String {
    let len = name.iter().position(|&b| b == 0).unwrap_or(NAME);
    String::from_utf8_lossy(&name[..len]).into_owned()
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Element {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn address<T>(value: *const T) -> u64 {
    value.expose_provenance() as u64
}

fn descriptor(fd: RawFd) -> u32 {
    // A negative number becomes one that no descriptor has: EBADF.
    fd.cast_unsigned()
}

/// Store a value under a key. `value` must be at least as long as the map's values: see the callers.
pub(super) fn map_update(map: RawFd, key: u32, value: &[u8]) -> Result<()> {
    let mut attr = Element {
        map_fd: descriptor(map),
        pad: 0,
        key: address(&raw const key),
        value: address(value.as_ptr()),
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Read the value of a key into `value`, which must be at least as long as the map's values.
pub(super) fn map_lookup(map: RawFd, key: u32, value: &mut [u8]) -> Result<()> {
    let mut attr = Element {
        map_fd: descriptor(map),
        pad: 0,
        key: address(&raw const key),
        value: address(value.as_mut_ptr()),
        flags: 0,
    };
    bpf(MAP_LOOKUP_ELEM, &mut attr).map(drop)
}

/// Take a key away. ENOENT: it is not there.
pub(super) fn map_delete(map: RawFd, key: u32) -> Result<()> {
    let mut attr = Element { map_fd: descriptor(map), pad: 0, key: address(&raw const key), value: 0, flags: 0 };
    bpf(MAP_DELETE_ELEM, &mut attr).map(drop)
}

/// Make a map with 4-byte keys and values.
pub(super) fn map_create(kind: u32, name: &str, entries: u32, flags: u32) -> Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
        inner_map_fd: u32,
        numa_node: u32,
        name: [u8; NAME],
        ifindex: u32,
    }
    let mut attr = Attr {
        map_type: kind,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        map_flags: flags,
        inner_map_fd: 0,
        numa_node: 0,
        name: name_of(name),
        ifindex: 0,
    };
    bpf(MAP_CREATE, &mut attr).map(OwnedFd::new)
}

/// Hand type information to the kernel.
pub(super) fn btf_load(btf: &[u8]) -> Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        btf: u64,
        log: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        pad: u32,
    }
    let size = u32::try_from(btf.len()).map_err(|_| Errno::E2BIG)?;
    let mut attr = Attr { btf: address(btf.as_ptr()), log: 0, size, log_size: 0, log_level: 0, pad: 0 };
    bpf(BTF_LOAD, &mut attr).map(OwnedFd::new)
}

/// One instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insn {
    pub(super) code: u8,
    /// Destination register in the low half, source in the high.
    pub(super) regs: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

/// `struct bpf_func_info`: which BTF type describes the function at an instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FuncInfo {
    pub(super) insn_off: u32,
    pub(super) type_id: u32,
}

/// Load an XDP program, with its type information if it has any. `flags`: `HAS_FRAGS`.
pub(super) fn prog_load(
    name: &str,
    insns: &[Insn],
    types: Option<(&OwnedFd, FuncInfo)>,
    flags: u32,
) -> Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
        name: [u8; NAME],
        ifindex: u32,
        attach_type: u32,
        btf_fd: u32,
        func_info_rec_size: u32,
        func_info: u64,
        func_info_cnt: u32,
        pad: u32,
    }
    const LICENSE: &CStr = c"GPL";
    let (btf_fd, function) =
        types.map_or((0, FuncInfo::default()), |(btf, function)| (descriptor(btf.raw()), function));
    let mut attr = Attr {
        prog_type: PROG_XDP,
        insn_cnt: u32::try_from(insns.len()).map_err(|_| Errno::E2BIG)?,
        insns: address(insns.as_ptr()),
        license: address(LICENSE.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: flags,
        name: name_of(name),
        ifindex: 0,
        attach_type: ATTACH_XDP,
        btf_fd,
        func_info_rec_size: if types.is_some() { 8 } else { 0 },
        func_info: if types.is_some() { address(&raw const function) } else { 0 },
        func_info_cnt: u32::from(types.is_some()),
        pad: 0,
    };
    // The verifier may be interrupted by a signal and then says EAGAIN.
    for _ in 0..5 {
        match bpf(PROG_LOAD, &mut attr) {
            Err(Errno::EAGAIN) => {}
            other => return other.map(OwnedFd::new),
        }
    }
    Err(Errno::EAGAIN)
}

/// Run an XDP program once on a frame of zeros, apart from any interface; returns what it returned.
pub(super) fn prog_test_run(prog: &OwnedFd) -> Result<u32> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        prog_fd: u32,
        retval: u32,
        data_size_in: u32,
        data_size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    // The kernel wants an Ethernet header at least.
    let frame = [0u8; 64];
    let mut attr = Attr {
        prog_fd: descriptor(prog.raw()),
        retval: 0,
        data_size_in: 64,
        data_size_out: 0,
        data_in: address(frame.as_ptr()),
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    bpf(PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval)
}

/// Open a pinned object.
pub(super) fn obj_get(path: &CStr) -> Result<OwnedFd> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        path: u64,
        fd: u32,
        flags: u32,
    }
    bpf(OBJ_GET, &mut Attr { path: address(path.as_ptr()), fd: 0, flags: 0 }).map(OwnedFd::new)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Id {
    id: u32,
    next: u32,
    flags: u32,
}

fn by_id(command: i32, id: u32) -> Result<OwnedFd> {
    bpf(command, &mut Id { id, next: 0, flags: 0 }).map(OwnedFd::new)
}

/// The program of an id. ENOENT: it is gone.
pub(super) fn prog_by_id(id: u32) -> Result<OwnedFd> {
    by_id(PROG_GET_FD_BY_ID, id)
}

/// The map of an id. ENOENT: it is gone.
pub(super) fn map_by_id(id: u32) -> Result<OwnedFd> {
    by_id(MAP_GET_FD_BY_ID, id)
}

fn info<T: Copy>(fd: RawFd, info: &mut T) -> Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    let len = u32::try_from(size_of::<T>()).map_err(|_| Errno::E2BIG)?;
    bpf(OBJ_GET_INFO_BY_FD, &mut Attr { fd: descriptor(fd), len, info: address(ptr::from_mut(info)) }).map(drop)
}

/// What is known of a program.
#[derive(Clone, Debug)]
pub(super) struct ProgInfo {
    pub(super) id: u32,
    pub(super) name: String,
    /// Of its type information; 0: the kernel has none.
    pub(super) btf_id: u32,
    pub(super) map_ids: Vec<u32>,
}

/// Ask for a program's name, type information and maps.
pub(super) fn prog_info(prog: &OwnedFd) -> Result<ProgInfo> {
    /// The first 136 bytes of `struct bpf_prog_info`, which every kernel that has BTF knows.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Raw {
        kind: u32,
        id: u32,
        tag: [u8; 8],
        jited_len: u32,
        xlated_len: u32,
        jited: u64,
        xlated: u64,
        load_time: u64,
        uid: u32,
        nr_map_ids: u32,
        map_ids: u64,
        name: [u8; NAME],
        ifindex: u32,
        gpl: u32,
        netns_dev: u64,
        netns_ino: u64,
        nr_ksyms: u32,
        nr_func_lens: u32,
        ksyms: u64,
        func_lens: u64,
        btf_id: u32,
        func_info_rec_size: u32,
    }
    /// More than any program of interest has.
    const MAPS: u32 = 64;
    let mut ids = [0u32; MAPS as usize];
    let mut raw = Raw { nr_map_ids: MAPS, map_ids: address(ids.as_mut_ptr()), ..Raw::default() };
    info(prog.raw(), &mut raw)?;
    let count = raw.nr_map_ids.min(MAPS) as usize;
    Ok(ProgInfo { id: raw.id, name: text_of(&raw.name), btf_id: raw.btf_id, map_ids: ids[..count].to_vec() })
}

/// What is known of a map.
#[derive(Clone, Debug)]
pub(super) struct MapInfo {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
}

/// Ask for a map's name and shape.
pub(super) fn map_info(map: &OwnedFd) -> Result<MapInfo> {
    /// The first 40 bytes of `struct bpf_map_info`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Raw {
        kind: u32,
        id: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        name: [u8; NAME],
    }
    let mut raw = Raw::default();
    info(map.raw(), &mut raw)?;
    Ok(MapInfo {
        id: raw.id,
        name: text_of(&raw.name),
        key_size: raw.key_size,
        value_size: raw.value_size,
        max_entries: raw.max_entries,
        flags: raw.flags,
    })
}

/// The bytes of the type information of an id.
pub(super) fn btf_data(id: u32) -> Result<Vec<u8>> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Raw {
        btf: u64,
        size: u32,
        id: u32,
    }
    /// A default program has some hundred bytes; a compiled dispatcher a few thousand.
    const LIMIT: usize = 1 << 20;
    let btf = by_id(BTF_GET_FD_BY_ID, id)?;
    let mut raw = Raw { btf: 0, size: 0, id: 0 };
    info(btf.raw(), &mut raw)?;
    let size = raw.size as usize;
    if size > LIMIT {
        return Err(Errno::E2BIG);
    }
    let mut bytes = vec![0u8; size];
    raw = Raw { btf: address(bytes.as_mut_ptr()), size: raw.size, id: 0 };
    info(btf.raw(), &mut raw)?;
    Ok(bytes)
}

/// Detach the BPF link that holds program `prog_id` on an interface. ENOENT: there is no such link.
pub(super) fn detach_xdp_link(ifindex: u32, prog_id: u32) -> Result<()> {
    let (_, link) = xdp_link(ifindex, prog_id)?;
    bpf(LINK_DETACH, &mut descriptor(link.raw())).map(drop)
}

/// The BPF link that holds program `prog_id` on an interface, and its id. ENOENT: there is no such link.
pub(super) fn xdp_link(ifindex: u32, prog_id: u32) -> Result<(u32, OwnedFd)> {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Raw {
        kind: u32,
        id: u32,
        prog_id: u32,
        pad: u32,
        ifindex: u32,
        pad2: u32,
    }
    let mut id = 0;
    loop {
        let mut attr = Id { id, next: 0, flags: 0 };
        bpf(LINK_GET_NEXT_ID, &mut attr)?;
        id = attr.next;
        let Ok(link) = by_id(LINK_GET_FD_BY_ID, id) else { continue };
        let mut raw = Raw::default();
        if info(link.raw(), &mut raw).is_ok()
            && raw.kind == LINK_XDP
            && raw.prog_id == prog_id
            && raw.ifindex == ifindex
        {
            return Ok((id, link));
        }
    }
}
