//! A second process at the far end of a wire: this test binary again, told by lines on its standard input what to do.
//!
//! | line | does | answers |
//! | --- | --- | --- |
//! | `open SPEC [QUEUE]` | a socket with a full fill ring | `ok`, or the error's name |
//! | `flows FIRST N` | sends UDP frames of as many flows | `ok` |
//! | `more SPEC QUEUE` | one more socket | as `open` |
//! | `all MS` | as `receive`, on every socket | `N` for each, in the order of their opening |
//! | `close` | closes the first socket | `ok` |
//! | `send FIRST N LEN` | sends frames FIRST.. of LEN bytes; tries again while they are refused | `ok` |
//! | `burst FIRST N LEN` | as `send`, but leaves what is refused | how many are left |
//! | `wait-send FIRST N LEN` | as `send`, asleep in poll while there is no room | `ok` |
//! | `ping N`, `pong N` | single frames there and back, with sleeps of random length; fails if one does not come | `ok` |
//! | `cpu` | – | milliseconds of processor time that the process has used |
//! | `receive MS [N]` | takes frames until none came for that long, or, however long it takes, N | `N FIRST LAST`: how many, and the numbers of two of them |
//! | `sleep N MS` | sleeps in poll, and takes frames, until N came | as `receive` |
//! | `fork MS` | has a child that lives for that long | `ok` |
//! | `churn MS` | sends and takes frames for that long, whatever they are | how many came |
//! | `vandal MS SEED` | writes nonsense to the shared memory of the wire, its own and the other end's | `ok` |
//! | `message` | – | the last message of the library |
//! | `exit` | exits without closing | – |

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::common::{Shape, Xsk};

/// Entries of the peer's rings, and chunks of its UMEM.
pub(crate) const RING: u32 = 512;
const CHUNK: u64 = 2048;

/// A frame that says by itself whether it is whole: number, length, and bytes that follow from them.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut f = vec![0; 12];
    f.extend([0x88, 0xb5]);
    f.extend(number.to_le_bytes());
    f.extend((len as u32).to_le_bytes());
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    while f.len() < len {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f.extend(state.to_le_bytes());
    }
    f.truncate(len.max(22));
    f
}

/// A UDP frame of a flow of its own for each number.
fn flow(number: u32) -> Vec<u8> {
    let mut f = vec![0; 12];
    f.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend((number as u16).to_be_bytes());
    f.resize(60, 0);
    f
}

/// The number of a frame, checked.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    let number = u32::from_le_bytes(bytes[14..18].try_into().expect("four bytes"));
    assert_eq!(bytes, frame(number, bytes.len()), "a frame that is not whole");
    number
}

/// One end, with what it has not used.
pub(crate) struct Station {
    pub(crate) xsk: Xsk,
    free: Vec<u64>,
}

