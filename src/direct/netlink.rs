//! The little of rtnetlink that is needed: what an interface is, and which XDP program it runs.

use core::fmt;
use std::{
    ffi::CStr,
    sync::{Mutex, PoisonError},
};

use super::calls::OwnedFd;
use crate::{
    errno::{Errno, Result},
    sys,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;

const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_ALT_IFNAME: u16 = 53;

const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const IFLA_XDP_EXPECTED_FD: u16 = 8;

/// `XDP_FLAGS_REPLACE`: an expected program is named.
const XDP_FLAGS_REPLACE: u32 = 1 << 4;
/// `RTEXT_FILTER_SKIP_STATS`: counters are long and of no use here.
const SKIP_STATS: u32 = 1 << 3;
const NLA_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;

const HEADER: usize = 16;
const IFINFO: usize = 16;
/// One link's description without counters is 2 KiB on common devices; with many virtual functions it is longer.
const ROOM: usize = 32 * 1024;

/// Program ids on an interface, one for each mode; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attached {
    /// Generic mode.
    pub(super) skb: u32,
    /// Native mode.
    pub(super) drv: u32,
    /// Offloaded to the device.
    pub(super) hw: u32,
}

/// What is known of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Number.
    pub(super) index: u32,
    /// Primary name.
    pub(super) name: Vec<u8>,
    /// Receive queues that the device was made with.
    pub(super) rx_queues: u32,
    /// Transmit queues that the device was made with.
    pub(super) tx_queues: u32,
    /// XDP programs.
    pub(super) xdp: Attached,
}

/// A request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// The error number.
    pub(super) error: Errno,
    /// What the kernel or the driver says about it; often nothing.
    pub(super) reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason.is_empty() { self.error.fmt(f) } else { write!(f, "{} ({})", self.error, self.reason) }
    }
}

impl From<Errno> for Refused {
    fn from(error: Errno) -> Refused {
        Refused { error, reason: String::new() }
    }
}

/// What a request is answered with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Link,
    Acknowledgement,
}

/// A route netlink socket. It stays in the namespace in which it was opened, wherever the thread goes.
#[derive(Debug)]
pub(super) struct Netlink {
    fd: OwnedFd,
    /// Sequence number of the last request; held from a request to its answer.
    sequence: Mutex<u32>,
}

impl Netlink {
    /// Open one in the current namespace.
    pub(super) fn open() -> Result<Netlink> {
        const NETLINK_ROUTE: i32 = 0;
        const NETLINK_CAP_ACK: i32 = 10;
        const NETLINK_EXT_ACK: i32 = 11;
        let fd = OwnedFd::new(sys::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_ROUTE)?);
        // The reasons of refusals, without the refused request. Old kernels do without.
        for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK] {
            let _ = sys::setsockopt(fd.raw(), libc::SOL_NETLINK, option, &1i32);
        }
        Ok(Netlink { fd, sequence: Mutex::new(0) })
    }

    /// The interface of a number. ENODEV: there is none (any more).
    pub(super) fn link(&self, ifindex: u32) -> Result<Link> {
        let mut request = Request::new(RTM_GETLINK, ifindex);
        request.attribute(IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
        self.transact(request, Answer::Link).map_err(|refused| refused.error)
    }

    /// Set the program of one mode (`flags` holds exactly one mode bit); `program` -1 takes it away. With `expected`, only
    /// if that program is the one there (else EEXIST or EBUSY). EBUSY: occupied, or held by a BPF link.
    pub(super) fn set_xdp(
        &self,
        ifindex: u32,
        program: i32,
        flags: u32,
        expected: Option<i32>,
    ) -> core::result::Result<(), Refused> {
        let mut request = Request::new(RTM_SETLINK, ifindex);
        let nest = request.open_nest(IFLA_XDP);
        request.attribute(IFLA_XDP_FD, &program.to_ne_bytes());
        let replace = if expected.is_some() { XDP_FLAGS_REPLACE } else { 0 };
        request.attribute(IFLA_XDP_FLAGS, &(flags | replace).to_ne_bytes());
        if let Some(expected) = expected {
            request.attribute(IFLA_XDP_EXPECTED_FD, &expected.to_ne_bytes());
        }
        request.close_nest(nest);
        self.transact(request, Answer::Acknowledgement).map(drop)
    }

    /// Send a request and wait for its answer; an acknowledgement is an empty link.
    fn transact(&self, mut request: Request, expected: Answer) -> core::result::Result<Link, Refused> {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        let bytes = request.finish(*sequence, expected == Answer::Acknowledgement);
        sys::send(self.fd.raw(), bytes, 0)?;
        let mut answer = vec![0u8; ROOM];
        loop {
            let len = match sys::recv(self.fd.raw(), &mut answer, 0) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for message in Messages(&answer[..len]) {
                if message.sequence != *sequence {
                    continue;
                }
                match (message.kind, expected) {
                    (kind, _) if i32::from(kind) == libc::NLMSG_ERROR => {
                        let error = i32_at(message.body, 0).ok_or(Errno::EIO)?;
                        return if error == 0 { Ok(Link::default()) } else { Err(parse_refusal(error, message.body)) };
                    }
                    (RTM_NEWLINK, Answer::Link) => return Ok(parse_link(message.body)?),
                    _ => {}
                }
            }
        }
    }
}

