//! The far end of a wire in another process: how the two find each other, lose each other and find each other again.
//!
//! Each end makes its memory (`memory`) and hands it over in a *hello*, with a number that names it and the number of the
//! memory that it has of the addressee. An end that gets a hello with a number it does not know attaches that memory, and
//! answers with a hello of its own unless the hello shows that the sender has its memory already. A memory is used with one
//! far end only, so what was in flight to or from an earlier one is gone with it.
//!
//! The far end is gone when its process has ended (its pidfd) or has closed its socket of the session (exec, and where there is
//! no pidfd). Everything here is cold and under one lock; the worker thread calls [`Far::attend`] when `epoll` is readable.

use std::time::{Duration, Instant};

use super::{
    Facts, Tally,
    directory::{Directory, Names},
    local::{Opening, Side, Wire},
    memory::Memory,
    post::{Arrival, Letter, Post, Unreadable},
    session::{self, About, Session, Start},
};
use crate::{
    config::End,
    engine::InternalFd,
    errno::{Errno, Result},
    sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, RwLock},
    sys, warn,
};

/// How long opening an end waits for the answer of a far end that is there.
const GREETING: Duration = Duration::from_millis(500);
/// Messages that are read in one go.
const LETTERS: u32 = 64;

/// Kinds of descriptors in `epoll`; above it the number of the session.
const POST: u64 = 0;
const LINE: u64 = 1;
const PROCESS: u64 = 2;

/// Memory that no far end has used yet, and the socket pair of its session.
#[derive(Debug)]
struct Offer {
    generation: u64,
    memory: Memory,
    /// Ours: the far end rings here, and closes the other when it goes.
    kept: InternalFd,
    /// To be handed over.
    given: InternalFd,
}

/// What changes under the lock.
#[derive(Debug)]
struct Control {
    post: Post,
    offer: Option<Offer>,
    /// Number of our memory in the session.
    generation: u64,
    /// Of the session: our end of the socket pair, and the far process.
    watched: Vec<InternalFd>,
    /// What a hello that the far end has to get hands over.
    owed: Option<InternalFd>,
    /// The far end was not called yet, for its socket was full.
    calls: bool,
    serial: u64,
    told_version: bool,
    /// Process whose hello was last told to be of no use.
    told_refused: u32,
    told_user: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Far {
    /// For messages: the wire's end.
    name: String,
    facts: Facts,
    about: About,
    wire: Arc<Wire>,
    end: End,
    own: Arc<Side>,
    /// Files of the other end.
    others: Names,
    pub(super) epoll: InternalFd,
    session: RwLock<Option<Session>>,
    control: Mutex<Control>,
    /// There is a session, for a look without a lock.
    there: AtomicBool,
    /// A hello could not be sent yet.
    owes: AtomicBool,
}

/// A number that no other memory has, never 0.
fn fresh_generation() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (sys::now_ns() ^ u64::from(sys::getpid()) << 40 ^ count << 56) | 1
}

impl Offer {
    fn new(lines: u32) -> Result<Offer> {
        let (kept, given) = sys::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)?;
        let (kept, given) = (InternalFd::new(kept), InternalFd::new(given));
        Ok(Offer { generation: fresh_generation(), memory: Memory::new(lines)?, kept, given })
    }
}

impl Far {
    /// Ready for a far end, and known to one that is there already.
    pub(super) fn open(
        name: String,
        facts: Facts,
        about: About,
        (wire, end): (&Arc<Wire>, End),
        own: &Arc<Side>,
        others: Names,
    ) -> Result<Far> {
        let epoll = InternalFd::new(sys::epoll()?);
        let post = {
            let held = own.held.lock().map_err(|_| Errno::EIO)?;
            let held = held.as_ref().ok_or(Errno::EIO)?;
            Post::named(held.directory(), &held.names().socket)?
        };
        sys::epoll_add(epoll.number(), post.number(), libc::EPOLLIN.cast_unsigned(), POST)?;
        let control = Control {
            post,
            offer: Some(Offer::new(about.lines)?),
            generation: 0,
            watched: Vec::new(),
            owed: None,
            calls: false,
            serial: 1,
            told_version: false,
            told_refused: 0,
            told_user: false,
        };
        Ok(Far {
            name,
            facts,
            about,
            wire: Arc::clone(wire),
            end,
            own: Arc::clone(own),
            others,
            epoll,
            session: RwLock::new(None),
            control: Mutex::new(control),
            there: AtomicBool::new(false),
            owes: AtomicBool::new(false),
        })
    }

