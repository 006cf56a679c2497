//! The two ends of a wire, or of a veth pair, in two processes: how many frames pass, and how long a frame takes there and back.
//!
//! The second process is a fork of this one, made while it has one thread. What they tell each other is in a page that both map.

use std::{
    ptr::NonNull,
    time::{Duration, Instant},
};

use slipring::{
    sync::{AtomicU32, AtomicU64, Ordering},
    sys, uapi,
};

use super::{
    Setting,
    client::{Api, RING, Socket, Umem},
    namespace::{FAR, NEAR},
    state::pin,
    wire::{CHUNKS, chunks, send},
};

/// What is between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Wire,
    /// The pair of `namespace`, with the kernel's AF_XDP at both ends.
    Veth,
}

/// How an end waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It calls recvfrom when its ring is empty.
    Calls,
    /// It only looks at its ring; the library's thread, or the kernel, serves it.
    Looks,
    /// It sleeps in poll.
    Sleeps,
}

/// How long the second process may take to be there.
const PATIENCE: Duration = Duration::from_secs(5);

/// What both processes see.
#[derive(Debug, Default)]
#[repr(C)]
struct Shared {
    /// 1: the second process is ready, 2: it failed.
    state: AtomicU32,
    stop: AtomicU32,
    received: AtomicU64,
}

const READY: u32 = 1;
const FAILED: u32 = 2;

/// The second process, and the page. It ends at the latest when the value is dropped.
#[derive(Debug)]
struct Second {
    pid: libc::pid_t,
    page: NonNull<Shared>,
}

