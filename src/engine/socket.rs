//! An engine socket: the state machine of the kernel's AF_XDP socket, from `socket` to `close`.
//!
//! Everything up to bind and the closing are cold and take the socket's own lock. What a bound socket needs to send and
//! receive is set once by bind and then only read.

use core::ptr::NonNull;
use std::os::fd::RawFd;

use once_cell::sync::OnceCell;

use super::{
    bell::Bell,
    iface::{Interface, interface_numbered},
    memory::{Memory, offsets},
    owner::Owner,
    pool::Pool,
    receive::RxPort,
    runtime::{self, Runtime},
    stat::store_text,
    table,
    transmit::Tx,
    umem::Umem,
};
use crate::{
    errno::{Errno, Result},
    ring::Consumer,
    sync::{Arc, AtomicBool, AtomicI32, AtomicU32, Mutex, Ordering, Weak},
    sys,
    uapi::{
        self, AF_XDP, Mapping, MmapOffsets, Ring, SO_NETNS_COOKIE, Setup, SockaddrXdp, Statistics, UmemReg, XDP_COPY,
        XDP_SHARED_UMEM, XDP_USE_NEED_WAKEUP, XDP_USE_SG, XDP_ZEROCOPY,
    },
    warn,
};

/// Frames that one receive turn takes from a device at the most.
const RX_BUDGET: usize = 64;

/// The busy-poll options that can be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPoll {
    /// `SO_BUSY_POLL`, microseconds.
    Time,
    /// `SO_PREFER_BUSY_POLL`, 0 or 1.
    Prefer,
}

/// An engine socket. Its `uapi::Socket` methods answer as the kernel does.
#[derive(Debug)]
pub struct Socket {
    /// Itself, for those who keep it.
    me: Weak<Socket>,
    runtime: &'static Runtime,
    owner: Owner,
    identity: (u64, u64),
    /// The number it was made under, or was moved to.
    number: AtomicI32,
    /// Numbers that stand for it (dup).
    numbers: AtomicU32,
    memory: Arc<Memory>,
    bell: Arc<Bell>,
    state: Mutex<State>,
    bound: OnceCell<Bound>,
    finished: AtomicBool,
    /// No more sending and receiving; held until none runs.
    stopped: Mutex<bool>,
    /// The program waits for POLLOUT at times.
    wants_room: AtomicBool,
    told_foreign: AtomicBool,
    error: AtomicI32,
    busy_poll: [AtomicI32; 2],
}

#[derive(Debug, Default)]
struct State {
    umem: Option<Arc<Umem>>,
    mapped: [Option<(usize, usize)>; 4],
    budget: Option<u32>,
    closed: bool,
}

/// What bind sets.
#[derive(Debug)]
struct Bound {
    pool: Arc<Pool>,
    rx: Option<Arc<RxPort>>,
    tx: Option<Tx>,
}

impl Socket {
    /// A new socket and its number, which is in the table already.
    pub(super) fn create(cloexec: bool, nonblock: bool) -> Result<(RawFd, Arc<Socket>)> {
        let runtime = runtime::get()?;
        let memory = Arc::new(Memory::new()?);
        let (number, bell) = Bell::new(cloexec, nonblock)?;
        let identity = sys::identity(number).inspect_err(|_| sys::close(number))?;
        let page = memory.page();
        page.version.store(super::stat::VERSION, Ordering::Relaxed);
        page.pid.store(runtime.pid, Ordering::Relaxed);
        page.fd.store(number.cast_unsigned(), Ordering::Relaxed);
        page.magic.store(super::stat::MAGIC, Ordering::Release);
        let socket = Arc::new_cyclic(|me| Socket {
            me: Weak::clone(me),
            runtime,
            owner: runtime.owner,
            identity,
            number: AtomicI32::new(number),
            numbers: AtomicU32::new(0),
            memory,
            bell: Arc::new(bell),
            state: Mutex::default(),
            bound: OnceCell::new(),
            finished: AtomicBool::new(false),
            stopped: Mutex::new(false),
            wants_room: AtomicBool::new(false),
            told_foreign: AtomicBool::new(false),
            error: AtomicI32::new(0),
            busy_poll: [const { AtomicI32::new(0) }; 2],
        });
        table::insert(number, Arc::clone(&socket)).inspect_err(|_| sys::close(number))?;
        Ok((number, socket))
    }

