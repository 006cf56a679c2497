//! Sockets.
//!
//! A socket is made in libxdp's order with one exception: the default program is set up before bind, because a bind cannot
//! be undone while a reference on a program can. So a refused program leaves the UMEM usable for another attempt.

use std::{ffi::CStr, os::fd::RawFd, sync::Arc};

use super::{
    context::{Context, Key, Member, RingPair, Structs},
    explain,
    options::{INHIBIT_PROG_LOAD, SocketOptions},
    ring::{MappedRing, View, ViewFor},
    umem::{Closing, Shared, State, Umem, make_fill_and_completion, make_ring, offsets, set_size},
};
use crate::{
    errno::{Errno, Result},
    sync::MutexGuard,
    uapi::{
        self, AF_XDP, Program, Ring, SockaddrXdp, XDP_SHARED_UMEM,
        select::{self, Side},
        switch,
    },
    warn,
};

#[expect(clippy::cast_possible_truncation, reason = "the constant is 44")]
const AF_XDP_FAMILY: u16 = AF_XDP as u16;

/// What `struct xsk_socket *` points to.
#[derive(Debug)]
pub struct Socket {
    umem: Arc<Shared>,
    id: u64,
    socket: Arc<dyn uapi::Socket>,
    side: Side,
    queue: u32,
}

/// A new socket and what the caller's ring structs are to hold.
#[derive(Debug)]
pub struct Created {
    /// The handle.
    pub socket: Socket,
    /// RX ring, if asked for.
    pub rx: Option<View>,
    /// TX ring, if asked for.
    pub tx: Option<View>,
    /// Fill ring, if a struct was given for it.
    pub fill: Option<ViewFor>,
    /// Completion ring, if a struct was given for it.
    pub comp: Option<ViewFor>,
}

impl Socket {
    /// Make a socket on a queue of an interface. Of `options`' ring pointers only NULL or not, and the addresses, count.
    ///
    /// EFAULT: `ifname` NULL, no ring asked for, or fill and completion ring missing where the queue needs its own.
    /// EINVAL: unknown `libxdp_flags`, ring sizes, flags or queue. ENODEV: no such interface. EBUSY: the queue is taken, a
    /// foreign program is on the interface, or the UMEM is used up. Else the error of the system call that failed.
    pub fn create(umem: &Umem, ifname: Option<&CStr>, queue: u32, options: &SocketOptions) -> Result<Created> {
        let structs = Structs { fill: options.fill.addr(), comp: options.comp.addr() };
        if options.rx.is_null() && options.tx.is_null() {
            warn!("xsk_socket__create: neither an RX nor a TX ring is given");
            return Err(Errno::EFAULT);
        }
        if (structs.fill == 0) != (structs.comp == 0) {
            warn!(
                "xsk_socket__create_shared: only one of fill and comp is given; a queue needs its own fill and completion \
                 ring, or neither"
            );
            return Err(Errno::EFAULT);
        }
        if options.libxdp_flags & !INHIBIT_PROG_LOAD != 0 {
            warn!(
                "xsk_socket__create: libxdp_flags {:#x} has unknown bits; known is {INHIBIT_PROG_LOAD:#x} \
                 (XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD)",
                options.libxdp_flags
            );
            return Err(Errno::EINVAL);
        }
        let Some(ifname) = ifname else {
            warn!("xsk_socket__create: the interface name is NULL");
            return Err(Errno::EFAULT);
        };
        let side = select::provider_for(ifname)?;
        let name = ifname.to_string_lossy();
        let ifindex =
            side.provider().ifindex(ifname).inspect_err(|e| warn!("xsk_socket__create: no interface {name:?}: {e}"))?;

        let Some(state) = umem.0.lock_unless_left() else {
            warn!("xsk_socket__create on {name}: the UMEM is the parent process's: create it after the fork");
            return Err(Errno::ENXIO);
        };
        let first = state.sockets == 0;
        Attempt { shared: &umem.0, state, side, name: &name, ifindex, queue, options, first }
            .run((structs.fill != 0).then_some(structs))
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Store the socket under its queue in a map of the caller's.
    pub fn update_map(&self, map_fd: RawFd) -> Result<()> {
        self.side.provider().update_map(map_fd, self.queue, &*self.socket).inspect_err(|e| {
            warn!("xsk_socket__update_xskmap: queue {}, map descriptor {map_fd}: {e}", self.queue);
        })
    }

    /// Take the socket down: map entry, reference on the program, rings, descriptor (unless it is the UMEM's own).
    pub fn delete(self) {
        let Some(mut state) = self.umem.lock_unless_left() else {
            // In a forked child. The UMEM's own descriptor goes with the UMEM.
            if self.fd() != self.umem.fd() {
                self.socket.close();
            }
            return;
        };
        let state = &mut *state;
        let Some(at) = state.contexts.iter().position(|c| c.members.iter().any(|m| m.id == self.id)) else { return };
        let context = &mut state.contexts[at];
        context.remove(self.id);
        if context.members.is_empty() && !context.home {
            state.contexts.remove(at);
        }
        state.sockets -= 1;
        if state.sockets == 0 {
            // The UMEM's own rings stay mapped until it is deleted: some threads look at them to the very end.
            state.spent = true;
        }
    }
}

/// One call of [`Socket::create`], with the UMEM's lock held.
struct Attempt<'a> {
    shared: &'a Arc<Shared>,
    state: MutexGuard<'a, State>,
    side: Side,
    name: &'a str,
    ifindex: u32,
    queue: u32,
    options: &'a SocketOptions,
    /// It becomes the UMEM's first socket, on the UMEM's own descriptor.
    first: bool,
}

