//! Whether any socket is in a socket map.
//!
//! bpf(2) can store and delete entries of such a map but not read them; a program can look them up. So a small program that
//! looks is loaded, run once apart from any interface (BPF_PROG_TEST_RUN), and goes again. Needs Linux 5.3.

use crate::{
    direct::{
        bpf::{self, Insn},
        calls::OwnedFd,
    },
    errno::Result,
};

const NAME: &str = "xsks_map_probe";
/// What the program returns: `XDP_DROP` and `XDP_PASS` mean nothing else here.
const TAKEN: i32 = 1;
const EMPTY: i32 = 2;

/// Whether a living socket is stored under any of the first `entries` queues. An error: it cannot be told.
pub(super) fn any_socket(sockets: &OwnedFd, entries: u32) -> Result<bool> {
    let program = bpf::prog_load(NAME, &instructions(sockets, entries), None, 0)?;
    Ok(bpf::prog_test_run(&program)? == TAKEN.cast_unsigned())
}

/// `for (queue = 0; queue < entries; queue++) if (lookup(sockets, queue)) return TAKEN; return EMPTY;`
fn instructions(sockets: &OwnedFd, entries: u32) -> [Insn; 14] {
    const STORE_WORD: u8 = 0x63;
    const LOAD_IMM64: u8 = 0x18;
    const MOVE: u8 = 0xb7;
    const MOVE_REGISTER: u8 = 0xbf;
    const ADD: u8 = 0x07;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const JUMP_IF_LESS: u8 = 0xa5;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MAP_LOOKUP: i32 = 1;
    /// Source of a 64-bit immediate: the map of this descriptor.
    const MAP: u8 = 1;
    const QUEUE: u8 = 6;
    const STACK: u8 = 10;
    // No device has so many queues that the number would not fit.
    let entries = i32::try_from(entries).unwrap_or(i32::MAX);

    let insn = |code, dst: u8, src: u8, off, imm| Insn { code, regs: src << 4 | dst, off, imm };
    [
        insn(MOVE, QUEUE, 0, 0, 0),
        insn(STORE_WORD, STACK, QUEUE, -4, 0),
        insn(LOAD_IMM64, 1, MAP, 0, sockets.raw()),
        insn(0, 0, 0, 0, 0),
        insn(MOVE_REGISTER, 2, STACK, 0, 0),
        insn(ADD, 2, 0, 0, -4),
        insn(CALL, 0, 0, 0, MAP_LOOKUP),
        insn(JUMP_IF_EQUAL, 0, 0, 2, 0),
        insn(MOVE, 0, 0, 0, TAKEN),
        insn(EXIT, 0, 0, 0, 0),
        insn(ADD, QUEUE, 0, 0, 1),
        insn(JUMP_IF_LESS, QUEUE, 0, -11, entries),
        insn(MOVE, 0, 0, 0, EMPTY),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_map_of_any_size_is_seen_to_be_empty() {
        for entries in [1, 4, 256, 4096] {
            let Ok(map) = bpf::map_create(bpf::MAP_XSKMAP, "slipring_test", entries, 0) else {
                return println!("skipped: no BPF maps");
            };
            assert_eq!(any_socket(&map, entries), Ok(false), "{entries}");
        }
    }
}
