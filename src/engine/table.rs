//! Descriptor numbers to engine sockets.
//!
//! Looked at by every interposed call of the program, from any thread: a bitmap says in one load whether a number may be
//! ours. A slot per number holds the socket; slots are never freed, so that a reader may touch one at any time, and count
//! the readers that are inside. A socket whose number was closed is released by the last reader to leave.

use core::{ops::Deref, ptr};
use std::os::fd::RawFd;

use super::Socket;
use crate::{
    errno::{Errno, Result},
    sync::{Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Mutex, Ordering},
    sys,
};

/// Numbers below this have a bit; higher ones share one flag.
const BITS: usize = 1 << 16;
const CHUNK: usize = 256;
/// Numbers from `CHUNK * CHUNKS` on cannot be engine sockets (EMFILE).
const CHUNKS: usize = 4096;

static BITMAP: [AtomicU64; BITS / 64] = [const { AtomicU64::new(0) }; BITS / 64];
static HIGH: AtomicBool = AtomicBool::new(false);
/// A socket was made in this process.
static ANY: AtomicBool = AtomicBool::new(false);
/// Numbers that the engine itself needs; they have their bit in `BITMAP` too.
static INTERNAL: [AtomicU64; BITS / 64] = [const { AtomicU64::new(0) }; BITS / 64];
static SLOTS: [AtomicPtr<[Slot; CHUNK]>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];

/// One number. `users` counts readers inside; `socket` is an `Arc::into_raw`, or null.
struct Slot {
    users: AtomicU32,
    retiring: AtomicBool,
    socket: AtomicPtr<Socket>,
    retired: Mutex<Vec<Arc<Socket>>>,
}

impl Slot {
    /// Release what was taken out, if nobody is inside.
    #[cold]
    fn reap(&self) {
        let reaped = {
            let Ok(mut retired) = self.retired.lock() else { return };
            // SC: pairs with the reader's increment in `lookup`. Everything in the list was taken out of `socket` before it
            // was pushed, so a reader who still holds it is counted here.
            if self.users.load(Ordering::SeqCst) != 0 {
                return;
            }
            self.retiring.store(false, Ordering::SeqCst);
            core::mem::take(&mut *retired)
        };
        drop(reaped);
    }
}

fn slot(fd: RawFd) -> Option<&'static Slot> {
    let n = usize::try_from(fd).ok()?;
    // A1: pairs with the publication in `slot_made`.
    let chunk = SLOTS.get(n / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that `slot_made` leaked.
    unsafe { chunk.as_ref() }.map(|c| &c[n % CHUNK])
}

fn slot_made(fd: RawFd) -> Result<&'static Slot> {
    if let Some(slot) = slot(fd) {
        return Ok(slot);
    }
    let n = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
    let place = SLOTS.get(n / CHUNK).ok_or(Errno::EMFILE)?;
    let fresh: Box<[Slot; CHUNK]> = Box::new(
        [const {
            Slot {
                users: AtomicU32::new(0),
                retiring: AtomicBool::new(false),
                socket: AtomicPtr::new(ptr::null_mut()),
                retired: Mutex::new(Vec::new()),
            }
        }; CHUNK],
    );
    let fresh = Box::into_raw(fresh);
    // Publishes the chunk to `slot`; a loser of the race takes the winner's.
    if place.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: made above and seen by nobody.
        drop(unsafe { Box::from_raw(fresh) });
    }
    slot(fd).ok_or(Errno::EMFILE)
}

fn mark(fd: RawFd, ours: bool) {
    let n = fd as usize;
    match BITMAP.get(n / 64) {
        Some(word) if ours => word.fetch_or(1 << (n % 64), Ordering::AcqRel),
        // Acquire: `take_out` looks afterwards for what those did who set it before.
        Some(word) => word.fetch_and(!(1 << (n % 64)), Ordering::AcqRel),
        // The flag for high numbers stays: it only costs them a look at the slot.
        None => {
            HIGH.fetch_or(ours, Ordering::Release);
            0
        }
    };
}

/// Whether any engine socket was made so far: one relaxed load.
#[inline]
pub fn any_socket() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Whether the engine itself needs `fd` (the far end of a socket, its memory, the worker's descriptors), so that the program
/// must not close it or put something else under it. Only for numbers below 65536.
pub fn is_internal(fd: RawFd) -> bool {
    let n = fd as u32 as usize;
    INTERNAL.get(n / 64).is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (n % 64)) != 0)
}

