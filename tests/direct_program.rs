//! The default program of the direct provider, over veth, alone and together with the system's libxdp. Needs root and
//! AF_XDP; the parts with libxdp need its development files.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use std::{os::fd::AsRawFd, process::Command, ptr, thread, time::Duration};

use direct_support::{attach::attach_foreign, *};
use slipring::abi::{types::*, xsk::*};

/// Whether the kernel is of this version or a later one.
fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
}

#[test]
fn c43_c49_c64_the_program_comes_and_goes_without_a_trace_or_a_word() {
    let Some(_world) = World::with_veth(1) else { return };
    let before = fds();
    for _ in 0..20 {
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
        assert!(matches!(xdp_on("va"), Some((_, false))));
        socket.delete();
        assert_eq!(xdp_on("va"), None);
        assert_eq!(umem.delete(), 0);
    }
    assert_eq!(fds(), before);
    assert_eq!(messages(), "");
}

#[test]
fn d3_native_then_generic_on_the_same_umem() {
    let Some(_world) = World::new() else { return };
    let umem = TestUmem::new();
    let native = How { xdp_flags: DRV, bind_flags: 0, ..PROGRAM };
    assert_eq!(TestSocket::new(&umem, "lo", 0, native).err(), Some(-libc::EOPNOTSUPP));
    let said = messages();
    assert!(said.contains("native mode") && said.contains("XDP_FLAGS_SKB_MODE"), "{said}");
    let socket = TestSocket::new(&umem, "lo", 0, How { xdp_flags: SKB, ..native }).unwrap();
    assert!(matches!(xdp_on("lo"), Some((_, true))));
    socket.delete();
    assert_eq!(xdp_on("lo"), None);
    assert_eq!(umem.delete(), 0);
}

#[test]
fn d5_the_last_to_leave_detaches_in_the_mode_that_is_attached() {
    let Some(_world) = World::with_veth(2) else { return };
    let (a, b) = (TestUmem::new(), TestUmem::new());
    let native = TestSocket::new(&a, "va", 0, How { xdp_flags: DRV, ..PROGRAM }).unwrap();
    let generic = TestSocket::new(&b, "va", 1, How { xdp_flags: SKB, ..PROGRAM }).unwrap();
    native.delete();
    assert!(matches!(xdp_on("va"), Some((_, false))));
    generic.delete();
    assert_eq!(xdp_on("va"), None);
    assert_eq!((a.delete(), b.delete()), (0, 0));
}

#[test]
fn the_mode_bits_go_by_libxdps_order_and_the_others_change_nothing() {
    const UPDATE_IF_NOEXIST: u32 = 1;
    const REPLACE: u32 = 16;
    let Some(_world) = World::with_veth(1) else { return };
    for (xdp_flags, generic) in [
        (0, false),
        (DRV, false),
        (SKB, true),
        (SKB | DRV, true),
        (UPDATE_IF_NOEXIST, false),
        (UPDATE_IF_NOEXIST | SKB, true),
        (REPLACE, false),
    ] {
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, How { xdp_flags, ..PROGRAM }).unwrap();
        assert_eq!(xdp_on("va").map(|(_, generic)| generic), Some(generic), "{xdp_flags:#x}");
        socket.delete();
        assert_eq!((xdp_on("va"), umem.delete()), (None, 0), "{xdp_flags:#x}");
    }
    assert_eq!(messages(), "");
    // veth runs no programs in a device: refused, with the UMEM usable afterwards.
    const HW: u32 = 8;
    let umem = TestUmem::new();
    assert!(TestSocket::new(&umem, "va", 0, How { xdp_flags: HW, ..PROGRAM }).is_err());
    assert!(messages().contains("offloaded mode"));
    TestSocket::new(&umem, "va", 0, PROGRAM).unwrap().delete();
    assert_eq!((xdp_on("va"), umem.delete()), (None, 0));
}

