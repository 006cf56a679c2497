//! What runs on an interface, and whether it is a default program that can be shared.

use super::{
    btf,
    image::{COUNTER_MAP, METADATA, PROGRAM, SOCKET_MAP, VERSION, VERSION_VARIABLE},
    lock::{Lock, c_path, dispatcher_directory},
};
use crate::{
    direct::{
        bpf::{self, ProgInfo},
        calls::OwnedFd,
        netlink::Attached,
    },
    errno::{Errno, Result},
    uapi::{XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE},
    warn,
};

/// Name of libxdp's program that calls others.
const DISPATCHER: &str = "xdp_dispatcher";
/// Programs that a dispatcher can call.
const SLOTS: usize = 10;
/// Newest layout of a dispatcher that is understood.
const DISPATCHER_VERSION: u32 = 3;

/// The program of an interface.
#[derive(Debug)]
pub(super) enum Found {
    /// None.
    Nothing,
    /// It went while it was looked at: look again.
    Going,
    /// A default program, alone or behind a dispatcher.
    Default(Default),
    /// A dispatcher that calls no default program, only those of these names.
    Others { id: u32, programs: Vec<String> },
    /// A dispatcher whose programs are not to be seen, and why. libxdp pins them after it attached the dispatcher, so this
    /// may be over in a moment.
    Hidden { id: u32, why: String },
    /// Something else.
    Foreign { id: u32, name: String },
}

/// A default program as found.
#[derive(Debug)]
pub(super) struct Default {
    /// What is attached: the program itself, or the dispatcher before it.
    pub(super) attached: AttachedProgram,
    /// Id of the default program itself.
    pub(super) program: u32,
    /// For a dispatcher: how many programs it calls.
    pub(super) behind: Option<usize>,
    pub(super) sockets: OwnedFd,
    /// Queues that the socket map has room for.
    pub(super) entries: u32,
    pub(super) counter: Option<Counter>,
}

impl Default {
    /// Whether the dispatcher calls other programs too. Only libxdp can take one program out of its dispatcher.
    pub(super) fn has_company(&self) -> bool {
        self.behind.is_some_and(|programs| programs > 1)
    }
}

/// A program as it is attached.
#[derive(Debug)]
pub(super) struct AttachedProgram {
    pub(super) fd: OwnedFd,
    pub(super) id: u32,
    /// The mode, as the bit for attaching and detaching.
    pub(super) mode: u32,
}

/// The map that counts references.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) fd: OwnedFd,
    pub(super) id: u32,
    /// Bytes of its value; the count is the first four.
    pub(super) size: usize,
}

impl Counter {
    /// The counter map of a program that this process has loaded.
    pub(super) fn new(fd: OwnedFd) -> Result<Counter> {
        let map = bpf::map_info(&fd)?;
        Ok(Counter { fd, id: map.id, size: map.value_size as usize })
    }

    /// The count. To be changed under the lock only.
    pub(super) fn read(&self) -> Result<i32> {
        let mut value = vec![0u8; self.room()];
        bpf::map_lookup(self.fd.raw(), 0, &mut value)?;
        Ok(i32::from_ne_bytes([value[0], value[1], value[2], value[3]]))
    }

    /// Store the count, leaving what else the value holds. Under the lock only.
    pub(super) fn write(&self, count: i32) -> Result<()> {
        let mut value = vec![0u8; self.room()];
        if self.size > 4 {
            bpf::map_lookup(self.fd.raw(), 0, &mut value)?;
        }
        value[..4].copy_from_slice(&count.to_ne_bytes());
        bpf::map_update(self.fd.raw(), 0, &value)
    }

    /// The kernel copies values in steps of eight bytes.
    fn room(&self) -> usize {
        self.size.next_multiple_of(8)
    }
}

/// Why an interface could not be looked at.
enum Failure {
    /// A message was written.
    Told(Errno),
    /// By a system call, and nothing was written.
    Call(Errno),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Call(error)
    }
}

