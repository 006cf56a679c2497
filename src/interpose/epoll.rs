//! epoll instances that watch sockets of ours.
//!
//! A registration of one of ours is kept here, and with the kernel as well, where it only says "readable, perhaps": the
//! kernel's set is what a waiting thread sleeps in. What the program is told about ours is worked out from the sockets
//! (`Entry::report`), for level-triggered, edge-triggered and one-shot registrations; what it is told about all others is the
//! kernel's word. A wait goes as in `super::wait`, with one difference: the announcement belongs to the instance, so that a
//! socket that is added while another thread sleeps is announced too.
//!
//! The kernel hands events back by the program's own data word. Ours are told apart by bits that no program asks for on
//! purpose (`EPOLLRDNORM`, `EPOLLWRNORM`) together with the data word.
//!
//! Limits: an epoll descriptor inside another set (poll, select, epoll) wakes for data of ours, not for room in a TX ring;
//! a child after `fork` has the kernel's view only; a program that registers with a raw system call is not seen here and has
//! the kernel's view as well.

use core::{
    ffi::{c_int, c_void},
    mem, ptr,
};
use std::sync::PoisonError;

use libc::{epoll_event, sigset_t, timespec};

use super::{
    Answer, SavedErrno, cancellation_point, guard, guarded, next,
    wait::{self, _pthread_cleanup_pop, _pthread_cleanup_push, Deadline, Handler, Timeout},
};
use crate::{
    engine,
    errno::{Errno, Result, check},
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU64, Mutex, MutexGuard, Once, Ordering},
    uapi::Socket as _,
};

const NO_MASK: *const sigset_t = ptr::null();

const EPOLLRDNORM: u32 = 0x40;
const EPOLLWRNORM: u32 = 0x100;
const EPOLLIN: u32 = libc::EPOLLIN as u32;
const EPOLLOUT: u32 = libc::EPOLLOUT as u32;
const EPOLLET: u32 = libc::EPOLLET as u32;
const EPOLLONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EPOLLEXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// Everything that may stand beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 =
    EPOLLIN | EPOLLOUT | (libc::EPOLLERR | libc::EPOLLHUP) as u32 | EPOLLET | EPOLLEXCLUSIVE | 1 << 29;
/// Most events of one call, `INT_MAX / sizeof(struct epoll_event)`.
#[expect(clippy::cast_possible_truncation, reason = "12 or 16")]
const EVENTS_MAX: c_int = c_int::MAX / size_of::<epoll_event>() as c_int;

/// Numbers below this have a bit in [`MARKS`]; of higher ones there is one flag.
const MARKED: usize = 1 << 16;
static MARKS: [AtomicU64; MARKED / 64] = [const { AtomicU64::new(0) }; MARKED / 64];
static HIGH: AtomicBool = AtomicBool::new(false);

/// Whether a number may be an epoll instance that watches a socket of ours.
#[inline]
pub(super) extern "C" fn maybe(fd: c_int) -> bool {
    let number = fd.cast_unsigned() as usize;
    match MARKS.get(number / 64) {
        Some(word) => word.load(Ordering::Relaxed) & 1 << (number % 64) != 0,
        None => fd >= 0 && HIGH.load(Ordering::Relaxed),
    }
}

fn mark(fd: c_int, known: bool) {
    let number = fd.cast_unsigned() as usize;
    match MARKS.get(number / 64) {
        Some(word) if known => drop(word.fetch_or(1 << (number % 64), Ordering::Relaxed)),
        Some(word) => drop(word.fetch_and(!(1 << (number % 64)), Ordering::Relaxed)),
        None => HIGH.store(true, Ordering::Relaxed),
    }
}

/// Everything that is known in one process. Never freed.
struct Table {
    process: i32,
    /// Numbers and what they stand for; a duplicated number stands for the same.
    instances: Mutex<Vec<(c_int, Arc<Instance>)>>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn process() -> i32 {
    // SAFETY: no arguments. From the kernel: the child of a vfork must not see its parent's.
    let id = unsafe { libc::syscall(libc::SYS_getpid) };
    i32::try_from(id).unwrap_or(0)
}

impl Table {
    /// The table, unless the caller is another process: the child of a vfork, or of a clone that ran no fork handlers.
    fn get() -> Option<&'static Table> {
        // Pairs with the store in `made`.
        // SAFETY: null, or leaked by `made`.
        let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
        (table.process == process()).then_some(table)
    }

