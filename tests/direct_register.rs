//! The default program after users that died, over veth: what the register of live users is for. Needs root and AF_XDP;
//! the parts with libxdp need its development files.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
    ptr,
    time::{Duration, Instant},
};

use direct_support::{
    attach::{attach_foreign, link, program, set_xdp_generic},
    *,
};
use slipring::abi::xsk::*;

/// Where the library keeps its register.
const REGISTER: &str = "/run/slipring-xdp";

/// Records of these processes.
fn records(of: &[libc::pid_t]) -> usize {
    let names = fs::read_dir(REGISTER).into_iter().flatten().flatten();
    let names: Vec<String> = names.map(|e| e.file_name().into_string().unwrap()).collect();
    names.iter().filter(|n| of.iter().any(|pid| n.split('.').nth(3) == Some(&pid.to_string()))).count()
}

fn me() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// A process that makes a socket on a queue, then does `body` with it, then waits to be killed.
fn user(queue: u32, body: impl FnOnce(&TestSocket)) -> libc::pid_t {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let pid = fork(|| {
        // Not to outlive a test that fails.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", queue, PROGRAM).unwrap();
        body(&socket);
        there.write_all(b"x").unwrap();
        loop {
            unsafe { libc::pause() };
        }
    });
    here.read_exact(&mut [0]).unwrap();
    pid
}

/// Make a socket and delete it.
fn come_and_go(queue: u32) {
    let umem = TestUmem::new();
    TestSocket::new(&umem, "va", queue, PROGRAM).unwrap().delete();
    assert_eq!(umem.delete(), 0);
}

#[test]
fn after_crashes_the_last_to_leave_takes_the_program_off() {
    let Some(_world) = World::with_veth(4) else { return };
    let users: Vec<_> = (0..3).map(|queue| user(queue, |_| ())).collect();
    let (id, _) = xdp_on("va").unwrap();
    assert_eq!(records(&users), 3);
    kill(users[0]);
    kill(users[1]);
    // One lives: the program stays.
    come_and_go(3);
    assert_eq!(xdp_on("va"), Some((id, false)));
    kill(users[2]);
    assert_eq!(xdp_on("va"), Some((id, false)));
    come_and_go(3);
    assert_eq!(xdp_on("va"), None);
    assert_eq!(records(&users) + records(&[me()]), 0);
    assert_eq!(messages(), "");
}

/// A user that was there when others died, and never joins again, cleans up just as well.
#[test]
fn who_leaves_last_takes_the_references_of_the_dead_along() {
    let Some(_world) = World::with_veth(2) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let other = user(1, |_| ());
    kill(other);
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(xdp_on("va"), None);
    assert_eq!(records(&[me(), other]), 0);
}

#[test]
fn a_reference_that_is_never_given_back_keeps_the_program() {
    let Some(_world) = World::with_veth(2) else { return };
    assert_eq!(unsafe { xsk_setup_xdp_prog(index_of("va") as i32, ptr::null_mut()) }, 0);
    kill(user(0, |_| ()));
    come_and_go(1);
    assert!(xdp_on("va").is_some());
    come_and_go(1);
    assert!(xdp_on("va").is_some());
    assert_eq!(records(&[me()]), 0);
}

#[test]
fn what_the_dead_have_left_is_not_taken_from_libxdps_users() {
    let Some(_world) = World::with_veth(3) else { return };
    let Some(binary) = LibxdpUser::available() else { return };
    let peer = Peer::new("vb");
    kill(user(1, |_| ()));
    let mut libxdp = LibxdpUser::start(&binary, "va", 0, 0);
    assert_eq!(libxdp.tell("create"), "0");
    come_and_go(2);
    peer.send(4);
    assert_eq!(libxdp.tell("receive 4"), "4");
    // It counts the dead one still and so leaves the program, until the next of ours.
    assert_eq!(libxdp.tell("delete"), "0");
    assert!(xdp_on("va").is_some());
    come_and_go(2);
    assert_eq!(xdp_on("va"), None);
    // A libxdp user that died itself cannot be told from one that is about to receive.
    assert_eq!(libxdp.tell("create"), "0");
    libxdp.kill();
    come_and_go(2);
    assert!(xdp_on("va").is_some());
}

