//! Queues that this process has let go of a moment ago.
//!
//! The kernel frees a queue from a work queue, some 20 ms after the last descriptor of the socket was closed and up to a
//! second later on a loaded machine; until then bind says EBUSY. A program that closes and opens again meets this every
//! time, so bind waits, but only for a queue that this process itself has closed and holds no more: a queue that was never
//! ours is busy at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{errno::Errno, errno::Result, sys};

/// How long after our own close EBUSY may still be the kernel's delay. Seen with eight busy processes on two processors:
/// 1.1 seconds. Somebody who took the queue in between is reported after this time at the latest.
const LIMIT_NS: u64 = 2_000_000_000;
/// Between two attempts.
const STEP: Duration = Duration::from_millis(2);

/// One queue: namespace cookie, interface number, queue number.
pub(super) type Queue = (u64, u32, u32);

#[derive(Debug)]
struct Entry {
    queue: Queue,
    /// Sockets of this process that are bound there.
    bound: usize,
    /// When the last of them was closed; `None` as long as none was.
    closed_ns: Option<u64>,
}

static TABLE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn table() -> MutexGuard<'static, Vec<Entry>> {
    // Every change is one assignment, so a panic elsewhere leaves the table whole.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket of ours is bound there.
pub(super) fn opened(queue: Queue) {
    let mut table = table();
    match table.iter_mut().find(|e| e.queue == queue) {
        Some(entry) => entry.bound += 1,
        None => table.push(Entry { queue, bound: 1, closed_ns: None }),
    }
}

/// A socket of ours that was bound there is closed.
pub(super) fn closed(queue: Queue) {
    let mut table = table();
    // Under the lock, so that no entry is of a later time.
    let now = sys::now_ns();
    // What is long gone is of no use: the table stays as short as the number of queues in use.
    table.retain(|e| e.bound > 0 || e.closed_ns.is_some_and(|at| now - at < LIMIT_NS));
    if let Some(entry) = table.iter_mut().find(|e| e.queue == queue) {
        entry.bound = entry.bound.saturating_sub(1);
        entry.closed_ns = Some(now);
    }
}

/// When we closed our last socket on this queue; `None`: we have one there, or had none.
fn last_close(queue: Queue) -> Option<u64> {
    let table = table();
    let entry = table.iter().find(|e| e.queue == queue && e.bound == 0)?;
    entry.closed_ns
}

/// Call `bind` until it does not say EBUSY, as long as that may be due to our own close.
pub(super) fn retry(queue: impl FnOnce() -> Option<Queue>, bind: impl Fn() -> Result<()>) -> Result<()> {
    let first = bind();
    if first != Err(Errno::EBUSY) {
        return first;
    }
    let Some(until) = queue().and_then(last_close).map(|closed| closed + LIMIT_NS) else { return first };
    while sys::now_ns() < until {
        thread::sleep(STEP);
        let again = bind();
        if again != Err(Errno::EBUSY) {
            return again;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// A queue of no real namespace, one for each test since the table is the process's.
    fn queue(n: u32) -> Queue {
        (u64::MAX, u32::MAX, n)
    }

    #[test]
    fn a_queue_that_we_never_had_is_busy_at_once() {
        let calls = Cell::new(0);
        let busy = || {
            calls.set(calls.get() + 1);
            Err(Errno::EBUSY)
        };
        assert_eq!(retry(|| Some(queue(1)), busy), Err(Errno::EBUSY));
        assert_eq!(calls.get(), 1);
    }

    #[test]
    fn a_queue_that_another_socket_of_ours_still_holds_is_busy_at_once() {
        opened(queue(2));
        opened(queue(2));
        closed(queue(2));
        let calls = Cell::new(0);
        let busy = || {
            calls.set(calls.get() + 1);
            Err(Errno::EBUSY)
        };
        assert_eq!(retry(|| Some(queue(2)), busy), Err(Errno::EBUSY));
        assert_eq!(calls.get(), 1);
    }

    #[test]
    fn after_our_own_close_bind_is_tried_until_it_works() {
        opened(queue(3));
        closed(queue(3));
        let calls = Cell::new(0);
        let freed_later = || {
            calls.set(calls.get() + 1);
            if calls.get() < 4 { Err(Errno::EBUSY) } else { Ok(()) }
        };
        assert_eq!(retry(|| Some(queue(3)), freed_later), Ok(()));
        assert_eq!(calls.get(), 4);
    }

    /// A time that was read before the lock made entries of other threads look older than the limit, and forgot them.
    #[test]
    fn threads_that_close_at_once_do_not_forget_each_others_queues() {
        thread::scope(|scope| {
            for n in 10..14 {
                scope.spawn(move || {
                    for _ in 0..5000 {
                        opened(queue(n));
                        closed(queue(n));
                        assert!(last_close(queue(n)).is_some());
                    }
                });
            }
        });
    }

    #[test]
    fn other_errors_are_not_waited_for() {
        opened(queue(4));
        closed(queue(4));
        let calls = Cell::new(0);
        let refused = || {
            calls.set(calls.get() + 1);
            Err(Errno::EINVAL)
        };
        assert_eq!(retry(|| Some(queue(4)), refused), Err(Errno::EINVAL));
        assert_eq!(calls.get(), 1);
    }
}