/// The engine needs this number from now on, or no more: to be told before it is closed.
pub(super) fn set_internal(fd: RawFd, needed: bool) {
    let n = fd as u32 as usize;
    let (Some(word), bit) = (INTERNAL.get(n / 64), 1 << (n % 64)) else { return };
    if needed {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    mark(fd, needed);
}

/// A descriptor that the engine or a device needs: the program cannot close it, unless it goes around the C library.
#[derive(Debug)]
pub(crate) struct InternalFd(RawFd);

impl InternalFd {
    /// Own `fd`.
    pub(crate) fn new(fd: RawFd) -> InternalFd {
        set_internal(fd, true);
        InternalFd(fd)
    }

    /// Its number.
    #[inline]
    pub(crate) fn number(&self) -> RawFd {
        self.0
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        set_internal(self.0, false);
        sys::close(self.0);
    }
}

/// Whether `fd` may be an engine socket, or is [`is_internal`]: one relaxed load. No false negative for a number that its
/// program got from us.
#[inline]
pub fn maybe_ours(fd: RawFd) -> bool {
    let n = fd as u32 as usize;
    match BITMAP.get(n / 64) {
        Some(word) => word.load(Ordering::Relaxed) & (1 << (n % 64)) != 0,
        None => fd >= 0 && HIGH.load(Ordering::Relaxed),
    }
}

/// As [`maybe_ours`], but true for every number beyond the bitmap too: the quickest way to tell that a number is not ours.
#[inline]
pub fn suspect(fd: RawFd) -> bool {
    let n = fd as u32 as usize;
    BITMAP.get(n / 64).is_none_or(|word| word.load(Ordering::Relaxed) & (1 << (n % 64)) != 0)
}

/// An engine socket in use by the caller; it stays alive until this is dropped.
#[derive(Debug)]
pub struct SocketRef {
    slot: &'static Slot,
    socket: *const Socket,
}

impl core::fmt::Debug for Slot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slot").field("users", &self.users).finish_non_exhaustive()
    }
}

impl SocketRef {
    /// A reference that may be kept, for a call that sleeps.
    pub fn share(&self) -> Arc<Socket> {
        // SAFETY: came from Arc::into_raw and is alive while we are counted in the slot.
        unsafe { Arc::increment_strong_count(self.socket) };
        // SAFETY: the count was raised for this Arc.
        unsafe { Arc::from_raw(self.socket) }
    }
}

impl Deref for SocketRef {
    type Target = Socket;
    #[inline]
    fn deref(&self) -> &Socket {
        // SAFETY: alive while we are counted in the slot.
        unsafe { &*self.socket }
    }
}

impl Drop for SocketRef {
    #[inline]
    fn drop(&mut self) {
        // SC: with the store to `retiring` in `take_out`: the last to leave, or the closer, sees the other.
        if self.slot.users.fetch_sub(1, Ordering::SeqCst) == 1 && self.slot.retiring.load(Ordering::SeqCst) {
            self.slot.reap();
        }
    }
}

/// The engine socket of a number, without asking the kernel whether the number was reused. For the two kick forms only.
#[inline]
pub fn lookup(fd: RawFd) -> Option<SocketRef> {
    if !maybe_ours(fd) {
        return None;
    }
    let found = lookup_any(fd)?;
    if !found.is_owned() && sys::identity(fd) != Ok(found.identity()) {
        // A forked child, which closes and opens numbers of its own: nothing there is hot.
        forget_found(fd, &found);
        return None;
    }
    Some(found)
}

/// The engine socket of a number, after `fstat` said that the number still stands for it; if not, the number is forgotten.
pub fn lookup_verified(fd: RawFd) -> Option<SocketRef> {
    let found = lookup(fd)?;
    if sys::identity(fd).is_ok_and(|id| id == found.identity()) {
        return Some(found);
    }
    forget_found(fd, &found);
    None
}

/// Put a socket under its first number.
pub(super) fn insert(fd: RawFd, socket: Arc<Socket>) -> Result<()> {
    let slot = slot_made(fd)?;
    // A number that was closed behind our back and came up again for a socket of ours.
    take_out(fd, slot, slot.socket.load(Ordering::SeqCst));
    socket.gained_number();
    slot.socket.store(Arc::into_raw(socket).cast_mut(), Ordering::SeqCst);
    mark(fd, true);
    ANY.store(true, Ordering::Relaxed);
    Ok(())
}

