//! The environment (`SLIPRING_DEVICES`) and device specifications.
//!
//! Owns the grammar, the table of kinds and the table of options: the parser, the error texts, `slipring doctor` and the
//! check of the README all read the two tables. Called from any thread, when an interface is looked up or a UMEM is made;
//! never per packet. The environment is read once, at the first question.
//!
//! ```text
//! SLIPRING_DEVICES   entries with white space between them
//! entry              IFNAME=SPEC, or *=SPEC for every name
//! SPEC               KIND[:ARGUMENT][?OPTION=VALUE[&OPTION=VALUE]...]
//! ```
//! `%XX` stands for any byte of IFNAME, ARGUMENT or VALUE; IFNAME and ARGUMENT are UTF-8 after decoding. `*` alone is the
//! pattern, `%2A` is a name. Which entry an interface gets: the first one with exactly its name; else, if the name is itself
//! a specification, that one; else the first `*`; else none, and the interface is the kernel's. An entry whose name cannot
//! be read may be meant for any interface, so it fails every look-up.

use core::fmt;
use std::{
    borrow::Cow,
    ffi::CStr,
    sync::{Arc, PoisonError},
};

use once_cell::race::OnceBox;

use crate::{
    errno::{Errno, Result},
    sync::{Mutex, RwLock},
    warn,
};

/// Name of the environment variable.
pub const VARIABLE: &str = "SLIPRING_DEVICES";

/// Longest name of a wire, in bytes.
pub const WIRE_NAME_MAX: usize = 64;

/// Bytes of an Ethernet header, which the MTU does not count.
const ETHER_HEADER: u32 = 14;

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

impl End {
    /// The end that this one is connected to.
    pub const fn other(self) -> End {
        match self {
            End::A => End::B,
            End::B => End::A,
        }
    }

    /// `a` or `b`.
    pub const fn name(self) -> &'static str {
        match self {
            End::A => "a",
            End::B => "b",
        }
    }
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

impl Kind {
    /// The word in a specification, as in [`KINDS`].
    pub const fn name(&self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Loop => "loop",
            Kind::Wire(..) => "wire",
            Kind::Null => "null",
        }
    }
}

/// A device specification, parsed. Its `Display` is the shortest text with the same meaning.
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

/// One kind of device: a row of the README's first table.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// The word.
    pub name: &'static str,
    /// How it is written, without options.
    pub form: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

/// The kinds of this version.
pub const KINDS: &[KindRow] = &[
    KindRow { name: "direct", form: "direct", meaning: "the kernel's AF_XDP; the default" },
    KindRow { name: "loop", form: "loop", meaning: "what is sent on a queue comes back on that queue" },
    KindRow {
        name: "wire",
        form: "wire:NAME/END",
        meaning: "END is a or b: what one end sends, the other receives; both in one process",
    },
    KindRow { name: "null", form: "null", meaning: "swallows what is sent; makes frames with gen=" },
];

/// Kinds that are designed and not in this version: named so that the message can say so.
const LATER_KINDS: &[&str] = &["auto", "packet", "tap", "pcap"];
/// Options that are designed and not in this version.
const LATER_OPTIONS: &[&str] = &[
    "capture", "loss", "dup", "reorder", "corrupt", "delay", "rate", "seed", "depth", "csum", "gso", "promisc", "in",
    "out", "loop", "speed",
];

/// What an option's value may be, and where it goes.
#[derive(Clone, Copy)]
enum Value {
    /// A decimal number between two bounds, both included.
    Number(u32, u32, fn(&mut Spec, u32)),
    /// One of a few words.
    Word(&'static [Word]),
}

/// A word, and what it does to a specification.
type Word = (&'static str, fn(&mut Spec));

/// One option: a row of the README's second table.
#[derive(Clone, Copy)]
pub struct OptionRow {
    /// Name, left of the `=`.
    pub name: &'static str,
    /// Kinds that have it.
    pub kinds: &'static [&'static str],
    /// What holds without it.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
    value: Value,
}

impl OptionRow {
    /// What its value may be, for people.
    pub fn values(&self) -> String {
        match self.value {
            Value::Number(least, most, _) => format!("{least} to {most}"),
            Value::Word(words) => join(words.iter().map(|w| w.0), " or "),
        }
    }
}

impl fmt::Debug for OptionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionRow").field("name", &self.name).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// Kinds on the engine. `direct` has no option: the kernel's interface is what it is.
const ENGINE: &[&str] = &["loop", "wire", "null"];

/// Which option exists for which kind: the only such table in the source.
pub const OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "queues",
        kinds: ENGINE,
        default: "1",
        meaning: "number of queues",
        value: Value::Number(1, 64, |s, n| s.queues = n),
    },
    OptionRow {
        name: "mtu",
        kinds: ENGINE,
        default: "1500",
        meaning: "largest frame in bytes, without the 14 bytes of the Ethernet header",
        value: Value::Number(68, 65535, |s, n| s.mtu = n),
    },
    OptionRow {
        name: "budget",
        kinds: ENGINE,
        default: "32",
        meaning: "descriptors that one transmit call sends at the most",
        value: Value::Number(1, 65536, |s, n| s.budget = n),
    },
    OptionRow {
        name: "rxwake",
        kinds: ENGINE,
        default: "0",
        meaning: "1: set the fill ring's need-wakeup flag for programs that asked for XDP_USE_NEED_WAKEUP",
        value: Value::Word(&[("0", |s| s.rxwake = false), ("1", |s| s.rxwake = true)]),
    },
    OptionRow {
        name: "full",
        kinds: &["wire"],
        default: "drop",
        meaning: "a receiver without room loses the frame and counts it (drop), or holds the sender back (wait)",
        value: Value::Word(&[("drop", |s| s.full = Full::Drop), ("wait", |s| s.full = Full::Wait)]),
    },
    OptionRow {
        name: "gen",
        kinds: &["null"],
        default: "none",
        meaning: "make frames of this many bytes for receivers; at most mtu + 14",
        value: Value::Number(ETHER_HEADER, 65535 + ETHER_HEADER, |s, n| s.gen_len = Some(n)),
    },
];