    /// Device and inode of the descriptor.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Whether the caller's memory is that of the process that made the socket.
    #[inline]
    pub(super) fn is_owned(&self) -> bool {
        self.owner.is_us()
    }

    /// Whether the caller is that process itself, and not a `vfork` child in its memory. A system call.
    pub(super) fn made_here(&self) -> bool {
        sys::getpid() == self.runtime.pid
    }

    /// One more number stands for it.
    pub(super) fn gained_number(&self) {
        self.numbers.fetch_add(1, Ordering::AcqRel);
    }

    /// One number fewer; with the last the socket is finished.
    pub(super) fn lost_number(&self) {
        if self.numbers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish();
        }
    }

    /// The far end of its descriptor, for the worker.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Where its frames arrive.
    pub(super) fn receiver(&self) -> Option<&Arc<RxPort>> {
        self.bound.get()?.rx.as_ref()
    }

    /// The receiving socket's device must be asked for frames.
    pub(super) fn is_polled(&self) -> bool {
        self.bound.get().is_some_and(|b| b.rx.is_some() && b.pool.device.is_polled())
    }

    /// A number that stands for the socket now, checked.
    pub(super) fn checked_number(&self) -> Option<RawFd> {
        let fd = self.number.load(Ordering::Relaxed);
        sys::identity(fd).is_ok_and(|id| id == self.identity).then_some(fd)
    }

    /// Not usable: a forked child's copy (told once), or finished.
    #[inline]
    fn alive(&self) -> Result<()> {
        if !self.owner.is_us() {
            return Err(self.foreign());
        }
        if self.finished.load(Ordering::Relaxed) {
            return Err(Errno::ENXIO);
        }
        Ok(())
    }

    #[cold]
    fn foreign(&self) -> Errno {
        if !self.told_foreign.swap(true, Ordering::Relaxed) {
            warn!(
                "this process is a fork of the one that made the AF_XDP socket {}, and an engine socket stays with its \
                 maker: create sockets after daemonizing",
                self.number.load(Ordering::Relaxed)
            );
        }
        Errno::ENXIO
    }

    #[inline]
    fn bound(&self) -> Result<&Bound> {
        self.alive()?;
        // The kernel's answer for an unbound socket.
        self.bound.get().ok_or(Errno::ENXIO)
    }

    /// The owner made a call that we see.
    #[inline]
    fn called(&self) {
        if self.bell.called() {
            self.runtime.worker.wake();
        }
    }

    #[inline]
    fn has_rx(&self) -> bool {
        self.receiver().is_some_and(|rx| rx.has_entries())
    }

    #[inline]
    fn is_writable(&self) -> bool {
        self.bound.get().and_then(|b| b.tx.as_ref()).is_some_and(Tx::is_writable)
    }

    fn transmit_turn(&self, bound: &Bound) -> Result<()> {
        let tx = bound.tx.as_ref().ok_or(Errno::ENOBUFS)?;
        if bound.pool.umem.is_gone() {
            return Err(Errno::ENXIO);
        }
        tx.turn(&bound.pool, &self.memory.page().tx, &self.bell)
    }

    /// Somebody is about to sleep until there is room to send. The kernel wakes such a sleeper for each frame that has left,
    /// and its `poll` then sends more: turn by turn until there is room, or nothing leaves any more.
    pub fn send_on(&self) {
        let Ok(bound) = self.bound() else { return };
        let Some(tx) = bound.tx.as_ref() else { return };
        let first = tx.consumed();
        let mut before = first;
        while !tx.is_writable() {
            let _ = self.transmit_turn(bound);
            let now = tx.consumed();
            // Not for ever, whoever goes on filling the ring.
            if now == before || now.wrapping_sub(first) >= tx.entries() {
                return;
            }
            before = now;
        }
    }

    /// Worker: a sleeper whose frames the device did not take, or that sleeps for room while another thread sent a part of
    /// them, gets another try, as its `poll` asked for. Whether it is worth trying again.
    pub(super) fn retry(&self) -> bool {
        let Ok(bound) = self.bound() else { return false };
        let Some(tx) = bound.tx.as_ref() else { return false };
        if !self.bell.has_waiters() {
            return false;
        }
        let wants_room = || self.wants_room.load(Ordering::Relaxed) && !tx.is_writable();
        if wants_room()
            && let Some(fd) = self.checked_number()
        {
            // Perhaps it was given back by somebody who looked before the program queued more: then room would make no edge.
            self.bell.set_writable(fd, || tx.is_writable());
        } else if !tx.is_held_back() {
            return false;
        }
        let before = tx.consumed();
        let _ = self.transmit_turn(bound);
        if wants_room() && tx.consumed() != before {
            self.send_on();
        }
        if tx.is_held_back() && bound.pool.device.doze_for_room() {
            // The doorbell tells from now on, so nobody need try again and again.
            let _ = self.transmit_turn(bound);
            return false;
        }
        tx.is_held_back() || (wants_room() && tx.consumed() != before)
    }

    /// The device's turn, if it has any, and the descriptor's readability put right.
    pub(super) fn receive_turn(&self) -> usize {
        let Some(bound) = self.bound.get() else { return 0 };
        let mut n = 0;
        if bound.rx.is_some() && bound.pool.device.is_polled() {
            n = bound.pool.device.receive(bound.pool.queue, RX_BUDGET, &|| self.bell.has_waiters());
        }
        // What is there is readable: no system call to find that out.
        if self.bell.is_pending() && !self.has_rx() {
            self.settle();
        }
        n
    }

    /// The same on the owner's thread, which has called [`Socket::called`] before.
    #[inline]
    fn receive(&self) {
        self.receive_turn();
        // That undoes the worker's announcement to the device, also one that it made meanwhile because the owner was held up
        // and taken for quiet: then it must make another.
        self.called();
    }

    /// From now on the device's doorbell wakes the worker when frames arrive. False: it does not, or some are there.
    pub(super) fn doze(&self) -> bool {
        let Some(bound) = self.bound.get() else { return true };
        bound.pool.device.doze(bound.pool.queue)
    }

    /// Take the readability back if nothing is there to read.
    #[cold]
    pub(super) fn settle(&self) {
        if let Some(fd) = self.checked_number() {
            self.bell.settle(fd, || self.has_rx() || self.finished.load(Ordering::Relaxed));
        }
    }

    /// Take the readability back whatever is there to read, so that the next sending makes an edge.
    pub(super) fn hang_up(&self) {
        if let Some(fd) = self.checked_number() {
            self.bell.settle(fd, || false);
        }
    }

    /// Its last number was closed by a call that we did not see.
    pub(super) fn vanished(&self) {
        table::forget_all(self);
        self.finish();
    }

    /// A kick made by a raw system call, seen by the worker.
    pub(super) fn raw_kick(&self) {
        if let Ok(bound) = self.bound()
            && bound.tx.is_some()
        {
            let _ = self.transmit_turn(bound);
        }
    }

    /// What the kernel's `poll` does before it looks: send what is in the TX ring, receive what waits; then
    /// [`uapi::Socket::readiness`].
    pub fn poll_turn(&self) -> i16 {
        if let Ok(bound) = self.bound() {
            self.called();
            if bound.tx.is_some() {
                let _ = self.transmit_turn(bound);
            }
            self.receive();
        }
        uapi::Socket::readiness(self)
    }

    /// From now on (a fence is included) whatever makes the socket ready in the sense of `events` (POLLIN, POLLOUT) also
    /// makes its descriptor so for the kernel's waits, until [`Socket::end_wait`]. The caller must look at the readiness
    /// again between this call and sleeping. Calls nest. The caller has verified the descriptor.
    pub fn begin_wait(&self, events: i16) {
        if self.alive().is_err() {
            return;
        }
        self.bell.announce();
        self.called();
        if self.bell.is_pending() {
            self.settle();
        }
        if events & (libc::POLLOUT | libc::POLLWRNORM) != 0
            && let Some(fd) = self.checked_number()
        {
            self.wants_room.store(true, Ordering::Relaxed);
            self.bell.set_writable(fd, || self.is_writable());
        }
        if self.is_polled() {
            self.doze();
            self.receive();
            self.runtime.worker.wake();
        }
    }

    /// Undo one [`Socket::begin_wait`].
    pub fn end_wait(&self) {
        if self.alive().is_ok() {
            self.bell.retract();
        }
    }

    /// For edge-triggered epoll: take readability and writability back although there is something to read, or room, so that
    /// the next arrival or departure makes a fresh edge. The caller has announced the wait, looks at [`Socket::edges`]
    /// afterwards, and undoes it with [`Socket::unhush`].
    pub fn hush(&self, events: i16) {
        let room = events & (libc::POLLOUT | libc::POLLWRNORM) != 0;
        if self.alive().is_ok()
            && (room || self.bell.is_pending())
            && let Some(fd) = self.checked_number()
        {
            self.bell.hush(fd, || self.has_rx());
            if room {
                self.bell.withdraw(fd);
            }
        }
    }

    /// Undo one [`Socket::hush`]: the descriptor is writable again if there is room.
    pub fn unhush(&self) {
        if self.alive().is_ok() && self.is_writable() {
            self.bell.writable_again();
        }
    }

    /// Make the descriptor readable now if there is something to read, for somebody whose wait began before the caller came.
    pub fn nudge(&self) {
        if self.alive().is_ok() && self.has_rx() {
            self.bell.send();
        }
    }

    /// What edge-triggered epoll counts: the RX producer index in the upper half, the TX consumer index in the lower. Each
    /// half changes when something arrived or was sent, and only then.
    pub fn edges(&self) -> u64 {
        let rx = self.receiver().map_or(0, |rx| rx.published());
        let tx = self.bound.get().and_then(|b| b.tx.as_ref()).map_or(0, Tx::consumed);
        u64::from(rx) << 32 | u64::from(tx)
    }

    /// Whether a number of the program still stands for it.
    pub fn is_open(&self) -> bool {
        self.numbers.load(Ordering::Acquire) != 0
    }

    /// Remember the value of a busy-poll option; it changes nothing else.
    pub fn set_busy_poll(&self, option: BusyPoll, value: i32) {
        self.busy_poll[option as usize].store(value, Ordering::Relaxed);
    }

    /// The value that was set, 0 at first.
    pub fn busy_poll(&self, option: BusyPoll) -> i32 {
        self.busy_poll[option as usize].load(Ordering::Relaxed)
    }

    /// `setsockopt(XDP_MAX_TX_SKB_BUDGET)`. EACCES: no TX ring, or not within 32 and its size.
    pub fn set_budget(&self, frames: u32) -> Result<()> {
        self.alive()?;
        let entries = self.memory.entries(Ring::Tx);
        if entries == 0 || frames < 32 || frames > entries {
            return Err(Errno::EACCES);
        }
        self.state.lock().map_err(|_| Errno::EIO)?.budget = Some(frames);
        if let Some(tx) = self.bound.get().and_then(|b| b.tx.as_ref()) {
            tx.set_budget(frames);
        }
        Ok(())
    }

    /// The program takes the UMEM's memory away. Nothing of ours touches it on return.
    pub(super) fn memory_gone(&self) {
        if let Some(bound) = self.bound.get() {
            self.stop(bound);
            self.error.store(libc::ENETDOWN, Ordering::Relaxed);
        }
    }

    /// No more sending, no more receiving; returns when none runs, whoever comes first.
    fn stop(&self, bound: &Bound) {
        let Ok(mut stopped) = self.stopped.lock() else { return };
        if core::mem::replace(&mut *stopped, true) {
            return;
        }
        if let Some(tx) = &bound.tx {
            tx.close();
        }
        bound.pool.interface.leave(&bound.pool, bound.rx.as_ref());
    }

    /// The last number was closed.
    fn finish(&self) {
        if !self.is_owned() {
            return;
        }
        {
            let Ok(mut state) = self.state.lock() else { return };
            if core::mem::replace(&mut state.closed, true) {
                return;
            }
        }
        self.finished.store(true, Ordering::SeqCst);
        if let Some(bound) = self.bound.get() {
            self.runtime.worker.remove(self);
            self.stop(bound);
        }
        self.runtime.unwatch(self);
    }

    /// Bind to a queue of its own: a new pool.
    fn new_pool(&self, interface: &Arc<Interface>, queue: u32, umem: Arc<Umem>) -> Result<Arc<Pool>> {
        if interface.pool(queue).is_some() {
            return Err(Errno::EBUSY);
        }
        let device = interface.device()?;
        let rings = Arc::clone(&self.memory);
        Pool::new(umem, Arc::clone(interface), device, queue, rings, 0).map(Arc::new)
    }

    /// The pool that a bind with XDP_SHARED_UMEM gets.
    fn shared_pool(&self, state: &State, interface: &Arc<Interface>, addr: &SockaddrXdp) -> Result<Arc<Pool>> {
        if addr.flags & (XDP_COPY | XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP | XDP_USE_SG) != 0 || state.umem.is_some() {
            return Err(Errno::EINVAL);
        }
        let fd = addr.shared_umem_fd.cast_signed();
        let other = table::lookup_verified(fd).ok_or_else(|| {
            match sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, &mut 0i32) {
                // Another kind of socket.
                Ok(_) => Errno::ENOPROTOOPT,
                // EBADF, ENOTSOCK.
                Err(error) => error,
            }
        })?;
        let theirs = other.bound.get().ok_or(Errno::EBADF)?;
        let own_rings = (self.memory.entries(Ring::Fill) != 0, self.memory.entries(Ring::Completion) != 0);
        if Arc::ptr_eq(&theirs.pool.interface, interface) && theirs.pool.queue == addr.queue_id {
            // Both must have been made by the first socket of the queue.
            return if own_rings == (false, false) { Ok(Arc::clone(&theirs.pool)) } else { Err(Errno::EINVAL) };
        }
        if own_rings != (true, true) {
            return Err(Errno::EINVAL);
        }
        if addr.queue_id >= interface.facts().queues {
            return Err(Errno::EINVAL);
        }
        self.new_pool(interface, addr.queue_id, Arc::clone(&theirs.pool.umem))
    }
}

