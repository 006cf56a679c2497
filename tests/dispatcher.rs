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

use std::{
    ffi::CString,
    fs,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use direct_support::*;

const BPFFS: &str = "/sys/fs/bpf";
const DISPATCHER: &str = "xdp_dispatcher";
const NATIVE: u32 = 0;

/// A libxdp to test with: its user program and its tools.
struct Libxdp {
    user: PathBuf,
    /// Root of a file system with it, its tools, and the C library that they want. `None`: the system's libxdp.
    folder: Option<PathBuf>,
}

impl Libxdp {
    fn command(&self, program: &Path) -> Command {
        let Some(folder) = &self.folder else { return Command::new(program) };
        let libraries = folder.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(program);
        command.env("LIBXDP_OBJECT_PATH", libraries.join("bpf"));
        command
    }

    fn start(&self, queue: u32, xdp_flags: u32) -> LibxdpUser {
        LibxdpUser::start_as(self.command(&self.user), "va", queue, xdp_flags)
    }

    fn loader(&self, args: &[&str]) -> Output {
        let program =
            self.folder.as_ref().map_or_else(|| PathBuf::from("xdp-loader"), |f| f.join("usr/sbin/xdp-loader"));
        self.command(&program).args(args).output().unwrap()
    }

    /// Add a program that passes everything on.
    fn load_other(&self) {
        let out = self.loader(&["load", "va", other_program().unwrap().to_str().unwrap()]);
        assert!(out.status.success(), "xdp-loader load: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// What `xdp-loader status` says of `va`.
    fn status(&self) -> String {
        String::from_utf8_lossy(&self.loader(&["status", "va"]).stdout).into_owned()
    }

    /// Order a program of libxdp's to make its socket.
    fn started(&self, queue: u32, xdp_flags: u32) -> LibxdpUser {
        let mut user = self.start(queue, xdp_flags);
        assert_eq!(user.tell("create"), "0");
        user
    }
}

/// The object file of a program `other` that passes everything. `None`: no clang.
fn other_program() -> Option<&'static Path> {
    static OBJECT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compiled = OBJECT.get_or_init(|| {
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/direct_support/other_program.c"));
        let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("other_program-{}.o", std::process::id()));
        let mut clang = Command::new("clang");
        let status = clang.args(["-O2", "-g", "-target", "bpf", "-c"]).arg(source).arg("-o").arg(&object).status();
        status.is_ok_and(|s| s.success()).then_some(object)
    });
    compiled.as_deref()
}

/// Why a test cannot run.
fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("DISPATCHER_EXPECTED").is_none(), "this is where a dispatcher is expected: {why}");
    println!("skipped: {why}");
    None
}

/// A veth pair, and a BPF file system of one's own where libxdp looks for it.
fn world(queues: u32) -> Option<(World, Libxdp)> {
    static DISPATCHES: OnceLock<bool> = OnceLock::new();
    let Some(world) = World::with_veth(queues) else { return skip("no world") };
    let Some(user) = LibxdpUser::available() else { return skip("no libxdp") };
    if other_program().is_none() {
        return skip("no clang");
    }
    if Command::new("xdp-loader").arg("help").output().is_err() {
        return skip("no xdp-loader");
    }
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    mount("none", "/", "none", libc::MS_REC | libc::MS_PRIVATE);
    mount("bpf", BPFFS, "bpf", 0);
    let libxdp = Libxdp { user, folder: None };
    let dispatches = *DISPATCHES.get_or_init(|| {
        let mut probe = libxdp.started(0, NATIVE);
        let dispatches = program() == DISPATCHER;
        probe.tell("delete");
        dispatches
    });
    if !dispatches {
        return skip("libxdp makes no dispatcher here: this kernel refuses EXT programs");
    }
    Some((world, libxdp))
}

/// As [`world`], and a libxdp of the newest dispatcher's version.
fn newer_world(queues: u32) -> Option<(World, Libxdp)> {
    let (world, libxdp) = world(queues)?;
    let Some(folder) = std::env::var_os("NEWER_LIBXDP") else {
        println!("skipped: no other libxdp (NEWER_LIBXDP)");
        return None;
    };
    Some((world, Libxdp { folder: Some(folder.into()), ..libxdp }))
}

fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) {
    let [source, target, kind] = [source, target, kind].map(|s| CString::new(s).unwrap());
    let ret = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    assert_eq!(ret, 0, "mount {target:?}: {}", std::io::Error::last_os_error());
}

/// Name of the program on `va`; empty: none.
fn program() -> String {
    let Some((id, _)) = xdp_on("va") else { return String::new() };
    bpf_name(&bpf_fd(13, &[id.into()]).unwrap(), 64)
}

/// bpf(2) with a command whose attributes are these.
fn bpf(command: i32, attr: &[u64]) -> std::io::Result<i32> {
    let ret = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), size_of_val(attr)) };
    if ret < 0 { Err(std::io::Error::last_os_error()) } else { Ok(ret as i32) }
}

fn bpf_fd(command: i32, attr: &[u64]) -> std::io::Result<OwnedFd> {
    bpf(command, attr).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ask for a description of 128 bytes, some words of which may be set before.
fn bpf_info(fd: &OwnedFd, mut info: [u64; 16]) -> [u64; 16] {
    bpf(15, &[fd.as_raw_fd() as u64 | 128 << 32, info.as_mut_ptr() as u64]).unwrap();
    info
}

/// The name that stands at byte `at` of a description.
fn bpf_name(fd: &OwnedFd, at: usize) -> String {
    let info = bpf_info(fd, [0; 16]);
    let bytes: Vec<u8> = info.iter().flat_map(|w| w.to_ne_bytes()).skip(at).take(16).collect();
    String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap()).into_owned()
}

/// Pin directories of dispatchers.
fn pins() -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("{BPFFS}/xdp")).into_iter().flatten();
    entries.map(|e| e.unwrap().path()).collect()
}

/// The counter of the default program on `va`.
fn counter() -> i32 {
    let on_interface = bpf_fd(13, &[xdp_on("va").unwrap().0.into()]).unwrap();
    let behind = pins().into_iter().flat_map(|d| fs::read_dir(d).unwrap()).map(|e| e.unwrap().path());
    let behind = behind.filter(|p| p.to_str().unwrap().ends_with("-prog")).map(|pin| {
        let pin = CString::new(pin.as_os_str().as_bytes()).unwrap();
        bpf_fd(7, &[pin.as_ptr() as u64, 0]).unwrap()
    });
    let default = behind.chain([on_interface]).find(|p| bpf_name(p, 64) == "xsk_def_prog").expect("a default program");
    let mut ids = [0u32; 16];
    // Number of map ids, and where they go.
    let mut info = [0; 16];
    info[6] = 16 << 32;
    info[7] = ids.as_mut_ptr() as u64;
    bpf_info(&default, info);
    let maps = ids.into_iter().filter(|&id| id != 0).map(|id| bpf_fd(14, &[id.into()]).unwrap());
    let map = maps.into_iter().find(|map| bpf_name(map, 24) == "xsk_def_.data").expect("a counter");
    let (key, mut value) = (0u32, [0i32; 2]);
    bpf(1, &[map.as_raw_fd() as u64, &raw const key as u64, value.as_mut_ptr() as u64, 0]).unwrap();
    value[0]
}

/// Ours: a socket with the default program.
struct Ours {
    umem: TestUmem,
    socket: TestSocket,
}

impl Ours {
    fn try_new(queue: u32) -> Result<Ours, i32> {
        let mut umem = TestUmem::new();
        umem.fill(0, 60);
        match TestSocket::new(&umem, "va", queue, PROGRAM) {
            Ok(socket) => Ok(Ours { umem, socket }),
            Err(error) => {
                assert_eq!(umem.delete(), 0);
                Err(error)
            }
        }
    }

    fn new(queue: u32) -> Ours {
        Ours::try_new(queue).unwrap_or_else(|e| panic!("{e}: {}", messages()))
    }

    fn delete(self) {
        self.socket.delete();
        assert_eq!(self.umem.delete(), 0);
    }
}

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