/// Why a specification or an entry is not one: what, where, and what is allowed. One line for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The text that was read.
    pub text: String,
    /// Byte of `text` where it went wrong.
    pub at: usize,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.text.get(..self.at).unwrap_or(&self.text).chars().count() + 1;
        write!(f, "{} at character {column}: {}", quoted(&self.text), self.what)
    }
}

impl std::error::Error for SpecError {}

impl Spec {
    /// Parse one specification.
    pub fn parse(text: &str) -> core::result::Result<Spec, SpecError> {
        let fail = |at: usize, what: String| SpecError { text: text.to_owned(), at, what };
        let (head, options) = match text.split_once('?') {
            Some((head, options)) => (head, Some(options)),
            None => (text, None),
        };
        let (word, argument) = match head.split_once(':') {
            Some((word, argument)) => (word, Some(argument)),
            None => (head, None),
        };
        let after_word = word.len() + 1;
        let kind = match (word, argument) {
            ("direct", None) => Kind::Direct,
            ("loop", None) => Kind::Loop,
            ("null", None) => Kind::Null,
            ("direct" | "loop" | "null", Some(_)) => {
                return Err(fail(word.len(), format!("{word} takes nothing after \":\"")));
            }
            ("wire", argument) => {
                parse_wire(argument).map_err(|(at, what)| fail((after_word + at).min(text.len()), what))?
            }
            _ => {
                let kinds = join(KINDS.iter().map(|k| k.form), ", ");
                let why = if LATER_KINDS.contains(&word) { "is not in this version" } else { "is no kind of device" };
                return Err(fail(0, format!("{} {why}; allowed: {kinds}", quoted(word))));
            }
        };
        let mut spec = Spec {
            text: text.to_owned(),
            kind,
            queues: 1,
            mtu: 1500,
            budget: 32,
            rxwake: false,
            full: Full::Drop,
            gen_len: None,
        };
        if let Some(options) = options.filter(|o| !o.is_empty()) {
            parse_options(&mut spec, options).map_err(|(at, what)| fail(head.len() + 1 + at, what))?;
        }
        Ok(spec)
    }

    /// Whether an interface name is a specification by itself: it begins with a known kind and `:` or `?`.
    pub fn is_spec(name: &str) -> bool {
        let end = name.find([':', '?']).unwrap_or(0);
        let word = &name[..end];
        KINDS.iter().any(|k| k.name == word) || LATER_KINDS.contains(&word)
    }

