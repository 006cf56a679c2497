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

mod set;
mod table;
mod wait;

use core::{ffi::c_int, mem, ptr};

use libc::epoll_event;
use set::{Entry, kernel_ctl};
use table::{Instance, Table};
pub(super) use table::{duplicate, forget, maybe, sweep};

use super::{Answer, guard, guarded, next};
use crate::{
    engine,
    errno::{Errno, Result},
};

const EPOLLEXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const EPOLLWAKEUP: u32 = 1 << 29;
/// Everything that may stand beside EPOLLEXCLUSIVE.
const WITH_EXCLUSIVE: u32 = EPOLLEXCLUSIVE
    | EPOLLWAKEUP
    | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLET) as u32;

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

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    #[cold]
    #[inline(never)]
    extern "C" fn ours(epoll: c_int, op: c_int, fd: c_int, event: *const epoll_event) -> Answer {
        guarded(|| control(epoll, op, fd, event))
    }
    if super::suspect(fd) {
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
