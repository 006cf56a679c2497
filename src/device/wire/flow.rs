//! Which queue of the receiving end a frame goes to: by a hash of its flow, as a network card spreads what it receives.
//!
//! Toeplitz over the addresses and ports of TCP and UDP over IPv4 and IPv6, over the addresses alone for other IP packets and
//! for fragments; all else goes to queue 0. The hash's low seven bits name a place in a table of 128 that deals the queues
//! out in turn, as a card's does before anybody changes it.

#![expect(clippy::cast_possible_truncation, reason = "windows of the key; small numbers of the tests")]

use crate::device::Piece;

/// Bytes of a frame that the hash may need: Ethernet, two VLAN tags, an IPv4 header with all options, ports.
const LOOK: usize = 14 + 8 + 60 + 4;
/// Bytes of the longest input: two IPv6 addresses and two ports.
const INPUT: usize = 36;

/// The key that cards are delivered with (Microsoft's, published for verification of an implementation).
const USUAL: [u8; INPUT + 4] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Sixteen bits over and over: both directions of a connection have one hash.
const SYMMETRIC: [u8; INPUT + 4] = {
    let mut key = [0; INPUT + 4];
    let mut i = 0;
    while i < key.len() {
        key[i] = if i.is_multiple_of(2) { 0x6d } else { 0x5a };
        i += 1;
    }
    key
};

/// What each half of each input byte adds to the hash.
type Table = [[u32; 16]; 2 * INPUT];

const fn table(key: &[u8; INPUT + 4]) -> Table {
    let mut table = [[0; 16]; 2 * INPUT];
    let mut half = 0;
    while half < table.len() {
        let byte = half / 2;
        // The 40 bits of the key from this byte on.
        let window = (key[byte] as u64) << 32
            | (key[byte + 1] as u64) << 24
            | (key[byte + 2] as u64) << 16
            | (key[byte + 3] as u64) << 8
            | key[byte + 4] as u64;
        let mut value = 0;
        while value < 16 {
            let mut bit = 0;
            while bit < 4 {
                if value & (8 >> bit) != 0 {
                    let shift = 8 - (half % 2) * 4 - bit;
                    table[half][value] ^= (window >> shift) as u32;
                }
                bit += 1;
            }
            value += 1;
        }
        half += 1;
    }
    table
}

static USUAL_TABLE: Table = table(&USUAL);
static SYMMETRIC_TABLE: Table = table(&SYMMETRIC);

/// Which key spreads the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Usual,
    Symmetric,
}

fn toeplitz(key: Key, input: &[u8]) -> u32 {
    let table = match key {
        Key::Usual => &USUAL_TABLE,
        Key::Symmetric => &SYMMETRIC_TABLE,
    };
    input
        .iter()
        .zip(table.chunks_exact(2))
        .fold(0, |hash, (byte, halves)| hash ^ halves[0][usize::from(byte >> 4)] ^ halves[1][usize::from(byte & 15)])
}

/// What of a frame is hashed.
fn input(frame: &[u8], out: &mut [u8; INPUT]) -> Option<usize> {
    let kind = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut at = 12;
    let mut ether = kind(at)?;
    for _ in 0..2 {
        if !matches!(ether, 0x8100 | 0x88a8) {
            break;
        }
        at += 4;
        ether = kind(at)?;
    }
    let ip = frame.get(at + 2..)?;
    let (addresses, protocol, ports) = match ether {
        0x0800 => {
            let header = usize::from(ip.first()? & 15) * 4;
            if ip.first()? >> 4 != 4 || header < 20 {
                return None;
            }
            let fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff != 0;
            (ip.get(12..20)?, if fragment { 0 } else { *ip.get(9)? }, header)
        }
        0x86dd if ip.first()? >> 4 == 6 => (ip.get(8..40)?, *ip.get(6)?, 40),
        _ => return None,
    };
    out[..addresses.len()].copy_from_slice(addresses);
    let mut len = addresses.len();
    if matches!(protocol, 6 | 17)
        && let Some(ports) = ip.get(ports..ports + 4)
    {
        out[len..len + 4].copy_from_slice(ports);
        len += 4;
    }
    Some(len)
}

/// The queue, of `queues`, for the frame that begins with these pieces and was sent on queue `from`.
#[inline]
pub(super) fn queue(key: Key, queues: u32, from: u32, pieces: &[Piece]) -> u32 {
    if queues == 1 { 0 } else { spread(key, queues, from, pieces) }
}

