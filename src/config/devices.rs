//! `SLIPRING_DEVICES`: which interface has which specification. Read once, at the first question, from any thread.
//!
//! ```text
//! SLIPRING_DEVICES   entries with white space between them
//! entry              IFNAME=SPEC, or *=SPEC for every name
//! ```
//! `%XX` stands for any byte of IFNAME, which is UTF-8 after decoding. `*` alone is the pattern, `%2A` is a name. Which
//! entry an interface gets: the first one with exactly its name; else, if the name is itself a specification, that one;
//! else the first `*`; else none, and the interface is the kernel's. An entry whose name cannot be read may be meant for
//! any interface, so it fails every look-up.

use std::{
    borrow::Cow,
    os::unix::ffi::OsStrExt,
    sync::{Arc, PoisonError},
};

use once_cell::race::OnceBox;

use super::{Spec, SpecError, decode};
use crate::{
    errno::{Errno, Result},
    sync::{Mutex, RwLock},
    warn,
};

/// Name of the environment variable.
pub const VARIABLE: &str = "SLIPRING_DEVICES";

/// Which interfaces an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Exactly this one.
    Name(String),
    /// `*`.
    Any,
    /// It cannot be read.
    Unknown,
}

/// One entry of the variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Interfaces that it is for.
    pub pattern: Pattern,
    /// What they get.
    pub spec: core::result::Result<Spec, SpecError>,
}

impl Entry {
    fn parse(bytes: &[u8]) -> Entry {
        let text = String::from_utf8_lossy(bytes);
        let unknown = |at: usize, what: &str| Entry {
            pattern: Pattern::Unknown,
            spec: Err(SpecError { text: text.clone().into_owned(), at, what: what.to_owned() }),
        };
        if let Cow::Owned(_) = text {
            return unknown(0, "is not UTF-8; write odd bytes as %XX");
        }
        let Some((name, spec)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return unknown(0, "is not IFNAME=SPEC");
        };
        let pattern = match (name, decode(name)) {
            ("*", _) => Pattern::Any,
            (_, Ok(name)) => Pattern::Name(name),
            (_, Err((at, what))) => return unknown(at, &what),
        };
        let offset = name.len() + 1;
        let spec = Spec::parse(spec).map_err(|e| SpecError {
            text: text.clone().into_owned(),
            at: offset + e.at,
            what: e.what,
        });
        Entry { pattern, spec }
    }
}

/// The variable, read.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    /// Entries in their order.
    pub entries: Vec<Entry>,
    /// Whether the variable is set, to whatever text.
    pub is_set: bool,
}

/// What [`Devices::look_up`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The entry with this number, from 0.
    Entry(usize),
    /// The name is a specification.
    Name,
    /// Nothing: the kernel's interface.
    Default,
}

impl Devices {
    /// Read the text of the variable. Never fails: what is wrong is in the entries.
    pub fn parse(text: &[u8]) -> Devices {
        let words = text.split(|b| b.is_ascii_whitespace() || *b == 0x0b).filter(|w| !w.is_empty());
        Devices { entries: words.map(Entry::parse).collect(), is_set: true }
    }

    /// The specification of an interface name, and where it comes from.
    pub fn look_up(&self, name: &str) -> (Origin, core::result::Result<Option<Spec>, SpecError>) {
        let find = |wanted: &dyn Fn(&Pattern) -> bool| self.entries.iter().position(|e| wanted(&e.pattern));
        let entry = |i: usize| (Origin::Entry(i), self.entries[i].spec.clone().map(Some));
        if let Some(i) = find(&|p| *p == Pattern::Unknown) {
            return entry(i);
        }
        if let Some(i) = find(&|p| matches!(p, Pattern::Name(n) if n == name)) {
            return entry(i);
        }
        if Spec::is_spec(name) {
            return (Origin::Name, Spec::parse(name).map(Some));
        }
        match find(&|p| *p == Pattern::Any) {
            Some(i) => entry(i),
            None => (Origin::Default, Ok(None)),
        }
    }
}

/// The process's own copy, and which faults have been told.
#[derive(Debug)]
struct Cache {
    devices: RwLock<Arc<Devices>>,
    told: Mutex<Vec<String>>,
}

/// `race`: two threads may both read the variable at first, none ever waits for the other, also after a fork.
static CACHE: OnceBox<Cache> = OnceBox::new();

fn cache() -> &'static Cache {
    CACHE.get_or_init(|| {
        let devices = RwLock::new(Arc::new(read_environment()));
        Box::new(Cache { devices, told: Mutex::new(Vec::new()) })
    })
}

fn read_environment() -> Devices {
    crate::sys::secure_env(c"SLIPRING_DEVICES").map_or_else(Devices::default, |text| Devices::parse(text.as_bytes()))
}

/// The variable as this process sees it.
pub fn devices() -> Arc<Devices> {
    Arc::clone(&cache().devices.read().unwrap_or_else(PoisonError::into_inner))
}

/// Read the environment anew. For tests; a program that changes the variable after its first socket is not followed.
pub fn reload() {
    *cache().devices.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read_environment());
}

/// The specification that an interface name has: by `SLIPRING_DEVICES`, by being one itself, or none (direct).
/// EINVAL, with a message (once for each bad text), for a bad one.
pub fn spec_of(name: &str) -> Result<Option<Spec>> {
    let (origin, spec) = devices().look_up(name);
    spec.map_err(|error| {
        if is_news(&error.text) {
            match origin {
                Origin::Entry(i) => warn!("{VARIABLE}, entry {}: {error}", i + 1),
                Origin::Name | Origin::Default => warn!("interface name {error}"),
            }
        }
        Errno::EINVAL
    })
}

/// Whether `SLIPRING_DEVICES` is set (even to nothing): then UMEMs begin on the engine until an interface decides.
pub fn engine_first() -> bool {
    devices().is_set
}

/// Whether a bad text has not been told yet. Forgets nothing, and remembers a bounded number.
pub(super) fn is_news(text: &str) -> bool {
    const MOST: usize = 64;
    // A lock that is taken may have been taken by a thread that a fork left behind: then the message is given again.
    let Ok(mut told) = cache().told.try_lock() else { return true };
    if told.iter().any(|t| t == text) {
        return false;
    }
    if told.len() < MOST {
        told.push(text.to_owned());
    }
    true
}