/// Look at an interface. `held`: the lock, where the caller has it already; a dispatcher's programs are read under it.
/// Failures have left their message.
pub(super) fn look(ifindex: u32, attached: Attached, held: Option<&Lock>) -> Result<Found> {
    // Only one of the first two can be; a program that runs in the device alone does not concern us.
    let (id, mode) = match attached {
        Attached { drv: 0, skb: 0, .. } => return Ok(Found::Nothing),
        Attached { drv: 0, skb, .. } => (skb, XDP_FLAGS_SKB_MODE),
        Attached { drv, .. } => (drv, XDP_FLAGS_DRV_MODE),
    };
    look_at(ifindex, id, mode, held).map_err(|failure| match failure {
        Failure::Told(error) => error,
        Failure::Call(error) => {
            let hint =
                if error == Errno::EPERM { ": it needs CAP_SYS_ADMIN, or CAP_BPF on recent kernels" } else { "" };
            warn!("cannot look at the XDP program {id} that is on the interface: {error}{hint}");
            error
        }
    })
}

/// Look at program `id`, which is on the interface in this mode.
fn look_at(ifindex: u32, id: u32, mode: u32, held: Option<&Lock>) -> core::result::Result<Found, Failure> {
    let Some((fd, info)) = open(id)? else { return Ok(Found::Going) };
    let attached = AttachedProgram { fd, id, mode };
    if info.name == PROGRAM {
        return default(attached, None, &info);
    }
    if info.name == DISPATCHER
        && let Some(dispatcher) = dispatcher(&info)?
    {
        return behind_dispatcher(ifindex, attached, &dispatcher, held);
    }
    Ok(Found::Foreign { id, name: info.name })
}

/// A program by id; `None`: it is gone.
fn open(id: u32) -> Result<Option<(OwnedFd, ProgInfo)>> {
    let fd = match bpf::prog_by_id(id) {
        Err(Errno::ENOENT) => return Ok(None),
        other => other?,
    };
    let info = bpf::prog_info(&fd)?;
    Ok(Some((fd, info)))
}

/// A program of the right name: check its version and find its maps.
fn default(attached: AttachedProgram, behind: Option<usize>, info: &ProgInfo) -> core::result::Result<Found, Failure> {
    let version = match info.btf_id {
        0 => None,
        id => match bpf::btf_data(id) {
            Err(Errno::ENOENT) => return Ok(Found::Going),
            other => btf::metadata_number(&other?, METADATA, VERSION_VARIABLE)?,
        },
    };
    match version {
        None => {
            warn!("the XDP program {} ({PROGRAM}) on the interface has no {VERSION_VARIABLE} in its BTF", info.id);
            return Err(Failure::Told(Errno::ENOENT));
        }
        Some(version) if version > VERSION => {
            warn!(
                "the default XDP program {} on the interface has version {version}; {VERSION} is the newest known here",
                info.id
            );
            return Err(Failure::Told(Errno::EOPNOTSUPP));
        }
        Some(_) => {}
    }
    let mut counter = None;
    let mut sockets = None;
    for &id in &info.map_ids {
        let fd = match bpf::map_by_id(id) {
            Err(Errno::ENOENT) => return Ok(Found::Going),
            other => other?,
        };
        let map = bpf::map_info(&fd)?;
        if map.name == COUNTER_MAP && map.value_size >= 4 && counter.is_none() {
            counter = Some(Counter { fd, id, size: map.value_size as usize });
        } else if map.name == SOCKET_MAP && map.key_size == 4 && map.value_size == 4 && sockets.is_none() {
            sockets = Some((fd, map.max_entries));
        }
    }
    let Some((sockets, entries)) = sockets else {
        warn!("the XDP program {} ({PROGRAM}) on the interface has no map {SOCKET_MAP}", info.id);
        return Err(Failure::Told(Errno::ENOENT));
    };
    Ok(Found::Default(Default { attached, program: info.id, behind, sockets, entries, counter }))
}

/// What a dispatcher says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Dispatcher {
    version: u32,
    /// Programs that it calls; `None`: a version that is not read so far.
    programs: Option<usize>,
}

impl Dispatcher {
    /// Read the configuration of a dispatcher; `None`: it is from before the version was in it.
    fn parse(configuration: &[u8]) -> Option<Dispatcher> {
        /// First byte of a configuration that has its version in the second, and then the number of programs.
        const MAGIC: u8 = 236;
        match *configuration {
            [MAGIC, version, programs, ..] => {
                let programs = (u32::from(version) <= DISPATCHER_VERSION).then_some(programs.into());
                Some(Dispatcher { version: version.into(), programs })
            }
            _ => None,
        }
    }
}

