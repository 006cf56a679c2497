//! Device specifications, and the environment (`SLIPRING_DEVICES`) that gives them to interfaces.
//!
//! Owns the grammar, the table of kinds and the table of options: the parser, the error texts, `slipring doctor` and the
//! check of the README all read the two tables. Called from any thread, when an interface is looked up or a UMEM is made;
//! never per packet.
//!
//! ```text
//! SPEC    KIND[:ARGUMENT][?OPTION=VALUE[&OPTION=VALUE]...]
//! ```
//! `%XX` stands for any byte of ARGUMENT or VALUE; ARGUMENT is UTF-8 after decoding.

mod devices;

use core::fmt;

pub use devices::{Devices, Entry, Origin, Pattern, VARIABLE, devices, engine_first, reload, spec_of};

/// Longest name of a wire, in bytes.
pub const WIRE_NAME_MAX: usize = 64;

/// Frames that a ring between two processes holds by default.
const DEPTH: u32 = 256;

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
    /// Wires between processes: frames of the largest size that a ring holds at least.
    pub depth: u32,
    /// Wires: both directions of a connection arrive on the same queue.
    pub symmetric: bool,
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
        meaning: "END is a or b: what one end sends, the other receives, in this process or another of this user",
    },
    KindRow { name: "null", form: "null", meaning: "swallows what is sent; makes frames with gen=" },
];

/// Kinds that are designed and not in this version: named so that the message can say so.
const LATER_KINDS: &[&str] = &["auto", "packet", "tap", "pcap"];
/// Options that are designed and not in this version.
const LATER_OPTIONS: &[&str] = &[
    "capture", "loss", "dup", "reorder", "corrupt", "delay", "rate", "seed", "csum", "gso", "promisc", "in", "out",
    "loop", "speed",
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
        name: "depth",
        kinds: &["wire"],
        default: "256",
        meaning: "between two processes: as many frames of the largest size are under way to a queue at least, smaller ones in \
                  the same bytes",
        value: Value::Number(1, 4096, |s, n| s.depth = n),
    },
    OptionRow {
        name: "hash",
        kinds: &["wire"],
        default: "usual",
        meaning: "key by which frames that arrive are spread over this end's queues; symmetric: both directions of a connection \
                  go to one queue",
        value: Value::Word(&[("usual", |s| s.symmetric = false), ("symmetric", |s| s.symmetric = true)]),
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
            depth: DEPTH,
            symmetric: false,
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
            (self.depth != DEPTH).then(|| format!("depth={}", self.depth)),
            self.symmetric.then(|| "hash=symmetric".to_owned()),
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

#[cfg(test)]
mod tests;