    /// Options that the kind has.
    pub fn options_of(kind: &str) -> impl Iterator<Item = &'static OptionRow> {
        OPTIONS.iter().filter(move |o| o.kinds.contains(&kind))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Kind::Wire(name, end) = &self.kind {
            write!(f, ":{}/{}", encode(name), end.name())?;
        }
        let gen_len = self.gen_len.map(|n| n.to_string());
        let options = [
            (self.queues != 1).then(|| format!("queues={}", self.queues)),
            (self.mtu != 1500).then(|| format!("mtu={}", self.mtu)),
            (self.budget != 32).then(|| format!("budget={}", self.budget)),
            self.rxwake.then(|| "rxwake=1".to_owned()),
            (self.full == Full::Wait).then(|| "full=wait".to_owned()),
            gen_len.map(|n| format!("gen={n}")),
        ];
        for (i, option) in options.into_iter().flatten().enumerate() {
            write!(f, "{}{option}", if i == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

/// A position in the part that was given, and what is wrong there.
type Fault = (usize, String);

fn parse_wire(argument: Option<&str>) -> core::result::Result<Kind, Fault> {
    const FORM: &str = "a wire is written wire:NAME/a or wire:NAME/b";
    let argument = argument.ok_or((0, FORM.to_owned()))?;
    let (name, end) = argument.split_once('/').ok_or((argument.len(), FORM.to_owned()))?;
    let which = match end {
        "a" => End::A,
        "b" => End::B,
        _ => return Err((name.len() + 1, format!("{} is no end of a wire; {FORM}", quoted(end)))),
    };
    let name = decode(name)?;
    let odd = name.chars().any(|c| c == '/' || c.is_control());
    if name.is_empty() || name.len() > WIRE_NAME_MAX || name.starts_with('.') || odd {
        return Err((
            0,
            format!(
                "{} cannot name a wire; allowed: 1 to {WIRE_NAME_MAX} bytes without \"/\" and control characters, not \
                 beginning with \".\"",
                quoted(&name)
            ),
        ));
    }
    Ok(Kind::Wire(name, which))
}

fn parse_options(spec: &mut Spec, options: &str) -> core::result::Result<(), Fault> {
    let kind = spec.kind.name();
    let mut seen: Vec<&str> = Vec::new();
    let mut at = 0;
    let mut gen_at = 0;
    for option in options.split('&') {
        let fault = |offset: usize, what: String| Err((at + offset, what));
        let (name, raw) = match option.split_once('=') {
            Some((name, raw)) if !name.is_empty() => (name, raw),
            _ => return fault(0, format!("{} is not OPTION=VALUE", quoted(option))),
        };
        let Some(row) = Spec::options_of(kind).find(|o| o.name == name) else {
            let allowed = join(Spec::options_of(kind).map(|o| o.name), ", ");
            let allowed = if allowed.is_empty() { "none" } else { &allowed };
            let why = if OPTIONS.iter().any(|o| o.name == name) {
                format!("is no option of {kind}")
            } else if LATER_OPTIONS.contains(&name) {
                "is not in this version".to_owned()
            } else {
                "is no option".to_owned()
            };
            return fault(0, format!("{} {why}; allowed for {kind}: {allowed}", quoted(name)));
        };
        if seen.contains(&name) {
            return fault(0, format!("{name} is given twice; allowed: once"));
        }
        seen.push(name);
        let value_at = name.len() + 1;
        let value = match decode(raw) {
            Ok(value) => value,
            Err((offset, what)) => return fault(value_at + offset, what),
        };
        let done = match row.value {
            Value::Number(least, most, set) => {
                number(&value).filter(|n| (least..=most).contains(n)).map(|n| set(spec, n))
            }
            Value::Word(words) => words.iter().find(|w| w.0 == value).map(|w| (w.1)(spec)),
        };
        if done.is_none() {
            return fault(value_at, format!("{name} cannot be {}; allowed: {}", quoted(&value), row.values()));
        }
        if name == "gen" {
            gen_at = at + value_at;
        }
        at += option.len() + 1;
    }
    let most = spec.mtu + ETHER_HEADER;
    if spec.gen_len.is_some_and(|n| n > most) {
        return Err((gen_at, format!("gen is more than mtu + {ETHER_HEADER}; allowed: {ETHER_HEADER} to {most}")));
    }
    Ok(())
}

/// A number of decimal digits only: no sign, no space.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn join(words: impl Iterator<Item = &'static str>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}

/// Replace every `%XX`.
fn decode(text: &str) -> core::result::Result<String, Fault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            out.push(first);
            continue;
        }
        let at = text.len() - rest.len() - 1;
        let digits = (rest.first().and_then(hex), rest.get(1).and_then(hex));
        let (Some(high), Some(low)) = digits else {
            return Err((at, "\"%\" needs two hexadecimal digits; a percent sign itself is %25".to_owned()));
        };
        out.push(high << 4 | low);
        rest = &rest[2..];
    }
    String::from_utf8(out).map_err(|_| (0, "is not UTF-8 once %XX is decoded".to_owned()))
}

fn hex(byte: &u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Write a name so that [`VARIABLE`] and a specification take it as it is.
pub fn encode(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@' | b'+' | b',');
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if plain(byte) { out.push(char::from(byte)) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}

/// Text of others in a message: in quotes, control characters escaped, not endless.
fn quoted(text: &str) -> String {
    const MOST: usize = 120;
    let mut out = String::from("\"");
    for c in text.chars().take(MOST) {
        if c == '"' { out.push('"') } else { out.extend(c.escape_debug()) }
    }
    out.push('"');
    if text.chars().nth(MOST).is_some() {
        out.push_str("...");
    }
    out
}

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

unsafe extern "C" {
    fn secure_getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char;
}

fn read_environment() -> Devices {
    // SAFETY: a NUL-terminated name; the function only reads the environment.
    let text = unsafe { secure_getenv(c"SLIPRING_DEVICES".as_ptr()) };
    if text.is_null() {
        return Devices::default();
    }
    // SAFETY: a NUL-terminated string of the environment, copied before anything else can change it.
    let text = unsafe { CStr::from_ptr(text) };
    Devices::parse(text.to_bytes())
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
fn is_news(text: &str) -> bool {
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

#[cfg(test)]
mod tests;
