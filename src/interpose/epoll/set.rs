//! What an epoll instance watches of ours, and what the program is told about it.

use core::{ffi::c_int, mem, ptr};

use libc::epoll_event;

use super::super::members::told;
use crate::{
    engine,
    errno::{Result, check},
    sync::Arc,
    uapi::Socket as _,
};

const EPOLLIN: u32 = libc::EPOLLIN as u32;
const EPOLLOUT: u32 = libc::EPOLLOUT as u32;
const EPOLLRDNORM: u32 = 0x40;
const EPOLLWRNORM: u32 = 0x100;
const EPOLLET: u32 = libc::EPOLLET as u32;
const EPOLLONESHOT: u32 = libc::EPOLLONESHOT as u32;

#[derive(Default)]
pub(super) struct Set {
    pub(super) entries: Vec<Entry>,
    /// Threads that sleep, or are about to.
    pub(super) sleepers: usize,
    /// Which entry is looked at first, so that each gets its turn when there is not room for all.
    first: usize,
    /// The others' turn to be sure of room.
    pub(super) others_first: bool,
}

/// One registration.
pub(super) struct Entry {
    /// The number it was made with.
    pub(super) fd: c_int,
    pub(super) socket: Arc<engine::Socket>,
    pub(super) events: u32,
    data: u64,
    /// False after a one-shot registration fired.
    armed: bool,
    announced: bool,
    /// The kernel woke a sleeper for it.
    woken: bool,
    /// Edge-triggered: what had happened when it was reported last; `None`: not yet.
    seen: Option<(u64, i16)>,
}

impl Entry {
    pub(super) fn new(fd: c_int, socket: Arc<engine::Socket>, event: epoll_event) -> Entry {
        Entry {
            fd,
            socket,
            events: event.events,
            data: event.u64,
            armed: true,
            announced: false,
            woken: false,
            seen: None,
        }
    }

    /// What the program asks for, in poll's bits, which are the same.
    fn asked(&self) -> i16 {
        const BITS: u32 = 0x7ff;
        i16::try_from(self.events & BITS).unwrap_or(0)
    }

    /// What the kernel is asked about it. Edge-triggered ones are so with the kernel too: it then wakes for what is new only.
    pub(super) fn watched(&self) -> u32 {
        if !self.armed {
            return 0;
        }
        let mut watched = self.events & EPOLLET;
        if self.asked() & (libc::POLLIN | libc::POLLRDNORM) != 0 {
            watched |= EPOLLIN | EPOLLRDNORM;
        }
        if self.asked() & (libc::POLLOUT | libc::POLLWRNORM) != 0 {
            watched |= EPOLLOUT | EPOLLWRNORM;
        }
        watched
    }

    /// The halves of [`engine::Socket::edges`] that matter.
    fn edges(&self) -> u64 {
        const RX: u64 = 0xffff_ffff_0000_0000;
        const TX: u64 = 0xffff_ffff;
        let rx = if self.asked() & (libc::POLLIN | libc::POLLRDNORM) != 0 { RX } else { 0 };
        let tx = if self.asked() & (libc::POLLOUT | libc::POLLWRNORM) != 0 { TX } else { 0 };
        self.socket.edges() & (rx | tx)
    }

    /// What the program is told now, 0 for nothing. With `spend` it counts as told.
    fn report(&mut self, spend: bool, readiness: impl Fn(&engine::Socket) -> i16) -> u32 {
        if !self.armed {
            return 0;
        }
        let level = self.events & EPOLLET == 0;
        // The edges before the readiness: what comes in between is told again rather than not at all.
        let edges = if level { 0 } else { self.edges() };
        let ready = told(readiness(&self.socket), self.asked());
        if !level {
            let now = (edges, ready & (libc::POLLERR | libc::POLLHUP));
            if self.seen == Some(now) {
                return 0;
            }
            if spend || ready == 0 {
                self.seen = Some(now);
            }
        }
        if spend && ready != 0 && self.events & EPOLLONESHOT != 0 {
            self.armed = false;
        }
        u32::from(ready.cast_unsigned())
    }