/// What a program of the dispatcher's name is; `None`: nothing of libxdp's. EOPNOTSUPP: a newer one.
fn dispatcher(info: &ProgInfo) -> core::result::Result<Option<Dispatcher>, Failure> {
    let [map_id] = info.map_ids[..] else { return Ok(None) };
    if info.btf_id == 0 {
        return Ok(None);
    }
    let map = bpf::map_by_id(map_id)?;
    let shape = bpf::map_info(&map)?;
    let fits =
        shape.key_size == 4 && shape.max_entries == 1 && shape.value_size >= 2 && shape.flags & bpf::RDONLY_PROG != 0;
    if !fits {
        return Ok(None);
    }
    let mut value = vec![0u8; (shape.value_size as usize).next_multiple_of(8)];
    bpf::map_lookup(map.raw(), 0, &mut value)?;
    let dispatcher = match Dispatcher::parse(&value) {
        None => btf::metadata_number(&bpf::btf_data(info.btf_id)?, METADATA, "dispatcher_version")?
            .map(|version| Dispatcher { version, programs: None }),
        known => known,
    };
    if let Some(Dispatcher { version, .. }) = dispatcher
        && version > DISPATCHER_VERSION
    {
        warn!(
            "the XDP dispatcher {} on the interface has version {version}; {DISPATCHER_VERSION} is the newest known here",
            info.id
        );
        return Err(Failure::Told(Errno::EOPNOTSUPP));
    }
    Ok(dispatcher)
}

/// Look through the programs that a dispatcher calls. They are found by their pins.
fn behind_dispatcher(
    ifindex: u32,
    attached: AttachedProgram,
    dispatcher: &Dispatcher,
    held: Option<&Lock>,
) -> core::result::Result<Found, Failure> {
    let id = attached.id;
    let Some(directory) = dispatcher_directory(ifindex, id) else {
        return Ok(Found::Hidden { id, why: "this process finds no BPF file system".into() });
    };
    let own = if held.is_none() { Some(Lock::take().map_err(Failure::Told)?) } else { None };
    let mut found = None;
    let mut others = Vec::new();
    let mut hidden = None;
    for slot in 0..dispatcher.programs.unwrap_or(SLOTS) {
        let pin = directory.join(format!("prog{slot}-prog"));
        match bpf::obj_get(&c_path(&pin)?) {
            Ok(fd) => {
                let info = bpf::prog_info(&fd)?;
                if info.name == PROGRAM && found.is_none() {
                    found = Some((fd, info));
                } else {
                    others.push(info.name);
                }
            }
            // The one before was the last.
            Err(Errno::ENOENT) if slot > 0 && dispatcher.programs.is_none() => break,
            Err(error) => hidden = Some(format!("{}: {error}", pin.display())),
        }
    }
    drop(own);
    match (found, hidden) {
        // One that is called but cannot be seen is to be kept as well.
        (Some((_fd, info)), hidden) => {
            let seen = 1 + others.len() + usize::from(hidden.is_some());
            default(attached, Some(dispatcher.programs.unwrap_or(seen)), &info)
        }
        (None, Some(why)) => Ok(Found::Hidden { id, why }),
        (None, None) => Ok(Found::Others { id, programs: others }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d31_a_program_that_runs_in_the_device_alone_is_no_program_here() {
        let offloaded = Attached { hw: 5, ..Attached::default() };
        assert!(matches!(look(1, offloaded, None), Ok(Found::Nothing)));
    }

    #[test]
    fn a_dispatchers_version_and_programs_are_read_where_they_are() {
        // Version 3 has 128 bytes, version 2 124; both have magic, version, number of programs in the first three.
        for (version, len) in [(2, 124), (3, 128)] {
            let mut bytes = vec![0u8; len];
            bytes[..4].copy_from_slice(&[236, version, 2, 1]);
            let read = Dispatcher::parse(&bytes);
            assert_eq!(read, Some(Dispatcher { version: version.into(), programs: Some(2) }));
        }
        // Of a newer one nothing but the version is known, and version 1 had none here.
        assert_eq!(Dispatcher::parse(&[236, 4, 2, 1]), Some(Dispatcher { version: 4, programs: None }));
        assert_eq!(Dispatcher::parse(&[2, 0, 0, 0]), None);
    }
}