/// Numbers of frames: how many, the first, the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) n: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Station {
    pub(crate) fn open(spec: &str, queue: u32) -> slipring::errno::Result<Station> {
        let xsk = Xsk::open(spec, Shape { ring: RING, chunks: 2 * RING, queue, ..Shape::default() })?;
        for i in 0..u64::from(RING) {
            assert!(xsk.fill().push(i * CHUNK));
        }
        let free = (u64::from(RING)..u64::from(2 * RING)).map(|i| i * CHUNK).collect();
        Ok(Station { xsk, free })
    }

    /// Queue frames, as far as there is room, and kick once. Returns how many.
    fn post(&mut self, first: u32, n: u32, len: usize) -> u32 {
        while let Some(addr) = self.xsk.comp().pop() {
            self.free.push(addr);
        }
        let mut done = 0;
        while done < n && self.xsk.tx.waiting() < RING {
            let Some(addr) = self.free.pop() else { break };
            self.xsk.send(addr, &frame(first + done, len));
            done += 1;
        }
        let _ = self.xsk.kick();
        done
    }

    pub(crate) fn send(&mut self, first: u32, n: u32, len: usize) {
        let mut done = 0;
        let deadline = Instant::now() + Duration::from_secs(30);
        while done < n || self.xsk.tx.waiting() != 0 {
            done += self.post(first + done, n - done, len);
            if self.xsk.tx.waiting() != 0 {
                std::thread::yield_now();
            }
            assert!(Instant::now() < deadline, "{} of {n} frames are not sent", n - done + self.xsk.tx.waiting());
        }
    }

    fn poll(&self, events: i16, patience: Duration) -> i16 {
        let mut fds = [libc::pollfd { fd: self.xsk.socket.fd(), events, revents: 0 }];
        // The library's own, which is linked into this binary.
        // SAFETY: one live struct.
        unsafe { libc::poll(fds.as_mut_ptr(), 1, patience.as_millis() as i32) };
        fds[0].revents
    }

    fn wait_send(&mut self, first: u32, n: u32, len: usize) {
        let mut done = 0;
        while done < n || self.xsk.tx.waiting() != 0 {
            assert_ne!(self.poll(libc::POLLOUT, Duration::from_secs(30)), 0, "no room came");
            done += self.post(first + done, n - done, len);
            if done == n && self.xsk.tx.waiting() <= RING / 2 {
                // The last of them are below what POLLOUT tells of.
                let _ = self.xsk.kick();
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Single frames to and fro. Each side sleeps in poll, or spins a little, or sends late, by chance.
    fn exchange(&mut self, first: bool, n: u32) {
        let mut chance = std::process::id() | 1;
        let mut roll = |sides: u32| {
            chance ^= chance << 13;
            chance ^= chance >> 17;
            chance ^= chance << 5;
            chance % sides
        };
        for i in 0..n {
            if first {
                self.send(i, 1, 60);
            }
            let mut got = Got::default();
            for _ in 0..roll(400) {
                if roll(4) == 0 {
                    let _ = self.xsk.socket.kick_rx(libc::MSG_DONTWAIT);
                }
                if self.take(&mut got) != 0 {
                    break;
                }
            }
            while got.n == 0 {
                let ready = self.poll(libc::POLLIN, Duration::from_secs(10));
                assert!(self.take(&mut got) != 0 || ready != 0, "frame {i} did not wake us within ten seconds");
            }
            assert_eq!((got.n, got.last), (1, i));
            if roll(64) == 0 {
                std::thread::sleep(Duration::from_micros(roll(3000).into()));
            }
            if !first {
                self.send(i, 1, 60);
            }
        }
    }

    /// Takes what is there.
    pub(crate) fn take(&mut self, got: &mut Got) -> u32 {
        let mut n = 0;
        while let Some(d) = self.xsk.rx.pop() {
            let last = number(&self.xsk.area.bytes(d.addr, d.len as usize));
            if got.n == 0 {
                got.first = last;
            }
            got.last = last;
            got.n += 1;
            n += 1;
            assert!(self.xsk.fill().push(d.addr));
        }
        n
    }

    pub(crate) fn receive(&mut self, quiet: Duration, n: u32) -> Got {
        let mut got = Got::default();
        let mut since = Instant::now();
        let quiet = if n == 0 { quiet } else { Duration::from_secs(30) };
        while since.elapsed() < quiet && (n == 0 || got.n < n) {
            let _ = self.xsk.socket.kick_rx(libc::MSG_DONTWAIT);
            if self.take(&mut got) != 0 {
                since = Instant::now();
            } else {
                std::thread::yield_now();
            }
        }
        got
    }

    /// Takes frames, whatever they are, until none came for that long.
    fn count(&mut self, quiet: Duration) -> u32 {
        let (mut n, mut since) = (0, Instant::now());
        while since.elapsed() < quiet {
            let _ = self.xsk.socket.kick_rx(libc::MSG_DONTWAIT);
            while let Some(d) = self.xsk.rx.pop() {
                assert!(self.xsk.fill().push(d.addr));
                (n, since) = (n + 1, Instant::now());
            }
        }
        n
    }

    fn churn(&mut self, time: Duration) -> u32 {
        let (mut n, since) = (0, Instant::now());
        while since.elapsed() < time {
            self.post(0, 32, 200);
            let _ = self.xsk.socket.kick_rx(libc::MSG_DONTWAIT);
            while let Some(d) = self.xsk.rx.pop() {
                assert!(d.addr + u64::from(d.len) <= u64::from(2 * RING) * CHUNK);
                assert!(self.xsk.fill().push(d.addr));
                n += 1;
            }
        }
        n
    }

    /// As a program that sleeps: through the library's poll, which is linked into this binary.
    pub(crate) fn sleep(&mut self, n: u32, patience: Duration) -> Got {
        let mut got = Got::default();
        let deadline = Instant::now() + patience;
        while got.n < n {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                break;
            }
            self.poll(libc::POLLIN, left);
            self.take(&mut got);
        }
        got
    }
}

/// Processor time of the whole process.
fn cpu_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live struct.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

const OPEN: &str = "open first";

/// Write to whatever the two ends share, in words: random ones, and ones that may just be right.
fn vandal(time: Duration, seed: u32) {
    let mut memories = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("a list").flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        if !target.to_string_lossy().contains("slipring-wire") {
            continue;
        }
        let file = std::fs::File::options().read(true).write(true).open(entry.path()).expect("our own descriptor");
        for len in [0, 4096, 1 << 40] {
            assert!(file.set_len(len).is_err(), "the memory can be cut short or grown");
        }
        // The header and the beginning of the first ring.
        let len = 64 * 1024;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: no fixed address.
        let base = unsafe { slipring::sys::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        memories.push((base.expect("mapped"), len / 4, file));
    }
    assert_eq!(memories.len(), 2, "one memory of each end");
    let mut state = u64::from(seed) * 2 + 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        let r = random();
        let (base, words, file) = &memories[(r & 1) as usize];
        // Mostly the lines of the indices.
        let at = if r & 6 != 0 { (r >> 8) as usize % 260 * 32 } else { (r >> 8) as usize % words };
        let value = match r >> 61 {
            0 => random() as u32,
            1 => 0,
            2 => u32::MAX,
            3 => 64,
            4 => 60 << 8 | 1,
            _ => (random() & 0x3ff) as u32,
        };
        // SAFETY: inside the mapping, aligned.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(base.as_ptr().cast::<u32>().wrapping_add(at)) };
        word.store(value, std::sync::atomic::Ordering::Relaxed);
        if r >> 40 & 0xfff == 0 {
            let fd = std::os::fd::AsRawFd::as_raw_fd(file);
            // Take pages away: they read as zeroes.
            // SAFETY: a descriptor of ours.
            unsafe { libc::fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 64 * 1024) };
        }
    }
}

