//! The default program behind libxdp's dispatcher, beside programs that are not of AF_XDP, and beside libxdp's tools.
//!
//! A dispatcher takes a kernel that allows EXT programs, root, AF_XDP, libxdp's development files, xdp-tools, clang. Elsewhere
//! the tests are skipped; `make test-dispatcher` runs them in a guest. There, with `DISPATCHER_EXPECTED` set, a machine that
//! cannot run them fails them. `NEWER_LIBXDP` may name a folder with another libxdp than the system's, see [`Libxdp`].

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;
#[path = "direct_support/dispatcher.rs"]
mod support;

use std::{
    fs,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use direct_support::*;
use support::*;

/// Our socket receives what the peer sends. Frames of the peer arrive at queue 0.
fn receives(ours: &mut Ours, peer: &Peer) {
    peer.send(3);
    assert_eq!(ours.socket.receive(3), 3);
}

/// One of libxdp's receives what the peer sends.
fn user_receives(user: &mut LibxdpUser, peer: &Peer) {
    peer.send(3);
    assert_eq!(user.tell("receive 3"), "3");
}

/// Joining libxdp's dispatcher, in each order of leaving, mode, and queue of ours.
fn joins_and_leaves(libxdp: &Libxdp, modes: &[u32]) {
    let peer = Peer::new("vb");
    for &mode in modes {
        for (our_queue, ours_leaves_first) in [(0, true), (0, false), (1, true), (1, false)] {
            let case = format!("mode {mode}, our queue {our_queue}, ours leaves first {ours_leaves_first}");
            let mut user = libxdp.started(1 - our_queue, mode);
            let attached = xdp_on("va");
            assert_eq!((program().as_str(), counter()), (DISPATCHER, 1), "{case}");
            let mut ours = Ours::new(our_queue);
            assert_eq!((xdp_on("va"), counter()), (attached, 2), "{case}");
            let arrive = |ours: Option<&mut Ours>, user: Option<&mut LibxdpUser>| match (our_queue, ours, user) {
                (0, Some(ours), _) => receives(ours, &peer),
                (1, _, Some(user)) => user_receives(user, &peer),
                _ => {}
            };
            arrive(Some(&mut ours), Some(&mut user));
            if ours_leaves_first {
                ours.delete();
                assert_eq!((xdp_on("va"), counter()), (attached, 1), "{case}");
                arrive(None, Some(&mut user));
                assert_eq!(user.tell("delete"), "0", "{case}");
            } else {
                assert_eq!(user.tell("delete"), "0", "{case}");
                assert_eq!((xdp_on("va"), counter()), (attached, 1), "{case}");
                arrive(Some(&mut ours), None);
                ours.delete();
            }
            assert_eq!((xdp_on("va"), pins()), (None, vec![]), "{case}");
        }
    }
    assert_eq!(messages(), "");
}

#[test]
fn we_join_the_program_behind_a_dispatcher_and_the_last_one_takes_it_off() {
    let Some((_world, libxdp)) = world(2) else { return };
    joins_and_leaves(&libxdp, &[NATIVE, SKB]);
}

#[test]
fn we_join_the_program_behind_a_dispatcher_of_version_3() {
    let Some((_world, libxdp)) = newer_world(2) else { return };
    joins_and_leaves(&libxdp, &[NATIVE]);
}

#[test]
fn c49_libxdp_joins_our_single_program_and_its_tools_show_it() {
    let Some((_world, libxdp)) = world(2) else { return };
    let peer = Peer::new("vb");
    // Started first, for a later child would inherit our socket's descriptor and keep the queue busy.
    let mut user = libxdp.start(1, NATIVE);
    let mut ours = Ours::new(0);
    let attached = xdp_on("va");
    let status = libxdp.status();
    assert!(status.lines().any(|l| l.starts_with("va ") && l.contains("xsk_def_prog")), "{status}");
    // Another program cannot be added, and the attempt harms nobody.
    assert!(!libxdp.loader(&["load", "va", other_program().unwrap().to_str().unwrap()]).status.success());
    assert_eq!(user.tell("create"), "0");
    assert_eq!((xdp_on("va"), program().as_str(), counter()), (attached, "xsk_def_prog", 2));
    receives(&mut ours, &peer);
    ours.delete();
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    let ours = Ours::new(0);
    assert_eq!(user.tell("delete"), "0");
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    ours.delete();
    assert_eq!((xdp_on("va"), messages().as_str()), (None, ""));
}

#[test]
fn libxdp_1_6_joins_our_single_program() {
    let Some((_world, libxdp)) = newer_world(2) else { return };
    let peer = Peer::new("vb");
    let mut ours = Ours::new(0);
    let attached = xdp_on("va");
    let mut user = libxdp.started(1, NATIVE);
    assert_eq!((xdp_on("va"), program().as_str(), counter()), (attached, "xsk_def_prog", 2));
    receives(&mut ours, &peer);
    ours.delete();
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    assert_eq!(user.tell("delete"), "0");
    assert_eq!((xdp_on("va"), messages().as_str()), (None, ""));
}

#[test]
fn c44_a_dispatcher_without_a_default_program_is_left_alone_and_named() {
    let Some((_world, libxdp)) = world(1) else { return };
    libxdp.load_other();
    let (attached, pinned) = (xdp_on("va"), pins());
    assert_eq!(Ours::try_new(0).err(), Some(-libc::EBUSY));
    let said = messages();
    let id = attached.unwrap().0;
    assert!(said.contains(&format!("dispatcher {id} ")) && said.contains("calls other and"), "{said}");
    assert_eq!((xdp_on("va"), pins()), (attached, pinned));
    follow_advice(&said);
    Ours::new(0).delete();
    assert_eq!((xdp_on("va"), pins()), (None, vec![]));
}

/// Run the command that a message names.
fn follow_advice(said: &str) {
    assert!(said.contains("xdp-loader unload va --all"), "{said}");
    let mut loader = Command::new("xdp-loader");
    loader.args(["unload", "va", "--all"]).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(loader.status().unwrap().success());
    assert_eq!(xdp_on("va"), None);
}

/// Beside a program that is not of AF_XDP the last one of ours cannot take the default program away: it must leave it so
/// that it can be joined.
fn company(libxdp: &Libxdp) {
    let peer = Peer::new("vb");
    let mut user = libxdp.started(1, NATIVE);
    libxdp.load_other();
    let attached = xdp_on("va");
    let mut ours = Ours::new(0);
    assert_eq!((program().as_str(), counter()), (DISPATCHER, 2));
    receives(&mut ours, &peer);
    assert_eq!(user.tell("delete"), "0");
    receives(&mut ours, &peer);
    ours.delete();
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    // Others can join it: ours, and libxdp's.
    let mut ours = Ours::new(0);
    assert_eq!(xdp_on("va"), attached);
    receives(&mut ours, &peer);
    ours.delete();
    let mut user = libxdp.started(0, NATIVE);
    assert_eq!((xdp_on("va"), counter()), (attached, 2));
    user_receives(&mut user, &peer);
    assert_eq!(user.tell("delete"), "0");
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    let status = libxdp.status();
    assert!(status.contains(" other ") && status.contains(" xsk_def_prog "), "{status}");
    assert_eq!(messages(), "");
}

#[test]
fn a_default_program_with_company_stays_joinable_when_the_last_one_leaves() {
    let Some((_world, libxdp)) = world(2) else { return };
    company(&libxdp);
}

#[test]
fn a_default_program_with_company_stays_joinable_behind_a_dispatcher_of_version_3() {
    let Some((_world, libxdp)) = newer_world(2) else { return };
    company(&libxdp);
}

#[test]
fn libxdp_takes_the_default_program_from_its_company_when_it_leaves_last() {
    let Some((_world, libxdp)) = world(2) else { return };
    let peer = Peer::new("vb");
    libxdp.load_other();
    let mut user = libxdp.started(0, NATIVE);
    let ours = Ours::new(1);
    ours.delete();
    user_receives(&mut user, &peer);
    assert_eq!(user.tell("delete"), "0");
    let status = libxdp.status();
    assert!(status.contains(" other ") && !status.contains("xsk_def_prog"), "{status}");
    assert_eq!((pins().len(), messages().as_str()), (1, ""));
}

#[test]
fn a_dispatcher_that_is_rebuilt_around_us_is_followed() {
    let Some((_world, libxdp)) = world(2) else { return };
    let peer = Peer::new("vb");
    let mut user = libxdp.started(1, NATIVE);
    let mut ours = Ours::new(0);
    let before = xdp_on("va");
    libxdp.load_other();
    assert_ne!(xdp_on("va"), before);
    receives(&mut ours, &peer);
    // And back to the default program alone.
    let id = libxdp
        .status()
        .lines()
        .find(|l| l.contains(" other "))
        .map(|l| l.split_whitespace().nth(3).unwrap().to_owned());
    let out = libxdp.loader(&["unload", "va", "--id", &id.unwrap()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    receives(&mut ours, &peer);
    assert_eq!(user.tell("delete"), "0");
    ours.delete();
    assert_eq!((xdp_on("va"), pins(), messages().as_str()), (None, vec![], ""));
}

#[test]
fn after_a_crash_of_libxdps_user_we_join_the_program_behind_its_dispatcher() {
    let Some((_world, libxdp)) = world(2) else { return };
    let peer = Peer::new("vb");
    libxdp.started(0, NATIVE).kill();
    let attached = xdp_on("va");
    assert_eq!(program(), DISPATCHER);
    let mut ours = Ours::new(0);
    assert_eq!((xdp_on("va"), counter()), (attached, 2));
    receives(&mut ours, &peer);
    ours.delete();
    // Whether that user lives cannot be told: its reference stays.
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    let mut user = libxdp.started(0, NATIVE);
    user_receives(&mut user, &peer);
    assert_eq!(messages(), "");
}

/// D5 in libxdp behind its dispatcher: the last to leave asks for another mode than the one attached, and leaves 0 behind.
fn leave_zero(libxdp: &Libxdp) {
    let mut native = libxdp.started(0, DRV);
    let mut generic = libxdp.started(1, SKB);
    native.tell("delete");
    generic.tell("delete");
    assert_eq!((program().as_str(), counter()), (DISPATCHER, 0));
}

#[test]
fn d5_a_counter_left_at_zero_behind_a_dispatcher_does_not_block_the_interface() {
    let Some((_world, libxdp)) = world(2) else { return };
    leave_zero(&libxdp);
    let ours = Ours::new(0);
    assert_eq!((program().as_str(), pins()), ("xsk_def_prog", vec![]));
    ours.delete();
    assert_eq!((xdp_on("va"), messages().as_str()), (None, ""));
}

#[test]
fn d5_a_counter_left_at_zero_beside_another_program_leaves_that_alone() {
    let Some((_world, libxdp)) = world(2) else { return };
    let peer = Peer::new("vb");
    libxdp.load_other();
    leave_zero(&libxdp);
    let attached = xdp_on("va");
    let mut ours = Ours::new(0);
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    receives(&mut ours, &peer);
    ours.delete();
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
    assert_eq!(messages(), "");
}

#[test]
fn a_dispatcher_whose_pins_are_gone_is_left_alone_and_named() {
    let Some((_world, libxdp)) = world(2) else { return };
    let _user = libxdp.started(0, NATIVE);
    let attached = xdp_on("va");
    let directory = pins().remove(0);
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(Ours::try_new(1).err(), Some(-libc::EBUSY));
    let said = messages();
    let id = attached.unwrap().0;
    assert!(said.contains(&format!("dispatcher {id} ")), "{said}");
    assert!(said.contains(directory.to_str().unwrap()), "{said}");
    assert_eq!(xdp_on("va"), attached);
    follow_advice(&said);
    Ours::new(1).delete();
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn a_dispatcher_whose_pins_may_not_be_read_is_left_alone_and_named() {
    let Some((_world, libxdp)) = world(2) else { return };
    let _user = libxdp.started(0, NATIVE);
    let attached = xdp_on("va");
    let status = in_child(|| {
        become_nobody_with_capabilities();
        assert_eq!(Ours::try_new(1).err(), Some(-libc::EBUSY));
        let said = messages();
        assert!(said.contains("prog0-prog: Permission denied (EACCES)"), "{said}");
        0
    });
    assert_eq!((status, xdp_on("va"), counter()), (0, attached, 1));
}

/// Another user than root, with all capabilities but those over files.
fn become_nobody_with_capabilities() {
    const NOBODY: u32 = 65534;
    const VERSION_3: u32 = 0x2008_0522;
    const OVER_FILES: u32 = 1 << 1 | 1 << 2;
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice, for low and high numbers.
    let mut sets = [0u32; 6];
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
        assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
        assert_eq!(libc::syscall(libc::SYS_capget, &header, &mut sets), 0);
    }
    (sets[0], sets[3]) = (sets[1] & !OVER_FILES, sets[4]);
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, &header, &sets) }, 0);
}