    /// The table, made if need be.
    fn made() -> Result<&'static Table> {
        static HANDLER: Once = Once::new();
        if TABLE.load(Ordering::Acquire).is_null() {
            HANDLER.call_once(|| {
                // SAFETY: the handler touches statics only.
                unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            });
            let fresh = Box::into_raw(Box::new(Table { process: process(), instances: Mutex::new(Vec::new()) }));
            if TABLE.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above and seen by nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        Table::get().ok_or(Errno::EBADF)
    }

    fn instances(&self) -> MutexGuard<'_, Vec<(c_int, Arc<Instance>)>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance(&self, epoll: c_int) -> Option<Arc<Instance>> {
        self.instances().iter().find(|(number, _)| *number == epoll).map(|(_, instance)| instance.clone())
    }

    fn instance_made(&self, epoll: c_int) -> Arc<Instance> {
        if let Some(known) = self.instance(epoll) {
            return known;
        }
        let instance = Arc::new(Instance(Mutex::new(Set::default())));
        self.instances().push((epoll, instance.clone()));
        mark(epoll, true);
        instance
    }
}

/// A forked child begins with no table: its parent's may have been locked by another thread.
extern "C" fn forked() {
    TABLE.store(ptr::null_mut(), Ordering::Release);
    for word in &MARKS {
        word.store(0, Ordering::Relaxed);
    }
    HIGH.store(false, Ordering::Relaxed);
}

/// One epoll instance.
struct Instance(Mutex<Set>);

#[derive(Default)]
struct Set {
    entries: Vec<Entry>,
    /// Threads that sleep, or are about to.
    sleepers: usize,
    /// Which entry is looked at first, so that each gets its turn when there is not room for all.
    first: usize,
    /// The others' turn to be sure of room.
    others_first: bool,
}