fn spread(key: Key, queues: u32, from: u32, pieces: &[Piece]) -> u32 {
    // A copy: the program may write to its frame at any time, and the head may be in several pieces.
    let mut head = [0; LOOK];
    let mut len = 0;
    for piece in pieces {
        let part = (piece.len as usize).min(LOOK - len);
        // SAFETY: readable (`Piece::data`); `part` is within both.
        unsafe { core::ptr::copy_nonoverlapping(piece.data, head.as_mut_ptr().wrapping_add(len), part) };
        len += part;
        if len == LOOK || !piece.more {
            break;
        }
    }
    let mut bytes = [0; INPUT];
    match input(&head[..len], &mut bytes) {
        Some(n) => (toeplitz(key, &bytes[..n]) & 127) % queues,
        None => from % queues,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(source: [u8; 4], target: [u8; 4], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut f = vec![0; 12];
        f.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
        f.extend(source);
        f.extend(target);
        f.extend(ports.iter().flat_map(|p| p.to_be_bytes()));
        f.resize(60, 0);
        f
    }

    fn hash(key: Key, frame: &[u8]) -> Option<u32> {
        let mut bytes = [0; INPUT];
        input(frame, &mut bytes).map(|n| toeplitz(key, &bytes[..n]))
    }

    /// The published verification values of this key.
    #[test]
    fn the_hash_is_the_one_that_cards_compute() {
        let tcp = ipv4([66, 9, 149, 187], [161, 142, 100, 80], 6, [2794, 1766]);
        assert_eq!(hash(Key::Usual, &tcp), Some(0x51cc_c178));
        let other = ipv4([66, 9, 149, 187], [161, 142, 100, 80], 1, [2794, 1766]);
        assert_eq!(hash(Key::Usual, &other), Some(0x323e_8fc2));
        let udp = ipv4([199, 92, 111, 2], [65, 69, 140, 83], 17, [14230, 4739]);
        assert_eq!(hash(Key::Usual, &udp), Some(0xc626_b0ea));
        let mut six = vec![0; 12];
        six.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        six.extend([0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7]);
        six.extend([0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
        six.extend([2794u16, 1766].iter().flat_map(|p| p.to_be_bytes()));
        assert_eq!(hash(Key::Usual, &six), Some(0x4020_7d3d));
        six[20] = 58;
        assert_eq!(hash(Key::Usual, &six), Some(0x2cc1_8cd5));
    }

    #[test]
    fn both_directions_have_one_queue_with_the_symmetric_key() {
        let (one, two) = ([10, 0, 0, 1], [10, 9, 8, 7]);
        let there = ipv4(one, two, 6, [1234, 80]);
        let back = ipv4(two, one, 6, [80, 1234]);
        assert_eq!(hash(Key::Symmetric, &there), hash(Key::Symmetric, &back));
        assert_ne!(hash(Key::Usual, &there), hash(Key::Usual, &back));
    }

    #[test]
    fn vlan_tags_are_skipped_and_what_has_no_flow_keeps_its_queue() {
        let plain = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, [5, 6]);
        let mut tagged = plain[..12].to_vec();
        tagged.extend([0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        tagged.extend(&plain[12..]);
        assert_eq!(hash(Key::Usual, &tagged), hash(Key::Usual, &plain));
        let mut fragment = plain.clone();
        fragment[20] = 0x20;
        assert_ne!(hash(Key::Usual, &fragment), hash(Key::Usual, &plain));
        let whole = |f: &[u8]| [Piece { data: f.as_ptr(), len: f.len() as u32, more: false }];
        let mut arp = plain.clone();
        arp[13] = 6;
        assert_eq!(queue(Key::Usual, 7, 9, &whole(&arp)), 2);
        assert_eq!(queue(Key::Usual, 7, 3, &whole(&plain[..30])), 3, "cut short");
        let spread: std::collections::BTreeSet<u32> = (0..200)
            .map(|p| queue(Key::Usual, 7, 0, &whole(&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, [p, 6]))))
            .collect();
        assert_eq!(spread.len(), 7, "every queue gets some flow");
        // In two pieces, of which the first ends inside the addresses.
        let pieces = [
            Piece { data: plain.as_ptr(), len: 28, more: true },
            Piece { data: plain[28..].as_ptr(), len: 32, more: false },
        ];
        assert_eq!(queue(Key::Usual, 7, 0, &pieces), queue(Key::Usual, 7, 0, &whole(&plain)));
    }
}
