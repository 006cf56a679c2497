//! Sockets of ours in the set of a `poll` or `select`.

use core::{ffi::c_int, mem, ptr};

use super::scratch::Scratch;
use crate::{engine, errno::Result, sync::Arc, uapi::Socket as _};

/// What the kernel is asked about ours: as far as the program asks for it.
const WATCHED: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLWRNORM;

/// What of a socket's readiness a poll that asks for `events` is told.
pub(super) fn told(ready: i16, events: i16) -> i16 {
    let mut all = ready;
    if ready & libc::POLLIN != 0 {
        all |= libc::POLLRDNORM;
    }
    if ready & libc::POLLOUT != 0 {
        all |= libc::POLLWRNORM;
    }
    all & (events | libc::POLLERR | libc::POLLHUP)
}

/// One of our sockets in a set. `socket` is an `Arc::into_raw`.
#[derive(Clone, Copy)]
pub(super) struct Member {
    socket: *const engine::Socket,
    fd: c_int,
    /// Where in the program's set it stands.
    pub(super) place: usize,
    pub(super) events: i16,
    /// What is ready of that.
    pub(super) ready: i16,
    /// The number does not stand for the socket any more.
    closed: bool,
    announced: bool,
    /// The kernel woke us for it.
    pub(super) woken: bool,
}

impl Member {
    fn socket(&self) -> &engine::Socket {
        // SAFETY: the Arc is given back in `Members::release` only, which empties the list.
        unsafe { &*self.socket }
    }

    /// What the next sleep watches it for; the kernel's poll wakes for errors in any case. `None`: its number was closed, and
    /// may be another file's by now.
    pub(super) fn watched(&self) -> Option<(c_int, i16)> {
        (!self.closed).then_some((self.fd, self.events & WATCHED))
    }

    /// The answer that the program gets about it. The kernel does not wake a sleeper for a number that another thread closes,
    /// and says so when the sleeper wakes.
    pub(super) fn answer(&self) -> i16 {
        if self.is_closed() { libc::POLLNVAL } else { self.ready }
    }

    fn is_closed(&self) -> bool {
        self.closed || engine::lookup(self.fd).is_none_or(|found| !ptr::eq(&raw const *found, self.socket))
    }

    /// Find out whether the number was closed, also by a call that we did not see.
    pub(super) fn check(&mut self) {
        drop(engine::lookup_verified(self.fd));
        if self.is_closed() {
            self.closed = true;
            self.ready = 0;
        }
    }
}

/// Our sockets in a set. To be released with [`Members::release`], there is no destructor.
pub(super) struct Members(Scratch<Member, 16>);

impl Members {
    pub(super) const fn new() -> Members {
        Members(Scratch::new())
    }

    pub(super) fn list(&self) -> &[Member] {
        self.0.list()
    }

    pub(super) fn list_mut(&mut self) -> &mut [Member] {
        self.0.list_mut()
    }

    /// Take in the socket of `fd`, if it is one of ours.
    pub(super) fn add(&mut self, fd: c_int, place: usize, events: i16) -> Result<bool> {
        let Some(found) = engine::lookup_verified(fd) else { return Ok(false) };
        let socket = Arc::into_raw(found.share());
        let member = Member { socket, fd, place, events, ready: 0, closed: false, announced: false, woken: false };
        self.0.push(member).map(|()| true).inspect_err(|_| {
            // SAFETY: made above and not kept.
            drop(unsafe { Arc::from_raw(socket) });
        })
    }

    /// What the kernel's `poll` does to each. Returns how many are ready.
    pub(super) fn turn(&mut self) -> usize {
        self.look(engine::Socket::poll_turn)
    }

    fn look(&mut self, readiness: impl Fn(&engine::Socket) -> i16) -> usize {
        let mut count = 0;
        for member in self.0.list_mut().iter_mut().filter(|m| !m.closed) {
            member.ready = told(readiness(member.socket()), member.events);
            count += usize::from(member.ready != 0);
        }
        count
    }

    /// Announce the wait on each, then look again. Returns how many are ready.
    pub(super) fn announce(&mut self) -> usize {
        for member in self.0.list_mut().iter_mut().filter(|m| !m.closed) {
            if member.events & (libc::POLLOUT | libc::POLLWRNORM) != 0 {
                member.socket().send_on();
            }
            // Anew for what woke us for nothing: that puts the descriptor right.
            if mem::take(&mut member.woken) && mem::take(&mut member.announced) {
                member.socket().end_wait();
            }
            if !mem::replace(&mut member.announced, true) {
                member.socket().begin_wait(member.events);
            }
        }
        self.look(|socket| socket.readiness())
    }

    /// Take back the announcements and give everything back.
    pub(super) fn release(&mut self) {
        for member in self.0.list() {
            if member.announced {
                member.socket().end_wait();
            }
            // SAFETY: from Arc::into_raw in `add`; the list is emptied below.
            drop(unsafe { Arc::from_raw(member.socket) });
        }
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_told_what_it_asks_for_and_errors() {
        use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM};
        assert_eq!(told(POLLIN | POLLOUT, POLLIN), POLLIN);
        assert_eq!(told(POLLIN | POLLOUT, POLLOUT | POLLWRNORM), POLLOUT | POLLWRNORM);
        assert_eq!(told(POLLIN, POLLRDNORM | POLLOUT), POLLRDNORM);
        assert_eq!(told(POLLIN, 0), 0);
        assert_eq!(told(POLLERR | POLLHUP, 0), POLLERR | POLLHUP);
        assert_eq!(told(POLLNVAL, POLLIN), 0);
    }
}