impl uapi::Socket for Socket {
    fn fd(&self) -> RawFd {
        self.number.load(Ordering::Relaxed)
    }

    fn register_umem(&self, reg: &UmemReg) -> Result<()> {
        self.alive()?;
        let mut state = self.state.lock().map_err(|_| Errno::EIO)?;
        if self.bound.get().is_some() || state.umem.is_some() {
            return Err(Errno::EBUSY);
        }
        let umem = Arc::new(Umem::new(*reg)?);
        let page = self.memory.page();
        page.umem[0].store(reg.addr, Ordering::Relaxed);
        page.umem[1].store(reg.len, Ordering::Relaxed);
        for (to, from) in page.geometry.iter().zip([reg.chunk_size, reg.headroom, reg.flags]) {
            to.store(from, Ordering::Relaxed);
        }
        self.runtime.watch(&umem, &self.me);
        state.umem = Some(umem);
        Ok(())
    }

    fn set_ring_size(&self, ring: Ring, entries: u32) -> Result<()> {
        self.alive()?;
        let _state = self.state.lock().map_err(|_| Errno::EIO)?;
        if self.bound.get().is_some() {
            return Err(Errno::EBUSY);
        }
        self.memory.add(ring, entries)
    }

    fn mmap_offsets(&self) -> Result<MmapOffsets> {
        self.alive()?;
        Ok(offsets())
    }