/// Empty the slot of a number if it still holds `old`, and give the socket its due. Another thread may have put a new socket
/// there meanwhile, under a number that came up again: that one stays.
fn take_out(fd: RawFd, slot: &'static Slot, old: *mut Socket) {
    if old.is_null() || slot.socket.compare_exchange(old, ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst).is_err()
    {
        return;
    }
    mark(fd, false);
    // The number may be another's by now, who set the bit before we cleared it.
    if is_internal(fd) || !slot.socket.load(Ordering::SeqCst).is_null() {
        mark(fd, true);
    }
    // SAFETY: from Arc::into_raw in `insert`; the exchange made us its only owner.
    let socket = unsafe { Arc::from_raw(old.cast_const()) };
    socket.lost_number();
    if !socket.is_owned() {
        // A forked child: the lock may have been held by a thread that it does not have. What was the parent's is left.
        core::mem::forget(socket);
        return;
    }
    if let Ok(mut retired) = slot.retired.lock() {
        retired.push(socket);
    }
    slot.retiring.store(true, Ordering::SeqCst);
    slot.reap();
}

/// The program closed this number (the native close is the caller's). In a forked child this changes nothing but the
/// child's own table; in a `vfork` child, whose memory is the parent's, nothing at all.
pub fn forget(fd: RawFd) {
    if !maybe_ours(fd) {
        return;
    }
    if let Some(found) = lookup_any(fd) {
        forget_found(fd, &found);
    }
}

/// [`forget`], if the number still stands for what was found there: it may have come up again for a new socket since.
fn forget_found(fd: RawFd, found: &SocketRef) {
    if !found.is_owned() || found.made_here() {
        // The socket is released when `found` is dropped, at the earliest.
        take_out(fd, found.slot, found.socket.cast_mut());
    }
}

/// As [`lookup`], in whatever process.
#[inline]
fn lookup_any(fd: RawFd) -> Option<SocketRef> {
    let slot = slot(fd)?;
    // SC: counted before the pointer is read; pairs with the exchange and the look at `users` in `take_out`.
    slot.users.fetch_add(1, Ordering::SeqCst);
    let socket = slot.socket.load(Ordering::SeqCst);
    let found = SocketRef { slot, socket };
    // Dropping `found` leaves the slot; a null pointer in it is never followed.
    if socket.is_null() { None } else { Some(found) }
}

/// Forget `fd` only if it still stands for `socket`.
pub(super) fn forget_if(fd: RawFd, socket: &Socket) {
    if let Some(found) = lookup(fd).filter(|found| ptr::eq(&raw const **found, socket)) {
        forget_found(fd, &found);
    }
}

/// Every number of the socket was closed by calls that we did not see.
#[cold]
pub(super) fn forget_all(socket: &Socket) {
    for (chunk, place) in SLOTS.iter().enumerate() {
        // A1, see `slot`.
        // SAFETY: null, or a chunk that `slot_made` leaked.
        let Some(slots) = (unsafe { place.load(Ordering::Acquire).as_ref() }) else { continue };
        for (at, slot) in slots.iter().enumerate() {
            // Only compared: `forget_if` looks again, and counts itself in first.
            if ptr::eq(slot.socket.load(Ordering::SeqCst), socket)
                && let Ok(fd) = RawFd::try_from(chunk * CHUNK + at)
            {
                forget_if(fd, socket);
            }
        }
    }
}

/// `new` is now another number for the engine socket `old` (after the native dup). Not in a `vfork` child, which has numbers
/// of its own and its parent's memory.
pub fn duplicate(old: RawFd, new: RawFd) {
    if let Some(found) = lookup(old)
        && (!found.is_owned() || found.made_here())
    {
        // A number beyond the table is served by the kernel's socket pair alone.
        let _ = insert(new, found.share());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uapi::Socket as _;

    /// A thread finds a socket whose number was closed and, before it forgets it, given to a new one: the new one stays.
    #[test]
    fn a_late_look_does_not_forget_the_next_socket() {
        const NUMBER: RawFd = 600;
        let (_, old) = Socket::create(true, false).expect("a socket");
        old.renumber(NUMBER).expect("a number");
        let late = lookup(NUMBER).expect("the old socket");
        sys::close(NUMBER);
        let (_, new) = Socket::create(true, false).expect("another socket");
        new.renumber(NUMBER).expect("the same number");
        forget_found(NUMBER, &late);
        drop(late);
        assert!(lookup_verified(NUMBER).is_some_and(|found| ptr::eq(&raw const *found, &raw const *new)));
        new.close();
        assert!(lookup(NUMBER).is_none());
    }
}
