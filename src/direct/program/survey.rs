//! Which default programs are on the interfaces of this network namespace, and whether anybody still uses them. For people
//! (`slipring doctor`); nothing is changed.

use std::{ffi::CString, fs};

use super::{
    find::{self, Default, Found},
    lock::Lock,
    name, probe,
    register::{Census, Register},
};
use crate::{
    direct::{
        bpf,
        netlink::{Attached, Link, Netlink},
    },
    errno::{Errno, Result},
    sys,
};

/// Whether a program is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A socket is in its map, or a process of ours holds a reference.
    Used,
    /// Nobody uses it: whoever did has died.
    Stale,
    /// No socket receives through it, but it has references of which nobody knows whose they are.
    Unclear,
}

impl State {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            State::Used => "used",
            State::Stale => "stale",
            State::Unclear => "unclear",
        }
    }
}

/// A default program on an interface, or a dispatcher of libxdp whose programs cannot be seen.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Name of the interface.
    pub interface: String,
    /// Id of the program; of the dispatcher, if no other can be seen.
    pub program: u32,
    /// `native` or `generic`.
    pub mode: &'static str,
    /// Id of libxdp's dispatcher before it.
    pub dispatcher: Option<u32>,
    /// References that its counter tells of. `None`: it has no counter.
    pub references: Option<i32>,
    /// Processes of ours that hold references, once for each.
    pub live: Vec<u32>,
    /// References that processes of ours have left when they died.
    pub dead: i32,
    /// Whether a socket is in its map. `None`: that cannot be told.
    pub sockets: Option<bool>,
    /// What follows.
    pub state: State,
    /// Why it is there.
    pub why: String,
    /// The command that takes it off.
    pub removal: String,
}

/// The names of the interfaces of the thread's network namespace.
fn interfaces() -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect())
}

/// Look at every interface. An interface that cannot be looked at is there with the reason.
pub fn all() -> Result<Vec<(String, Result<Standing>)>> {
    let looked = interfaces()?.into_iter().map(|name| (on(&name), name));
    Ok(looked.filter_map(|(found, name)| Some((name, found.transpose()?))).collect())
}

/// Look at one interface; `None`: no default program is there.
pub fn on(interface: &str) -> Result<Option<Standing>> {
    let name = CString::new(interface).map_err(|_| Errno::ENODEV)?;
    let netlink = Netlink::open()?;
    let ifindex = sys::interface_index(&name)?;
    // Most have none, and then there is nothing to lock.
    if netlink.link(ifindex)?.xdp == Attached::default() {
        return Ok(None);
    }
    let lock = Lock::take()?;
    let link = netlink.link(ifindex)?;
    Ok(match find::look(ifindex, link.xdp, Some(&lock))? {
        Found::Default(found) => Some(describe(&link, &found, &lock)?),
        Found::Hidden { id, why } => Some(unseen(&link, id, &why)),
        Found::Nothing | Found::Going | Found::Others { .. } | Found::Foreign { .. } => None,
    })
}

/// The command that takes whatever program off an interface, in the mode in which it is attached.
pub(super) fn take_off(link: &Link) -> String {
    let (id, word) = if link.xdp.drv != 0 { (link.xdp.drv, "xdpdrv") } else { (link.xdp.skb, "xdpgeneric") };
    match bpf::xdp_link(link.index, id) {
        Ok((id, _)) => format!("bpftool link detach id {id}"),
        Err(_) => format!("ip link set dev {} {word} off", name(link)),
    }
}

fn mode(link: &Link) -> &'static str {
    if link.xdp.drv != 0 { "native" } else { "generic" }
}

fn describe(link: &Link, found: &Default, lock: &Lock) -> Result<Standing> {
    let references = found.counter.as_ref().map(|counter| counter.read()).transpose()?;
    let register = Register::open(lock).zip(found.counter.as_ref());
    let census = register.map_or_else(Census::default, |(register, counter)| register.census(counter.id, None));
    let sockets = probe::any_socket(&found.sockets, found.entries).ok();
    let dead = census.owed(references.unwrap_or(0)).0;
    let (state, why) = judge(references, &census, dead, sockets);
    let dispatcher = found.behind.map(|_| found.attached.id);
    let removal = match dispatcher {
        Some(_) => format!("xdp-loader unload {} --id {}", name(link), found.program),
        None => take_off(link),
    };
    Ok(Standing {
        interface: name(link),
        program: found.program,
        mode: mode(link),
        dispatcher,
        references,
        live: census.live,
        dead,
        sockets,
        state,
        why,
        removal,
    })
}

fn judge(references: Option<i32>, census: &Census, dead: i32, sockets: Option<bool>) -> (State, String) {
    let unknown = references.map(|n| n - dead - i32::try_from(census.live.len()).unwrap_or(i32::MAX));
    if sockets == Some(true) {
        return (State::Used, "a socket receives through it".to_owned());
    }
    if !census.live.is_empty() {
        let pids: Vec<String> = census.live.iter().map(u32::to_string).collect();
        return (State::Used, format!("in use by process {}", pids.join(", ")));
    }
    let no_socket = if sockets.is_none() {
        "whether a socket receives through it cannot be told here"
    } else {
        "no socket receives through it"
    };
    match (references, unknown) {
        (None, _) | (_, None) => {
            (State::Unclear, format!("it is an old libxdp's, which never takes its program off; {no_socket}"))
        }
        (Some(..=0), _) => {
            (State::Stale, "its last user was to take it off and did not; libxdp's users cannot join it".to_owned())
        }
        (_, Some(..=0)) if sockets.is_some() => (
            State::Stale,
            format!(
                "{} left by users that died without a delete; the next user to come and go takes it off",
                references_are(dead)
            ),
        ),
        (_, Some(unknown)) => {
            let also =
                if dead > 0 { format!(", and {} of users that died", references_are(dead)) } else { String::new() };
            let whose =
                "of libxdp's users, living or dead, of users who cannot use the register, or of xsk_setup_xdp_prog";
            (State::Unclear, format!("{} {whose}{also}; {no_socket}", references_are(unknown)))
        }
    }
}

fn references_are(n: i32) -> String {
    if n == 1 { "1 reference is".to_owned() } else { format!("{n} references are") }
}

fn unseen(link: &Link, id: u32, why: &str) -> Standing {
    Standing {
        interface: name(link),
        program: id,
        mode: mode(link),
        dispatcher: Some(id),
        references: None,
        live: Vec::new(),
        dead: 0,
        sockets: None,
        state: State::Unclear,
        why: format!(
            "libxdp's dispatcher, whose programs cannot be seen ({why}); LIBXDP_BPFFS tells where they are pinned, if not \
             in /sys/fs/bpf"
        ),
        removal: take_off(link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects from taking a used program for a stale one.
    #[test]
    fn what_is_not_known_to_be_stale_is_not_called_so() {
        let live = Census { live: vec![7], ..Census::default() };
        let none = Census::default();
        for (references, census, dead, sockets, state) in [
            (Some(1), &none, 0, Some(true), State::Used),
            (Some(1), &live, 0, Some(false), State::Used),
            (Some(1), &live, 0, None, State::Used),
            (Some(1), &none, 1, Some(false), State::Stale),
            (Some(1), &none, 1, None, State::Unclear),
            (Some(0), &none, 0, Some(false), State::Stale),
            (Some(2), &none, 1, Some(false), State::Unclear),
            (Some(1), &none, 0, Some(false), State::Unclear),
            (None, &none, 0, Some(false), State::Unclear),
        ] {
            assert_eq!(judge(references, census, dead, sockets).0, state, "{references:?} {dead} {sockets:?}");
        }
    }
}