    unsafe fn map_ring_at(&self, ring: Ring, len: usize, at: Option<NonNull<u8>>) -> Result<Mapping> {
        self.alive()?;
        let mut state = self.state.lock().map_err(|_| Errno::EIO)?;
        // SAFETY: the caller's promise.
        let mapping = unsafe { self.memory.map(ring, len, at) }?;
        state.mapped[ring.index()] = Some((mapping.base().as_ptr().expose_provenance(), len));
        Ok(mapping)
    }

    fn bind(&self, addr: &SockaddrXdp) -> Result<()> {
        self.alive()?;
        let known = XDP_SHARED_UMEM | XDP_COPY | XDP_ZEROCOPY | XDP_USE_NEED_WAKEUP | XDP_USE_SG;
        if i32::from(addr.family) != AF_XDP || addr.flags & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let state = self.state.lock().map_err(|_| Errno::EIO)?;
        if self.bound.get().is_some() {
            return Err(Errno::EBUSY);
        }
        let interface = interface_numbered(addr.ifindex).ok_or(Errno::ENODEV)?;
        let (has_rx, has_tx) = (self.memory.entries(Ring::Rx) != 0, self.memory.entries(Ring::Tx) != 0);
        if !has_rx && !has_tx {
            return Err(Errno::EINVAL);
        }
        let shared = addr.flags & XDP_SHARED_UMEM != 0;
        let pool = if shared {
            self.shared_pool(&state, &interface, addr)?
        } else {
            let umem = state.umem.clone().ok_or(Errno::EINVAL)?;
            let both = XDP_COPY | XDP_ZEROCOPY;
            if self.memory.entries(Ring::Fill) == 0
                || self.memory.entries(Ring::Completion) == 0
                || addr.flags & both == both
            {
                return Err(Errno::EINVAL);
            }
            if addr.queue_id >= interface.facts().queues {
                return Err(Errno::EINVAL);
            }
            if addr.flags & XDP_ZEROCOPY != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            self.new_pool(&interface, addr.queue_id, umem)?
        };
        let chains = addr.flags & XDP_USE_SG != 0;
        let rx = has_rx
            .then(|| {
                RxPort::new(Arc::clone(&pool), Arc::clone(&self.memory), Arc::clone(&self.bell), chains, 0)
                    .map(Arc::new)
            })
            .transpose()?;
        // SAFETY: self keeps the memory for as long as the ring, which lives in `bound`.
        let tx = unsafe { self.memory.ring(Ring::Tx) }
            .map(|ring| Tx::new(Consumer::new(ring, 0), state.budget.unwrap_or(interface.spec.budget)));
        self.memory.set_wakeup(Ring::Tx);
        if interface.spec.rxwake && addr.flags & XDP_USE_NEED_WAKEUP != 0 {
            self.memory.set_wakeup(Ring::Fill);
        }
        self.runtime.worker.add(&self.me, self.bell.far())?;
        (self.runtime.worker.watch(&pool.device))
            .and_then(|()| interface.join(&pool, rx.clone()))
            .inspect_err(|_| self.runtime.worker.remove(self))?;
        if shared {
            self.runtime.watch(&pool.umem, &self.me);
        }
        let page = self.memory.page();
        page.ifindex.store(interface.ifindex, Ordering::Relaxed);
        page.queue.store(addr.queue_id, Ordering::Relaxed);
        page.geometry[3].store(addr.flags.into(), Ordering::Relaxed);
        store_text(&page.name, &interface.name);
        store_text(&page.spec, &interface.spec.text);
        page.state.store(1, Ordering::Release);
        self.bound.set(Bound { pool, rx, tx }).map_err(|_| Errno::EBUSY)?;
        // The thread may have looked before, and seen nothing to wait for.
        self.runtime.worker.wake();
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        self.alive()?;
        Ok(self.memory.page().statistics())
    }

