//! A network namespace with veth pairs for one test, and short ways to make UMEMs and sockets in it.
//!
//! A test takes a [`World`]: its thread, and whatever that starts, is then in a namespace of its own. Worlds exist one at a
//! time, since descriptors, mappings and the message sink are the process's. Without root or AF_XDP there is no world: the
//! test prints why and ends.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, missing_debug_implementations, missing_docs, reason = "private to the tests")]

pub mod attach;

use std::{
    ffi::{CString, c_char, c_int, c_void},
    fs,
    io::{BufRead, BufReader, Write},
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use slipring::abi::{types::*, xsk::*};

/// `XDP_COPY`.
pub const COPY: u16 = 2;
/// `XDP_FLAGS_SKB_MODE`.
pub const SKB: u32 = 2;
/// `XDP_FLAGS_DRV_MODE`.
pub const DRV: u32 = 4;
/// `XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD`.
pub const INHIBIT: u32 = 1;
/// Bytes of a chunk.
pub const FRAME: usize = 4096;
/// Ethernet type of the tests' frames.
const TYPE: u16 = 0x88b5;

static SERIAL: Mutex<()> = Mutex::new(());
static MESSAGES: Mutex<String> = Mutex::new(String::new());

/// A namespace of its own.
pub struct World {
    _serial: MutexGuard<'static, ()>,
    home: OwnedFd,
}

impl World {
    /// `None`: cannot be had here, and why was printed.
    pub fn new() -> Option<World> {
        let serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let home = open("/proc/thread-self/ns/net");
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("skipped: no network namespace of its own: {}", std::io::Error::last_os_error());
            return None;
        }
        let world = World { _serial: serial, home };
        let socket = unsafe { libc::socket(44, libc::SOCK_RAW, 0) };
        if socket < 0 {
            println!("skipped: no AF_XDP: {}", std::io::Error::last_os_error());
            return None;
        }
        drop(unsafe { OwnedFd::from_raw_fd(socket) });
        ip("link set lo up");
        slipring::log::set_sink(Some(collect));
        messages();
        Some(world)
    }

    /// A world with a veth pair `va`, `vb` of some queues.
    pub fn with_veth(queues: u32) -> Option<World> {
        let world = World::new()?;
        world.veth(queues);
        Some(world)
    }

    /// Make the veth pair `va`, `vb`, both up. `vb` has one queue, so that its frames arrive at queue 0 of `va`.
    pub fn veth(&self, queues: u32) {
        let q = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add va {q} type veth peer name vb numrxqueues 1 numtxqueues 1"));
        for name in ["va", "vb"] {
            fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").ok();
            ip(&format!("link set {name} up"));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        slipring::log::set_sink(None);
        unsafe { libc::setns(self.home.as_raw_fd(), libc::CLONE_NEWNET) };
    }
}

extern "C" fn collect(_level: i32, line: *const c_char) {
    let line = unsafe { std::ffi::CStr::from_ptr(line) }.to_string_lossy();
    MESSAGES.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
}

/// What the library has said since the last call.
pub fn messages() -> String {
    mem::take(&mut *MESSAGES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Open a file of the system.
pub fn open(path: &str) -> OwnedFd {
    OwnedFd::from(fs::File::open(path).unwrap())
}

/// Run `ip` in the thread's namespace.
pub fn ip(args: &str) {
    let out = Command::new("ip").args(args.split_whitespace()).output().unwrap();
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Id of the XDP program on an interface, and whether it is in generic mode.
pub fn xdp_on(name: &str) -> Option<(u32, bool)> {
    let out = Command::new("ip").args(["link", "show", "dev", name]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|w| !w.starts_with("prog/xdp"));
    words.next()?;
    words.next()?;
    let id = words.next()?.parse().unwrap();
    let generic = text.split_whitespace().any(|w| w == "xdpgeneric");
    Some((id, generic))
}

/// Open descriptors of the process.
pub fn fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of AF_XDP rings of the process.
pub fn ring_mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().matches("socket:[").count()
}

/// Interface number.
pub fn index_of(name: &str) -> u32 {
    let name = CString::new(name).unwrap();
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// What `errno` says.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A ring struct full of garbage, as on a C stack.
pub fn garbage_prod() -> xsk_ring_prod {
    unsafe { mem::transmute([0x5au8; mem::size_of::<xsk_ring_prod>()]) }
}

/// As [`garbage_prod`].
pub fn garbage_cons() -> xsk_ring_cons {
    unsafe { mem::transmute([0x5au8; mem::size_of::<xsk_ring_cons>()]) }
}

/// A UMEM with its area and rings.
pub struct TestUmem {
    pub area: *mut u8,
    pub len: usize,
    pub umem: *mut xsk_umem,
    pub fill: Box<xsk_ring_prod>,
    pub comp: Box<xsk_ring_cons>,
}

unsafe impl Send for TestUmem {}
unsafe impl Sync for TestUmem {}

/// Anonymous memory.
pub fn map_area(len: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let area = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(area, libc::MAP_FAILED);
    area.cast()
}

impl TestUmem {
    /// 256 chunks and rings of 64.
    pub fn new() -> TestUmem {
        TestUmem::try_new(&config()).unwrap()
    }

    /// The error is what `xsk_umem__create` returned.
    pub fn try_new(config: &xsk_umem_config) -> Result<TestUmem, c_int> {
        let len = 256 * FRAME;
        let area = map_area(len);
        let mut fill = Box::new(garbage_prod());
        let mut comp = Box::new(garbage_cons());
        let mut umem = ptr::null_mut();
        let ret = unsafe { xsk_umem__create(&mut umem, area.cast(), len as u64, &mut *fill, &mut *comp, config) };
        if ret != 0 {
            unsafe { libc::munmap(area.cast(), len) };
            return Err(ret);
        }
        Ok(TestUmem { area, len, umem, fill, comp })
    }

    /// `xsk_umem__delete`; the area goes when it worked.
    pub fn delete(self) -> c_int {
        let ret = unsafe { xsk_umem__delete(self.umem) };
        if ret == 0 {
            unsafe { libc::munmap(self.area.cast(), self.len) };
        }
        ret
    }

    /// Put chunks `from..to` into the fill ring.
    pub fn fill(&mut self, from: usize, to: usize) {
        fill(&mut self.fill, from, to);
    }
}

/// The usual UMEM parameters.
pub fn config() -> xsk_umem_config {
    xsk_umem_config { fill_size: 64, comp_size: 64, frame_size: FRAME as u32, frame_headroom: 0, flags: 0 }
}

/// A socket with its rings.
pub struct TestSocket {
    pub xsk: *mut xsk_socket,
    pub rx: Box<xsk_ring_cons>,
    pub tx: Box<xsk_ring_prod>,
}

unsafe impl Send for TestSocket {}

/// How to make a socket.
#[derive(Clone, Copy)]
pub struct How {
    pub rx: bool,
    pub tx: bool,
    pub size: u32,
    pub libxdp_flags: u32,
    pub xdp_flags: u32,
    pub bind_flags: u16,
}

/// RX and TX of 64, no program.
pub const PLAIN: How = How { rx: true, tx: true, size: 64, libxdp_flags: INHIBIT, xdp_flags: 0, bind_flags: COPY };
/// RX and TX of 64, default program.
pub const PROGRAM: How = How { libxdp_flags: 0, ..PLAIN };

impl How {
    fn config(&self) -> xsk_socket_config {
        xsk_socket_config {
            rx_size: self.size,
            tx_size: self.size,
            libxdp_flags: self.libxdp_flags,
            xdp_flags: self.xdp_flags,
            bind_flags: self.bind_flags,
        }
    }
}

impl TestSocket {
    /// `xsk_socket__create`.
    pub fn new(umem: &TestUmem, name: &str, queue: u32, how: How) -> Result<TestSocket, c_int> {
        let name = CString::new(name).unwrap();
        let mut s = TestSocket::empty();
        let (rx, tx) = s.wanted(how);
        let ret = unsafe { xsk_socket__create(&mut s.xsk, name.as_ptr(), queue, umem.umem, rx, tx, &how.config()) };
        if ret == 0 { Ok(s) } else { Err(ret) }
    }

    /// `xsk_socket__create_shared`.
    pub fn shared(
        umem: &TestUmem,
        name: &str,
        queue: u32,
        how: How,
        fill: *mut xsk_ring_prod,
        comp: *mut xsk_ring_cons,
    ) -> Result<TestSocket, c_int> {
        let name = CString::new(name).unwrap();
        let mut s = TestSocket::empty();
        let (rx, tx) = s.wanted(how);
        let ret = unsafe {
            xsk_socket__create_shared(&mut s.xsk, name.as_ptr(), queue, umem.umem, rx, tx, fill, comp, &how.config())
        };
        if ret == 0 { Ok(s) } else { Err(ret) }
    }

    fn empty() -> TestSocket {
        TestSocket { xsk: ptr::null_mut(), rx: Box::new(garbage_cons()), tx: Box::new(garbage_prod()) }
    }

    fn wanted(&mut self, how: How) -> (*mut xsk_ring_cons, *mut xsk_ring_prod) {
        let rx = if how.rx { ptr::from_mut(&mut *self.rx) } else { ptr::null_mut() };
        let tx = if how.tx { ptr::from_mut(&mut *self.tx) } else { ptr::null_mut() };
        (rx, tx)
    }

    /// The descriptor.
    pub fn fd(&self) -> c_int {
        unsafe { xsk_socket__fd(self.xsk) }
    }

    /// `xsk_socket__delete`.
    pub fn delete(self) {
        unsafe { xsk_socket__delete(self.xsk) };
    }

    /// Send chunk `chunk` as a test frame of 100 bytes.
    pub fn send(&mut self, umem: &TestUmem, chunk: usize) {
        write_frame(unsafe { umem.area.add(chunk * FRAME) });
        let slot = self.tx.cached_prod & self.tx.mask;
        unsafe {
            let desc = self.tx.ring.cast::<(u64, u32, u32)>().add(slot as usize);
            desc.cast::<u64>().write((chunk * FRAME) as u64);
            desc.cast::<u8>().add(8).cast::<u32>().write(100);
            desc.cast::<u8>().add(12).cast::<u32>().write(0);
        }
        self.tx.cached_prod = self.tx.cached_prod.wrapping_add(1);
        publish(self.tx.producer, self.tx.cached_prod);
        unsafe { libc::sendto(self.fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    }

    /// Wait for `count` frames; returns how many came within two seconds.
    pub fn receive(&mut self, count: usize) -> usize {
        let end = Instant::now() + Duration::from_secs(2);
        let mut got = 0;
        while got < count && Instant::now() < end {
            let ready = load(self.rx.producer).wrapping_sub(self.rx.cached_cons);
            if ready == 0 {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            got += ready as usize;
            self.rx.cached_cons = self.rx.cached_cons.wrapping_add(ready);
            publish(self.rx.consumer, self.rx.cached_cons);
        }
        got
    }

    /// Frames that arrive within a tenth of a second.
    pub fn receive_now(&mut self) -> usize {
        std::thread::sleep(Duration::from_millis(100));
        let ready = load(self.rx.producer).wrapping_sub(self.rx.cached_cons);
        self.rx.cached_cons = self.rx.cached_cons.wrapping_add(ready);
        publish(self.rx.consumer, self.rx.cached_cons);
        ready as usize
    }
}

fn load(index: *mut u32) -> u32 {
    unsafe { slipring::sync::AtomicU32::from_ptr(index) }.load(slipring::sync::Ordering::Acquire)
}

fn publish(index: *mut u32, value: u32) {
    unsafe { slipring::sync::AtomicU32::from_ptr(index) }.store(value, slipring::sync::Ordering::Release);
}

/// Put chunks `from..to` into a fill ring.
pub fn fill(ring: &mut xsk_ring_prod, from: usize, to: usize) {
    for chunk in from..to {
        let slot = ring.cached_prod & ring.mask;
        unsafe { ring.ring.cast::<u64>().add(slot as usize).write((chunk * FRAME) as u64) };
        ring.cached_prod = ring.cached_prod.wrapping_add(1);
    }
    publish(ring.producer, ring.cached_prod);
}

/// Wait for `count` completions; returns how many came within two seconds.
pub fn completions(ring: &mut xsk_ring_cons, count: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(2);
    let mut got = 0;
    while got < count && Instant::now() < end {
        let ready = load(ring.producer).wrapping_sub(ring.cached_cons);
        got += ready as usize;
        ring.cached_cons = ring.cached_cons.wrapping_add(ready);
        publish(ring.consumer, ring.cached_cons);
        std::thread::sleep(Duration::from_millis(1));
    }
    got
}

fn write_frame(at: *mut u8) {
    unsafe {
        at.write_bytes(0xff, 12);
        at.add(12).cast::<[u8; 2]>().write(TYPE.to_be_bytes());
        at.add(14).write_bytes(0, 86);
    }
}

/// A packet socket on the other end.
pub struct Peer(OwnedFd);

impl Peer {
    /// On interface `name`.
    pub fn new(name: &str) -> Peer {
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(TYPE.to_be())) };
        assert!(fd >= 0);
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut addr: libc::sockaddr_ll = unsafe { mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = TYPE.to_be();
        addr.sll_ifindex = index_of(name) as i32;
        let len = mem::size_of_val(&addr) as u32;
        let ret = unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&addr).cast(), len) };
        assert_eq!(ret, 0);
        Peer(fd)
    }

    /// Send `count` frames of 100 bytes.
    pub fn send(&self, count: usize) {
        self.send_long(count, 100);
    }

    /// Send `count` frames of `len` bytes.
    pub fn send_long(&self, count: usize, len: usize) {
        let mut frame = vec![0u8; len.max(100)];
        write_frame(frame.as_mut_ptr());
        for _ in 0..count {
            let n = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast::<c_void>(), len, 0) };
            assert_eq!(n, len as isize);
        }
    }

    /// Wait for `count` frames; returns how many came within two seconds.
    pub fn receive(&self, count: usize) -> usize {
        let end = Instant::now() + Duration::from_secs(2);
        let mut frame = [0u8; 2048];
        let mut got = 0;
        while got < count && Instant::now() < end {
            let n =
                unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
            if n > 0 {
                got += 1;
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        got
    }
}

/// Run `body` in a forked child, which exits with what it returns.
pub fn fork(body: impl FnOnce() -> i32) -> libc::pid_t {
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(101);
        unsafe { libc::_exit(status) };
    }
    pid
}

/// Wait for a child; its exit status.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 }
}

/// Kill a child at once and wait until it is gone.
pub fn kill(pid: libc::pid_t) {
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid);
}

