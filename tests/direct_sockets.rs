//! UMEMs and sockets of the direct provider without the default program, over veth. Needs root and AF_XDP.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use std::{
    ffi::c_int,
    mem, ptr,
    time::{Duration, Instant},
};

use direct_support::*;
use slipring::abi::{types::*, xsk::*};

#[test]
fn frames_go_both_ways() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let mut umem = TestUmem::new();
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    umem.fill(64, 128);
    for chunk in 0..8 {
        socket.send(&umem, chunk);
    }
    assert_eq!(peer.receive(8), 8);
    assert_eq!(completions(&mut umem.comp, 8), 8);
    peer.send(10);
    assert_eq!(socket.receive(10), 10);
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(messages(), "");
}

#[test]
fn c01_a_queue_of_somebody_else_is_busy_soon() {
    let Some(_world) = World::with_veth(1) else { return };
    let area = map_area(64 * FRAME);
    let other = raw_bound_socket(area, "va", 0);
    let umem = TestUmem::new();
    let start = Instant::now();
    assert_eq!(TestSocket::new(&umem, "va", 0, PLAIN).err(), Some(-libc::EBUSY));
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(messages().contains("another socket"));
    unsafe { libc::close(other) };
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d21_a_queue_that_was_ours_and_is_somebody_elses_now_is_busy_soon() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    TestSocket::new(&umem, "va", 0, PLAIN).unwrap().delete();
    assert_eq!(umem.delete(), 0);
    let area = map_area(64 * FRAME);
    // Takes it as soon as the kernel has let it go.
    let end = Instant::now() + Duration::from_secs(5);
    let other = loop {
        match try_raw_bound_socket(area, "va", 0) {
            Some(fd) => break fd,
            None => assert!(Instant::now() < end),
        }
    };
    let umem = TestUmem::new();
    let start = Instant::now();
    assert_eq!(TestSocket::new(&umem, "va", 0, PLAIN).err(), Some(-libc::EBUSY));
    assert!(start.elapsed() < Duration::from_secs(5));
    unsafe { libc::close(other) };
    assert_eq!(umem.delete(), 0);
}

fn raw_bound_socket(area: *mut u8, name: &str, queue: u32) -> c_int {
    try_raw_bound_socket(area, name, queue).unwrap()
}

/// An AF_XDP socket that the library knows nothing of.
fn try_raw_bound_socket(area: *mut u8, name: &str, queue: u32) -> Option<c_int> {
    #[repr(C)]
    struct Addr(u16, u16, u32, u32, u32);
    let fd = unsafe { libc::socket(44, libc::SOCK_RAW, 0) };
    assert!(fd >= 0);
    let set = |option, value: *const u8, len: usize| {
        assert_eq!(unsafe { libc::setsockopt(fd, 283, option, value.cast(), len as u32) }, 0);
    };
    let reg: [u64; 4] = [area as u64, 64 * FRAME as u64, FRAME as u64, 0];
    set(4, reg.as_ptr().cast(), 32);
    for option in [5, 6, 2] {
        set(option, [64u32].as_ptr().cast(), 4);
    }
    let addr = Addr(44, COPY, index_of(name), queue, 0);
    if unsafe { libc::bind(fd, ptr::from_ref(&addr).cast(), mem::size_of_val(&addr) as u32) } == 0 {
        return Some(fd);
    }
    unsafe { libc::close(fd) };
    None
}