    fn options(&self) -> Result<u32> {
        self.alive()?;
        // Never zero-copy.
        Ok(0)
    }

    fn netns_cookie(&self) -> Result<u64> {
        self.alive()?;
        let mut cookie = 0u64;
        match sys::getsockopt(self.number.load(Ordering::Relaxed), libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie) {
            Ok(_) => Ok(cookie),
            Err(Errno::ENOPROTOOPT) => Ok(1),
            Err(e) => Err(e),
        }
    }

    fn take_error(&self) -> Result<i32> {
        Ok(self.error.swap(0, Ordering::Relaxed))
    }

    #[inline]
    fn kick_tx(&self, flags: i32) -> Result<()> {
        let bound = self.bound()?;
        self.called();
        if flags & libc::MSG_DONTWAIT == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // Its owner may be about to sleep in a call that we do not see, which would end at once.
        if self.bell.is_pending() && !self.has_rx() {
            self.settle();
        }
        self.transmit_turn(bound)
    }

    #[inline]
    fn kick_rx(&self, flags: i32) -> Result<()> {
        let bound = self.bound()?;
        self.called();
        if bound.rx.is_none() {
            return Err(Errno::ENOBUFS);
        }
        if flags & libc::MSG_DONTWAIT == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        self.receive();
        Ok(())
    }

