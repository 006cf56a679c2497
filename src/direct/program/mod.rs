//! The default XDP program: joining the one that is on an interface or bringing one, and leaving again.
//!
//! Any number of processes share it, libxdp's users among them: a counter in one of its maps says how many, and whoever
//! takes it to 0 detaches the program. Counter changes are made under a lock that all of them use ([`lock`]). Looking is
//! not, so joining is a loop: whatever another process does in between, look again. A process that dies leaves its
//! references in the counter; the [`register`] tells which these are, and who comes or goes next takes them away.

mod btf;
mod find;
mod image;
mod lock;
mod probe;
mod register;
pub mod survey;

use std::{fs, os::fd::RawFd, thread, time::Duration};

use find::{Counter, Default, Found};
use image::Loaded;
use lock::Lock;
use register::{Record, Register};

use super::{
    bpf,
    calls::{self, Creator, OwnedFd},
    netlink::{Link, Netlink, Refused},
};
use crate::{
    errno::{Errno, Result},
    sys,
    uapi::{self, Program, XDP_FLAGS_DRV_MODE, XDP_FLAGS_HW_MODE, XDP_FLAGS_SKB_MODE, XDP_FLAGS_UPDATE_IF_NOEXIST},
    warn,
};

/// How long others may keep an interface in between two states before joining gives up.
const LIMIT_NS: u64 = 5_000_000_000;
/// How long a counter may stand at 0 with the program attached before its last user counts as dead. libxdp detaches right
/// after it has set 0.
const STALE_NS: u64 = 1_000_000_000;
/// How long a dispatcher's programs may stay unseen.
const UNSEEN_NS: u64 = 500_000_000;
/// First and longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(8));

/// Take a reference for one socket. `xdp_flags` choose the mode; native unless they say otherwise.
pub(super) fn join(ifindex: u32, xdp_flags: u32) -> Result<Box<dyn Program>> {
    Ok(Box::new(Reference { shared: acquire(ifindex, xdp_flags, true)?, creator: Creator::this() }))
}

/// Take a reference that is never given back; returns a descriptor of the socket map.
pub(super) fn permanent(ifindex: u32) -> Result<RawFd> {
    Ok(acquire(ifindex, XDP_FLAGS_DRV_MODE, false)?.sockets.into_raw())
}

/// One counted reference on the program of an interface.
#[derive(Debug)]
struct Shared {
    /// Opened in the interface's namespace, and in it for good: a program may be in another one when it deletes.
    netlink: Netlink,
    ifindex: u32,
    sockets: OwnedFd,
    /// Queues that the socket map has room for.
    entries: u32,
    /// `None`: a program of an old libxdp, which is not counted and never detached.
    counter: Option<Counter>,
    /// Id of the program.
    program: u32,
    /// What makes the reference known to be ours. `None`: nothing can, or it is not to be given back.
    record: Option<Record>,
}

/// A reference that is given back when dropped.
#[derive(Debug)]
struct Reference {
    shared: Shared,
    /// The process that took it. A forked child has a copy of the object but not of the reference.
    creator: Creator,
}

impl Program for Reference {
    fn insert(&self, queue: u32, socket: &dyn uapi::Socket) -> Result<()> {
        if !self.creator.is_us_or_gone() {
            return Ok(());
        }
        bpf::map_update(self.shared.sockets.raw(), queue, &socket.fd().to_ne_bytes())
    }

    fn remove(&self, queue: u32) -> Result<()> {
        if !self.creator.is_us_or_gone() {
            return Ok(());
        }
        bpf::map_delete(self.shared.sockets.raw(), queue)
    }

    fn check(&self, queue: u32) -> Result<()> {
        if queue < self.shared.entries {
            return Ok(());
        }
        let link =
            self.shared.netlink.link(self.shared.ifindex).inspect_err(|e| cannot_ask(self.shared.ifindex, *e))?;
        if queue >= device_queues(&link) {
            // No such queue: bind is the one to say so.
            return Ok(());
        }
        warn!(
            "the default XDP program on {} has room for {} queues only; whoever loaded it must stop before queue {queue} \
             can be used",
            name(&link),
            self.shared.entries
        );
        Err(Errno::E2BIG)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if self.creator.is_us_or_gone()
            && let Err(error) = self.shared.leave()
        {
            warn!(
                "cannot give back the default XDP program on interface {}: {error}; if it stays there, the next program that \
                 uses it takes it off, or see slipring doctor",
                self.shared.ifindex
            );
        }
    }
}

