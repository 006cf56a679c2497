//! The process's one worker thread.
//!
//! It serves programs that make no call the library sees: those that only look at their rings, or sleep in system calls
//! that are not interposed. It asks polled devices for frames on behalf of quiet sockets, notices kicks made by raw system
//! calls, sees to it that a sleeper that it cannot see is woken, and takes stale readability back. It never sends from a
//! TX ring unasked, and it sleeps without a time-out when every socket is quiet and nothing is pending.
//!
//! Started with the first bind, ends with the last close. Its descriptors end with it.

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use super::{Socket, table};
use crate::{
    device::Device,
    errno::{Errno, Result},
    log,
    sync::{Arc, AtomicBool, AtomicU32, Condvar, Mutex, Ordering, Weak, thread},
    sys, uapi, warn,
};

/// Time between two looks while something is going on.
const TICK_MS: i32 = 1;
/// Time between two looks while frames wait for room that the program is about to make, and for how many looks.
const BRIEF_NS: u32 = 30_000;
const BRIEF_LOOKS: u32 = 30;
/// The longest time between two looks while frames wait for room.
const BLOCKED_TICK_MS: i32 = 4;
/// The longest time between two looks while something is only pending.
const SLOW_TICK_MS: i32 = 64;
/// The thread's turns on a busy processor: the shortest there are.
const TURN_NS: u64 = 100_000;
/// How long a close waits for the thread to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Worker {
    state: Mutex<State>,
    /// Told when the thread has ended.
    ended: Condvar,
    /// The thread sleeps, or is about to, without a time-out.
    asleep: AtomicBool,
    /// The eventfd, for `wake` without a lock.
    event: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    sockets: Vec<(u64, Weak<Socket>)>,
    /// Devices with a doorbell, and its descriptor.
    devices: Vec<(u64, RawFd, Weak<dyn Device>)>,
    next_token: u64,
    running: Option<Descriptors>,
    /// The thread was told to end and has not yet.
    ending: bool,
}

#[derive(Clone, Copy, Debug)]
struct Descriptors {
    epoll: RawFd,
    event: RawFd,
}

impl Descriptors {
    fn close(self) {
        for fd in [self.epoll, self.event] {
            table::set_internal(fd, false);
            sys::close(fd);
        }
    }
}

/// What a look at all sockets found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Frames were received: look again at once.
    Work,
    /// Frames wait in a device, and their receiver has no room.
    Blocked,
    /// A socket's owner is awake.
    Awake,
    /// All is quiet, but something may have to be taken back or retried.
    Pending,
    /// Nothing to do until somebody calls.
    Nothing,
}

/// In place of a time-out in milliseconds: `BRIEF_NS`.
const BRIEF: i32 = -2;

const EVENT_TOKEN: u64 = u64::MAX;

