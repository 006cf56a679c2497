//! One socket's page and ring indices, read from its memory file. Nothing in it is trusted but to be bytes.

use std::{fs::File, io, mem::offset_of, os::unix::fs::FileExt};

use slipring::{
    engine::stat::{MAGIC, Page, Receive, Send, VERSION},
    ring::layout,
};

/// Why a file is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A socket of a library with another layout.
    Version,
    /// It cannot be read, or is no socket's (yet).
    Other,
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Fault {
        Fault::Other
    }
}

/// A ring as it was when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingState {
    pub entries: u32,
    pub producer: u32,
    pub consumer: u32,
}

impl RingState {
    /// Entries handed over and not taken, or that the indices make no sense.
    pub(super) fn waiting(&self) -> String {
        let n = self.producer.wrapping_sub(self.consumer);
        if n <= self.entries { n.to_string() } else { "broken".to_owned() }
    }
}

/// A socket as it was when it was looked at. The fields are those of `engine::stat::Page`.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub pid: u32,
    pub fd: u32,
    pub state: u32,
    pub ifindex: u32,
    pub queue: u32,
    pub rings: [Option<RingState>; 4],
    pub umem: [u64; 2],
    pub geometry: [u32; 4],
    pub name: String,
    pub spec: String,
    pub counters: [(&'static str, u64); COUNTERS.len()],
}

/// Counters in the page: name in JSON, offset.
const COUNTERS: [(&str, usize); 16] = [
    ("rx_frames", offset_of!(Page, rx) + offset_of!(Receive, frames)),
    ("rx_bytes", offset_of!(Page, rx) + offset_of!(Receive, bytes)),
    ("rx_dropped", offset_of!(Page, rx) + offset_of!(Receive, dropped)),
    ("rx_ring_full", offset_of!(Page, rx) + offset_of!(Receive, ring_full)),
    ("rx_fill_ring_empty_descs", offset_of!(Page, rx) + offset_of!(Receive, fill_empty)),
    ("rx_bad_fill_entries", offset_of!(Page, rx) + offset_of!(Receive, bad_fill)),
    ("tx_frames", offset_of!(Page, tx) + offset_of!(Send, frames)),
    ("tx_bytes", offset_of!(Page, tx) + offset_of!(Send, bytes)),
    ("tx_invalid_descs", offset_of!(Page, tx) + offset_of!(Send, invalid)),
    ("tx_dropped", offset_of!(Page, tx) + offset_of!(Send, dropped)),
    ("tx_ring_empty_descs", offset_of!(Page, tx) + offset_of!(Send, ring_empty)),
    ("tx_kicks", offset_of!(Page, tx) + offset_of!(Send, kicks)),
    ("tx_kicks_again", offset_of!(Page, tx) + offset_of!(Send, again)),
    ("device_tx_frames", offset_of!(Page, tx) + offset_of!(Send, device)),
    ("device_tx_bytes", offset_of!(Page, tx) + offset_of!(Send, device) + 8),
    ("device_tx_dropped", offset_of!(Page, tx) + offset_of!(Send, device) + 16),
];

impl Snapshot {
    /// Read a memory file.
    pub(super) fn read(file: &File) -> Result<Snapshot, Fault> {
        let mut bytes = [0u8; size_of::<Page>()];
        file.read_exact_at(&mut bytes, 0)?;
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes of a page"));
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes of a page"));
        if long(offset_of!(Page, magic)) != MAGIC {
            return Err(Fault::Other);
        }
        if word(offset_of!(Page, version)) != VERSION {
            return Err(Fault::Version);
        }
        let text = |at: usize, len: usize| {
            let field = &bytes[at..at + len];
            let end = field.iter().position(|b| *b == 0).unwrap_or(len);
            let text = String::from_utf8_lossy(&field[..end]);
            // Another user's process must not write escapes to root's terminal.
            text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect::<String>()
        };
        let words = |at: usize| [0, 1, 2, 3].map(|i| word(at + 4 * i));
        let entries = words(offset_of!(Page, ring_entries));
        let rings = [0, 1, 2, 3].map(|i| ring(file, long(offset_of!(Page, ring_offset) + 8 * i), entries[i]));
        Ok(Snapshot {
            pid: word(offset_of!(Page, pid)),
            fd: word(offset_of!(Page, fd)),
            state: word(offset_of!(Page, state)),
            ifindex: word(offset_of!(Page, ifindex)),
            queue: word(offset_of!(Page, queue)),
            rings,
            umem: [0, 1].map(|i| long(offset_of!(Page, umem) + 8 * i)),
            geometry: words(offset_of!(Page, geometry)),
            name: text(offset_of!(Page, name), 64),
            spec: text(offset_of!(Page, spec), 256),
            counters: COUNTERS.map(|(name, at)| (name, long(at))),
        })
    }

    /// A counter by its name in JSON.
    pub(super) fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1)
    }

    pub(super) fn is_bound(&self) -> bool {
        self.ifindex != 0
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            0 => "not bound",
            1 => "bound",
            2 => "failed",
            _ => "in an unknown state",
        }
    }
}