#[test]
fn the_last_one_says_so_when_it_cannot_see_the_dispatchers_programs() {
    let Some((_world, libxdp)) = world(2) else { return };
    let mut user = libxdp.started(0, NATIVE);
    let attached = xdp_on("va");
    let ours = Ours::new(1);
    assert_eq!(user.tell("delete"), "0");
    fs::remove_dir_all(pins().remove(0)).unwrap();
    ours.delete();
    assert_eq!(xdp_on("va"), attached);
    let said = messages();
    assert!(said.contains(&format!("dispatcher {}", attached.unwrap().0)), "{said}");
    assert!(said.contains("xdp-loader unload va --all"), "{said}");
}

#[test]
fn a_program_whose_pin_alone_is_gone_is_not_detached_with_the_default_program() {
    let Some((_world, libxdp)) = world(2) else { return };
    let mut user = libxdp.started(0, NATIVE);
    libxdp.load_other();
    let attached = xdp_on("va");
    let ours = Ours::new(1);
    assert_eq!(user.tell("delete"), "0");
    // The default program comes first: its priority is lower.
    fs::remove_file(pins().remove(0).join("prog1-prog")).unwrap();
    ours.delete();
    assert_eq!((xdp_on("va"), counter()), (attached, 1));
}

#[test]
fn d6_the_last_one_may_leave_from_another_namespace() {
    let Some((_world, libxdp)) = world(2) else { return };
    let mut user = libxdp.started(0, NATIVE);
    let ours = Ours::new(1);
    assert_eq!(user.tell("delete"), "0");
    let here = open("/proc/thread-self/ns/net");
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    ours.delete();
    assert_eq!(unsafe { libc::setns(here.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    assert_eq!((xdp_on("va"), pins(), messages().as_str()), (None, vec![], ""));
}

#[test]
fn libxdp_bpffs_tells_where_a_dispatcher_is_pinned() {
    let Some((_world, libxdp)) = world(2) else { return };
    let elsewhere = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bpffs");
    fs::create_dir_all(&elsewhere).unwrap();
    mount("bpf", elsewhere.to_str().unwrap(), "bpf", 0);
    let start = |queue, preload: Option<&Path>| {
        let mut command = libxdp.command(&libxdp.user);
        command.env("LIBXDP_BPFFS", &elsewhere);
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        LibxdpUser::start_as(command, "va", queue, NATIVE)
    };
    let mut user = start(0, None);
    assert_eq!(user.tell("create"), "0");
    assert_eq!((program().as_str(), pins()), (DISPATCHER, vec![]));
    // This process looks in the usual place.
    assert_eq!(Ours::try_new(1).err(), Some(-libc::EBUSY));
    let said = messages();
    assert!(said.contains("LIBXDP_BPFFS"), "{said}");
    // One that is told where finds it, and takes it off as the last.
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libslipring.so");
    let mut ours = start(1, Some(&library));
    assert_eq!(ours.tell("create"), "0");
    assert_eq!(user.tell("delete"), "0");
    assert_eq!(program(), DISPATCHER);
    assert_eq!(ours.tell("delete"), "0");
    assert_eq!(xdp_on("va"), None);
    assert_eq!(fs::read_dir(elsewhere.join("xdp")).unwrap().count(), 0);
}

#[test]
fn d22_nothing_of_ours_fails_and_nothing_stays_beside_libxdps_comings_and_goings() {
    const ROUNDS: usize = 25;
    let Some((_world, libxdp)) = world(8) else { return };
    let mut users: Vec<_> = (4..8).map(|queue| libxdp.start(queue, NATIVE)).collect();
    for user in &mut users {
        user.order(&format!("churn {ROUNDS}"));
    }
    let children: Vec<_> = (0..4)
        .map(|queue| {
            fork(move || {
                for _ in 0..ROUNDS {
                    match Ours::try_new(queue) {
                        Ok(ours) => ours.delete(),
                        Err(error) => {
                            eprint!("{error}: {}", messages());
                            return 1;
                        }
                    }
                }
                let said = messages();
                eprint!("{said}");
                i32::from(!said.is_empty())
            })
        })
        .collect();
    let ended: Vec<_> = children.into_iter().map(wait).collect();
    // libxdp itself fails now and then when others come and go: not ours to judge.
    let failed: Vec<_> = users.iter_mut().map(LibxdpUser::answer).collect();
    println!("rounds of libxdp's users that failed, of {ROUNDS}: {failed:?}");
    assert_eq!(ended, [0; 4]);
    // Give the last one's detaching a moment.
    for _ in 0..50 {
        if xdp_on("va").is_none() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((xdp_on("va"), pins()), (None, vec![]));
}