/// Where the new socket's fill and completion ring come from.
enum Rings {
    /// The context at this place in the list.
    Context(usize),
    /// The rings made with the UMEM.
    Saved,
    /// Made on the new socket.
    New(RingPair),
}

impl Attempt<'_> {
    fn run(mut self, structs: Option<Structs>) -> Result<Created> {
        if self.state.spent {
            warn!(
                "xsk_socket__create on {} queue {}: the UMEM's last socket was deleted, and its descriptor stays bound to \
                 that socket's queue; delete the UMEM and make a new one",
                self.name, self.queue
            );
            return Err(Errno::EBUSY);
        }
        let (socket, closing) = self.descriptor()?;
        let key = Key {
            netns: socket.netns_cookie().inspect_err(|e| warn!("cannot read the socket's namespace: {e}"))?,
            ifindex: self.ifindex,
            queue: self.queue,
            side: self.side,
        };
        let place = self.state.contexts.iter().position(|c| c.key == key);
        let made = place.map(|place| &self.state.contexts[place].rings).or(self.state.saved.as_ref());
        if self.wants_rx() && structs.is_none() && made.is_some_and(|rings| !rings.fill_is_known()) {
            explain::needs_fill(self.name, self.queue);
            return Err(Errno::EFAULT);
        }
        let shared_fd = self.shared_fd(place);
        let rings = match place {
            Some(place) => Rings::Context(place),
            None if self.state.saved.is_some() => Rings::Saved,
            None => Rings::New(self.new_rings(&*socket, structs, shared_fd)?),
        };
        let fresh = if self.first {
            self.prepare_own_rings(&*socket)?;
            None
        } else {
            Some(self.fresh_rings(&*socket)?)
        };

        let program = self.program()?;
        self.bind(&*socket, key, shared_fd)?;
        let holds_entry = match &program {
            Some(program) if self.wants_rx() => {
                program.insert(self.queue, &*socket).inspect_err(|e| {
                    warn!("{}: cannot put the socket into the socket map under queue {}: {e}", self.name, self.queue);
                })?;
                true
            }
            _ => false,
        };

        // Nothing fails from here on.
        if let Some(closing) = closing {
            closing.keep();
        }
        let (rx, tx) = fresh.unwrap_or_else(|| self.take_own_rings());
        let own = self.first;
        let state = &mut *self.state;
        let id = state.next_id;
        state.next_id += 1;
        state.sockets += 1;
        let context = match rings {
            Rings::Context(place) => &mut state.contexts[place],
            Rings::New(rings) => push(&mut state.contexts, key, rings, false),
            Rings::Saved => {
                let saved = state.saved.take().expect("`rings` says so, and the lock was held since");
                push(&mut state.contexts, key, saved, true)
            }
        };
        let (fill, comp) = structs.map(|structs| context.rings.describe(structs)).unzip();
        if let Some(structs) = structs {
            context.rings.remember(structs);
        }
        let (rx_view, tx_view) = (rx.as_ref().map(MappedRing::view), tx.as_ref().map(MappedRing::view));
        context.members.push(Member { id, socket: Arc::clone(&socket), own, rx, tx, program });
        if holds_entry {
            context.holder = Some(id);
        }
        let socket = Socket { umem: Arc::clone(self.shared), id, socket, side: self.side, queue: self.queue };
        Ok(Created { socket, rx: rx_view, tx: tx_view, fill, comp })
    }

    fn wants_rx(&self) -> bool {
        !self.options.rx.is_null()
    }

    fn wants_tx(&self) -> bool {
        !self.options.tx.is_null()
    }

    /// The UMEM's own descriptor for the first socket, moved to the interface's provider if need be; else a new one, which
    /// is closed unless it is kept.
    fn descriptor(&mut self) -> Result<(Arc<dyn uapi::Socket>, Option<Closing>)> {
        if !self.first {
            let socket = self.side.provider().socket().inspect_err(|e| explain::socket(self.side, *e))?;
            return Ok((Arc::clone(&socket), Some(Closing::new(socket))));
        }
        if self.state.side != self.side {
            if self.state.bound.is_some() {
                self.explain_bind(false, Errno::EBUSY);
                return Err(Errno::EBUSY);
            }
            let socket = switch::switch(&*self.state.socket, self.side.provider()).inspect_err(|e| {
                warn!("xsk_socket__create on {}: the UMEM cannot be moved to the interface's provider: {e}", self.name);
            })?;
            self.state.socket = socket;
            self.state.side = self.side;
        }
        Ok((Arc::clone(&self.state.socket), None))
    }

    /// The descriptor to name in bind; `None`: the socket has the UMEM registered itself.
    fn shared_fd(&self, place: Option<usize>) -> Option<RawFd> {
        if self.first {
            return None;
        }
        // On a queue that is in use it must be a socket bound to that queue, for it stands for the rings too.
        let on_queue = place.map(|place| &self.state.contexts[place]).filter(|c| !c.home);
        if let Some(member) = on_queue.and_then(|c| c.members.first()) {
            return Some(member.socket.fd());
        }
        if self.side == self.state.side {
            return Some(self.state.socket.fd());
        }
        let there = self.state.contexts.iter().filter(|c| c.key.side == self.side);
        there.flat_map(|c| &c.members).next().map(|m| m.socket.fd())
    }

    /// Make the queue's fill and completion ring on the new socket. EFAULT: the caller gave no structs for them.
    fn new_rings(
        &self,
        socket: &dyn uapi::Socket,
        structs: Option<Structs>,
        shared_fd: Option<RawFd>,
    ) -> Result<RingPair> {
        if structs.is_none() {
            explain::needs_rings(self.name, self.queue);
            return Err(Errno::EFAULT);
        }
        if shared_fd.is_none() {
            // The UMEM's first socket on the other provider, which does not know the area yet.
            socket.register_umem(&self.shared.reg).inspect_err(|e| explain::umem(&self.shared.reg, None, *e))?;
        }
        make_fill_and_completion(socket, &self.shared.options)
    }

    fn fresh_rings(&self, socket: &dyn uapi::Socket) -> Result<(Option<MappedRing>, Option<MappedRing>)> {
        if self.wants_rx() {
            set_size(socket, Ring::Rx, self.options.rx_size)?;
        }
        if self.wants_tx() {
            set_size(socket, Ring::Tx, self.options.tx_size)?;
        }
        let offsets = offsets(socket)?;
        let rx = self.wants_rx().then(|| make_ring(socket, &offsets, Ring::Rx, self.options.rx_size));
        let rx = rx.transpose()?;
        let tx = self.wants_tx().then(|| make_ring(socket, &offsets, Ring::Tx, self.options.tx_size));
        Ok((rx, tx.transpose()?))
    }

    /// See that the UMEM's own descriptor has the rings asked for. An earlier attempt may have left some.
    fn prepare_own_rings(&mut self, socket: &dyn uapi::Socket) -> Result<()> {
        let done = socket.setup().entries;
        let wanted =
            [(Ring::Rx, self.wants_rx(), self.options.rx_size), (Ring::Tx, self.wants_tx(), self.options.tx_size)];
        for (ring, _, entries) in wanted.into_iter().filter(|(_, wanted, _)| *wanted) {
            match done[ring.index()] {
                0 => set_size(socket, ring, entries)?,
                set if set == entries => {}
                set => {
                    warn!(
                        "xsk_socket__create on {}: an earlier attempt on this UMEM has set up an {} ring of {set} entries, \
                         which cannot be changed to {entries}; ask for {set} or make a new UMEM",
                        self.name,
                        ring.name()
                    );
                    return Err(Errno::EINVAL);
                }
            }
        }
        let offsets = offsets(socket)?;
        if self.wants_rx() && self.state.own_rx.is_none() {
            self.state.own_rx = Some(make_ring(socket, &offsets, Ring::Rx, self.options.rx_size)?);
        }
        if self.wants_tx() && self.state.own_tx.is_none() {
            self.state.own_tx = Some(make_ring(socket, &offsets, Ring::Tx, self.options.tx_size)?);
        }
        Ok(())
    }

    fn take_own_rings(&mut self) -> (Option<MappedRing>, Option<MappedRing>) {
        let rx = if self.wants_rx() { self.state.own_rx.take() } else { None };
        let tx = if self.wants_tx() { self.state.own_tx.take() } else { None };
        (rx, tx)
    }

    /// A reference on the default program, unless inhibited.
    fn program(&self) -> Result<Option<Box<dyn Program>>> {
        if self.options.libxdp_flags & INHIBIT_PROG_LOAD != 0 {
            return Ok(None);
        }
        let program = self.side.provider().default_program(self.ifindex, self.options.xdp_flags)?;
        if self.wants_rx() {
            program.check(self.queue)?;
        }
        Ok(Some(program))
    }

    fn bind(&mut self, socket: &dyn uapi::Socket, key: Key, shared_fd: Option<RawFd>) -> Result<()> {
        let flags = self.options.bind_flags;
        if self.first && self.state.bound == Some((key, flags)) {
            // An earlier attempt failed after its bind.
            return Ok(());
        }
        let addr = SockaddrXdp {
            family: AF_XDP_FAMILY,
            // Later sockets inherit the first one's mode; the kernel refuses other flags beside this one.
            flags: if shared_fd.is_some() { XDP_SHARED_UMEM } else { flags },
            ifindex: self.ifindex,
            queue_id: self.queue,
            shared_umem_fd: shared_fd.map_or(0, RawFd::cast_unsigned),
        };
        socket.bind(&addr).inspect_err(|e| self.explain_bind(shared_fd.is_some(), *e))?;
        if self.first {
            self.state.bound = Some((key, flags));
        }
        Ok(())
    }

    fn explain_bind(&self, shared: bool, error: Errno) {
        let (side, ifname, queue, flags) = (self.side, self.name, self.queue, self.options.bind_flags);
        explain::bind(explain::Bind { side, ifname, queue, flags, shared }, error);
    }
}

fn push(contexts: &mut Vec<Context>, key: Key, rings: RingPair, home: bool) -> &mut Context {
    contexts.push(Context { key, rings, home, members: Vec::new(), holder: None });
    contexts.last_mut().expect("pushed a line above")
}