static MESSAGE: Mutex<String> = Mutex::new(String::new());

extern "C" fn keep_message(_level: i32, line: *const core::ffi::c_char) {
    // SAFETY: a NUL-terminated line.
    let line = unsafe { core::ffi::CStr::from_ptr(line) };
    *MESSAGE.lock().expect("no panic inside") = line.to_string_lossy().trim().to_owned();
}

/// What the child process does.
pub(crate) fn serve() {
    slipring::log::set_sink(Some(keep_message));
    let mut station: Option<Station> = None;
    let mut others: Vec<Station> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the parent's line");
        let words: Vec<&str> = line.split(' ').collect();
        let count = |i: usize| words.get(i).map_or(0u32, |w| w.parse().expect("a number"));
        let time = |i: usize| Duration::from_millis(count(i).into());
        let told = |got: Got| format!("{} {} {}", got.n, got.first, got.last);
        let answer = match words[0] {
            "open" => match Station::open(words[1], count(2)) {
                Ok(opened) => {
                    station = Some(opened);
                    "ok".to_owned()
                }
                Err(error) => format!("{error:?}"),
            },
            "limit-file-size" => {
                let limit = libc::rlimit { rlim_cur: count(1).into(), rlim_max: libc::RLIM_INFINITY };
                // SAFETY: one live struct.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
                "ok".to_owned()
            }
            "close" => {
                station = None;
                "ok".to_owned()
            }
            "send" => {
                station.as_mut().expect(OPEN).send(count(1), count(2), count(3) as usize);
                "ok".to_owned()
            }
            "burst" => {
                let station = station.as_mut().expect(OPEN);
                let posted = station.post(count(1), count(2), count(3) as usize);
                while station.xsk.kick().is_err() && station.xsk.comp().waiting() < posted {
                    if station.xsk.tx.waiting() <= RING / 2 {
                        break;
                    }
                }
                station.xsk.tx.waiting().to_string()
            }
            "receive" => told(station.as_mut().expect(OPEN).receive(time(1), count(2))),
            "sleep" => told(station.as_mut().expect(OPEN).sleep(count(1), time(2))),
            "fork" => {
                // SAFETY: the child calls nothing but usleep and _exit.
                if unsafe { libc::fork() } == 0 {
                    // SAFETY: as above.
                    unsafe { libc::usleep(count(1) * 1000) };
                    // SAFETY: as above.
                    unsafe { libc::_exit(0) };
                }
                "ok".to_owned()
            }
            "flows" => {
                let station = station.as_mut().expect(OPEN);
                for n in 0..count(2) {
                    let addr = station.free.pop().expect("few frames");
                    station.xsk.send(addr, &flow(count(1) + n));
                    while station.xsk.kick().is_err() {}
                }
                "ok".to_owned()
            }
            "more" => match Station::open(words[1], count(2)) {
                Ok(opened) => {
                    others.push(opened);
                    "ok".to_owned()
                }
                Err(error) => format!("{error:?}"),
            },
            "all" => {
                let stations = station.iter_mut().chain(&mut others);
                let counts: Vec<String> = stations.map(|s| s.count(time(1)).to_string()).collect();
                counts.join(" ")
            }
            "wait-send" => {
                station.as_mut().expect(OPEN).wait_send(count(1), count(2), count(3) as usize);
                "ok".to_owned()
            }
            "ping" | "pong" => {
                station.as_mut().expect(OPEN).exchange(words[0] == "ping", count(1));
                "ok".to_owned()
            }
            "cpu" => cpu_ms().to_string(),
            "become" => {
                // SAFETY: no pointers; the C library changes all threads.
                assert_eq!(unsafe { libc::setuid(count(1)) }, 0, "root may");
                "ok".to_owned()
            }
            "churn" => station.as_mut().expect(OPEN).churn(time(1)).to_string(),
            "vandal" => {
                vandal(time(1), count(2));
                "ok".to_owned()
            }
            "message" => MESSAGE.lock().expect("no panic inside").clone(),
            "exit" => std::process::exit(0),
            other => panic!("no command {other}"),
        };
        println!("> {answer}");
    }
}

