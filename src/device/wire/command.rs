//! Wires as the command line sees them: what there is in the user's directory, and the cable plugged in or out.
//!
//! For a process that has no end open itself: its looks at lock files would cost it its locks (`directory`).

use super::{
    directory::{Directory, Names},
    post::{Letter, Post},
};
use crate::{
    config::End,
    engine::InternalFd,
    errno::{Errno, Result},
    sys,
};

/// How long a process may take to answer, in milliseconds.
const PATIENCE_MS: i32 = 1000;

/// A wire that has an end open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireState {
    /// Its name.
    pub name: String,
    /// End a and end b; `None`: nobody has it.
    pub ends: [Option<EndState>; 2],
}

/// An end that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState {
    /// The process; 0: one that cannot be seen from here.
    pub pid: u32,
    /// What it says of itself: `queues`, `mtu`, `link`, `peer`, `received`, `sent`, `bytes`, `dropped`, each with its value.
    /// `None`: it does not answer.
    pub says: Option<Vec<(String, String)>>,
}

impl EndState {
    /// What it says under one name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.says.as_ref()?.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Send a letter that is answered, and wait for the answer.
fn ask(directory: &Directory, names: &Names, letter: Letter) -> Result<String> {
    let (ours, theirs) = sys::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)?;
    let (ours, theirs) = (InternalFd::new(ours), InternalFd::new(theirs));
    Post::anonymous()?.send(directory, &names.socket, &letter, &[theirs.number()])?;
    drop(theirs);
    let mut ready = [libc::pollfd { fd: ours.number(), events: libc::POLLIN, revents: 0 }];
    sys::poll(&mut ready, PATIENCE_MS)?;
    let mut text = [0; 512];
    match sys::recv(ours.number(), &mut text, libc::MSG_DONTWAIT) {
        Ok(n) if n > 0 => Ok(String::from_utf8_lossy(&text[..n]).into_owned()),
        _ => Err(Errno::ETIMEDOUT),
    }
}

fn pairs(text: &str) -> Vec<(String, String)> {
    text.split(' ').filter_map(|word| word.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

/// Path of the directory in which the wires of this user are known, with this environment. It is made if it is not there.
pub fn directory() -> Result<String> {
    Directory::open().map(|directory| directory.path.clone())
}

/// This user's wires that have an end open, by name. What killed processes have left is removed.
pub fn wires() -> Result<Vec<WireState>> {
    let directory = Directory::open()?;
    let mut out = Vec::new();
    for name in directory.wires()? {
        let ends = [End::A, End::B].map(|end| {
            let names = Names::new(&name, end);
            directory.sweep(&names);
            let pid = directory.holder(&names)?;
            Some(EndState { pid, says: ask(&directory, &names, Letter::Status).ok().map(|text| pairs(&text)) })
        });
        if ends.iter().any(Option::is_some) {
            out.push(WireState { name, ends });
        }
    }
    Ok(out)
}

/// Plug the cable in or out at one end of a wire. ENOENT: nobody has that end. ETIMEDOUT: its process does not answer.
pub fn set_link(wire: &str, end: End, up: bool) -> Result<()> {
    let directory = Directory::open()?;
    let names = Names::new(wire, end);
    directory.holder(&names).ok_or(Errno::ENOENT)?;
    ask(&directory, &names, Letter::Link(up)).map(drop)
}
