//! The default program where the process runs out of descriptors, or loses sight of `/proc` and `/run`, over veth. Needs
//! root and AF_XDP.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use std::{ffi::CString, fs, ptr};

use direct_support::*;

/// Allow this process descriptors below `limit` only.
fn allow(limit: usize) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut now) }, 0);
    now.rlim_cur = limit as libc::rlim_t;
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &now) }, 0);
}

/// Fill the gaps between the process's descriptors; returns the first free number.
fn close_up() -> usize {
    loop {
        let fd = unsafe { libc::dup(0) };
        assert!(fd >= 0);
        // The one that reads the directory has the next number.
        if fds() == fd as usize + 2 {
            return fd as usize + 1;
        }
    }
}

/// In a child: make a socket while only `spare` more descriptors can be had, then with as many as it wants. 1: the first
/// attempt worked.
fn with_spare(spare: usize) -> i32 {
    const ENOUGH: usize = 512;
    let umem = TestUmem::new();
    let first_free = close_up();
    let before = fds();
    allow(first_free + spare);
    let attempt = TestSocket::new(&umem, "va", 0, PROGRAM);
    allow(ENOUGH);
    let said = messages();
    let (socket, worked) = match attempt {
        Ok(socket) => {
            assert_eq!(said, "", "{spare} spare");
            (socket, true)
        }
        Err(error) => {
            assert_eq!(error, -libc::EMFILE, "{spare} spare: {said}");
            assert!(said.contains("EMFILE"), "{spare} spare: {said}");
            assert_eq!((fds(), xdp_on("va")), (before, None), "{spare} spare");
            (TestSocket::new(&umem, "va", 0, PROGRAM).unwrap(), false)
        }
    };
    socket.delete();
    assert_eq!((xdp_on("va"), umem.delete()), (None, 0), "{spare} spare");
    i32::from(worked)
}

/// At each step where a descriptor is wanted: a true error, a message, nothing left behind, and the UMEM still works.
#[test]
fn a_create_that_runs_out_of_descriptors_says_so_and_can_be_repeated() {
    let Some(world) = World::new() else { return };
    let mut spare = 0;
    loop {
        // Anew each time: the kernel frees a queue some time after its socket is closed.
        world.veth(1);
        let status = in_child(|| with_spare(spare));
        ip("link del va");
        match status {
            0 => spare += 1,
            1 => break,
            other => panic!("{spare} spare: status {other}"),
        }
        assert!(spare < 32, "no end");
    }
    assert!(spare > 3, "a create wants more descriptors than {spare}");
}

/// A program that locks itself up after it has made its sockets still takes its program off.
#[test]
fn a_delete_after_chroot_takes_the_program_off() {
    let Some(_world) = World::with_veth(1) else { return };
    let cell = std::env::temp_dir().join(format!("slipring-cell-{}", std::process::id()));
    fs::create_dir(&cell).unwrap();
    let path = CString::new(cell.to_str().unwrap()).unwrap();
    let status = in_child(|| {
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
        assert_eq!(unsafe { libc::chroot(path.as_ptr()) }, 0);
        assert_eq!(unsafe { libc::chdir(c"/".as_ptr()) }, 0);
        socket.delete();
        umem.delete()
    });
    fs::remove_dir(&cell).unwrap();
    assert_eq!((status, xdp_on("va")), (0, None));
}

#[test]
fn a_delete_when_run_has_become_read_only_takes_the_program_off() {
    let Some(_world) = World::with_veth(1) else { return };
    let mount = |kind: *const libc::c_char, at: &std::ffi::CStr, flags| unsafe {
        libc::mount(kind, at.as_ptr(), kind, flags, ptr::null()) == 0
    };
    let status = in_child(|| {
        let own = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0
            && mount(ptr::null(), c"/", libc::MS_REC | libc::MS_PRIVATE)
            && mount(c"tmpfs".as_ptr(), c"/run", 0);
        if !own {
            println!("skipped: no mount namespace of its own");
            return 0;
        }
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
        // As a sandbox does it: the mount in which the record is open for writing stays as it is.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        assert!(mount(ptr::null(), c"/run", libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY));
        socket.delete();
        assert_eq!(messages(), "");
        umem.delete()
    });
    assert_eq!((status, xdp_on("va")), (0, None));
}