/// Indices of the ring at `offset`; `None`: there is no ring, or it cannot be read.
fn ring(file: &File, offset: u64, entries: u32) -> Option<RingState> {
    if offset == 0 || entries == 0 {
        return None;
    }
    let index = |at: usize| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset.checked_add(at as u64)?).ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    // The consumer first: the producer only moves ahead of it meanwhile, so what waits is never negative.
    let consumer = index(layout::CONSUMER)?;
    Some(RingState { entries, consumer, producer: index(layout::PRODUCER)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as a process writes it: the page and one ring behind it.
    fn file(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> File {
        let mut bytes = vec![0u8; 8192];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Page, magic), &MAGIC.to_ne_bytes());
        put(offset_of!(Page, version), &VERSION.to_ne_bytes());
        put(offset_of!(Page, pid), &77u32.to_ne_bytes());
        put(offset_of!(Page, state), &1u32.to_ne_bytes());
        put(offset_of!(Page, ring_offset) + 8, &4096u64.to_ne_bytes());
        put(offset_of!(Page, ring_entries) + 4, &64u32.to_ne_bytes());
        put(offset_of!(Page, name), b"wire0\x1b[31m");
        put(offset_of!(Page, tx) + offset_of!(Send, frames), &5u64.to_ne_bytes());
        put(offset_of!(Page, tx) + offset_of!(Send, device) + 16, &3u64.to_ne_bytes());
        put(4096 + layout::PRODUCER, &3u32.to_ne_bytes());
        put(4096 + layout::CONSUMER, &(u32::MAX - 1).to_ne_bytes());
        change(&mut bytes);
        let path = std::env::temp_dir().join(format!("slipring-stat-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    /// Protects the reading of the page at the places where the library writes it, and of indices that have wrapped.
    #[test]
    fn a_page_is_read_field_by_field() {
        let socket = Snapshot::read(&file("whole", |_| ())).unwrap();
        assert_eq!((socket.pid, socket.state_name()), (77, "bound"));
        assert_eq!(socket.rings[1].unwrap().waiting(), "5");
        assert!(socket.rings[0].is_none());
        assert_eq!((socket.counter("tx_frames"), socket.counter("device_tx_dropped")), (5, 3));
        assert_eq!(socket.name, "wire0\u{fffd}[31m", "no escape reaches the terminal");
    }

    /// Protects against a process that shows nonsense.
    #[test]
    fn a_foreign_short_or_lying_page_is_refused_or_shown_as_it_is() {
        assert_eq!(Snapshot::read(&file("magic", |b| b[0] ^= 1)).unwrap_err(), Fault::Other);
        assert_eq!(Snapshot::read(&file("short", |b| b.truncate(100))).unwrap_err(), Fault::Other);
        let at = offset_of!(Page, version);
        assert_eq!(Snapshot::read(&file("version", |b| b[at] ^= 1)).unwrap_err(), Fault::Version);
        let at = offset_of!(Page, ring_offset) + 8;
        let lying = Snapshot::read(&file("offset", |b| b[at..at + 8].fill(0xff))).unwrap();
        assert!(lying.rings[1].is_none());
        let broken = Snapshot::read(&file("broken", |b| b[4096 + layout::PRODUCER] = 200)).unwrap();
        assert_eq!(broken.rings[1].unwrap().waiting(), "broken");
    }
}