    /// Whether the registration still exists: the kernel drops one when the last number of its file is closed.
    pub(super) fn is_alive(&self) -> bool {
        // Finds out if the number was closed behind our back.
        drop(engine::lookup_verified(self.fd));
        self.socket.is_open()
    }

    /// Announce a wait, or anew after a wake-up for nothing: that puts the descriptor right.
    fn announce(&mut self) {
        if self.armed && self.asked() & (libc::POLLOUT | libc::POLLWRNORM) != 0 {
            self.socket.send_on();
        }
        if mem::take(&mut self.woken) {
            self.retract();
        }
        if !mem::replace(&mut self.announced, true) {
            self.socket.begin_wait(self.asked());
            if self.events & EPOLLET != 0 {
                // What lies there was told already; the next arrival must make an edge.
                self.socket.hush(self.asked());
            }
        }
    }

    fn retract(&mut self) {
        if mem::take(&mut self.announced) {
            self.socket.end_wait();
            if self.events & EPOLLET != 0 {
                self.socket.unhush();
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.retract();
    }
}

impl Set {
    pub(super) fn find(&mut self, fd: c_int, socket: &engine::Socket) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.fd == fd && ptr::eq(&raw const *e.socket, socket))
    }

    /// Look at everything and tell the program what is ready, as far as there is room. Returns how many events were put.
    pub(super) fn report(&mut self, epoll: c_int, out: &mut [epoll_event]) -> usize {
        self.entries.retain(Entry::is_alive);
        let count = self.entries.len();
        let mut put = 0;
        for step in 0..count {
            if put == out.len() {
                self.first = self.first.wrapping_add(step.max(1));
                break;
            }
            let place = self.first.wrapping_add(step) % count;
            let entry = &mut self.entries[place];
            let events = entry.report(true, engine::Socket::poll_turn);
            if events == 0 {
                continue;
            }
            out[put] = epoll_event { events, u64: entry.data };
            put += 1;
            if !entry.armed
                && engine::lookup(entry.fd).is_some_and(|s| ptr::eq(&raw const *s, &raw const *entry.socket))
            {
                // Until it is armed again the kernel must not wake anybody for it.
                let _ = kernel_ctl(epoll, libc::EPOLL_CTL_MOD, entry.fd, entry.watched(), entry.data);
            }
        }
        put
    }

    /// Take the kernel's events about ours out of `events` and note them. Returns how many are left, at the front.
    pub(super) fn sift(&mut self, events: &mut [epoll_event]) -> usize {
        let mut kept = 0;
        for at in 0..events.len() {
            let event = events[at];
            let data = event.u64;
            let mut ours = false;
            if event.events & (EPOLLRDNORM | EPOLLWRNORM) != 0 {
                for entry in self.entries.iter_mut().filter(|e| e.data == data) {
                    entry.woken = true;
                    ours = true;
                }
            }
            if !ours {
                events[kept] = event;
                kept += 1;
            }
        }
        kept
    }

    /// Announce what is not announced, and look again. Returns whether something is ready after all.
    pub(super) fn announce(&mut self) -> bool {
        let mut ready = false;
        for entry in &mut self.entries {
            entry.announce();
            ready |= entry.report(false, |socket| socket.readiness()) != 0;
        }
        ready
    }

    pub(super) fn retract(&mut self) {
        self.sleepers -= 1;
        if self.sleepers == 0 {
            self.entries.iter_mut().for_each(Entry::retract);
        }
    }

    /// An entry is new or has changed while somebody may sleep.
    pub(super) fn changed(&mut self, fd: c_int, socket: &engine::Socket) {
        let asleep = self.sleepers > 0;
        if let (true, Some(entry)) = (asleep, self.find(fd, socket)) {
            entry.announce();
            entry.socket.nudge();
        }
    }
}

pub(super) fn kernel_ctl(epoll: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> Result<()> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: the kernel reads one live struct.
    check(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, op, fd, &raw mut event) }).map(drop)
}