#[test]
fn a_forked_child_that_lives_on_keeps_the_program() {
    let Some(_world) = World::with_veth(2) else { return };
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let parent = user(0, |_| {
        let child = fork(|| {
            unsafe { libc::alarm(60) };
            loop {
                unsafe { libc::pause() };
            }
        });
        there.write_all(&child.to_ne_bytes()).unwrap();
    });
    let mut child = [0; 4];
    here.read_exact(&mut child).unwrap();
    // It has our ends of the pair too.
    kill(parent);
    come_and_go(1);
    assert!(xdp_on("va").is_some());
    let child = i32::from_ne_bytes(child);
    unsafe { libc::kill(child, libc::SIGKILL) };
    while fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|s| !s.contains(") Z ")) {
        std::thread::yield_now();
    }
    come_and_go(1);
    assert_eq!(xdp_on("va"), None);
    assert_eq!(records(&[me(), parent]), 0);
}

#[test]
fn a_socket_that_was_handed_on_keeps_the_program() {
    let Some(_world) = World::with_veth(2) else { return };
    // A descriptor is taken out of the user, as if the user had passed it on.
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let owner = user(0, |socket| there.write_all(&socket.fd().to_ne_bytes()).unwrap());
    let mut number = [0; 4];
    here.read_exact(&mut number).unwrap();
    let pidfd = unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, owner, 0) as i32) };
    let number = i32::from_ne_bytes(number);
    let handed = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) };
    assert!(handed >= 0, "{}", std::io::Error::last_os_error());
    kill(owner);
    come_and_go(1);
    assert!(xdp_on("va").is_some());
    unsafe { libc::close(handed as i32) };
    come_and_go(1);
    assert_eq!(xdp_on("va"), None);
    assert_eq!(records(&[me(), owner]), 0);
}

