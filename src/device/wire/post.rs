//! An end's socket, and the messages that ends and the command line send to it: a datagram each, none of which the sender
//! waits for.
//!
//! | message | from | with |
//! | --- | --- | --- |
//! | hello | the other end | its memory, and the socket by which it is woken |
//! | link | `slipring link` | up or down, and a socket for the answer |
//! | status | `slipring wires` | a socket for the answer |
//!
//! The kernel says which process and user sent a message. Nothing in a message is trusted.

use core::ffi::CStr;

use super::{directory::Directory, flow::Key, session::About};
use crate::{
    engine::InternalFd,
    errno::{Errno, Result},
    sys,
};

const MAGIC: u64 = u64::from_le_bytes(*b"slipwire");
/// Raised when messages, records or the memory's layout change.
const VERSION: u32 = 1;
const BYTES: usize = 48;

const HELLO: u32 = 1;
const LINK: u32 = 2;
const STATUS: u32 = 3;

const FLAG_WAIT: u32 = 1;
const FLAG_SYMMETRIC: u32 = 2;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    /// `generation` names the memory that comes along; `answers`: the memory of the addressee that the sender has, or 0.
    Hello { generation: u64, answers: u64, about: About },
    /// Plug the cable in or out.
    Link(bool),
    /// Tell how you are.
    Status,
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Another version of the library sent it.
    Version(u32),
    /// It is no message of ours.
    Nonsense,
}

impl Letter {
    fn encode(&self) -> [u8; BYTES] {
        let (kind, generation, answers, numbers) = match *self {
            Letter::Hello { generation, answers, about } => {
                let wait = if about.wait { FLAG_WAIT } else { 0 };
                let key = if about.key == Key::Symmetric { FLAG_SYMMETRIC } else { 0 };
                (HELLO, generation, answers, [about.queues, about.mtu, about.lines, wait | key])
            }
            Letter::Link(up) => (LINK, 0, 0, [u32::from(up), 0, 0, 0]),
            Letter::Status => (STATUS, 0, 0, [0; 4]),
        };
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        out[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        out[12..16].copy_from_slice(&kind.to_ne_bytes());
        out[16..24].copy_from_slice(&generation.to_ne_bytes());
        out[24..32].copy_from_slice(&answers.to_ne_bytes());
        for (to, number) in out[32..].chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> core::result::Result<Letter, Unreadable> {
        let word = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_ne_bytes(b.try_into().expect("four bytes")));
        let long = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_ne_bytes(b.try_into().expect("eight bytes")));
        let read = || {
            let version = word(8).filter(|_| long(0) == Some(MAGIC))?;
            if version != VERSION {
                return Some(Err(Unreadable::Version(version)));
            }
            let (queues, mtu, lines, flags) = (word(32)?, word(36)?, word(40)?, word(44)?);
            let key = if flags & FLAG_SYMMETRIC != 0 { Key::Symmetric } else { Key::Usual };
            let about = About { queues, mtu, lines, wait: flags & FLAG_WAIT != 0, key };
            match word(12)? {
                HELLO => Some(Ok(Letter::Hello { generation: long(16)?, answers: long(24)?, about })),
                LINK => Some(Ok(Letter::Link(queues != 0))),
                STATUS => Some(Ok(Letter::Status)),
                _ => None,
            }
        };
        read().unwrap_or(Err(Unreadable::Nonsense))
    }
}

/// A message that came.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) letter: core::result::Result<Letter, Unreadable>,
    pub(super) fds: [Option<InternalFd>; sys::MESSAGE_FDS],
    pub(super) pid: u32,
    pub(super) uid: u32,
}

/// The socket.
#[derive(Debug)]
pub(super) struct Post(InternalFd);

impl Post {
    /// A socket without a name, for sending.
    pub(super) fn anonymous() -> Result<Post> {
        sys::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).map(|fd| Post(InternalFd::new(fd)))
    }

    /// A socket under a name, in place of what a dead process left there.
    pub(super) fn named(directory: &Directory, name: &CStr) -> Result<Post> {
        let post = Post::anonymous()?;
        sys::setsockopt(post.number(), libc::SOL_SOCKET, libc::SO_PASSCRED, &1i32)?;
        // The mode of the file that bind makes.
        sys::fchmod(post.number(), 0o600)?;
        directory.remove(name);
        sys::bind(post.number(), &directory.address(name)?)?;
        directory.unmask(name)?;
        Ok(post)
    }

    pub(super) fn number(&self) -> i32 {
        self.0.number()
    }

    /// ECONNREFUSED, ENOENT: nobody is there. EAGAIN: the addressee has not read its last messages yet.
    pub(super) fn send(&self, directory: &Directory, to: &CStr, letter: &Letter, fds: &[i32]) -> Result<()> {
        sys::send_message(self.number(), Some(&directory.address(to)?), &letter.encode(), fds)
    }

    /// The next message, if one is there.
    pub(super) fn receive(&self) -> Option<Arrival> {
        let mut bytes = [0; BYTES];
        loop {
            match sys::receive_message(self.number(), &mut bytes) {
                Ok(message) => {
                    return Some(Arrival {
                        letter: Letter::decode(&bytes[..message.len]),
                        fds: message.fds.map(|fd| (fd >= 0).then(|| InternalFd::new(fd))),
                        pid: message.pid,
                        uid: message.uid,
                    });
                }
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_nonsense_is_not() {
        let about = About { queues: 3, mtu: 1500, lines: 1024, wait: true, key: Key::Symmetric };
        let plain = About { wait: false, key: Key::Usual, ..about };
        for letter in [
            Letter::Hello { generation: 1 << 60, answers: 7, about },
            Letter::Hello { generation: 1, answers: 0, about: plain },
            Letter::Link(true),
            Letter::Link(false),
            Letter::Status,
        ] {
            let bytes = letter.encode();
            assert_eq!(Letter::decode(&bytes), Ok(letter));
            for n in 0..BYTES {
                assert_eq!(Letter::decode(&bytes[..n]), Err(Unreadable::Nonsense), "{n} bytes");
            }
        }
        let mut other = Letter::Status.encode();
        other[8] = 9;
        assert_eq!(Letter::decode(&other), Err(Unreadable::Version(9)));
        assert_eq!(Letter::decode(&[0xff; BYTES]), Err(Unreadable::Nonsense));
    }
}