    /// Call a far end that is there, and wait a little for its answer, so that frames sent at once arrive.
    pub(super) fn greet(&self) -> Result<()> {
        if self.holder_of_other().is_none() {
            return Ok(());
        }
        {
            let mut control = self.lock()?;
            if self.call(&mut control).is_err() {
                // It is not listening yet, and will call us; or it is stopped with a full socket, and we try again.
                return Ok(());
            }
        }
        let deadline = Instant::now() + GREETING;
        while self.session.read().is_ok_and(|s| s.is_none()) && Instant::now() < deadline {
            let mut ready = [libc::pollfd { fd: self.epoll.number(), events: libc::POLLIN, revents: 0 }];
            let _ = sys::poll(&mut ready, 10);
            self.attend();
        }
        Ok(())
    }

    /// Send the first hello. EAGAIN: the far end's socket is full, and [`Far::is_settled`] tries again.
    fn call(&self, control: &mut Control) -> Result<()> {
        let Some(offer) = &control.offer else { return Ok(()) };
        let letter = Letter::Hello { generation: offer.generation, answers: 0, about: self.about };
        let sent = self.send(control, &letter, &[offer.memory.fd(), offer.given.number()]);
        control.calls = sent == Err(Errno::EAGAIN);
        self.owes.store(control.calls, Ordering::Relaxed);
        sent
    }