/// One registration.
struct Entry {
    /// The number it was made with.
    fd: c_int,
    socket: Arc<engine::Socket>,
    events: u32,
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
    fn new(fd: c_int, socket: Arc<engine::Socket>, event: epoll_event) -> Entry {
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
    fn watched(&self) -> u32 {
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
        let ready = wait::told(readiness(&self.socket), self.asked());
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
    fn is_alive(&self) -> bool {
        // Finds out if the number was closed behind our back.
        drop(engine::lookup_verified(self.fd));
        self.socket.is_open()
    }

    /// Announce a wait, or anew after a wake-up for nothing: that puts the descriptor right.
    fn announce(&mut self) {
        if mem::take(&mut self.woken) {
            self.retract();
        }
        if !mem::replace(&mut self.announced, true) {
            self.socket.begin_wait(self.asked());
            if self.events & EPOLLET != 0 {
                // What lies there was told already; the next arrival must make an edge.
                self.socket.hush();
            }
        }
    }

    fn retract(&mut self) {
        if mem::take(&mut self.announced) {
            self.socket.end_wait();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.retract();
    }
}

impl Instance {
    fn set(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn find(&mut self, fd: c_int, socket: &engine::Socket) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.fd == fd && ptr::eq(&raw const *e.socket, socket))
    }

    /// Look at everything and tell the program what is ready, as far as there is room. Returns how many events were put.
    fn report(&mut self, epoll: c_int, out: &mut [epoll_event]) -> usize {
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
    fn sift(&mut self, events: &mut [epoll_event]) -> usize {
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
    fn announce(&mut self) -> bool {
        let mut ready = false;
        for entry in &mut self.entries {
            entry.announce();
            ready |= entry.report(false, |socket| socket.readiness()) != 0;
        }
        ready
    }

    fn retract(&mut self) {
        self.sleepers -= 1;
        if self.sleepers == 0 {
            self.entries.iter_mut().for_each(Entry::retract);
        }
    }

    /// An entry is new or has changed while somebody may sleep.
    fn changed(&mut self, fd: c_int, socket: &engine::Socket) {
        let asleep = self.sleepers > 0;
        if let (true, Some(entry)) = (asleep, self.find(fd, socket)) {
            entry.announce();
            entry.socket.nudge();
        }
    }
}

fn kernel_ctl(epoll: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> Result<()> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: the kernel reads one live struct.
    check(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, op, fd, &raw mut event) }).map(drop)
}

fn control(epoll: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Option<Result<usize>> {
    let found = engine::lookup_verified(fd)?;
    let known = Table::get().and_then(|table| table.instance(epoll));
    let event = if op == libc::EPOLL_CTL_DEL {
        epoll_event { events: 0, u64: 0 }
    } else if event.is_null() {
        return Some(Err(Errno::EFAULT));
    } else {
        // SAFETY: the program's own struct.
        unsafe { event.read_unaligned() }
    };
    let exclusive = event.events & EPOLLEXCLUSIVE != 0;
    let result = match op {
        libc::EPOLL_CTL_ADD if exclusive && event.events & !WITH_EXCLUSIVE != 0 => Err(Errno::EINVAL),
        libc::EPOLL_CTL_ADD => add(epoll, fd, &found, event),
        libc::EPOLL_CTL_MOD => match known {
            _ if exclusive => Err(Errno::EINVAL),
            None => return None,
            Some(instance) => modify(&instance, epoll, fd, &found, event)?,
        },
        libc::EPOLL_CTL_DEL => {
            if let Some(instance) = known {
                let mut set = instance.set();
                set.entries.retain(|e| e.fd != fd || !ptr::eq(&raw const *e.socket, &raw const *found));
            }
            // The kernel's entry, and its error if there is none.
            return None;
        }
        _ => return None,
    };
    Some(result.map(|()| 0))
}

fn add(epoll: c_int, fd: c_int, found: &engine::SocketRef, event: epoll_event) -> Result<()> {
    let instance = Table::made()?.instance_made(epoll);
    let mut set = instance.set();
    let entry = Entry::new(fd, found.share(), event);
    // Under the lock, so that no thread sifts an event of it that it does not know.
    kernel_ctl(epoll, libc::EPOLL_CTL_ADD, fd, entry.watched(), event.u64)?;
    // What the kernel does not know any more we may still have, if the number was closed behind our back.
    set.entries.retain(|e| e.fd != fd || e.is_alive());
    set.entries.push(entry);
    set.changed(fd, found);
    // The kernel polls what is registered, and its poll sends.
    found.poll_turn();
    Ok(())
}

/// `None`: not a registration of ours.
fn modify(
    instance: &Instance,
    epoll: c_int,
    fd: c_int,
    found: &engine::SocketRef,
    event: epoll_event,
) -> Option<Result<()>> {
    let mut set = instance.set();
    let entry = set.find(fd, found)?;
    if entry.events & EPOLLEXCLUSIVE != 0 {
        return Some(Err(Errno::EINVAL));
    }
    let mut new = Entry::new(fd, found.share(), event);
    if let Err(error) = kernel_ctl(epoll, libc::EPOLL_CTL_MOD, fd, new.watched(), event.u64) {
        return Some(Err(error));
    }
    // The old one's announcement was for other events.
    mem::swap(entry, &mut new);
    drop(new);
    set.changed(fd, found);
    found.poll_turn();
    Some(Ok(()))
}

/// The program closed a number.
pub(super) fn forget(fd: c_int) {
    if !maybe(fd) {
        return;
    }
    let Some(table) = Table::get() else { return };
    // Taken out first and dropped after the lock, since dropping the last number drops the registrations.
    let mut gone = None;
    {
        let mut instances = table.instances();
        if let Some(at) = instances.iter().position(|(number, _)| *number == fd) {
            gone = Some(instances.swap_remove(at));
        }
        mark(fd, false);
    }
    drop(gone);
}

/// `new` is another number for what `old` stands for.
pub(super) fn duplicate(old: c_int, new: c_int) {
    if !maybe(old) || old == new {
        return;
    }
    let Some(table) = Table::get() else { return };
    let mut instances = table.instances();
    let Some(instance) = instances.iter().find(|(number, _)| *number == old).map(|(_, i)| i.clone()) else { return };
    instances.retain(|(number, _)| *number != new);
    instances.push((new, instance));
    mark(new, true);
}

/// Drop the registrations of sockets that are closed.
pub(super) fn sweep() {
    let Some(table) = Table::get() else { return };
    let all: Vec<Arc<Instance>> = table.instances().iter().map(|(_, instance)| instance.clone()).collect();
    for instance in all {
        instance.set().entries.retain(|e| e.socket.is_open());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    #[cold]
    #[inline(never)]
    extern "C" fn ours(epoll: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Answer {
        guarded(|| control(epoll, op, fd, event))
    }
    if super::maybe_ours(fd) {
        let answer = ours(epoll, op, fd, event);
        if answer.ours != 0 {
            return answer.int();
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { next::epoll_ctl(epoll, op, fd, event) }
}

/// A number that the kernel has just given out stands for nothing that we know.
#[cold]
#[inline(never)]
extern "C" fn fresh(fd: c_int) {
    guard((), || forget(fd));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: no pointers.
    let fd = unsafe { next::epoll_create(size) };
    if maybe(fd) {
        fresh(fd);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: no pointers.
    let fd = unsafe { next::epoll_create1(flags) };
    if maybe(fd) {
        fresh(fd);
    }
    fd
}

/// One wait.
struct Waiting {
    instance: *const Instance,
    epoll: c_int,
    out: *mut epoll_event,
    room: usize,
    /// Events put at the front of `out` so far.
    put: usize,
    deadline: Deadline,
    mask: *const sigset_t,
    time: timespec,
    asleep: bool,
    /// The timeout is finer than a millisecond.
    precise: bool,
    /// The next answer of the kernel is the last.
    last: bool,
    /// Ours have not been looked at, to leave the only place to the others.
    stepped_back: bool,
    /// Times that the kernel had nothing but news of ours, with no room left for others'.
    crowded: usize,
}

/// What to do next; see `super::wait`.
#[repr(C)]
struct Plan {
    done: c_int,
    value: c_int,
    events: *mut epoll_event,
    room: c_int,
    /// `time` counts, not `milliseconds`.
    precise: c_int,
    milliseconds: c_int,
    time: *const timespec,
    mask: *const sigset_t,
}

impl Plan {
    fn answer(value: usize) -> Plan {
        Plan { value: c_int::try_from(value).unwrap_or(c_int::MAX), ..Plan::failed() }
    }

    fn failed() -> Plan {
        Plan {
            done: 1,
            value: -1,
            events: ptr::null_mut(),
            room: 0,
            precise: 0,
            milliseconds: 0,
            time: ptr::null(),
            mask: ptr::null(),
        }
    }

    fn not_ours() -> Plan {
        Plan { done: -1, ..Plan::failed() }
    }
}

/// Milliseconds for a sleep: rounded up, so that a wait is never too short.
fn milliseconds(left: Option<u64>) -> c_int {
    left.map_or(-1, |ns| c_int::try_from(ns.div_ceil(1_000_000)).unwrap_or(c_int::MAX))
}

impl Waiting {
    fn instance(&self) -> &'static Instance {
        // SAFETY: the Arc is given back by `release`, the last use of this struct.
        unsafe { &*self.instance }
    }

    /// The part of the program's array behind what was put.
    fn rest(&self) -> &'static mut [epoll_event] {
        // SAFETY: the program says that `room` events fit; this thread alone writes to them while the call lasts.
        unsafe { core::slice::from_raw_parts_mut(self.out.wrapping_add(self.put), self.room - self.put) }
    }

    /// Call the kernel for at most `left` nanoseconds.
    fn call(&mut self, left: Option<u64>, mask: *const sigset_t) -> Plan {
        self.time = wait::time(left.unwrap_or(u64::MAX));
        Plan {
            done: 0,
            value: 0,
            events: self.rest().as_mut_ptr(),
            room: c_int::try_from(self.room - self.put).unwrap_or(EVENTS_MAX),
            precise: c_int::from(self.precise),
            milliseconds: milliseconds(left),
            time: &raw const self.time,
            mask,
        }
    }

    /// Tell about ours.
    fn report(&mut self, room: usize) {
        let rest = self.rest();
        let room = room.min(rest.len());
        self.put += self.instance().set().report(self.epoll, &mut rest[..room]);
    }

    fn first(&mut self) -> Plan {
        let others_first = {
            let mut set = self.instance().set();
            set.others_first = !set.others_first;
            set.others_first
        };
        // Every other time one place is kept for the others.
        self.stepped_back = others_first && self.room == 1;
        if !self.stepped_back {
            self.report(self.room - usize::from(others_first));
        }
        if self.put == self.room {
            return Plan::answer(self.put);
        }
        let immediate = self.deadline.left() == Some(0);
        if self.put > 0 || immediate || self.stepped_back {
            self.last = self.put > 0 || immediate;
            // With a signal mask and nothing ready a signal that is let in ends the call.
            let mask = if self.last && self.put == 0 { self.mask } else { ptr::null() };
            return self.call(Some(0), mask);
        }
        self.sleep()
    }

    fn sleep(&mut self) -> Plan {
        let ready = {
            let mut set = self.instance().set();
            if !mem::replace(&mut self.asleep, true) {
                set.sleepers += 1;
            }
            set.announce()
        };
        if ready {
            self.report(self.room);
            if self.put > 0 {
                return Plan::answer(self.put);
            }
        }
        self.call(self.deadline.left(), self.mask)
    }

    fn judge(&mut self, result: c_int) -> Plan {
        let errno = SavedErrno::save();
        let got = usize::try_from(result).unwrap_or(0);
        let full = got == self.room - self.put;
        let kept = self.instance().set().sift(&mut self.rest()[..got]);
        self.put += kept;
        if result < 0 && self.put == 0 {
            self.report(self.room);
            if self.put == 0 {
                errno.restore();
                return Plan::failed();
            }
        }
        if (self.last || self.stepped_back) && got > 0 && full && kept == 0 && self.crowded < 64 {
            // Perhaps there was no room for others because of what is sifted out: the kernel puts that last the next time.
            self.crowded += 1;
            return self.call(Some(0), ptr::null());
        }
        if mem::take(&mut self.stepped_back) && self.put == 0 {
            self.report(self.room);
        }
        if self.last {
            return Plan::answer(self.put);
        }
        if self.put < self.room {
            self.report(self.room);
        }
        if self.put > 0 || self.deadline.left() == Some(0) {
            return Plan::answer(self.put);
        }
        self.sleep()
    }
}

/// First step; `done` is -1 if the instance watches nothing of ours.
#[inline(never)]
extern "C" fn begin(
    state: &mut mem::MaybeUninit<Waiting>,
    epoll: c_int,
    out: *mut epoll_event,
    room: c_int,
    timeout: &Timeout,
    mask: *const sigset_t,
) -> Plan {
    let state = state.write(Waiting {
        instance: ptr::null(),
        epoll,
        out,
        room: 0,
        put: 0,
        deadline: Deadline::Never,
        mask,
        time: wait::time(0),
        asleep: false,
        precise: matches!(timeout, Timeout::Time(_)),
        last: false,
        stepped_back: false,
        crowded: 0,
    });
    guard(Plan::failed(), || {
        let instance = Table::get().and_then(|table| table.instance(epoll));
        // What is wrong is for the kernel to refuse.
        let (Some(instance), false, 1..=EVENTS_MAX, Ok(deadline)) = (instance, out.is_null(), room, timeout.read())
        else {
            return Plan::not_ours();
        };
        if instance.set().entries.is_empty() {
            return Plan::not_ours();
        }
        state.instance = Arc::into_raw(instance);
        state.room = usize::try_from(room).unwrap_or(0);
        state.deadline = deadline;
        state.first()
    })
}

/// The kernel has answered.
#[inline(never)]
extern "C" fn judge(state: &mut Waiting, result: c_int) -> Plan {
    guard(Plan::failed(), || state.judge(result))
}

unsafe extern "C" fn release(state: *mut c_void) {
    // SAFETY: the state of `wait_ours`, which this thread alone uses, and no longer.
    let state = unsafe { &mut *state.cast::<Waiting>() };
    let errno = SavedErrno::save();
    guard((), || {
        if state.instance.is_null() {
            return;
        }
        // SAFETY: from Arc::into_raw in `begin`, given back once.
        let instance = unsafe { Arc::from_raw(mem::replace(&mut state.instance, ptr::null())) };
        if mem::take(&mut state.asleep) {
            instance.set().retract();
        }
    });
    errno.restore();
}

/// The slow half of all forms. This frame is there while the kernel sleeps: it calls `extern "C"` functions only.
#[cold]
#[inline(never)]
unsafe extern "C" fn wait_ours(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: &Timeout,
    mask: *const sigset_t,
) -> Answer {
    let mut state = const { mem::MaybeUninit::uninit() };
    let mut handler = const { Handler::NEW };
    let mut plan = begin(&mut state, epoll, events, room, timeout, mask);
    let state = &raw mut state;
    #[expect(clippy::ptr_as_ptr, reason = "a method would be a call of a Rust function in an unoptimised build")]
    let state = state as *mut Waiting;
    #[expect(clippy::ptr_as_ptr, reason = "as above")]
    let argument = state as *mut c_void;
    // SAFETY: popped below; the state is initialised, and lives as long.
    unsafe { _pthread_cleanup_push(&raw mut handler, release, argument) };
    while plan.done == 0 {
        let result = if plan.precise == 0 {
            // SAFETY: the program's own array, which has room for `room`.
            unsafe { next::epoll_pwait(epoll, plan.events, plan.room, plan.milliseconds, plan.mask) }
        } else {
            // SAFETY: as above, and a time in the state.
            unsafe { next::epoll_pwait2(epoll, plan.events, plan.room, plan.time, plan.mask) }
        };
        // SAFETY: initialised by `begin`, used by this thread alone.
        plan = judge(unsafe { &mut *state }, result);
    }
    // SAFETY: pushed above; releases the state.
    unsafe { _pthread_cleanup_pop(&raw mut handler, 1) };
    if plan.done < 0 { const { Answer::NOT_OURS } } else { Answer { value: plan.value as isize, ours: 1 } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
        cancellation_point();
        let limit = Timeout::Milliseconds(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { wait_ours(epoll, events, room, &limit, NO_MASK) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::epoll_wait(epoll, events, room, timeout) }
    }
    if maybe(epoll) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(epoll, events, room, timeout) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::epoll_wait(epoll, events, room, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(
        epoll: c_int,
        events: *mut epoll_event,
        room: c_int,
        timeout: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        cancellation_point();
        let limit = Timeout::Milliseconds(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { wait_ours(epoll, events, room, &limit, mask) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::epoll_pwait(epoll, events, room, timeout, mask) }
    }
    if maybe(epoll) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(epoll, events, room, timeout, mask) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::epoll_pwait(epoll, events, room, timeout, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn perhaps(
        epoll: c_int,
        events: *mut epoll_event,
        room: c_int,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        cancellation_point();
        let limit = Timeout::Time(timeout);
        // SAFETY: the program's own arguments.
        let answer = unsafe { wait_ours(epoll, events, room, &limit, mask) };
        if answer.ours != 0 {
            return answer.int();
        }
        // SAFETY: the program's own arguments.
        unsafe { next::epoll_pwait2(epoll, events, room, timeout, mask) }
    }
    if maybe(epoll) {
        // SAFETY: the program's own arguments.
        return unsafe { perhaps(epoll, events, room, timeout, mask) };
    }
    // SAFETY: the program's own arguments.
    unsafe { next::epoll_pwait2(epoll, events, room, timeout, mask) }
}