/// The mode that libxdp's flags ask for. There is no silent change to generic mode.
fn mode_of(xdp_flags: u32) -> u32 {
    const KNOWN: u32 = 0x1f;
    if xdp_flags & !KNOWN != 0 {
        warn!("xdp_flags {xdp_flags:#x}: unknown bits {:#x} have no effect", xdp_flags & !KNOWN);
    }
    let asked = [XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE, XDP_FLAGS_HW_MODE].into_iter().find(|m| xdp_flags & m != 0);
    asked.unwrap_or(XDP_FLAGS_DRV_MODE)
}

/// Queues that a device can have.
fn device_queues(link: &Link) -> u32 {
    // Drivers that do not answer say EOPNOTSUPP; what the device was made with is then all there is.
    let channels = calls::max_channels(&link.name).unwrap_or(0);
    channels.max(link.rx_queues).max(link.tx_queues).max(1)
}

fn name(link: &Link) -> String {
    String::from_utf8_lossy(&link.name).into_owned()
}

/// Join the program that is on the interface, or bring one.
/// `registered`: the reference will be given back.
fn acquire(ifindex: u32, xdp_flags: u32, registered: bool) -> Result<Shared> {
    let mode = mode_of(xdp_flags);
    let netlink = Netlink::open().inspect_err(|e| cannot_ask(ifindex, *e))?;
    let start = sys::now_ns();
    let mut loaded: Option<Loaded> = None;
    let mut at_zero = Since::default();
    let mut unseen = Since::default();
    let mut pause = PAUSES.0;
    loop {
        let link = netlink.link(ifindex).inspect_err(|e| cannot_ask(ifindex, *e))?;
        match find::look(ifindex, link.xdp, None)? {
            Found::Nothing => {
                let entries = device_queues(&link);
                let new = match loaded.take() {
                    Some(new) => new,
                    None => image::load(entries)?,
                };
                let lock = Lock::take()?;
                let mut register = Register::open(&lock).filter(|_| registered);
                let record = register.as_mut().and_then(|register| {
                    register.forget(new.counter.id);
                    register.enter(new.counter.id, false)
                });
                let refused = match netlink.set_xdp(ifindex, new.file.raw(), mode | XDP_FLAGS_UPDATE_IF_NOEXIST, None) {
                    Ok(()) => return Ok(new.into_shared(netlink, ifindex, record)),
                    Err(refused) => refused,
                };
                if let Some((register, record)) = register.zip(record) {
                    register.remove(record);
                }
                match refused.error {
                    // Somebody was faster.
                    Errno::EBUSY | Errno::EEXIST | Errno::EAGAIN => loaded = Some(new),
                    error => {
                        // It may be the answer alone that was lost; then the program is there, and nobody would take it off.
                        // Nobody has counted on it either, as that wants the lock.
                        let _ = netlink.set_xdp(ifindex, -1, mode, Some(new.file.raw()));
                        explain_attach(&link, mode, &refused);
                        return Err(error);
                    }
                }
                drop(lock);
            }
            Found::Going => {}
            Found::Default(found) => {
                let Some(counter) = &found.counter else { return Ok(found.into_shared(netlink, ifindex, None)) };
                let lock = Lock::take()?;
                // It may have gone, or another have come, before we had the lock.
                let same = netlink.link(ifindex).inspect_err(|e| cannot_ask(ifindex, *e))?.xdp == link.xdp;
                let count = if same { counter.read().inspect_err(|e| cannot_count(&link, *e))? } else { 0 };
                if count > 0 {
                    let record = found
                        .count_in(counter, count, Register::open(&lock).filter(|_| registered))
                        .inspect_err(|e| cannot_count(&link, *e))?;
                    drop(lock);
                    return Ok(found.into_shared(netlink, ifindex, record));
                }
                // Its last user is about to detach it, or has died in the attempt.
                if !same {
                    at_zero = Since::default();
                } else if at_zero.lasts(found.attached.id) > STALE_NS {
                    if found.has_company() {
                        let record = found
                            .count_in(counter, 0, Register::open(&lock).filter(|_| registered))
                            .inspect_err(|e| cannot_count(&link, *e))?;
                        drop(lock);
                        return Ok(found.into_shared(netlink, ifindex, record));
                    }
                    detach(&netlink, ifindex, &found)?;
                }
            }
            Found::Hidden { id, why } => {
                if unseen.lasts(id) > UNSEEN_NS {
                    warn!(
                        "{} has the XDP dispatcher {id} of libxdp, whose programs cannot be seen ({why}); if they are pinned \
                         elsewhere, LIBXDP_BPFFS tells where; else take it off (xdp-loader unload {} --all) or use \
                         XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD",
                        name(&link),
                        name(&link)
                    );
                    return Err(Errno::EBUSY);
                }
            }
            Found::Others { id, programs } => {
                warn!(
                    "{} has the XDP dispatcher {id} of libxdp, which calls {} and no default program of AF_XDP; only libxdp \
                     can add one: take it off (xdp-loader unload {} --all) or use XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD",
                    name(&link),
                    programs.join(", "),
                    name(&link)
                );
                return Err(Errno::EBUSY);
            }
            Found::Foreign { id, name: program } => {
                warn!(
                    "{} has the XDP program {id} ({program}), which is not a default program of AF_XDP; take it off ({}) \
                     or use XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD",
                    name(&link),
                    survey::take_off(&link)
                );
                return Err(Errno::EBUSY);
            }
        }
        if sys::now_ns() - start > LIMIT_NS {
            warn!("{}: other programs keep attaching and detaching their XDP programs; gave up", name(&link));
            return Err(Errno::EBUSY);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Since when a program has been in the same state.
#[derive(Default)]
struct Since(Option<(u32, u64)>);

impl Since {
    /// For how long, in nanoseconds; another program begins anew.
    fn lasts(&mut self, id: u32) -> u64 {
        let now = sys::now_ns();
        match self.0 {
            Some((same, since)) if same == id => now - since,
            _ => {
                self.0 = Some((id, now));
                0
            }
        }
    }
}

fn cannot_ask(ifindex: u32, error: Errno) {
    warn!("cannot ask the kernel (rtnetlink) which XDP program interface {ifindex} runs: {error}");
}

fn cannot_count(link: &Link, error: Errno) {
    warn!("{}: cannot count this socket among the users of the default XDP program: {error}", name(link));
}

fn explain_attach(link: &Link, mode: u32, refused: &Refused) {
    let kind = match mode {
        XDP_FLAGS_SKB_MODE => "generic",
        XDP_FLAGS_HW_MODE => "offloaded",
        _ => "native",
    };
    let hint = match (refused.error, mode) {
        (Errno::EOPNOTSUPP | Errno::EINVAL, XDP_FLAGS_DRV_MODE) => "; XDP_FLAGS_SKB_MODE asks for generic mode",
        (Errno::EPERM, _) => "; it needs CAP_NET_ADMIN",
        _ => "",
    };
    warn!("cannot attach the default XDP program to {} in {kind} mode: {refused}{hint}", name(link));
}

impl Default {
    fn into_shared(self, netlink: Netlink, ifindex: u32, record: Option<Record>) -> Shared {
        let (sockets, entries, counter, program) = (self.sockets, self.entries, self.counter, self.program);
        Shared { netlink, ifindex, sockets, entries, counter, program, record }
    }

    /// Whether a socket is to be found in the map. Where that cannot be told, as if there were one.
    fn has_sockets(&self) -> bool {
        probe::any_socket(&self.sockets, self.entries).unwrap_or(true)
    }

    /// Raise the counter by one reference, which the register then knows, and lower it by those of dead processes.
    fn count_in(&self, counter: &Counter, count: i32, register: Option<Register<'_>>) -> Result<Option<Record>> {
        let Some(mut register) = register else { return counter.write(count + 1).map(|()| None) };
        let (mut owed, mut settled) = register.census(counter.id, None).owed(count);
        // A socket may have been handed to a process that lives on.
        if settled.is_empty() || self.has_sockets() {
            (owed, settled) = (0, Vec::new());
        }
        let mut record = register.enter(counter.id, true);
        register.doubt_all(&mut settled);
        counter.write(count - owed + 1)?;
        if let Some(record) = &mut record {
            register.confirm(record);
        }
        register.strike(&settled);
        Ok(record)
    }
}

impl Loaded {
    fn into_shared(self, netlink: Netlink, ifindex: u32, record: Option<Record>) -> Shared {
        let (sockets, entries, counter, program) = (self.sockets, self.entries, Some(self.counter), self.id);
        Shared { netlink, ifindex, sockets, entries, counter, program, record }
    }
}

impl Shared {
    /// Give the reference back; the last one detaches the program, under the lock, so that nobody meets a counter of 0 on
    /// a program that is still attached. Also the last one is who shares the counter with dead processes of ours alone.
    fn leave(&mut self) -> Result<()> {
        let Some(counter) = &self.counter else { return Ok(()) };
        let lock = Lock::take()?;
        let register = Register::open(&lock);
        let mut own = register.as_ref().and_then(|register| Some((register, self.record.take()?)));
        if let Some((register, record)) = &mut own
            && !register.doubt(record)
        {
            return Ok(());
        }
        // An early return leaves a record that says that its process has died, which is then true of the reference.
        let count = counter.read()?;
        // With 0 somebody is detaching it already.
        let rest = (count - 1).max(0);
        let census = register.as_ref().map(|r| r.census(counter.id, own.as_ref().map(|(_, record)| record)));
        let (owed, settled) = census.unwrap_or_default().owed(rest);
        let others = rest > 0 && (owed < rest || probe::any_socket(&self.sockets, self.entries).unwrap_or(true));
        let keep = match count {
            1.. if others => counter.write(rest).map(|()| false)?,
            1.. => self.take_off(counter, count, &lock)?,
            _ => false,
        };
        if let Some((register, mut record)) = own {
            if keep {
                register.confirm(&mut record);
            } else {
                register.strike(if others { &[] } else { &settled });
                register.remove(record);
            }
        }
        Ok(())
    }

    /// Take the counter from `count` to 0 and the program off. True: it must stay, and so must the reference.
    fn take_off(&self, counter: &Counter, count: i32, lock: &Lock) -> Result<bool> {
        let link = match self.netlink.link(self.ifindex) {
            // The interface is gone and the program with it, or it has moved to another namespace with the program: then
            // the counter must not be 0.
            Err(Errno::ENODEV) => return Ok(bpf::prog_by_id(self.program).is_ok()),
            other => other?,
        };
        match find::look(self.ifindex, link.xdp, Some(lock))? {
            Found::Default(found) if found.counter.as_ref().is_some_and(|c| c.id == counter.id) => {
                if found.has_company() {
                    // With the counter above 0 it can be joined.
                    return Ok(true);
                }
                counter.write(0)?;
                let result = detach(&self.netlink, self.ifindex, &found);
                if result != Ok(Detach::Done) {
                    // A 0 that stays would keep everybody else from the interface.
                    if let Err(error) = counter.write(count) {
                        warn!("{}: cannot restore the reference counter: {error}", name(&link));
                    }
                }
                return result.map(|done| done != Detach::Done);
            }
            // libxdp is building the dispatcher anew, with this program in it.
            Found::Going => return Ok(true),
            Found::Hidden { id, why } => {
                warn!(
                    "{}: the default XDP program stays attached behind the dispatcher {id}, whose programs cannot be seen \
                     ({why}); xdp-loader unload {} --all takes it off",
                    name(&link),
                    name(&link)
                );
                return Ok(true);
            }
            // Somebody has detached or replaced it.
            _ => counter.write(0)?,
        }
        Ok(false)
    }
}

/// What has become of a program that was to be detached.
#[derive(PartialEq, Eq)]
enum Detach {
    Done,
    /// Another one is in its place by now, which may be a dispatcher that calls it.
    Replaced,
}

/// Take a default program off its interface, in the mode in which it is attached.
fn detach(netlink: &Netlink, ifindex: u32, found: &Default) -> Result<Detach> {
    let program = &found.attached;
    let refused = match netlink.set_xdp(ifindex, -1, program.mode, Some(program.fd.raw())) {
        // Kernels before 5.7 know no expected program.
        Err(Refused { error: Errno::EINVAL, .. }) => netlink.set_xdp(ifindex, -1, program.mode, None),
        other => other,
    };
    match refused {
        Ok(()) => {}
        Err(Refused { error: Errno::EEXIST, .. }) => return Ok(Detach::Replaced),
        // A BPF link holds it.
        Err(Refused { error: Errno::EBUSY, .. }) => bpf::detach_xdp_link(ifindex, program.id)?,
        Err(refused) => {
            warn!("cannot detach the default XDP program {} from interface {ifindex}: {refused}", program.id);
            return Err(refused.error);
        }
    }
    if found.behind.is_some() {
        unpin(ifindex, program.id);
    }
    Ok(Detach::Done)
}

/// Remove the pins of a dispatcher that is attached no more. What cannot be removed keeps memory in use and does no harm.
fn unpin(ifindex: u32, dispatcher_id: u32) {
    let Some(directory) = lock::dispatcher_directory(ifindex, dispatcher_id) else { return };
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        if let Err(error) = fs::remove_file(entry.path()) {
            warn!("cannot remove {}: {error}", entry.path().display());
        }
    }
    if let Err(error) = fs::remove_dir(&directory) {
        warn!("cannot remove {}: {error}", directory.display());
    }
}