#[test]
fn d6_delete_may_be_called_in_another_namespace() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let here = open("/proc/thread-self/ns/net");
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(unsafe { libc::setns(here.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn c44_a_foreign_program_is_left_alone_and_named() {
    let Some(_world) = World::with_veth(1) else { return };
    attach_foreign("va");
    let (id, _) = xdp_on("va").unwrap();
    let umem = TestUmem::new();
    assert_eq!(TestSocket::new(&umem, "va", 0, PROGRAM).err(), Some(-libc::EBUSY));
    let said = messages();
    assert!(said.contains(&format!("XDP program {id}")) && said.contains("ip link set dev va xdpdrv off"), "{said}");
    assert_eq!(xdp_on("va"), Some((id, false)));
    ip("link set dev va xdpdrv off");
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn d15_d17_a_permanent_program_stays_and_a_callers_map_is_only_written() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let before = fds();
    for bad in [0, -1, 99999] {
        let mut map = 77;
        assert_eq!(unsafe { xsk_setup_xdp_prog(bad, &mut map) }, -libc::EINVAL);
        assert_eq!(map, 77);
    }
    let ifindex = index_of("va") as i32;
    assert_eq!(unsafe { xsk_setup_xdp_prog(ifindex, ptr::null_mut()) }, 0);
    assert_eq!(fds(), before);
    let mut map = -1;
    assert_eq!(unsafe { xsk_setup_xdp_prog(ifindex, &mut map) }, 0);
    assert_eq!(fds(), before + 1);
    let mut umem = TestUmem::new();
    umem.fill(0, 32);
    let mut socket = TestSocket::new(&umem, "va", 0, PLAIN).unwrap();
    assert_eq!(unsafe { xsk_socket__update_xskmap(socket.xsk, -1) }, -libc::EBADF);
    assert_eq!(unsafe { xsk_socket__update_xskmap(socket.xsk, socket.fd()) }, -libc::EINVAL);
    assert_eq!(unsafe { xsk_socket__update_xskmap(socket.xsk, map) }, 0);
    peer.send(2);
    assert_eq!(socket.receive(2), 2);
    socket.delete();
    assert!(unsafe { libc::fcntl(map, libc::F_GETFD) } >= 0);
    // With a default-program socket the caller's map is not taken for the program's own.
    let second = TestUmem::new();
    assert_eq!(umem.delete(), 0);
    let socket = TestSocket::new(&second, "va", 0, PROGRAM).unwrap();
    assert_eq!(unsafe { xsk_socket__update_xskmap(socket.xsk, map) }, 0);
    socket.delete();
    assert_eq!(second.delete(), 0);
    assert!(unsafe { libc::fcntl(map, libc::F_GETFD) } >= 0);
    unsafe { libc::close(map) };
    assert_eq!(fds(), before);
    assert!(xdp_on("va").is_some());
}

#[test]
fn d33_the_interface_may_go_before_the_socket() {
    let Some(_world) = World::with_veth(1) else { return };
    let before = fds();
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    ip("link del vb");
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(fds(), before);
}

#[test]
fn a_forked_childs_cleanup_does_not_touch_the_parents_socket() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let mut umem = TestUmem::new();
    umem.fill(0, 32);
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let status = in_child(|| {
        unsafe { xsk_socket__delete(socket.xsk) };
        unsafe { xsk_umem__delete(umem.umem) }
    });
    assert_eq!(status, 0);
    peer.send(5);
    assert_eq!(socket.receive(5), 5);
    socket.delete();
    assert_eq!(xdp_on("va"), None);
    assert_eq!(umem.delete(), 0);
}

/// There the parent's number means nobody, or somebody else.
#[test]
fn a_child_in_another_process_namespace_does_not_take_its_parent_for_dead() {
    let Some(_world) = World::with_veth(1) else { return };
    let peer = Peer::new("vb");
    let mut umem = TestUmem::new();
    umem.fill(0, 32);
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let status = in_child(|| {
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            println!("skipped: no process namespace of its own");
            return 0;
        }
        in_child(|| {
            assert_eq!(std::process::id(), 1);
            unsafe { xsk_socket__delete(socket.xsk) };
            unsafe { xsk_umem__delete(umem.umem) }
        })
    });
    assert_eq!(status, 0);
    peer.send(5);
    assert_eq!(socket.receive(5), 5);
    socket.delete();
    assert_eq!((xdp_on("va"), umem.delete()), (None, 0));
}

#[test]
fn a_child_whose_parent_is_gone_cleans_up() {
    let Some(_world) = World::with_veth(1) else { return };
    // The parent makes a socket and exits, as a program that daemonizes late; the child deletes.
    let mut ends = [0; 2];
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let status = in_child(|| {
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
        let parent = std::process::id() as i32;
        fork(|| {
            while unsafe { libc::kill(parent, 0) } == 0 && unsafe { libc::getppid() } == parent {
                thread::sleep(Duration::from_millis(1));
            }
            socket.delete();
            umem.delete();
            unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) };
            0
        });
        0
    });
    assert_eq!(status, 0);
    let mut byte = [0u8];
    assert_eq!(unsafe { libc::read(ends[0], byte.as_mut_ptr().cast(), 1) }, 1);
    for end in ends {
        unsafe { libc::close(end) };
    }
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn after_a_crash_the_next_one_joins_the_stale_program() {
    let Some(_world) = World::with_veth(2) else { return };
    let peer = Peer::new("vb");
    // On another queue than the next one: its own is busy for some time more.
    let crashed = in_child(|| {
        let umem = TestUmem::new();
        i32::from(TestSocket::new(&umem, "va", 1, PROGRAM).is_err())
    });
    assert_eq!(crashed, 0);
    assert!(xdp_on("va").is_some());
    let mut umem = TestUmem::new();
    umem.fill(0, 32);
    let mut socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    peer.send(5);
    assert_eq!(socket.receive(5), 5);
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Make a socket and delete it.
fn come_and_go() {
    let umem = TestUmem::new();
    TestSocket::new(&umem, "va", 0, PROGRAM).unwrap().delete();
    assert_eq!(umem.delete(), 0);
}

/// Ends when it is cancelled. Nothing that wants to be dropped lives here, so unwinding may pass.
extern "C-unwind" fn come_and_go_until_cancelled(_: *mut libc::c_void) -> *mut libc::c_void {
    loop {
        come_and_go();
        unsafe { pthread_testcancel() };
    }
}

/// Acted upon inside a call, the request would end the process and leave locks and descriptors behind.
#[test]
fn a_cancelled_thread_ends_its_call_first() {
    type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;
    let Some(_world) = World::with_veth(1) else { return };
    let status = in_child(|| {
        let before = fds();
        for round in 0..50 {
            let mut thread = 0;
            // The C library's declaration has no unwinding, which cancelling is.
            let start: Start = unsafe { std::mem::transmute(come_and_go_until_cancelled as *const ()) };
            assert_eq!(unsafe { libc::pthread_create(&mut thread, ptr::null(), start, ptr::null_mut()) }, 0);
            thread::sleep(Duration::from_micros(300 * round));
            assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
            assert_eq!(unsafe { libc::pthread_join(thread, ptr::null_mut()) }, 0);
        }
        assert_eq!(fds(), before);
        0
    });
    assert_eq!((status, xdp_on("va")), (0, None));
}

#[test]
fn c30_frames_of_several_buffers_pass_the_program() {
    let Some(_world) = World::with_veth(1) else { return };
    const SG: u16 = 16;
    ip("link set va mtu 8000");
    ip("link set vb mtu 8000");
    let peer = Peer::new("vb");
    let small = xsk_umem_config { frame_size: 2048, ..config() };
    let mut umem = TestUmem::try_new(&small).unwrap();
    umem.fill(0, 32);
    let socket = TestSocket::new(&umem, "va", 0, How { bind_flags: COPY | SG, ..PROGRAM });
    if socket.as_ref().err() == Some(&-libc::EINVAL) && !kernel_at_least(6, 6) {
        println!("skipped: no XDP_USE_SG in this kernel");
        return;
    }
    let mut socket = socket.unwrap();
    peer.send_long(1, 3500);
    assert_eq!(socket.receive(2), 2);
    let desc = |slot: usize| {
        let at = unsafe { socket.rx.ring.cast::<u32>().add(slot * 4 + 2) };
        unsafe { (at.read(), at.add(1).read()) }
    };
    assert_eq!((desc(0), desc(1)), ((1792, 1), (1708, 0)));
    socket.delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn c41_the_program_serves_several_queues_until_the_last_is_closed() {
    let Some(_world) = World::with_veth(2) else { return };
    let before = fds();
    let (a, b) = (TestUmem::new(), TestUmem::new());
    let first = TestSocket::new(&a, "va", 0, PROGRAM).unwrap();
    let (id, _) = xdp_on("va").unwrap();
    let second = TestSocket::new(&b, "va", 1, PROGRAM).unwrap();
    first.delete();
    assert_eq!(xdp_on("va"), Some((id, false)));
    second.delete();
    assert_eq!(xdp_on("va"), None);
    assert_eq!((a.delete(), b.delete()), (0, 0));
    assert_eq!(fds(), before);
}

#[test]
fn libxdp_joins_our_program_and_we_join_its() {
    let Some(world) = World::new() else { return };
    let Some(binary) = LibxdpUser::available() else { return };
    for (ours_first, ours_leaves_first, our_queue) in [
        (true, true, 0),
        (true, false, 0),
        (false, true, 0),
        (false, false, 0),
        (true, false, 1),
        (true, true, 1),
        (false, true, 1),
        (false, false, 1),
    ] {
        let case = format!("ours first {ours_first}, leaves first {ours_leaves_first}, on queue {our_queue}");
        // Anew each time: a queue that another process has left is busy for some time more, and a create waits only for
        // those of its own process.
        world.veth(2);
        let peer = Peer::new("vb");
        let mut umem = TestUmem::new();
        umem.fill(0, 32);
        let mut libxdp = LibxdpUser::start(&binary, "va", 1 - our_queue, 0);
        if !ours_first {
            assert_eq!(libxdp.tell("create"), "0", "{case}");
        }
        let mut ours = TestSocket::new(&umem, "va", our_queue, PROGRAM).unwrap();
        if ours_first {
            assert_eq!(libxdp.tell("create"), "0", "{case}");
        }
        let (id, _) = xdp_on("va").unwrap();
        // Frames of the peer arrive at queue 0.
        let received = |ours: &mut TestSocket, libxdp: &mut LibxdpUser| {
            peer.send(4);
            if our_queue == 0 { ours.receive(4).to_string() } else { libxdp.tell("receive 4") }
        };
        assert_eq!(received(&mut ours, &mut libxdp), "4", "{case}");
        if ours_leaves_first {
            ours.delete();
            assert_eq!(xdp_on("va"), Some((id, false)), "{case}");
            if our_queue == 1 {
                peer.send(4);
                assert_eq!(libxdp.tell("receive 4"), "4", "{case}");
            }
            assert_eq!(libxdp.tell("delete"), "0");
        } else {
            assert_eq!(libxdp.tell("delete"), "0");
            assert_eq!(xdp_on("va"), Some((id, false)), "{case}");
            if our_queue == 0 {
                peer.send(4);
                assert_eq!(ours.receive(4), 4, "{case}");
            }
            ours.delete();
        }
        assert_eq!(xdp_on("va"), None, "{case}");
        assert_eq!(umem.delete(), 0);
        ip("link del va");
    }
    assert_eq!(messages(), "");
}

#[test]
fn a_counter_that_libxdp_left_at_zero_does_not_block_the_interface() {
    let Some(_world) = World::with_veth(3) else { return };
    let Some(binary) = LibxdpUser::available() else { return };
    // D5 in libxdp: the last to leave asks for another mode than the one attached, and leaves the program with 0.
    let mut native = LibxdpUser::start(&binary, "va", 0, DRV);
    let mut generic = LibxdpUser::start(&binary, "va", 1, SKB);
    assert_eq!(native.tell("create"), "0");
    assert_eq!(generic.tell("create"), "0");
    native.tell("delete");
    generic.tell("delete");
    let Some((stale, _)) = xdp_on("va") else {
        println!("skipped: this libxdp detaches");
        return;
    };
    let umem = TestUmem::new();
    // Not on a queue that libxdp's users have just left, which is busy for some time more.
    let socket = TestSocket::new(&umem, "va", 2, PROGRAM).unwrap();
    assert_ne!(xdp_on("va").unwrap().0, stale);
    socket.delete();
    assert_eq!(xdp_on("va"), None);
    assert_eq!(umem.delete(), 0);
}

#[test]
fn bpftool_sees_what_libxdp_looks_for() {
    let Some(_world) = World::with_veth(1) else { return };
    if Command::new("bpftool").arg("version").output().is_err() {
        println!("skipped: no bpftool");
        return;
    }
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let (id, _) = xdp_on("va").unwrap();
    let show = |what: &str, id: &str| {
        let out = Command::new("bpftool").args([what, "show", "id", id]).output().unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let program = show("prog", &id.to_string());
    assert!(program.contains("name xsk_def_prog") && program.contains("btf_id"), "{program}");
    let maps = program.split("map_ids ").nth(1).unwrap().split_whitespace().next().unwrap();
    let maps: String = maps.split(',').map(|id| show("map", id)).collect();
    assert!(maps.contains("xskmap  name xsks_map") && maps.contains("array  name xsk_def_.data"), "{maps}");
    socket.delete();
    assert_eq!(umem.delete(), 0);
}