impl Worker {
    /// Serve one more socket; starts the thread if it does not run. Its errors are those of making one.
    pub(super) fn add(&'static self, socket: &Weak<Socket>, far: RawFd) -> Result<()> {
        let mut state = self.state.lock().map_err(|_| Errno::EIO)?;
        while state.ending {
            state = self.ended.wait(state).map_err(|_| Errno::EIO)?;
        }
        let running = match state.running {
            Some(running) => running,
            None => self.start(&mut state)?,
        };
        let token = state.next_token;
        state.next_token += 1;
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET).cast_unsigned();
        sys::epoll_add(running.epoll, far, events, token)?;
        state.sockets.push((token, Weak::clone(socket)));
        drop(state);
        self.wake();
        Ok(())
    }

    /// Answer a device's doorbell, for as long as the thread runs. Not before [`Worker::add`].
    pub(super) fn watch(&self, device: &Arc<dyn Device>) -> Result<()> {
        let Some(doorbell) = device.doorbell() else { return Ok(()) };
        let mut state = self.state.lock().map_err(|_| Errno::EIO)?;
        let Some(running) = state.running else { return Ok(()) };
        if state.devices.iter().any(|(_, _, d)| core::ptr::addr_eq(d.as_ptr(), Arc::as_ptr(device))) {
            return Ok(());
        }
        let token = state.next_token;
        state.next_token += 1;
        sys::epoll_add(running.epoll, doorbell, libc::EPOLLIN.cast_unsigned(), token)?;
        state.devices.push((token, doorbell, Arc::downgrade(device)));
        Ok(())
    }

    /// The device is about to be released.
    pub(super) fn forget(&self, device: &Arc<dyn Device>) {
        let Ok(mut state) = self.state.lock() else { return };
        let running = state.running;
        state.devices.retain(|(_, doorbell, d)| {
            let gone = core::ptr::addr_eq(d.as_ptr(), Arc::as_ptr(device));
            if let (true, Some(running)) = (gone, running) {
                sys::epoll_remove(running.epoll, *doorbell);
            }
            !gone
        });
    }

    /// Serve one socket fewer; with the last the thread ends.
    pub(super) fn remove(&self, socket: &Socket) {
        let Ok(mut state) = self.state.lock() else { return };
        state.sockets.retain(|(_, s)| !core::ptr::eq(s.as_ptr(), socket));
        if !state.sockets.is_empty() || state.running.is_none() || state.ending {
            return;
        }
        state.ending = true;
        self.nudge();
        if thread::current().name() == Some(NAME) {
            return;
        }
        let deadline = Instant::now() + FAREWELL;
        while state.ending {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            state = match self.ended.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(_) => return,
            };
        }
    }

    fn start(&'static self, state: &mut State) -> Result<Descriptors> {
        let event = sys::eventfd()?;
        let made = sys::epoll().and_then(|epoll| {
            let added = sys::epoll_add(epoll, event, libc::EPOLLIN.cast_unsigned(), EVENT_TOKEN);
            added.map(|()| epoll).inspect_err(|_| sys::close(epoll))
        });
        let epoll = made.inspect_err(|_| sys::close(event))?;
        let descriptors = Descriptors { epoll, event };
        table::set_internal(epoll, true);
        table::set_internal(event, true);
        self.event.store(event.cast_unsigned(), Ordering::Release);
        let spawned = thread::Builder::new().name(NAME.to_owned()).spawn(move || self.run(descriptors));
        if let Err(e) = spawned {
            descriptors.close();
            warn!(
                "cannot start the thread that serves sleeping AF_XDP sockets: {e}; check the limit on threads (ulimit -u)"
            );
            return Err(Errno::EAGAIN);
        }
        state.running = Some(descriptors);
        Ok(descriptors)
    }

    /// Somebody is awake or has work: see that the thread looks. A system call only when it sleeps.
    pub(super) fn wake(&self) {
        // SC: the caller's change before this look; pairs with the store to `asleep` before the thread's last look.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.nudge();
        }
    }

    #[cold]
    fn nudge(&self) {
        let fd = self.event.load(Ordering::Acquire).cast_signed();
        let _ = sys::write(fd, &1u64.to_ne_bytes());
    }

    fn run(&self, descriptors: Descriptors) {
        sys::block_signals();
        // A program that sleeps in system calls of its own does not sleep until this thread has taken readability back.
        sys::take_short_turns(TURN_NS);
        let mut pause = TICK_MS;
        let mut idle_looks = 0u32;
        let mut brief_looks = 0u32;
        sys::set_timer_slack(1000);
        loop {
            let sockets: Vec<Arc<Socket>> = match self.state.lock() {
                Ok(state) if state.ending => break,
                Ok(state) => state.sockets.iter().filter_map(|(_, s)| s.upgrade()).collect(),
                Err(_) => break,
            };
            let timeout = match look(&sockets) {
                Found::Work => {
                    idle_looks = 0;
                    brief_looks = 0;
                    pause = TICK_MS;
                    0
                }
                // A program that looks at its rings makes room within microseconds, and tells nobody.
                Found::Blocked if brief_looks < BRIEF_LOOKS => {
                    idle_looks = 0;
                    brief_looks += 1;
                    BRIEF
                }
                Found::Awake => {
                    idle_looks = 0;
                    pause = TICK_MS;
                    TICK_MS
                }
                Found::Blocked => {
                    let now = pause;
                    pause = (pause * 2).min(BLOCKED_TICK_MS);
                    now
                }
                Found::Pending => {
                    let now = pause;
                    pause = (pause * 2).min(SLOW_TICK_MS);
                    now
                }
                Found::Nothing => {
                    idle_looks += 1;
                    pause = TICK_MS;
                    if idle_looks < 2 { TICK_MS } else { -1 }
                }
            };
            if timeout == -1 {
                self.asleep.store(true, Ordering::SeqCst);
                // The last look: whoever became awake before the store is seen here, after it calls `wake`.
                if look(&sockets) != Found::Nothing {
                    self.asleep.store(false, Ordering::SeqCst);
                    idle_looks = 0;
                    continue;
                }
            }
            drop(sockets);
            if self.sleep(descriptors, timeout) {
                pause = TICK_MS;
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
        if let Ok(mut state) = self.state.lock() {
            state.running = None;
            state.devices.clear();
            state.ending = false;
            descriptors.close();
        }
        self.ended.notify_all();
    }

    /// Returns whether it was woken.
    fn sleep(&self, descriptors: Descriptors, timeout: i32) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let n = match timeout {
            BRIEF => sys::epoll_wait_briefly(descriptors.epoll, &mut events, BRIEF_NS),
            _ => sys::epoll_wait(descriptors.epoll, &mut events, timeout),
        };
        let n = n.unwrap_or(0);
        let _hold = log::hold();
        for event in &events[..n] {
            let (token, what) = (event.u64, event.events);
            if token == EVENT_TOKEN {
                let _ = sys::read(descriptors.event, &mut [0; 8]);
                continue;
            }
            if let Some(device) = self.device(token) {
                device.attend();
                continue;
            }
            let Some(socket) = self.socket(token) else { continue };
            if what & (libc::EPOLLHUP | libc::EPOLLRDHUP).cast_unsigned() != 0 {
                // The program's last number was closed by a call that we did not see.
                socket.vanished();
            } else if socket.bell().take_kick() {
                socket.raw_kick();
            }
        }
        n != 0
    }

    fn device(&self, token: u64) -> Option<Arc<dyn Device>> {
        let state = self.state.lock().ok()?;
        state.devices.iter().find(|(t, _, _)| *t == token)?.2.upgrade()
    }

    fn socket(&self, token: u64) -> Option<Arc<Socket>> {
        let state = self.state.lock().ok()?;
        state.sockets.iter().find(|(t, _)| *t == token)?.1.upgrade()
    }
}