/// A child process that serves. Killed when it is dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// The directory of its wires is `dir`.
    pub(crate) fn start(dir: &std::path::Path) -> Peer {
        let mut env = Command::new("env");
        env.env("XDG_RUNTIME_DIR", dir);
        Peer::start_by(env)
    }

    /// By a program that becomes what its further arguments say.
    pub(crate) fn start_by(mut command: Command) -> Peer {
        let mut child = command
            .arg(std::env::current_exe().expect("this binary"))
            .args(["--ignored", "--exact", "peer", "--nocapture"])
            .env("WIRES_OF_TEST", "given")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Peer { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the peer is there");
    }

    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("its output"), 0, "the peer is gone");
            // The test runner writes "test peer ... " without an end of line before the first answer.
            if let Some(at) = line.find("> ") {
                return line[at + 2..].trim().to_owned();
            }
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// `receive` and `sleep`.
    pub(crate) fn ask_got(&mut self, line: &str) -> Got {
        let answer = self.ask(line);
        let words: Vec<u32> = answer.split(' ').map(|w| w.parse().expect("a number")).collect();
        Got { n: words[0], first: words[1], last: words[2] }
    }

    /// SIGKILL, and gone on return.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Exits by itself.
    pub(crate) fn exit(mut self) {
        self.tell("exit");
        self.child.wait().expect("a child of ours");
    }
}