impl Second {
    /// Run `work` in a second process on the second processor; it says when it is ready.
    fn start(setting: &Setting<'_>, work: impl FnOnce(&Shared) -> Result<(), String>) -> Result<Second, String> {
        let processor = setting.processors.second.ok_or("two processors are needed")?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: no fixed address.
        let page = unsafe { sys::mmap(std::ptr::null_mut(), sys::PAGE, protection, flags, -1, 0) };
        let page: NonNull<Shared> = page.map_err(|e| format!("memory for two processes: {e}"))?.cast();
        // SAFETY: this thread is the only one, or the one that another waits for in `namespace` without holding anything, so the
        // child may do whatever it likes.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(format!("fork: {}", std::io::Error::last_os_error()));
        }
        let second = Second { pid, page };
        if pid == 0 {
            // SAFETY: no pointers; the child does not outlive the bench.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            pin(processor);
            let code = match work(second.shared()) {
                Ok(()) => 0,
                Err(message) => {
                    eprintln!("slipring bench: second process: {message}");
                    second.shared().state.store(FAILED, Ordering::Release);
                    1
                }
            };
            // SAFETY: ends the process without what the parent has registered for its own end.
            unsafe { libc::_exit(code) };
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match second.shared().state.load(Ordering::Acquire) {
                READY => return Ok(second),
                FAILED => return Err("the second process failed".to_owned()),
                _ if Instant::now() > deadline => return Err("the second process did not begin".to_owned()),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped and zeroed, made of atomics, unmapped with the value.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.shared().stop.store(1, Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE;
        // SAFETY: a child of ours that was not waited for.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) } == 0 {
            if Instant::now() > deadline {
                // SAFETY: as above.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        sys::unmap(self.page.cast(), sys::PAGE);
    }
}

/// The interface of one end; `first` is that of this process.
fn device(over: Over, first: bool, frame: u32) -> String {
    if over == Over::Veth {
        return if first { NEAR } else { FAR }.to_owned();
    }
    let end = if first { "a" } else { "b" };
    let mtu = frame.max(1500);
    format!("wire:slipring-pair-{}/{end}?full=wait&budget=64&mtu={mtu}", first_process())
}

/// The number of the first process, in both.
fn first_process() -> u32 {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    let _ = FIRST.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    FIRST.load(Ordering::Relaxed)
}

fn flags(frame: u32) -> u16 {
    if frame > super::client::CHUNK - 256 { uapi::XDP_USE_SG } else { 0 }
}

/// Million frames a second from this process to a second one.
pub(super) fn throughput(api: Api, setting: &Setting<'_>, frame: u32, how: How, over: Over) -> Result<f64, String> {
    first_process();
    let second = Second::start(setting, |shared| {
        let mut umem = Umem::new(api, CHUNKS)?;
        umem.offer(RING);
        let mut socket = Socket::with_flags(&umem, &device(over, false, frame), true, flags(frame))?;
        shared.state.store(READY, Ordering::Release);
        let (mut received, mut sum) = (0u64, 0);
        while shared.stop.load(Ordering::Relaxed) == 0 {
            let n = umem.receive(&mut socket.rx, &mut sum);
            received += u64::from(n);
            shared.received.store(received, Ordering::Relaxed);
            if n == 0 && how == How::Calls {
                socket.kick_receive();
            } else if n == 0 {
                std::hint::spin_loop();
            }
        }
        std::hint::black_box(sum);
        Ok(())
    })?;
    let mut umem = Umem::new(api, CHUNKS)?;
    let mut socket = Socket::with_flags(&umem, &device(over, true, frame), false, flags(frame))?;
    let start = Instant::now();
    send(&mut umem, &mut socket, frame, setting.time);
    let received = second.shared().received.load(Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    drop(socket);
    Ok(received as f64 / seconds / 1e6)
}

/// One end of an exchange of single frames.
struct Station {
    // The socket goes before its UMEM.
    socket: Socket,
    umem: Umem,
    free: Vec<u64>,
    sum: u64,
}

impl Station {
    fn open(api: Api, over: Over, first: bool) -> Result<Station, String> {
        let mut umem = Umem::new(api, CHUNKS)?;
        umem.offer(RING);
        let socket = Socket::new(&umem, &device(over, first, 0), true)?;
        Ok(Station { socket, umem, free: chunks(RING), sum: 0 })
    }

    fn send(&mut self, frame: u32) {
        self.umem.reclaim(&mut self.free);
        self.socket.send_some(1, frame, &mut self.free);
        self.socket.kick();
    }

    /// Wait for a frame; false: `stop` came first.
    fn wait(&mut self, how: How, stop: impl Fn() -> bool) -> bool {
        loop {
            if self.umem.receive(&mut self.socket.rx, &mut self.sum) != 0 {
                return true;
            }
            if stop() {
                return false;
            }
            match how {
                How::Calls => self.socket.kick_receive(),
                How::Looks => std::hint::spin_loop(),
                How::Sleeps => self.socket.sleep(),
            }
        }
    }
}

/// Microseconds that 50, 99 and 99.9 of a hundred round trips do not exceed.
pub(super) fn round_trip(
    api: Api,
    setting: &Setting<'_>,
    frame: u32,
    how: How,
    over: Over,
) -> Result<Vec<f64>, String> {
    first_process();
    let second = Second::start(setting, |shared| {
        let mut station = Station::open(api, over, false)?;
        shared.state.store(READY, Ordering::Release);
        while station.wait(how, || shared.stop.load(Ordering::Relaxed) != 0) {
            station.send(frame);
        }
        Ok(())
    })?;
    let mut station = Station::open(api, over, true)?;
    let start = Instant::now();
    let mut trips = Vec::new();
    while start.elapsed() < setting.time {
        let before = Instant::now();
        station.send(frame);
        let lost = || before.elapsed() > PATIENCE;
        if !station.wait(how, lost) {
            return Err(format!(
                "round trip {} over {}: the frame did not come back",
                trips.len(),
                device(over, true, 0)
            ));
        }
        trips.push(before.elapsed());
    }
    drop(second);
    trips.sort_unstable();
    let at = |part: usize| trips[(trips.len() * part / 1000).min(trips.len() - 1)].as_secs_f64() * 1e6;
    Ok([500, 990, 999].map(at).into())
}