/// Run `body` in a forked child and return its exit status.
pub fn in_child(body: impl FnOnce() -> i32) -> i32 {
    wait(fork(body))
}

/// A program linked to the system's libxdp (`libxdp_user.c`): makes a socket with the default program and does as it is
/// told. `None`: no compiler or no libxdp here, and why was printed.
pub struct LibxdpUser {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl LibxdpUser {
    /// Compile it, once for each test program.
    pub fn available() -> Option<PathBuf> {
        let binary = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("libxdp_user-{}", std::process::id()));
        if binary.exists() {
            return Some(binary);
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/direct_support/libxdp_user.c");
        let out = Command::new("cc").arg(source).arg("-o").arg(&binary).args(["-lxdp"]).output();
        match out {
            Ok(out) if out.status.success() => Some(binary),
            _ => {
                println!("skipped: no C compiler with libxdp's development files");
                None
            }
        }
    }

    /// Start it on a queue of an interface.
    pub fn start(binary: &Path, name: &str, queue: u32, xdp_flags: u32) -> LibxdpUser {
        LibxdpUser::start_as(Command::new(binary), name, queue, xdp_flags)
    }

    /// As [`LibxdpUser::start`], with a command that starts it in some other way.
    pub fn start_as(mut command: Command, name: &str, queue: u32, xdp_flags: u32) -> LibxdpUser {
        let mut child = command
            .args([name, &queue.to_string(), &xdp_flags.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        LibxdpUser { child, out }
    }

    /// Give it an order (`create`, `receive N`, `delete`, `churn N`) and return its answer.
    pub fn tell(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        self.answer()
    }

    /// Give it an order and do not wait.
    pub fn order(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Its next answer.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    /// Kill it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for LibxdpUser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
