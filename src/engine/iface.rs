//! Interfaces on the engine: names, numbers, and the pools of their queues.

use std::{
    ffi::{CStr, CString},
    os::fd::RawFd,
};

use super::{pool::Pool, receive::RxPort, runtime};
use crate::{
    config::{self, Kind, Spec},
    device::{self, Counters, Device, Facts, Port},
    errno::{Errno, Result},
    sync::{Arc, Mutex, Weak},
    sys, warn,
};

/// Numbers of interfaces that the kernel does not have begin here; the kernel hands out small ones.
const FIRST_NUMBER: u32 = 0x5100_0000;

/// An interface on the engine, by SLIPRING_DEVICES or by a name that is a specification.
#[derive(Debug)]
pub struct Interface {
    /// Name as the program uses it.
    pub name: String,
    /// The real interface's number if one has this name, else one from a range that no kernel hands out.
    pub ifindex: u32,
    /// What it is connected to.
    pub spec: Spec,
    facts: Facts,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    device: Option<Weak<dyn Device>>,
    slots: Vec<Queue>,
}

/// One queue: the pool that is bound to it and its receiving sockets, oldest first.
#[derive(Debug, Default)]
struct Queue {
    pool: Weak<Pool>,
    receivers: Vec<Arc<RxPort>>,
    bound: usize,
}

impl Interface {
    /// Queues, MTU, hardware address.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Bytes of the longest frame that leaves: MTU, Ethernet header and a VLAN tag, as on veth.
    #[inline]
    pub(super) fn longest_frame(&self) -> u32 {
        self.facts.mtu + 18
    }

    /// The device's counters; zero while nothing is bound.
    pub fn counters(&self) -> Counters {
        let queues = self.queues.lock();
        let device = queues.ok().and_then(|q| q.device.as_ref().and_then(Weak::upgrade));
        device.map_or_else(Counters::default, |d| d.counters())
    }

    /// Number of bound sockets: above zero a default program counts as attached (id [`Interface::program_id`]).
    pub fn bound_sockets(&self) -> usize {
        self.queues.lock().map_or(0, |q| q.slots.iter().map(|s| s.bound).sum())
    }

    /// The stand-in program id, never 0.
    pub fn program_id(&self) -> u32 {
        self.ifindex | 0x4000_0000
    }

    /// The pool of a queue, if one is bound to it.
    pub(super) fn pool(&self, queue: u32) -> Option<Arc<Pool>> {
        let queues = self.queues.lock().ok()?;
        queues.slots.get(queue as usize)?.pool.upgrade()
    }

    /// The device, opened if nothing has it open.
    pub(super) fn device(&self) -> Result<Arc<dyn Device>> {
        let mut queues = self.queues.lock().map_err(|_| Errno::EIO)?;
        if let Some(device) = queues.device.as_ref().and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = device::open(&self.name, &self.spec)?;
        queues.device = Some(Arc::downgrade(&device));
        Ok(device)
    }

    /// A socket is bound to `pool`; frames go to `receiver` from now on, if it has one. EBUSY: the queue has another pool.
    pub(super) fn join(&self, pool: &Arc<Pool>, receiver: Option<Arc<RxPort>>) -> Result<()> {
        let mut queues = self.queues.lock().map_err(|_| Errno::EIO)?;
        let n = pool.queue as usize;
        if queues.slots.len() <= n {
            queues.slots.resize_with(n + 1, Queue::default);
        }
        let slot = &mut queues.slots[n];
        if slot.bound != 0 && !core::ptr::eq(slot.pool.as_ptr(), Arc::as_ptr(pool)) {
            return Err(Errno::EBUSY);
        }
        if let Some(receiver) = receiver {
            pool.device.connect(pool.queue, Some(receiver.clone() as Arc<dyn Port>))?;
            slot.receivers.push(receiver);
        }
        slot.pool = Arc::downgrade(pool);
        slot.bound += 1;
        Ok(())
    }

    /// A socket leaves; a living sibling, the one bound last, takes over its frames. No delivery to it runs on return.
    pub(super) fn leave(&self, pool: &Arc<Pool>, receiver: Option<&Arc<RxPort>>) {
        let Ok(mut queues) = self.queues.lock() else { return };
        let Some(slot) = queues.slots.get_mut(pool.queue as usize) else { return };
        slot.bound = slot.bound.saturating_sub(1);
        if let Some(receiver) = receiver {
            slot.receivers.retain(|r| !Arc::ptr_eq(r, receiver));
            let next = slot.receivers.last().map(|r| Arc::clone(r) as Arc<dyn Port>);
            let _ = pool.device.connect(pool.queue, next);
        }
        if slot.bound == 0 {
            slot.pool = Weak::new();
        }
        if queues.slots.iter().all(|s| s.bound == 0) {
            queues.device = None;
            if let Some(runtime) = runtime::existing() {
                runtime.worker.forget(&pool.device);
            }
            pool.device.release();
        }
    }

