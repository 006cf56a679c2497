//! XDP programs put on interfaces past the library.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::index_of;

/// A foreign XDP program that passes everything, attached by netlink; needs no compiler.
pub fn attach_foreign(name: &str) {
    // `bpf_insn`s: r0 = XDP_PASS; exit.
    let insns: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    #[repr(C)]
    struct Attr {
        kind: u32,
        count: u32,
        insns: u64,
        license: u64,
        rest: [u64; 8],
    }
    let attr = Attr { kind: 6, count: 2, insns: insns.as_ptr() as u64, license: c"GPL".as_ptr() as u64, rest: [0; 8] };
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 5, &attr, std::mem::size_of::<Attr>()) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    set_xdp(name, fd as i32);
    unsafe { libc::close(fd as i32) };
}

/// Attach in native mode, in the place of whatever is there.
pub fn set_xdp(name: &str, fd: i32) {
    set_link(name, fd, 4);
}

/// Attach in generic mode.
pub fn set_xdp_generic(name: &str, fd: i32) {
    set_link(name, fd, 2);
}

/// RTM_SETLINK with IFLA_XDP {fd, flags}.
fn set_link(name: &str, fd: i32, flags: u32) {
    let mut message = Vec::new();
    for word in [52u32, 19 | 5 << 16, 1, 0, 0, index_of(name), 0, 0] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [20u32 | (43 | 1 << 15) << 16, 8 | 1 << 16, fd.cast_unsigned(), 8 | 3 << 16, flags] {
        message.extend_from_slice(&word.to_ne_bytes());
    }
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) };
    let sent = unsafe { libc::send(socket, message.as_ptr().cast(), message.len(), 0) };
    assert_eq!(sent, 52);
    let mut answer = [0i32; 64];
    assert!(unsafe { libc::recv(socket, answer.as_mut_ptr().cast(), 256, 0) } >= 20);
    assert_eq!(answer[4], 0, "netlink");
    unsafe { libc::close(socket) };
}

#[repr(C)]
struct Small([u32; 4]);

fn bpf(command: i32, words: [u32; 4]) -> OwnedFd {
    let attr = Small(words);
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &attr, 16) };
    assert!(fd >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// The program of an id.
pub fn program(id: u32) -> OwnedFd {
    bpf(13, [id, 0, 0, 0])
}

/// Attach a program by a BPF link, which lasts as long as the descriptor.
pub fn link(program: &OwnedFd, name: &str) -> OwnedFd {
    bpf(28, [program.as_raw_fd().cast_unsigned(), index_of(name), 37, 0])
}