/// The interface number of an alternative name, of whatever length. ENODEV: there is none.
pub(super) fn ifindex_of_altname(name: &CStr) -> Result<u32> {
    const ALTIFNAMSIZ: usize = 128;
    if name.count_bytes() >= ALTIFNAMSIZ {
        return Err(Errno::ENODEV);
    }
    let mut request = Request::new(RTM_GETLINK, 0);
    request.attribute(IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
    request.attribute(IFLA_ALT_IFNAME, name.to_bytes_with_nul());
    // Kernels before 5.5 know no such names and say EINVAL.
    match Netlink::open()?.transact(request, Answer::Link) {
        Ok(link) => Ok(link.index),
        Err(Refused { error: Errno::EINVAL, .. }) => Err(Errno::ENODEV),
        Err(refused) => Err(refused.error),
    }
}

/// A request being written: header, `struct ifinfomsg`, attributes.
struct Request {
    bytes: Vec<u8>,
    kind: u16,
}

impl Request {
    fn new(kind: u16, ifindex: u32) -> Request {
        let mut bytes = vec![0u8; HEADER + IFINFO];
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&ifindex.to_ne_bytes());
        Request { bytes, kind }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let start = self.open_nest(kind);
        self.bytes.extend_from_slice(value);
        self.close_nest(start);
        let kind_at = start + 2;
        self.bytes[kind_at..kind_at + 2].copy_from_slice(&kind.to_ne_bytes());
    }

    fn open_nest(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NLA_NESTED).to_ne_bytes());
        start
    }

    fn close_nest(&mut self, start: usize) {
        let len = u16::try_from(self.bytes.len() - start).expect("requests are some hundred bytes long");
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self, sequence: u32, acknowledge: bool) -> &[u8] {
        let ack = if acknowledge { libc::NLM_F_ACK } else { 0 };
        let flags = u16::try_from(libc::NLM_F_REQUEST | ack).expect("two bits below 16");
        let len = u32::try_from(self.bytes.len()).expect("requests are some hundred bytes long");
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        &self.bytes
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages of one datagram; ends at the first that does not fit.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let len = u32_at(self.0, 0)? as usize;
        let message =
            Message { kind: u16_at(self.0, 4)?, sequence: u32_at(self.0, 8)?, body: self.0.get(HEADER..len)? };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// The attributes in a run of bytes; ends at the first that does not fit.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & NLA_TYPE_MASK;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The body of an error message: the number, the refused request's header, attributes.
fn parse_refusal(error: i32, body: &[u8]) -> Refused {
    const MESSAGE: u16 = 1;
    let attributes = body.get(4 + HEADER..).unwrap_or_default();
    let text = Attributes(attributes).find(|(kind, _)| *kind == MESSAGE).map_or(&[][..], |(_, text)| text);
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    Refused { error: Errno::new(error.wrapping_neg()), reason: String::from_utf8_lossy(text).into_owned() }
}

/// The body of an `RTM_NEWLINK` message.
fn parse_link(body: &[u8]) -> Result<Link> {
    let mut link = Link { index: u32_at(body, 4).ok_or(Errno::EIO)?, ..Link::default() };
    for (kind, value) in Attributes(body.get(IFINFO..).unwrap_or_default()) {
        match kind {
            IFLA_IFNAME => link.name = value.split(|&b| b == 0).next().unwrap_or_default().to_vec(),
            IFLA_NUM_RX_QUEUES => link.rx_queues = u32_at(value, 0).unwrap_or(0),
            IFLA_NUM_TX_QUEUES => link.tx_queues = u32_at(value, 0).unwrap_or(0),
            IFLA_XDP => {
                for (kind, value) in Attributes(value) {
                    let id = u32_at(value, 0).unwrap_or(0);
                    match kind {
                        IFLA_XDP_SKB_PROG_ID => link.xdp.skb = id,
                        IFLA_XDP_DRV_PROG_ID => link.xdp.drv = id,
                        IFLA_XDP_HW_PROG_ID => link.xdp.hw = id,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_lie_about_their_length_end_the_list() {
        let mut body = vec![0u8; IFINFO];
        body[4] = 9;
        body.extend_from_slice(&[8, 0, 32, 0, 5, 0, 0, 0]);
        body.extend_from_slice(&[200, 0, 31, 0, 7, 0, 0, 0]);
        let link = parse_link(&body).unwrap();
        assert_eq!((link.index, link.rx_queues, link.tx_queues), (9, 5, 0));
        // A length below the header's own must not loop.
        body.truncate(IFINFO);
        body.extend_from_slice(&[0, 0, 31, 0]);
        assert_eq!(parse_link(&body).unwrap().tx_queues, 0);
    }

    #[test]
    fn the_loopback_interface_is_found_in_every_namespace() {
        let link = Netlink::open().unwrap().link(1).unwrap();
        assert_eq!(link.name, b"lo");
        assert!(link.rx_queues >= 1 && link.tx_queues >= 1);
        assert_eq!(Netlink::open().unwrap().link(0x7fff_fff0), Err(Errno::ENODEV));
    }
}
