//! One UMEM and both providers: a UMEM begins on one, and its sockets go to whichever serves their interface. Needs root
//! and AF_XDP for the kernel's side.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use direct_support::*;
use slipring::abi::xsk::*;

/// A world in which `ring0` is the engine's and UMEMs begin there.
fn engine_first() -> Option<World> {
    let world = World::with_veth(1)?;
    set_devices(Some("ring0=loop"));
    Some(world)
}

fn set_devices(value: Option<&str>) {
    // The tests of this file run one after the other: each holds the one `World` there is.
    match value {
        Some(value) => unsafe { std::env::set_var("SLIPRING_DEVICES", value) },
        None => unsafe { std::env::remove_var("SLIPRING_DEVICES") },
    }
    slipring::config::reload();
}

/// The family of a descriptor's socket as the kernel knows it, not as libc's getsockopt in this program answers: 44 is the
/// kernel's AF_XDP.
fn family(fd: i32) -> i32 {
    let mut domain = 0i32;
    slipring::sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain).unwrap();
    domain
}

/// Send one frame on an engine interface that loops and see it come back.
fn loops(socket: &mut TestSocket, umem: &TestUmem) {
    socket.send(umem, 200);
    assert_eq!(socket.receive(1), 1);
}

#[test]
fn a_umem_that_began_on_the_engine_moves_to_the_kernel_with_what_was_filled() {
    let Some(_world) = engine_first() else { return };
    let before = (fds(), ring_mappings());
    let peer = Peer::new("vb");
    let mut umem = TestUmem::new();
    let fd = unsafe { xsk_umem__fd(umem.umem) };
    assert_ne!(family(fd), 44);
    umem.fill(0, 32);
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    assert_eq!((socket.fd(), family(fd)), (fd, 44));
    assert!(slipring::engine::lookup(fd).is_none());
    peer.send(20);
    assert_eq!(socket.receive(20), 20);
    for chunk in 100..110 {
        socket.send(&umem, chunk);
    }
    assert_eq!(peer.receive(10), 10);
    assert_eq!(completions(&mut umem.comp, 10), 10);
    socket.delete();
    assert_eq!(xdp_on("va"), None);
    assert_eq!(umem.delete(), 0);
    drop(peer);
    assert_eq!((fds(), ring_mappings()), before);
    assert_eq!(messages(), "");
}

#[test]
fn a_umem_that_began_on_the_kernel_moves_to_the_engine() {
    let Some(_world) = World::with_veth(1) else { return };
    set_devices(None);
    let mut umem = TestUmem::new();
    let fd = unsafe { xsk_umem__fd(umem.umem) };
    assert_eq!(family(fd), 44);
    umem.fill(0, 32);
    // A name that is a specification needs no variable.
    let mut socket = TestSocket::new(&umem, "loop?queues=1", 0, PROGRAM).unwrap();
    assert_eq!(socket.fd(), fd);
    assert_ne!(family(fd), 44);
    loops(&mut socket, &umem);
    assert_eq!(ring_mappings(), 0);
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(messages(), "");
}

#[test]
fn a_failed_attempt_on_one_provider_leaves_the_way_to_the_other() {
    let Some(_world) = engine_first() else { return };
    let mut umem = TestUmem::new();
    umem.fill(0, 32);
    // Each failing attempt moves the UMEM to its interface's provider, with the rings that exist so far.
    for _ in 0..2 {
        assert_eq!(TestSocket::new(&umem, "va", 99, PLAIN).err(), Some(-libc::EINVAL));
        assert_eq!(TestSocket::new(&umem, "ring0", 99, PLAIN).err(), Some(-libc::EINVAL));
    }
    let mut socket = TestSocket::new(&umem, "ring0", 0, PLAIN).unwrap();
    loops(&mut socket, &umem);
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn sockets_of_one_umem_may_be_on_both_providers() {
    let Some(_world) = engine_first() else { return };
    let peer = Peer::new("vb");
    let before = fds();
    for kernel_first in [true, false] {
        let mut umem = TestUmem::new();
        umem.fill(0, 32);
        let (first, second) = if kernel_first { ("va", "ring0") } else { ("ring0", "va") };
        let (mut fill_ring, mut comp) = (garbage_prod(), garbage_cons());
        let mut one = TestSocket::new(&umem, first, 0, PROGRAM).unwrap();
        let mut two = TestSocket::shared(&umem, second, 0, PROGRAM, &mut fill_ring, &mut comp).unwrap();
        fill(&mut fill_ring, 32, 64);
        let (kernel, engine) = if kernel_first { (&mut one, &mut two) } else { (&mut two, &mut one) };
        peer.send(5);
        assert_eq!(kernel.receive(5), 5);
        loops(engine, &umem);
        // A third one beside the second shares its rings.
        let third = TestSocket::new(&umem, second, 0, PROGRAM).unwrap();
        third.delete();
        one.delete();
        two.delete();
        assert_eq!(umem.delete(), 0);
        assert_eq!(xdp_on("va"), None);
    }
    assert_eq!(fds(), before);
    assert_eq!(messages(), "");
}