    fn readiness(&self) -> i16 {
        if self.alive().is_err() {
            return if self.finished.load(Ordering::Relaxed) { libc::POLLNVAL } else { 0 };
        }
        let mut ready = 0;
        if self.has_rx() {
            ready |= libc::POLLIN | libc::POLLRDNORM;
        }
        if self.is_writable() {
            ready |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if self.error.load(Ordering::Relaxed) != 0 {
            ready |= libc::POLLERR;
        }
        ready
    }

    fn close(&self) {
        let fd = self.number.load(Ordering::Relaxed);
        if self.checked_number().is_some() {
            table::forget_if(fd, self);
            sys::close(fd);
        }
    }

    fn setup(&self) -> Setup {
        let Ok(state) = self.state.lock() else { return Setup::default() };
        let entries = Ring::ALL.map(|r| self.memory.entries(r));
        Setup { umem: state.umem.as_ref().map(|u| u.reg), entries, mapped: state.mapped }
    }

    fn renumber(&self, fd: RawFd) -> Result<()> {
        let old = self.number.load(Ordering::Relaxed);
        let cloexec = sys::is_cloexec(old)?;
        table::forget(fd);
        sys::dup3(old, fd, cloexec)?;
        table::insert(fd, self.me.upgrade().ok_or(Errno::EBADF)?)?;
        self.number.store(fd, Ordering::Relaxed);
        self.memory.page().fd.store(fd.cast_unsigned(), Ordering::Relaxed);
        table::forget_if(old, self);
        sys::close(old);
        Ok(())
    }

    fn relinquish(&self) {
        table::forget_if(self.number.load(Ordering::Relaxed), self);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::memory_going, *};
    use crate::sync::thread;
    use crate::uapi::Socket as _;

    /// Two threads take two halves of a UMEM away: neither call returns before the sending that runs has ended.
    #[test]
    fn whoever_takes_memory_away_waits_until_nothing_touches_it() {
        const LEN: usize = 16 * sys::PAGE;
        let area = sys::map_private(LEN).expect("memory");
        let at = area.as_ptr().expose_provenance();
        let (_, socket) = Socket::create(true, true).expect("a socket");
        let reg = UmemReg { addr: at as u64, len: LEN as u64, chunk_size: 4096, ..UmemReg::default() };
        socket.register_umem(&reg).expect("a UMEM");
        for ring in [Ring::Fill, Ring::Completion, Ring::Tx] {
            socket.set_ring_size(ring, 64).expect("a ring");
        }
        let interface = super::super::interface_named(c"null?").expect("a good name").expect("an interface of ours");
        let addr = SockaddrXdp { family: 44, ifindex: interface.ifindex, ..SockaddrXdp::default() };
        socket.bind(&addr).expect("bound");

        let tx = socket.bound.get().and_then(|b| b.tx.as_ref()).expect("a TX ring");
        assert!(tx.hold());
        let halves = [at, at + LEN / 2].map(|half| thread::spawn(move || memory_going(half, LEN / 2)));
        thread::sleep(Duration::from_millis(100));
        assert!(!halves.iter().any(thread::JoinHandle::is_finished));
        tx.let_go();
        for half in halves {
            half.join().expect("no panic");
        }
        // Memory that was let go is nobody's concern.
        memory_going(at, LEN);
        socket.close();
        sys::unmap(area, LEN);
    }
}
