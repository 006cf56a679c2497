//! The default program itself: eleven instruction slots, their type information, two maps.
//!
//! Made here rather than compiled, so that neither libbpf nor a compiler nor an object file is needed. Names, maps and the
//! version in the type information are those by which libxdp recognises a program that it can share.

use super::find::Counter;
use crate::{
    direct::{
        bpf::{self, FuncInfo, Insn},
        calls::OwnedFd,
    },
    errno::{Errno, Result},
    warn,
};

/// Name of the program.
pub(super) const PROGRAM: &str = "xsk_def_prog";
/// Name of the socket map.
pub(super) const SOCKET_MAP: &str = "xsks_map";
/// Name of the map that counts references: libbpf's rule makes it from an object file's name, and libxdp looks for it.
pub(super) const COUNTER_MAP: &str = "xsk_def_.data";
/// Variable in the type information whose type carries the version.
pub(super) const VERSION_VARIABLE: &str = "xsk_prog_version";
/// Version of the agreement between users of the program.
pub(super) const VERSION: u32 = 1;
/// Section of such variables.
pub(super) const METADATA: &str = "xdp_metadata";

const XDP_PASS: i32 = 2;

/// A loaded program, not attached yet.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) file: OwnedFd,
    pub(super) id: u32,
    pub(super) sockets: OwnedFd,
    /// Queues that the socket map has room for.
    pub(super) entries: u32,
    pub(super) counter: Counter,
}

/// Load the program with a socket map of `entries` queues and the counter at 1, which is the loader's own reference.
pub(super) fn load(entries: u32) -> Result<Loaded> {
    let step = |what: &'static str| {
        move |e: &Errno| match *e {
            Errno::EPERM => warn!(
                "cannot load the default XDP program ({what}): {e}: it needs CAP_BPF and CAP_NET_ADMIN; \
                 XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD leaves the program to somebody else"
            ),
            e => warn!("cannot load the default XDP program ({what}): {e}"),
        }
    };
    let sockets = bpf::map_create(bpf::MAP_XSKMAP, SOCKET_MAP, entries, 0).inspect_err(step("socket map"))?;
    let counter = bpf::map_create(bpf::MAP_ARRAY, COUNTER_MAP, 1, bpf::MMAPABLE).inspect_err(step("counter map"))?;
    bpf::map_update(counter.raw(), 0, &1u32.to_ne_bytes()).inspect_err(step("counter"))?;
    let btf = bpf::btf_load(&type_information()).inspect_err(step("type information"))?;
    // Without a record that ties the function to its type the kernel forgets the type information.
    let function = FuncInfo { insn_off: 0, type_id: FUNCTION_TYPE };
    let insns = instructions(&sockets, &counter);
    let types = Some((&btf, function));
    let program = bpf::prog_load(PROGRAM, &insns, types, bpf::HAS_FRAGS).or_else(|e| match e {
        // Kernels before 5.18 know no frames of several buffers.
        Errno::EINVAL => bpf::prog_load(PROGRAM, &insns, types, 0),
        e => Err(e),
    });
    let file = program.inspect_err(step("program"))?;
    let id = bpf::prog_info(&file).inspect_err(step("program"))?.id;
    let counter = Counter::new(counter).inspect_err(step("counter"))?;
    Ok(Loaded { file, id, sockets, entries, counter })
}

/// `if (counter == 0) return XDP_PASS; return redirect(sockets[queue], or XDP_PASS if there is none);`
fn instructions(sockets: &OwnedFd, counter: &OwnedFd) -> [Insn; 11] {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_IMM64: u8 = 0x18;
    const MOVE: u8 = 0xb7;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const REDIRECT_MAP: i32 = 51;
    /// Source of a 64-bit immediate: the map of this descriptor, or the first value of it.
    const MAP: u8 = 1;
    const MAP_VALUE: u8 = 2;
    /// `rx_queue_index` in `struct xdp_md`.
    const QUEUE: i16 = 16;

    let insn = |code, dst: u8, src: u8, off, imm| Insn { code, regs: src << 4 | dst, off, imm };
    [
        insn(LOAD_WORD, 2, 1, QUEUE, 0),
        insn(LOAD_IMM64, 1, MAP_VALUE, 0, counter.raw()),
        insn(0, 0, 0, 0, 0),
        insn(LOAD_WORD, 3, 1, 0, 0),
        insn(MOVE, 0, 0, 0, XDP_PASS),
        insn(JUMP_IF_EQUAL, 3, 0, 4, 0),
        insn(LOAD_IMM64, 1, MAP, 0, sockets.raw()),
        insn(0, 0, 0, 0, 0),
        insn(MOVE, 3, 0, 0, XDP_PASS),
        insn(CALL, 0, 0, 0, REDIRECT_MAP),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

/// Number of the function among the types below.
const FUNCTION_TYPE: u32 = 8;

/// The program's BTF: its function, and the version as the length of an array type.
fn type_information() -> Vec<u8> {
    const INT: u32 = 1;
    const POINTER: u32 = 2;
    const ARRAY: u32 = 3;
    const FUNC: u32 = 12;
    const FUNC_PROTO: u32 = 13;
    const VAR: u32 = 14;
    const DATASEC: u32 = 15;
    /// Signed, 32 bits.
    const SIGNED: u32 = 1 << 24 | 32;
    const GLOBAL: u32 = 1;
    const POINTER_SIZE: u32 = 8;

    let mut strings = vec![0u8];
    let mut string = |text: &str| {
        let offset = u32::try_from(strings.len()).expect("a few names");
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        offset
    };
    let info = |kind: u32, members: u32| kind << 24 | members;
    // Each type: name, kind and number of members, size or type; then what belongs to its kind.
    let types: [&[u32]; 8] = [
        /* 1 */ &[string("int"), info(INT, 0), 4, SIGNED],
        /* 2 */ &[0, info(ARRAY, 0), 0, 1, 1, VERSION],
        /* 3 */ &[0, info(POINTER, 0), 2],
        /* 4 */ &[string(VERSION_VARIABLE), info(VAR, 0), 3, GLOBAL],
        /* 5 */ &[string(METADATA), info(DATASEC, 1), POINTER_SIZE, 4, 0, POINTER_SIZE],
        /* 6 */ &[0, info(POINTER, 0), 0],
        /* 7 */ &[0, info(FUNC_PROTO, 1), 1, string("ctx"), 6],
        /* 8 */ &[string(PROGRAM), info(FUNC, GLOBAL), 7],
    ];
    let types = types.concat();

    const HEADER: u32 = 24;
    const MAGIC: u16 = 0xeb9f;
    const FORMAT: u8 = 1;
    let types_len = u32::try_from(types.len() * 4).expect("a few types");
    let strings_len = u32::try_from(strings.len()).expect("a few names");
    let mut btf = Vec::new();
    btf.extend_from_slice(&MAGIC.to_ne_bytes());
    btf.extend_from_slice(&[FORMAT, 0]);
    for word in [HEADER, 0, types_len, types_len, strings_len].into_iter().chain(types) {
        btf.extend_from_slice(&word.to_ne_bytes());
    }
    btf.extend_from_slice(&strings);
    btf
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::program::btf;

    #[test]
    fn the_version_can_be_read_back_from_our_type_information() {
        assert_eq!(btf::metadata_number(&type_information(), METADATA, VERSION_VARIABLE), Ok(Some(VERSION)));
        assert_eq!(btf::metadata_number(&type_information(), METADATA, "dispatcher_version"), Ok(None));
    }
}