#[test]
fn without_a_place_for_the_register_all_works_as_without_it() {
    let Some(_world) = World::with_veth(2) else { return };
    let status = in_child(|| {
        // `/run` cannot be written, but the lock's directory is there.
        come_and_go(0);
        let mount = |source: Option<&std::ffi::CStr>, flags| {
            let source = source.map_or(ptr::null(), |s| s.as_ptr());
            unsafe { libc::mount(source, c"/run".as_ptr(), ptr::null(), flags, ptr::null()) }
        };
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        let root = c"/".as_ptr();
        let private = libc::MS_REC | libc::MS_PRIVATE;
        assert_eq!(unsafe { libc::mount(ptr::null(), root, ptr::null(), private, ptr::null()) }, 0);
        assert_eq!(mount(Some(c"/run"), libc::MS_BIND), 0);
        assert_eq!(mount(None, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY), 0);
        let umem = TestUmem::new();
        let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
        assert!(fs::write(format!("{REGISTER}-probe"), "").is_err());
        assert_eq!(records(&[me()]), 0);
        socket.delete();
        assert_eq!(umem.delete(), 0);
        assert_eq!(messages(), "");
        // Nor can the lock's directory be made: one line for a person, the first time. With a BPF file system it is there.
        let hidden = c"none".as_ptr();
        let ret = unsafe { libc::mount(hidden, c"/run".as_ptr(), c"tmpfs".as_ptr(), libc::MS_RDONLY, ptr::null()) };
        assert_eq!(ret, 0);
        come_and_go(0);
        come_and_go(0);
        let said = messages();
        if fs::read_to_string("/proc/mounts").unwrap().contains(" /sys/fs/bpf bpf ") {
            assert_eq!(said, "");
        } else {
            assert!(said.contains("cannot lock /run/xdp") && said.lines().count() == 1, "{said}");
        }
        0
    });
    assert_eq!(status, 0);
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn d33_a_record_does_not_outlive_its_interface() {
    let Some(world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let crashed = fork(|| {
        let umem = TestUmem::new();
        let status = i32::from(TestSocket::new(&umem, "vb", 0, PROGRAM).is_err());
        assert_eq!(records(&[me()]), 1);
        status
    });
    assert_eq!(wait(crashed), 0);
    assert_eq!(records(&[me(), crashed]), 2);
    ip("link del vb");
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(records(&[me()]), 0);
    assert_eq!(messages(), "");
    // What the crash has left on an interface that is gone goes with the next record, once the kernel has freed the maps.
    world.veth(1);
    let end = Instant::now() + Duration::from_secs(10);
    while records(&[crashed]) > 0 && Instant::now() < end {
        come_and_go(0);
    }
    assert_eq!(records(&[me(), crashed]), 0);
}

#[test]
fn a_renamed_interface_is_still_ours() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    // Older kernels rename no interface that is up.
    ip("link set va down");
    ip("link set va name vc");
    socket.delete();
    assert_eq!(xdp_on("vc"), None);
    assert_eq!((umem.delete(), records(&[me()])), (0, 0));
}

#[test]
fn d6_an_interface_that_has_moved_away_can_be_used_and_cleaned_there() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let here = open("/proc/thread-self/ns/net");
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
    let there = open("/proc/thread-self/ns/net");
    assert_eq!(unsafe { libc::setns(here.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    ip(&format!("link set va netns /proc/{}/fd/{}", me(), there.as_raw_fd()));
    socket.delete();
    assert_eq!(umem.delete(), 0);
    assert_eq!(messages(), "");
    assert_eq!(unsafe { libc::setns(there.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    ip("link set va up");
    come_and_go(0);
    assert_eq!(xdp_on("va"), None);
    assert_eq!(records(&[me()]), 0);
}

#[test]
fn d5_a_program_that_a_link_holds_is_detached_too() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    let (id, _) = xdp_on("va").unwrap();
    let ours = program(id);
    ip("link set dev va xdpdrv off");
    let link = link(&ours, "va");
    assert_eq!(xdp_on("va"), Some((id, false)));
    socket.delete();
    assert_eq!(xdp_on("va"), None);
    drop(link);
    assert_eq!((umem.delete(), records(&[me()])), (0, 0));
    assert_eq!(messages(), "");
}

#[test]
fn c44_a_program_that_has_replaced_ours_is_left_alone() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, PROGRAM).unwrap();
    attach_foreign("va");
    let foreign = xdp_on("va").unwrap();
    socket.delete();
    assert_eq!(xdp_on("va"), Some(foreign));
    assert_eq!((umem.delete(), records(&[me()])), (0, 0));
    assert_eq!(messages(), "");
}

/// What `slipring doctor` says of default programs.
fn doctor(arguments: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_slipring")).arg("doctor").args(arguments).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap();
    text.split_inclusive('\n').skip_while(|l| !l.starts_with("default program") && !l.starts_with('{')).collect()
}

/// The command that it names, which must do what it says.
fn follow(said: &str) {
    let command = said.split("to take it off: ").nth(1).unwrap().trim();
    let out = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(xdp_on("va"), None, "{command}");
    assert_eq!(doctor(&["va"]), "");
}

#[test]
fn doctor_tells_a_stale_program_from_a_used_one_and_how_to_take_it_off() {
    let Some(_world) = World::with_veth(2) else { return };
    assert_eq!(doctor(&[]), "");
    let victim = user(0, |_| ());
    let (id, _) = xdp_on("va").unwrap();
    assert_eq!(doctor(&[]), "");
    let used = format!("default program {id} on va (native mode): used: a socket receives through it\n");
    assert_eq!(doctor(&["va"]), used);
    kill(victim);
    for arguments in [&[][..], &["va"]] {
        let said = doctor(arguments);
        assert!(said.starts_with(&format!("default program {id} on va (native mode): stale: 1 reference")), "{said}");
    }
    let json = doctor(&["--json"]);
    assert!(json.contains(&format!(r#""programs":[{{"interface":"va","program":{id},"mode":"native""#)), "{json}");
    assert!(json.contains(r#""live":[],"dead":1,"sockets":false,"state":"stale""#), "{json}");
    // Looking changes nothing: the register still knows.
    assert_eq!(records(&[victim]), 1);
    follow(&doctor(&[]));
    assert_eq!(doctor(&["vb"]), "");
}

#[test]
fn doctor_names_the_command_for_every_way_in_which_a_program_can_be_attached() {
    let Some(_world) = World::with_veth(2) else { return };
    assert_eq!(unsafe { xsk_setup_xdp_prog(index_of("va") as i32, ptr::null_mut()) }, 0);
    let (id, _) = xdp_on("va").unwrap();
    let ours = program(id);
    let said = doctor(&["va"]);
    assert!(said.contains("(native mode): unclear: 1 reference") && said.contains("xsk_setup_xdp_prog"), "{said}");
    follow(&said);
    set_xdp_generic("va", ours.as_raw_fd());
    assert!(doctor(&[]).contains("(generic mode)"));
    follow(&doctor(&[]));
    if Command::new("bpftool").arg("version").output().is_err() {
        return println!("skipped in part: no bpftool");
    }
    let link = link(&ours, "va");
    follow(&doctor(&[]));
    drop(link);
}

/// A user that only sends has no entry in the map, but it has a record.
#[test]
fn doctor_knows_users_that_only_send() {
    let Some(_world) = World::with_veth(1) else { return };
    let umem = TestUmem::new();
    let socket = TestSocket::new(&umem, "va", 0, How { rx: false, ..PROGRAM }).unwrap();
    let said = doctor(&["va"]);
    assert!(said.contains(&format!("used: in use by process {}", me())), "{said}");
    socket.delete();
    assert_eq!(umem.delete(), 0);
}
