//! The environment and device specifications (`SLIPRING_DEVICES`).

use crate::errno::Result;

/// What a receiver without room does to a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Full {
    /// The frame is lost and counted, as on veth.
    #[default]
    Drop,
    /// The sender is held back.
    Wait,
}

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// End `a`.
    A,
    /// End `b`.
    B,
}

/// Kind of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's AF_XDP.
    Direct,
    /// What is sent comes back.
    Loop,
    /// A wire by name, and which end.
    Wire(String, End),
    /// Swallows.
    Null,
}

/// A device specification, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The text it came from.
    pub text: String,
    /// Kind, with what belongs to it.
    pub kind: Kind,
    /// Number of queues, 1 to 64.
    pub queues: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Descriptors that one transmit call sends at the most; the kernel's is 32.
    pub budget: u32,
    /// Set the fill ring's NEED_WAKEUP flag for programs that asked for it.
    pub rxwake: bool,
    /// Wires: what a receiver without room does.
    pub full: Full,
    /// null: length of the frames it makes; `None`: it makes none.
    pub gen_len: Option<u32>,
}

/// The specification that an interface name has: by `SLIPRING_DEVICES`, by being one itself, or none (direct).
/// EINVAL, with a message, for a bad one.
pub fn spec_of(name: &str) -> Result<Option<Spec>> {
    let _ = name;
    Ok(None)
}

/// Whether `SLIPRING_DEVICES` is set (even to nothing): then UMEMs begin on the engine until an interface decides.
pub fn engine_first() -> bool {
    false
}