    fn lock(&self) -> Result<MutexGuard<'_, Control>> {
        self.control.lock().map_err(|_| Errno::EIO)
    }

    fn with_directory<R>(&self, f: impl FnOnce(&Directory) -> R) -> Option<R> {
        let held = self.own.held.lock().ok()?;
        held.as_ref().map(|held| f(held.directory()))
    }

    /// Call `f` with the directory unless this process has the other end too, whose lock would be lost; see `directory`.
    fn with_other<R>(&self, f: impl FnOnce(&Directory) -> R) -> Option<R> {
        let _opening = Opening::begin().ok()?;
        if self.wire.has(self.end.other()) { None } else { self.with_directory(f) }
    }

    /// The other process that has the other end.
    fn holder_of_other(&self) -> Option<u32> {
        self.with_other(|directory| directory.holder(&self.others)).flatten()
    }

    fn send(&self, control: &Control, letter: &Letter, fds: &[i32]) -> Result<()> {
        self.with_directory(|directory| control.post.send(directory, &self.others.socket, letter, fds))
            .unwrap_or(Err(Errno::ENOTCONN))
    }

    /// Call `f` with the session, if a far end is attached.
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&Session) -> R) -> Option<R> {
        let session = self.session.read().ok()?;
        session.as_ref().map(f)
    }

    /// Whether a far end was ever attached.
    #[inline]
    pub(super) fn has_session(&self) -> bool {
        self.there.load(Ordering::Relaxed)
    }

    /// Change who receives on a queue with `change`, and tell the far end.
    pub(super) fn connect(&self, queue: u32, change: impl FnOnce() -> Result<bool>) -> Result<()> {
        let _control = self.lock()?;
        self.with(|session| session.set_open(queue, false));
        let somebody = change()?;
        if somebody && self.own.is_plugged() {
            self.with(|session| session.set_open(queue, true));
        }
        Ok(())
    }

    /// Plug the cable in or out.
    fn set_link(&self, up: bool) {
        self.own.link.store(up, Ordering::Relaxed);
        for (queue, port) in (0..).zip(&self.own.ports) {
            self.with(|session| session.set_open(queue, up && port.is_connected()));
        }
    }

    /// Whether there is nothing that must be tried again.
    pub(super) fn is_settled(&self) -> bool {
        if self.owes.load(Ordering::Relaxed)
            && let Ok(mut control) = self.lock()
        {
            self.answer(&mut control);
        }
        !self.owes.load(Ordering::Relaxed)
    }

    /// Do what the descriptor asks for: read messages, notice that the far end has gone.
    pub(super) fn attend(&self) -> Attended {
        let mut attended = Attended::default();
        let Ok(mut control) = self.lock() else { return attended };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        let n = sys::epoll_wait(self.epoll.number(), &mut events, 0).unwrap_or(0);
        for event in &events[..n] {
            let (kind, serial) = (event.u64 & 3, event.u64 >> 2);
            if kind == POST {
                for _ in 0..LETTERS {
                    let Some(arrival) = control.post.receive() else { break };
                    self.read(&mut control, arrival, &mut attended);
                }
            } else if serial == control.serial {
                let hung_up = event.events & (libc::EPOLLHUP | libc::EPOLLRDHUP).cast_unsigned() != 0;
                if kind == PROCESS || hung_up {
                    self.detach(&mut control);
                } else if let Some(line) = control.watched.first() {
                    // Bounded: the far end may ring without end.
                    for _ in 0..LETTERS {
                        if sys::recv(line.number(), &mut [0; 8], libc::MSG_DONTWAIT).is_err() {
                            break;
                        }
                    }
                }
            }
        }
        attended
    }

    fn read(&self, control: &mut Control, arrival: Arrival, attended: &mut Attended) {
        // Nobody else can enter the directory; root can, and has its own.
        let user = sys::geteuid();
        if arrival.uid != user {
            if !core::mem::replace(&mut control.told_user, true) {
                warn!(
                    "{}: process {} of user {} is not heard, for this process is user {user}; if it has changed its user, let it \
                     do that before it opens the end",
                    self.name, arrival.pid, arrival.uid
                );
            }
            return;
        }
        match arrival.letter {
            Ok(Letter::Hello { generation, answers, about }) => {
                let [memory, bell] = arrival.fds;
                let (Some(memory), Some(bell)) = (memory, bell) else { return };
                let known = self.with(|session| session.generation) == Some(generation);
                if known {
                    return;
                }
                // Its sender may have died long ago, or be no end at all.
                if self.holder_of_other() != Some(arrival.pid) {
                    return;
                }
                let attached = self.attach(control, about, generation, arrival.pid, answers, memory, bell);
                if let Err(error) = attached
                    && core::mem::replace(&mut control.told_refused, arrival.pid) != arrival.pid
                {
                    warn!(
                        "{}: cannot attach the far end (process {}): {error}; if it is of the same version of the library, look \
                         for a lack of memory or descriptors",
                        self.name, arrival.pid
                    );
                }
            }
            Ok(letter @ (Letter::Link(_) | Letter::Status)) => {
                if let Letter::Link(up) = letter {
                    self.set_link(up);
                }
                if let [Some(reply), _] = arrival.fds {
                    attended.asked.push((reply, self.status()));
                }
            }
            Err(Unreadable::Version(version)) => {
                if !core::mem::replace(&mut control.told_version, true) {
                    warn!(
                        "{}: process {} speaks version {version} of the wire's protocol, which this library does not; use the same \
                         version of the library on both ends",
                        self.name, arrival.pid
                    );
                }
            }
            Err(Unreadable::Nonsense) => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a hello brings")]
    fn attach(
        &self,
        control: &mut Control,
        about: About,
        generation: u64,
        pid: u32,
        answers: u64,
        memory: InternalFd,
        bell: InternalFd,
    ) -> Result<()> {
        session::check(&about)?;
        let mut domain = 0i32;
        sys::getsockopt(bell.number(), libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain)?;
        if domain != libc::AF_UNIX {
            return Err(Errno::EPROTO);
        }
        let theirs = Memory::of_peer(memory, about.lines)?;
        let offer = control.offer.take().map_or_else(|| Offer::new(self.about.lines), Ok)?;
        let start = Start {
            name: self.name.clone(),
            facts: self.facts,
            ours: offer.memory,
            theirs,
            about,
            pid,
            generation,
            bell,
        };
        let session = Session::new(start)?;
        for (queue, port) in (0..).zip(&self.own.ports) {
            session.set_open(queue, self.own.is_plugged() && port.is_connected());
        }
        self.detach_watched(control);
        control.serial += 1;
        control.generation = offer.generation;
        let watch = |fd: &InternalFd, kind: u64| {
            let events = (libc::EPOLLIN | libc::EPOLLRDHUP).cast_unsigned();
            sys::epoll_add(self.epoll.number(), fd.number(), events, control.serial << 2 | kind)
        };
        watch(&offer.kept, LINE)?;
        control.watched.push(offer.kept);
        // Without it (an old kernel, a process that cannot be seen) the closed socket tells.
        if let Ok(process) = sys::pidfd(pid).map(InternalFd::new)
            && watch(&process, PROCESS).is_ok()
        {
            control.watched.push(process);
        }
        *self.session.write().map_err(|_| Errno::EIO)? = Some(session);
        self.there.store(true, Ordering::Relaxed);
        if answers != offer.generation {
            control.owed = Some(offer.given);
            self.answer(control);
        }
        Ok(())
    }

    /// Send the hello that is owed to the far end.
    fn answer(&self, control: &mut Control) {
        if control.calls {
            let _ = self.call(control);
            return;
        }
        let Some(given) = control.owed.take() else { return };
        let Some((generation, memory)) = self.with(|session| (session.generation, session.memory_fd())) else { return };
        let letter = Letter::Hello { generation: control.generation, answers: generation, about: self.about };
        let again = self.send(control, &letter, &[memory, given.number()]) == Err(Errno::EAGAIN);
        // Our copy of what is handed over is closed: the far end's being closed then shows.
        control.owed = again.then_some(given);
        self.owes.store(again, Ordering::Relaxed);
    }

    fn detach_watched(&self, control: &mut Control) {
        for fd in control.watched.drain(..) {
            // A forked child may have it open too.
            sys::epoll_remove(self.epoll.number(), fd.number());
        }
        control.owed = None;
        control.calls = false;
        self.owes.store(false, Ordering::Relaxed);
    }

    /// The far end has gone; what it leaves is removed. What it has sent can be received until another is attached.
    fn detach(&self, control: &mut Control) {
        self.detach_watched(control);
        self.with(Session::end);
        self.with_other(|directory| directory.sweep(&self.others));
    }

    /// The end is given back.
    pub(super) fn close(&self) {
        if let Ok(mut control) = self.lock() {
            self.detach_watched(&mut control);
            if let Ok(mut session) = self.session.write() {
                self.there.store(false, Ordering::Relaxed);
                *session = None;
            }
        }
    }

    /// Words for `slipring wires`, in the form KEY=VALUE.
    fn status(&self) -> String {
        let link = if self.own.is_plugged() { "up" } else { "down" };
        let mut text = format!("queues={} mtu={} link={link}", self.about.queues, self.about.mtu);
        self.with(|session| {
            if !session.is_live() && !session.is_faulty() {
                return;
            }
            let faulty = if session.is_faulty() { " faulty=1" } else { "" };
            text += &format!(" peer={} received={}{faulty}", session.pid, session.received.load(Ordering::Relaxed));
        });
        text
    }
}

/// What is left to be done after [`Far::attend`] without its lock.
#[derive(Debug, Default)]
pub(super) struct Attended {
    asked: Vec<(InternalFd, String)>,
}

impl Attended {
    /// Answer those who asked how we are.
    pub(super) fn answer(self, tally: &Tally) {
        for (to, text) in self.asked {
            let counters = tally.read();
            let text = format!(
                "{text} sent={} bytes={} dropped={}",
                counters.tx_frames, counters.tx_bytes, counters.tx_dropped
            );
            let _ = sys::send(to.number(), text.as_bytes(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        }
    }
}
