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
fn c01_a_queue_can_be_reopened_at_once() {
    let Some(_world) = World::with_veth(1) else { return };
    let (fds_before, maps_before) = (fds(), ring_mappings());
    for round in 0..100 {
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PLAIN);
        let socket = socket.unwrap_or_else(|e| panic!("round {round}: {e}"));
        socket.delete();
        assert_eq!(umem.delete(), 0);
    }
    assert_eq!((fds(), ring_mappings()), (fds_before, maps_before));
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
fn d7_a_second_socket_on_a_second_queue_shares_that_queues_rings() {
    let Some(_world) = World::with_veth(2) else { return };
    let peer = Peer::new("vb");
    let umem = TestUmem::new();
    let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let second = TestSocket::shared(&umem, "va", 1, PLAIN, &mut fill, &mut comp).unwrap();
    // libxdp's bind names the UMEM's descriptor here, which is on queue 0: EINVAL.
    let mut third = TestSocket::new(&umem, "va", 1, PLAIN).unwrap();
    third.send(&umem, 3);
    assert_eq!(peer.receive(1), 1);
    assert_eq!(completions(&mut comp, 1), 1);
    // The one that made the rings goes; the queue still works, and takes further sockets.
    second.delete();
    third.send(&umem, 4);
    assert_eq!(completions(&mut comp, 1), 1);
    let fourth = TestSocket::new(&umem, "va", 1, PLAIN).unwrap();
    fourth.delete();
    third.delete();
    first.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d8_the_structs_for_a_queue_that_has_rings_are_filled_in() {
    let Some(_world) = World::with_veth(1) else { return };
    let mut umem = TestUmem::new();
    umem.fill(0, 5);
    let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let second = TestSocket::shared(&umem, "va", 0, PLAIN, &mut fill, &mut comp).unwrap();
    assert_eq!((fill.producer, fill.ring, fill.flags), (umem.fill.producer, umem.fill.ring, umem.fill.flags));
    assert_eq!((fill.size, fill.mask, fill.cached_prod, fill.cached_cons), (64, 63, 5, 64));
    assert_eq!((comp.consumer, comp.ring), (umem.comp.consumer, umem.comp.ring));
    assert_eq!((comp.size, comp.mask, comp.cached_prod, comp.cached_cons), (64, 63, 0, 0));
    // Structs that are in use are left alone: only they know what is reserved.
    fill.cached_prod += 3;
    let third = TestSocket::shared(&umem, "va", 0, PLAIN, &mut fill, &mut comp).unwrap();
    assert_eq!(fill.cached_prod, 8);
    for socket in [first, second, third] {
        socket.delete();
    }
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d9_a_failed_first_socket_leaves_the_umems_rings_alone() {
    let Some(_world) = World::with_veth(1) else { return };
    let before = ring_mappings();
    let mut umem = TestUmem::new();
    assert_eq!(ring_mappings(), before + 2);
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let failed = TestSocket::shared(&umem, "va", 99, PLAIN, &mut fill, &mut comp);
    assert_eq!(failed.err(), Some(-libc::EINVAL));
    umem.fill(0, 4);
    let socket = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    umem.fill(4, 8);
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(ring_mappings(), before);
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
fn d11_a_second_socket_that_cannot_be_made_leaves_no_trace() {
    let Some(_world) = World::with_veth(1) else { return };
    let status = in_child(|| {
        let umem = TestUmem::new();
        let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
        let before = fds();
        // Without CAP_NET_RAW no further socket can be made.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        assert_eq!(TestSocket::new(&umem, "va", 0, PLAIN).err(), Some(-libc::EPERM));
        assert_eq!(fds(), before);
        first.delete();
        umem.delete()
    });
    assert_eq!(status, 0);
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
fn d14_ring_structs_may_be_moved_and_freed_after_create() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let (fds_before, maps_before) = (fds(), ring_mappings());
    let mut umem = TestUmem::new();
    let moved = Box::new(*umem.fill);
    *umem.fill = garbage_prod();
    umem.fill = moved;
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let rx = Box::new(*socket.rx);
    *socket.rx = garbage_cons();
    socket.rx = rx;
    umem.fill(0, 32);
    peer.send(5);
    assert_eq!(socket.receive(5), 5);
    *socket.rx = garbage_cons();
    *socket.tx = garbage_prod();
    *umem.fill = garbage_prod();
    *umem.comp = garbage_cons();
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!((fds(), ring_mappings()), (fds_before, maps_before));
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
fn sockets_can_be_deleted_in_any_order_and_the_umem_only_after_them() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let (fds_before, maps_before) = (fds(), ring_mappings());
    let mut umem = TestUmem::new();
    let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    let mut second = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    first.delete();
    assert_eq!(unsafe { xsk_umem__delete(umem.umem) }, -libc::EBUSY);
    assert_eq!(errno(), libc::EBUSY);
    second.send(&umem, 1);
    assert_eq!(peer.receive(1), 1);
    assert_eq!(completions(&mut umem.comp, 1), 1);
    second.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!((fds(), ring_mappings()), (fds_before, maps_before));
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
fn d26_a_descriptor_handed_over_is_closed_on_refusal_by_the_kernel_only() {
    let Some(_world) = World::with_veth(1) else { return };
    let area = map_area(64 * FRAME);
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let mut umem = ptr::null_mut();
    let mut create = |fd, size: u64, area: *mut u8| unsafe {
        xsk_umem__create_with_fd(&mut umem, fd, area.cast(), size, &mut fill, &mut comp, ptr::null())
    };
    let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    let fresh = || unsafe { libc::socket(44, libc::SOCK_RAW, 0) };

    let fd = fresh();
    assert_eq!(create(fd, 4096, ptr::null_mut()), -libc::EFAULT);
    assert_eq!(create(fd, 0, unsafe { area.add(8) }), -libc::EINVAL);
    assert!(is_open(fd));
    assert_eq!(create(fd, 4097, area), -libc::EINVAL);
    assert!(!is_open(fd));

    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
    assert_eq!(create(null, 64 * FRAME as u64, area), -libc::ENOTSOCK);
    assert!(!is_open(null));
    assert_eq!(create(999, 64 * FRAME as u64, area), -libc::EBADF);

    let fd = fresh();
    assert_eq!(create(fd, 64 * FRAME as u64, area), 0);
    assert_eq!(unsafe { xsk_umem__fd(umem) }, fd);
    assert_eq!(unsafe { xsk_umem__delete(umem) }, 0);
    assert!(!is_open(fd));
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
fn d27_ring_structs_need_not_be_zeroed_and_keep_what_was_filled_before_the_first_socket() {
    let Some(_world) = World::with_veth(1) else { return };
    let mut umem = TestUmem::new();
    assert_eq!((umem.fill.cached_prod, umem.fill.cached_cons), (0, 64));
    assert_eq!((umem.comp.cached_prod, umem.comp.cached_cons), (0, 0));
    umem.fill(0, 7);
    // Reserved and not submitted: only the struct knows.
    umem.fill.cached_prod += 2;
    let (fill, comp): (*mut _, *mut _) = (&mut *umem.fill, &mut *umem.comp);
    let socket = TestSocket::shared(&umem, "va", 0, PLAIN, fill, comp).unwrap();
    assert_eq!((umem.fill.cached_prod, umem.fill.cached_cons), (9, 64));
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d28_other_structs_for_the_first_socket_are_made_from_the_rings() {
    let Some(_world) = World::with_veth(1) else { return };
    let mut umem = TestUmem::new();
    umem.fill(0, 7);
    let ring = umem.fill.ring;
    *umem.fill = garbage_prod();
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let socket = TestSocket::shared(&umem, "va", 0, PLAIN, &mut fill, &mut comp).unwrap();
    assert_eq!((fill.cached_prod, fill.cached_cons, fill.ring), (7, 64, ring));
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d30_null_is_an_error_and_never_a_crash() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let mut xsk = ptr::null_mut();
    let mut rx = garbage_cons();
    let create = |xsk: &mut *mut xsk_socket, umem, rx| unsafe {
        xsk_socket__create(xsk, ptr::null(), 0, umem, rx, ptr::null_mut(), ptr::null())
    };
    assert_eq!(create(&mut xsk, umem.umem, &mut rx), -libc::EFAULT);
    assert_eq!(create(&mut xsk, ptr::null_mut(), &mut rx), -libc::EFAULT);
    assert_eq!(create(&mut xsk, umem.umem, ptr::null_mut()), -libc::EFAULT);
    unsafe {
        assert_eq!(xsk_socket__update_xskmap(ptr::null_mut(), 0), -libc::EFAULT);
        assert_eq!(xsk_umem__fd(ptr::null()), -libc::EINVAL);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(xsk_socket__fd(ptr::null()), -libc::EINVAL);
        assert_eq!(xsk_umem__delete(ptr::null_mut()), 0);
        xsk_socket__delete(ptr::null_mut());
        assert!(xsk_umem__create_opts(ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut()).is_null());
        assert_eq!(errno(), libc::EFAULT);
        assert!(xsk_socket__create_opts(c"va".as_ptr(), 0, umem.umem, ptr::null_mut()).is_null());
        assert_eq!(errno(), libc::EFAULT);
    }
    assert_eq!(umem.delete(), 0);
}

#[test]
fn c35_a_second_queue_needs_its_own_rings_and_is_told_so() {
    let Some(_world) = World::with_veth(2) else { return };
    let umem = TestUmem::new();
    let first = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    messages();
    let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
    let one = ptr::from_mut(&mut fill);
    let none = ptr::null_mut();
    assert_eq!(TestSocket::new(&umem, "va", 1, PLAIN).err(), Some(-libc::EFAULT));
    assert!(messages().contains("needs its own fill and completion ring"));
    assert_eq!(TestSocket::shared(&umem, "va", 1, PLAIN, none, ptr::null_mut()).err(), Some(-libc::EFAULT));
    assert!(messages().contains("needs its own fill and completion ring"));
    assert_eq!(TestSocket::shared(&umem, "va", 1, PLAIN, one, ptr::null_mut()).err(), Some(-libc::EFAULT));
    assert!(messages().contains("needs its own fill and completion ring"));
    let second = TestSocket::shared(&umem, "va", 1, PLAIN, one, &mut comp).unwrap();
    second.delete();
    first.delete();
    assert_eq!(umem.delete(), 0);
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
fn c23_c24_c26_refused_umem_parameters_are_named() {
    let Some(_world) = World::new() else { return };
    const UNALIGNED: u32 = 1;
    let good = config();
    let before = (fds(), ring_mappings());
    for (bad, word) in [
        (xsk_umem_config { fill_size: 1000, ..good }, "fill_size 1000"),
        (xsk_umem_config { comp_size: 1000, ..good }, "comp_size 1000"),
        (xsk_umem_config { frame_size: 1024, ..good }, "frame_size 1024"),
        (xsk_umem_config { frame_size: 2304, ..good }, "frame_size 2304"),
        (xsk_umem_config { frame_size: 8192, ..good }, "frame_size 8192"),
        (xsk_umem_config { frame_headroom: 4096, ..good }, "frame_headroom 4096"),
        (xsk_umem_config { flags: 0x80, ..good }, "flags 0x80"),
        (xsk_umem_config { frame_size: 1800, flags: UNALIGNED, ..good }, "2048 is the least"),
        (xsk_umem_config { frame_size: 9728, flags: UNALIGNED, ..good }, "frame_size 9728"),
    ] {
        assert_eq!(TestUmem::try_new(&bad).err(), Some(-libc::EINVAL), "{word}");
        let said = messages();
        assert!(said.contains(word), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!((fds(), ring_mappings()), before);
    for size in [2048, 2304, 3000, 4096] {
        let umem = TestUmem::try_new(&xsk_umem_config { frame_size: size, flags: UNALIGNED, ..good }).unwrap();
        assert_eq!(umem.delete(), 0);
    }
    assert_eq!(messages(), "");
}

#[test]
fn c51_failed_attempts_leave_no_mappings() {
    let Some(_world) = World::with_veth(1) else { return };
    let before = (fds(), ring_mappings());
    for _ in 0..100 {
        let umem = TestUmem::new();
        assert_eq!(TestSocket::new(&umem, "va", 99, PLAIN).err(), Some(-libc::EINVAL));
        assert_eq!(umem.delete(), 0);
    }
    assert_eq!((fds(), ring_mappings()), before);
}

#[test]
fn c55_ring_sizes_are_powers_of_two_and_zero_is_the_default() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::try_new(&xsk_umem_config::default()).unwrap();
    assert_eq!((umem.fill.size, umem.comp.size, umem.fill.cached_cons), (2048, 2048, 2048));
    assert_eq!(TestSocket::new(&umem, "va", 0, How { size: 1000, ..PLAIN }).err(), Some(-libc::EINVAL));
    let socket = TestSocket::new(&umem, "va", 0, How { size: 0, ..PLAIN }).unwrap();
    assert_eq!((socket.rx.size, socket.tx.size, socket.tx.cached_cons), (2048, 2048, 2048));
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn c57_options_of_the_kernel_answer_on_the_descriptor() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    for (len, expected) in [(48, Some(48)), (24, Some(24)), (16, None)] {
        let mut buffer = [0u8; 64];
        let mut size = len;
        let ret = unsafe { libc::getsockopt(socket.fd(), 283, 7, buffer.as_mut_ptr().cast(), &mut size) };
        assert_eq!((ret == 0).then_some(size), expected);
    }
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn unknown_libxdp_flags_come_before_the_interface_name() {
    let Some(_world) = World::new() else { return };
    let umem = TestUmem::new();
    let how = How { libxdp_flags: 2, ..PLAIN };
    assert_eq!(TestSocket::new(&umem, "nosuch", 0, how).err(), Some(-libc::EINVAL));
    assert_eq!(umem.delete(), 0);
}

#[test]
fn c18_c21_an_unprivileged_process_works_with_a_descriptor_handed_over() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let handed = unsafe { libc::socket(44, libc::SOCK_RAW, 0) };
    let spare = unsafe { libc::socket(44, libc::SOCK_RAW, 0) };
    let area = map_area(512 * FRAME);
    let status = in_child(|| unsafe {
        if libc::setresgid(65534, 65534, 65534) != 0 || libc::setresuid(65534, 65534, 65534) != 0 {
            return 1;
        }
        let (mut fill, mut comp) = (garbage_prod(), garbage_cons());
        let mut umem = ptr::null_mut();
        let (fill_ptr, comp_ptr): (*mut _, *mut _) = (&mut fill, &mut comp);
        // No rights, no socket.
        let refused = xsk_umem__create(&mut umem, area.cast(), 64 * FRAME as u64, fill_ptr, comp_ptr, ptr::null());
        if refused != -libc::EPERM || !messages().contains("CAP_NET_RAW") {
            return 2;
        }
        let limit = libc::rlimit { rlim_cur: 64 * 1024, rlim_max: 64 * 1024 };
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
        let size = 512 * FRAME as u64;
        let locked = xsk_umem__create_with_fd(&mut umem, spare, area.cast(), size, fill_ptr, comp_ptr, ptr::null());
        let said = messages();
        if locked != -libc::ENOBUFS || !said.contains("2097152") || !said.contains("65536") {
            return 3;
        }
        let config = xsk_umem_config { fill_size: 64, comp_size: 64, ..Default::default() };
        let size = 8 * FRAME as u64;
        if xsk_umem__create_with_fd(&mut umem, handed, area.cast(), size, fill_ptr, comp_ptr, &config) != 0 {
            return 4;
        }
        let test_umem = TestUmem { area, len: 8 * FRAME, umem, fill: Box::new(fill), comp: Box::new(comp) };
        let Ok(mut socket) = TestSocket::new(&test_umem, "va", 0, PLAIN) else { return 5 };
        socket.send(&test_umem, 1);
        socket.delete();
        if xsk_umem__delete(umem) != 0 {
            return 6;
        }
        0
    });
    assert_eq!(status, 0);
    assert_eq!(peer.receive(1), 1);
}

#[test]
fn c22_a_sandbox_without_af_xdp_is_named() {
    let Some(_world) = World::new() else { return };
    let status = in_child(|| {
        forbid_af_xdp();
        match TestUmem::try_new(&config()) {
            Err(error) if error == -libc::EAFNOSUPPORT && messages().contains("sandbox") => 0,
            _ => 1,
        }
    });
    assert_eq!(status, 0);
}

/// As systemd's RestrictAddressFamilies: `socket(44, ...)` fails with EAFNOSUPPORT.
fn forbid_af_xdp() {
    let insn = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // Number of the system call; else its first argument.
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, libc::SYS_socket as u32),
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 16),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 44),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
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
