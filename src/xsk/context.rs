//! What sockets of one UMEM on one queue share: the fill and completion ring, and the queue's entry in the socket map.

use std::sync::Arc;

use super::ring::{MappedRing, View, ViewFor};
use crate::{
    errno::Errno,
    uapi::{self, Program, select::Side},
    warn,
};

/// A queue of an interface of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Namespace cookie of the socket.
    pub(super) netns: u64,
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) side: Side,
}

/// Addresses of the caller's fill and completion struct. Compared, never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Structs {
    pub(super) fill: usize,
    pub(super) comp: usize,
}

/// A fill and a completion ring, and for which structs of the caller they have been described.
#[derive(Debug)]
pub(super) struct RingPair {
    pub(super) fill: MappedRing,
    pub(super) comp: MappedRing,
    pub(super) known: Vec<Structs>,
}

impl RingPair {
    /// Both rings' values, for structs at these addresses.
    pub(super) fn describe(&self, structs: Structs) -> (ViewFor, ViewFor) {
        let for_struct = |view: View, known: bool| ViewFor { view, known };
        (
            for_struct(self.fill.view(), self.known.iter().any(|k| k.fill == structs.fill)),
            for_struct(self.comp.view(), self.known.iter().any(|k| k.comp == structs.comp)),
        )
    }

    /// Whether the program has ever been given the fill ring, without which nothing is received.
    pub(super) fn fill_is_known(&self) -> bool {
        self.known.iter().any(|k| k.fill != 0)
    }

    /// Remember that structs at these addresses have been described.
    pub(super) fn remember(&mut self, structs: Structs) {
        if !self.known.contains(&structs) {
            self.known.push(structs);
        }
    }
}

/// One socket on the queue.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) socket: Arc<dyn uapi::Socket>,
    /// The socket is the UMEM's own descriptor, which outlives it.
    pub(super) own: bool,
    pub(super) rx: Option<MappedRing>,
    pub(super) tx: Option<MappedRing>,
    /// Its reference on the default program; `None`: the program was inhibited.
    pub(super) program: Option<Box<dyn Program>>,
}

/// A queue with the sockets of one UMEM on it.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) key: Key,
    pub(super) rings: RingPair,
    /// The queue to which the UMEM's own descriptor is bound: kept as long as the UMEM, with or without members.
    pub(super) home: bool,
    pub(super) members: Vec<Member>,
    /// The member whose socket the default program's map holds.
    pub(super) holder: Option<u64>,
}

impl Context {
    /// Take a member out: its map entry goes to the living sibling that asked last for one, or away; its reference on
    /// the program is given back; its rings are unmapped.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(at) = self.members.iter().position(|m| m.id == id) else { return };
        let member = self.members.remove(at);
        if self.holder == Some(id) {
            self.hand_over(&member);
        }
        drop(member.program);
        drop((member.rx, member.tx));
        if !member.own {
            member.socket.close();
        }
    }

    fn hand_over(&mut self, leaver: &Member) {
        self.holder = None;
        let queue = self.key.queue;
        let heir = self.members.iter().rev().find(|m| m.rx.is_some() && m.program.is_some());
        if let Some((heir, program)) = heir.and_then(|m| Some((m, m.program.as_ref()?))) {
            match program.insert(queue, &*heir.socket) {
                Ok(()) => self.holder = Some(heir.id),
                Err(error) => {
                    warn!("queue {queue}: the remaining socket could not be put into the socket map: {error}")
                }
            }
        } else if let Some(program) = &leaver.program {
            // ENOENT: the kernel has taken it out by itself.
            match program.remove(queue) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => warn!("queue {queue}: the socket could not be taken out of the socket map: {error}"),
            }
        }
    }
}