/// The thread's name, as `ps -L` shows it.
const NAME: &str = "slipring";

/// One look at every socket.
fn look(sockets: &[Arc<Socket>]) -> Found {
    let _hold = log::hold();
    let mut found = Found::Nothing;
    for socket in sockets {
        let bell = socket.bell();
        let awake = bell.look() | socket.retry();
        let polled = socket.is_polled();
        // An owner who is awake does it himself, unless another of his threads sleeps.
        let one = if polled && (!awake || bell.has_waiters()) && socket.receive_turn() != 0 {
            Found::Work
        } else if awake {
            // He may sleep in a call that we do not see before he is taken for quiet.
            if bell.is_pending() {
                socket.settle();
            }
            Found::Awake
        } else {
            let ready = uapi::Socket::readiness(&**socket) & libc::POLLIN != 0;
            if ready {
                // One who sleeps for edges needs one for what came after the last.
                if bell.take_owed() {
                    socket.hang_up();
                }
                bell.send();
            } else if bell.is_pending() {
                socket.settle();
            }
            if polled && !socket.doze() {
                if ready { Found::Blocked } else { Found::Pending }
            } else if bell.is_pending() {
                Found::Pending
            } else {
                Found::Nothing
            }
        };
        found = match (found, one) {
            (Found::Work, _) | (_, Found::Work) => Found::Work,
            (Found::Blocked, _) | (_, Found::Blocked) => Found::Blocked,
            (Found::Awake, _) | (_, Found::Awake) => Found::Awake,
            (Found::Pending, _) | (_, Found::Pending) => Found::Pending,
            _ => Found::Nothing,
        };
    }
    found
}