    /// Frames of `queue` go to `receiver`, as after an update of the socket map; `None`: to nobody.
    pub(super) fn route(&self, queue: u32, receiver: Option<&Arc<RxPort>>) -> Result<()> {
        let mut queues = self.queues.lock().map_err(|_| Errno::EIO)?;
        let Some(slot) = queues.slots.get_mut(queue as usize) else { return Ok(()) };
        let Some(pool) = slot.pool.upgrade() else { return Ok(()) };
        let port = match receiver {
            // The map knows nothing of queues: a socket of another queue under this key gets nothing, as in the kernel.
            Some(receiver) => {
                let Some(at) = slot.receivers.iter().position(|r| Arc::ptr_eq(r, receiver)) else { return Ok(()) };
                let receiver = slot.receivers.remove(at);
                slot.receivers.push(receiver.clone());
                Some(receiver as Arc<dyn Port>)
            }
            None => None,
        };
        pool.device.connect(queue, port)
    }
}

/// The interfaces that this process has asked for.
#[derive(Debug, Default)]
pub(super) struct Registry {
    known: Mutex<Vec<Arc<Interface>>>,
}

impl Registry {
    fn find(&self, test: impl Fn(&Interface) -> bool) -> Option<Arc<Interface>> {
        self.known.lock().ok()?.iter().find(|i| test(i)).cloned()
    }

    /// Add an interface, unless another thread was faster.
    fn add(&self, name: &CStr, text: &str, spec: Spec) -> Result<Arc<Interface>> {
        let real = sys::interface_index(name);
        let facts = device::facts(&spec);
        let mut known = self.known.lock().map_err(|_| Errno::EIO)?;
        if let Some(found) = known.iter().find(|i| i.name == text) {
            return Ok(Arc::clone(found));
        }
        let virtual_number = FIRST_NUMBER + u32::try_from(known.len()).map_err(|_| Errno::ENFILE)?;
        let ifindex = real.unwrap_or(virtual_number);
        let interface = Arc::new(Interface { name: text.to_owned(), ifindex, spec, facts, queues: Mutex::default() });
        known.push(Arc::clone(&interface));
        Ok(interface)
    }
}

/// The engine interface of a name; `None`: not on the engine. EINVAL (logged): a bad specification.
pub fn interface_named(name: &CStr) -> Result<Option<Arc<Interface>>> {
    let Ok(text) = name.to_str() else { return Ok(None) };
    let Some(spec) = config::spec_of(text)? else { return Ok(None) };
    if spec.kind == Kind::Direct {
        return Ok(None);
    }
    let registry = &runtime::get()?.interfaces;
    match registry.find(|i| i.name == text) {
        Some(found) => Ok(Some(found)),
        None => registry.add(name, text, spec).map(Some),
    }
}

/// The engine interface of a number that [`interface_named`] has given out, or of a real interface that is mapped.
pub fn interface_numbered(ifindex: u32) -> Option<Arc<Interface>> {
    if let Some(found) = runtime::existing().and_then(|r| r.interfaces.find(|i| i.ifindex == ifindex)) {
        return Some(found);
    }
    if !config::engine_first() {
        return None;
    }
    // A real interface that nobody asked for by name yet.
    let name: CString = sys::interface_name(ifindex).ok()?;
    interface_named(&name).ok().flatten()
}

/// Stand-in socket maps: the descriptors given out and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Maps {
    given: Mutex<Vec<GivenMap>>,
}

/// A number, what it stood for when it was given out, and the interface.
type GivenMap = (RawFd, (u64, u64), u32);

impl Maps {
    /// A new descriptor that stands for the socket map of an interface. The caller owns it.
    pub(super) fn give(&self, ifindex: u32) -> Result<RawFd> {
        let fd = sys::memfd(c"slipring-xsks_map")?;
        let id = sys::identity(fd).inspect_err(|_| sys::close(fd))?;
        let mut given = self.given.lock().map_err(|_| Errno::EIO)?;
        // A number that comes up again was closed by its owner.
        given.retain(|(number, _, _)| *number != fd);
        given.push((fd, id, ifindex));
        Ok(fd)
    }

    /// The interface that a descriptor stands for.
    pub(super) fn interface(&self, fd: RawFd) -> Option<u32> {
        let given = self.given.lock().ok()?;
        if given.is_empty() {
            return None;
        }
        let id = sys::identity(fd).ok()?;
        given.iter().find(|(_, known, _)| *known == id).map(|(_, _, ifindex)| *ifindex)
    }
}

/// Whether a descriptor is our stand-in for a socket map.
pub fn is_map(fd: RawFd) -> bool {
    runtime::existing().is_some_and(|r| r.maps.interface(fd).is_some())
}

/// `bpf_map_update_elem` / `bpf_map_delete_elem` on a descriptor that may be our stand-in map: `None` when it is not ours.
/// EBADF, EOPNOTSUPP: what is to be stored is no engine socket. E2BIG: the queue does not exist.
pub fn map_update(map_fd: RawFd, queue: u32, socket_fd: Option<RawFd>) -> Option<Result<()>> {
    let runtime = runtime::existing()?;
    let interface = interface_numbered(runtime.maps.interface(map_fd)?)?;
    if queue >= interface.facts().queues {
        return Some(Err(Errno::E2BIG));
    }
    let Some(fd) = socket_fd else { return Some(interface.route(queue, None)) };
    let Some(socket) = super::lookup_verified(fd) else {
        warn!("update of the socket map of {}: descriptor {fd} is no socket of the engine", interface.name);
        return Some(Err(Errno::EOPNOTSUPP));
    };
    Some(socket.receiver().map_or(Ok(()), |receiver| interface.route(queue, Some(receiver))))
}