#[test]
fn c52_d10_a_retry_is_as_a_first_try_or_says_what_it_cannot_change() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let rx_only = How { tx: false, ..PLAIN };
    assert_eq!(TestSocket::new(&umem, "va", 99, rx_only).err(), Some(-libc::EINVAL));
    messages();
    for size in [32, 128] {
        let other = How { size, ..PLAIN };
        assert_eq!(TestSocket::new(&umem, "va", 0, other).err(), Some(-libc::EINVAL));
        assert!(messages().contains("RX ring of 64 entries"));
    }
    let socket = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    assert_eq!((socket.rx.size, socket.tx.size), (64, 64));
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d12_ring_failures_of_later_sockets_keep_their_error() {
    let Some(_world) = World::with_veth(2) else { return };
    let umem = TestUmem::new();
    let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let odd = How { size: 100, ..PLAIN };
    let failed = TestSocket::shared(&umem, "va", 1, odd, &mut fill, &mut comp);
    assert_eq!(failed.err(), Some(-libc::EINVAL));
    assert!(messages().contains("rx_size 100 is not a power of two"));
    first.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d20_a_umem_whose_last_socket_is_gone_is_used_up() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    TestSocket::new(&umem, "va", 0, PLAIN).unwrap().delete();
    assert_eq!(TestSocket::new(&umem, "va", 0, PLAIN).err(), Some(-libc::EBUSY));
    assert!(messages().contains("make a new one"));
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d23_sockets_of_one_umem_come_and_go_on_several_threads() {
    let Some(_world) = World::with_veth(4) else { return };
    let (fds_before, maps_before) = (fds(), ring_mappings());
    let umem = TestUmem::new();
    let keeper = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    std::thread::scope(|scope| {
        for queue in 0..4 {
            let umem = &umem;
            scope.spawn(move || {
                for _ in 0..15 {
                    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
                    let socket = TestSocket::shared(umem, "va", queue, PLAIN, &mut fill, &mut comp).unwrap();
                    socket.delete();
                }
            });
        }
    });
    keeper.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!((fds(), ring_mappings()), (fds_before, maps_before));
}

#[test]
fn descriptor_zero_is_used_where_it_is_a_socket() {
    let Some(_world) = World::with_veth(1) else { return };
    let area = map_area(64 * FRAME);
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let mut umem = ptr::null_mut();
    let mut create = |umem: &mut *mut xsk_umem| unsafe {
        xsk_umem__create_with_fd(umem, 0, area.cast(), 64 * FRAME as u64, &mut fill, &mut comp, ptr::null())
    };
    let saved = unsafe { libc::dup(0) };
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
    unsafe { libc::dup2(null, 0) };
    let no_socket = create(&mut umem);
    let made = unsafe { xsk_umem__fd(umem) };
    unsafe { xsk_umem__delete(umem) };
    let socket = unsafe { libc::socket(44, libc::SOCK_RAW, 0) };
    unsafe { libc::dup2(socket, 0) };
    let a_socket = create(&mut umem);
    let taken = unsafe { xsk_umem__fd(umem) };
    unsafe { xsk_umem__delete(umem) };
    for fd in [null, socket] {
        unsafe { libc::close(fd) };
    }
    unsafe { libc::dup2(saved, 0) };
    unsafe { libc::close(saved) };
    assert_eq!((no_socket, a_socket, taken), (0, 0, 0));
    assert!(made > 0);
}

#[test]
fn c38_the_same_interface_number_in_two_namespaces_is_two_interfaces() {
    let Some(world) = World::new() else { return };
    let umem = TestUmem::new();
    let how = How { xdp_flags: SKB, ..PLAIN };
    let first = TestSocket::new(&umem, "lo", 0, how).unwrap();
    let here = open("/proc/thread-self/ns/net");
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let second = TestSocket::shared(&umem, "lo", 0, how, &mut fill, &mut comp).unwrap();
    assert_ne!(fill.ring, umem.fill.ring);
    assert_ne!(comp.ring, umem.comp.ring);
    second.delete();
    first.delete();
    assert_eq!(umem.delete(), 0);
    unsafe { libc::setns(std::os::fd::AsRawFd::as_raw_fd(&here), libc::CLONE_NEWNET) };
    drop(world);
}

#[test]
fn c39_alternative_names_of_any_length_name_the_same_device() {
    let Some(_world) = World::with_veth(1) else { return };
    let long = "a-name-of-twenty-eight-chars";
    ip("link property add dev va altname shortalt");
    ip(&format!("link property add dev va altname {long}"));
    let umem = TestUmem::new();
    let sockets = ["shortalt", long, "va"].map(|name| TestSocket::new(&umem, name, 0, PLAIN).unwrap());
    for socket in sockets {
        socket.delete();
    }
    assert_eq!(umem.delete(), 0);
    let umem = TestUmem::new();
    for name in ["", "nosuch", "no-such-name-that-is-long-enough"] {
        assert_eq!(TestSocket::new(&umem, name, 0, PLAIN).err(), Some(-libc::ENODEV), "{name}");
    }
    assert_eq!(umem.delete(), 0);
}

#[test]
fn c46_bind_flags_are_judged_by_the_kernel_and_explained() {
    let Some(_world) = World::with_veth(1) else { return };
    for (flags, error, word) in [
        (4, libc::EOPNOTSUPP, "XDP_ZEROCOPY"),
        (2 | 4, libc::EINVAL, "exclude"),
        (1, libc::EINVAL, "XDP_SHARED_UMEM"),
        (1 << 15, libc::EINVAL, "0x8000"),
    ] {
        let umem = TestUmem::new();
        let failed = TestSocket::new(&umem, "va", 0, How { bind_flags: flags, ..PLAIN }).err();
        assert_eq!(failed, Some(-error));
        let said = messages();
        assert!(said.contains(word), "{said}");
        let socket = TestSocket::new(&umem, "va", 0, How { bind_flags: 0, ..PLAIN }).unwrap();
        // A later socket's flags do not count.
        let second = TestSocket::new(&umem, "va", 0, How { bind_flags: flags, ..PLAIN }).unwrap();
        second.delete();
        socket.delete();
        assert_eq!(umem.delete(), 0);
    }
}

#[test]
fn c32_c33_flags_and_tx_metadata_reach_the_kernel() {
    let Some(_world) = World::new() else { return };
    const UNALIGNED: u32 = 1;
    const METADATA: u32 = 4;
    let area = map_area(64 * FRAME);
    let try_opts = |flags, tx_metadata_len, frame_size| {
        let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
        let size = 64 * FRAME as u64;
        let mut opts = xsk_umem_opts { sz: 48, size, flags, tx_metadata_len, frame_size, ..xsk_umem_opts::default() };
        let umem = unsafe { xsk_umem__create_opts(area.cast(), &mut fill, &mut comp, &mut opts) };
        if umem.is_null() {
            return errno();
        }
        unsafe { xsk_umem__delete(umem) }
    };
    assert_eq!(try_opts(UNALIGNED, 0, 3000), 0);
    assert_eq!(messages(), "");
    // Without the flag the kernel ignores the length, which nobody would notice.
    assert_eq!(try_opts(0, 16, 0), 0);
    assert!(messages().contains("tx_metadata_len 16 has no effect"));
    // Kernels before 6.11 do not know the flag.
    if try_opts(METADATA, 16, 0) == libc::EINVAL {
        println!("skipped: no TX metadata in this kernel");
        return;
    }
    for good in [8, 16, 248] {
        assert_eq!(try_opts(METADATA, good, 0), 0);
    }
    messages();
    for bad in [12, 256] {
        assert_eq!(try_opts(METADATA, bad, 0), libc::EINVAL);
        assert!(messages().contains(&format!("tx_metadata_len {bad} must be")));
    }
}
