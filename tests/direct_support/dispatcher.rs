//! libxdp with its dispatcher for one test: where it can be had, its tools, and a look at what it leaves in the kernel.

use std::{
    ffi::CString,
    fs,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

use crate::direct_support::*;

pub(crate) const BPFFS: &str = "/sys/fs/bpf";
pub(crate) const DISPATCHER: &str = "xdp_dispatcher";
pub(crate) const NATIVE: u32 = 0;

/// A libxdp to test with: its user program and its tools.
pub(crate) struct Libxdp {
    pub(crate) user: PathBuf,
    /// Root of a file system with it, its tools, and the C library that they want. `None`: the system's libxdp.
    folder: Option<PathBuf>,
}

impl Libxdp {
    pub(crate) fn command(&self, program: &Path) -> Command {
        let Some(folder) = &self.folder else { return Command::new(program) };
        let libraries = folder.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(program);
        command.env("LIBXDP_OBJECT_PATH", libraries.join("bpf"));
        command
    }

    pub(crate) fn start(&self, queue: u32, xdp_flags: u32) -> LibxdpUser {
        LibxdpUser::start_as(self.command(&self.user), "va", queue, xdp_flags)
    }

    pub(crate) fn loader(&self, args: &[&str]) -> Output {
        let program =
            self.folder.as_ref().map_or_else(|| PathBuf::from("xdp-loader"), |f| f.join("usr/sbin/xdp-loader"));
        self.command(&program).args(args).output().unwrap()
    }

    /// Add a program that passes everything on.
    pub(crate) fn load_other(&self) {
        let out = self.loader(&["load", "va", other_program().unwrap().to_str().unwrap()]);
        assert!(out.status.success(), "xdp-loader load: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// What `xdp-loader status` says of `va`.
    pub(crate) fn status(&self) -> String {
        String::from_utf8_lossy(&self.loader(&["status", "va"]).stdout).into_owned()
    }

    /// Order a program of libxdp's to make its socket.
    pub(crate) fn started(&self, queue: u32, xdp_flags: u32) -> LibxdpUser {
        let mut user = self.start(queue, xdp_flags);
        assert_eq!(user.tell("create"), "0");
        user
    }
}

/// The object file of a program `other` that passes everything. `None`: no clang.
pub(crate) fn other_program() -> Option<&'static Path> {
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
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("DISPATCHER_EXPECTED").is_none(), "this is where a dispatcher is expected: {why}");
    println!("skipped: {why}");
    None
}

/// A veth pair, and a BPF file system of one's own where libxdp looks for it.
pub(crate) fn world(queues: u32) -> Option<(World, Libxdp)> {
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
pub(crate) fn newer_world(queues: u32) -> Option<(World, Libxdp)> {
    let (world, libxdp) = world(queues)?;
    let Some(folder) = std::env::var_os("NEWER_LIBXDP") else {
        println!("skipped: no other libxdp (NEWER_LIBXDP)");
        return None;
    };
    Some((world, Libxdp { folder: Some(folder.into()), ..libxdp }))
}

pub(crate) fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) {
    let [source, target, kind] = [source, target, kind].map(|s| CString::new(s).unwrap());
    let ret = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    assert_eq!(ret, 0, "mount {target:?}: {}", std::io::Error::last_os_error());
}

/// Name of the program on `va`; empty: none.
pub(crate) fn program() -> String {
    let Some((id, _)) = xdp_on("va") else { return String::new() };
    bpf_name(&bpf_fd(13, &[id.into()]).unwrap(), 64)
}

/// bpf(2) with a command whose attributes are these.
pub(crate) fn bpf(command: i32, attr: &[u64]) -> std::io::Result<i32> {
    let ret = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), size_of_val(attr)) };
    if ret < 0 { Err(std::io::Error::last_os_error()) } else { Ok(ret as i32) }
}

pub(crate) fn bpf_fd(command: i32, attr: &[u64]) -> std::io::Result<OwnedFd> {
    bpf(command, attr).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ask for a description of 128 bytes, some words of which may be set before.
pub(crate) fn bpf_info(fd: &OwnedFd, mut info: [u64; 16]) -> [u64; 16] {
    bpf(15, &[fd.as_raw_fd() as u64 | 128 << 32, info.as_mut_ptr() as u64]).unwrap();
    info
}

/// The name that stands at byte `at` of a description.
pub(crate) fn bpf_name(fd: &OwnedFd, at: usize) -> String {
    let info = bpf_info(fd, [0; 16]);
    let bytes: Vec<u8> = info.iter().flat_map(|w| w.to_ne_bytes()).skip(at).take(16).collect();
    String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap()).into_owned()
}

/// Pin directories of dispatchers.
pub(crate) fn pins() -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("{BPFFS}/xdp")).into_iter().flatten();
    entries.map(|e| e.unwrap().path()).collect()
}

/// The counter of the default program on `va`.
pub(crate) fn counter() -> i32 {
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
pub(crate) struct Ours {
    umem: TestUmem,
    pub(crate) socket: TestSocket,
}

impl Ours {
    pub(crate) fn try_new(queue: u32) -> Result<Ours, i32> {
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

    pub(crate) fn new(queue: u32) -> Ours {
        Ours::try_new(queue).unwrap_or_else(|e| panic!("{e}: {}", messages()))
    }

    pub(crate) fn delete(self) {
        self.socket.delete();
        assert_eq!(self.umem.delete(), 0);
    }
}
