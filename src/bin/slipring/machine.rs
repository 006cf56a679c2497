//! What this machine lets this user do, found out by trying it. Nothing is changed: what is made is closed at once.

use std::{fs, mem, os::fd::RawFd};

use slipring::{
    errno::{Errno, Result, check},
    sys, uapi,
};

use crate::json::Json;

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    /// Name in JSON.
    pub id: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Whether direct can use it. `None`: neither good nor bad.
    pub ok: Option<bool>,
    /// What was found.
    pub found: String,
}

impl Check {
    fn new(id: &'static str, title: &'static str, ok: Option<bool>, found: impl Into<String>) -> Check {
        Check { id, title, ok, found: found.into() }
    }

    pub(crate) fn json(&self) -> Json {
        Json::Object(vec![
            ("check", Json::text(self.id)),
            ("ok", self.ok.map_or(Json::Null, Json::Bool)),
            ("found", Json::text(&self.found)),
        ])
    }
}

/// The machine, and what follows for direct.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub checks: Vec<Check>,
    /// Why the kernel's AF_XDP does not fully work, if it does not.
    pub direct_refused: Option<String>,
}

/// Capabilities that AF_XDP has to do with: name and bit.
const CAPABILITIES: [(&str, u32); 6] =
    [("NET_ADMIN", 12), ("NET_RAW", 13), ("IPC_LOCK", 14), ("SYS_ADMIN", 21), ("PERFMON", 38), ("BPF", 39)];

pub(crate) fn look() -> Machine {
    let capabilities = effective_capabilities();
    let socket = af_xdp_socket();
    let map = bpf_map();
    let program = bpf_program();
    let mut checks = vec![Check::new("kernel", "kernel", None, kernel())];
    let mut tried = |id, title, result: &Result<()>, why: &dyn Fn(Errno) -> String| {
        let found = result.err().map(why);
        let check = Check::new(id, title, Some(found.is_none()), found.as_deref().unwrap_or("works"));
        checks.push(check);
        found
    };
    let no_socket = tried("af_xdp", "AF_XDP socket", &socket, &|e| {
        match e {
        Errno::EPERM => "not permitted (EPERM): it needs CAP_NET_RAW".to_owned(),
        Errno::EAFNOSUPPORT => {
            "not there (EAFNOSUPPORT): the kernel was built without CONFIG_XDP_SOCKETS, or a sandbox forbids the address \
             family (seccomp, RestrictAddressFamilies=)"
                .to_owned()
        }
        e => format!("{e}"),
    }
    });
    let bpf = |e: Errno| match e {
        Errno::EPERM => {
            "not permitted (EPERM): it needs CAP_BPF and CAP_NET_ADMIN, or a sandbox forbids bpf()".to_owned()
        }
        Errno::ENOSYS => "not there (ENOSYS): the kernel was built without bpf()".to_owned(),
        Errno::EINVAL => "refused (EINVAL): the kernel does not know it".to_owned(),
        e => format!("{e}"),
    };
    let no_map = tried("xskmap", "map of sockets", &map, &bpf);
    let no_program = tried("xdp_program", "XDP program", &program, &bpf);
    let direct_refused = match (no_socket, no_map.or(no_program)) {
        (Some(why), _) => Some(format!("an AF_XDP socket is {why}")),
        (None, Some(why)) => Some(format!(
            "the default XDP program is {why}; only programs that do without it work (XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD)"
        )),
        (None, None) => None,
    };
    checks.push(Check::new("capabilities", "capabilities", None, capabilities_text(capabilities)));
    checks.push(memlock(capabilities));
    checks.push(bpffs());
    Machine { checks, direct_refused }
}

fn kernel() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}

fn closed(fd: Result<RawFd>) -> Result<()> {
    fd.map(sys::close)
}

fn af_xdp_socket() -> Result<()> {
    closed(sys::socket(uapi::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))
}

/// `bpf(2)` with the first 128 bytes of its attributes, as 32-bit words in order.
fn bpf(command: i32, words: &[u32]) -> Result<RawFd> {
    let mut attributes = [0u32; 32];
    attributes[..words.len()].copy_from_slice(words);
    let size = mem::size_of_val(&attributes);
    // SAFETY: the kernel reads `size` bytes of a live array; pointers in it are live where the caller put any.
    let fd = check(unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size) })?;
    RawFd::try_from(fd).map_err(|_| Errno::EINVAL)
}

/// Make the map that sends frames to sockets: type XSKMAP, keys and values of 4 bytes, one entry.
fn bpf_map() -> Result<()> {
    const BPF_MAP_CREATE: i32 = 0;
    const BPF_MAP_TYPE_XSKMAP: u32 = 17;
    closed(bpf(BPF_MAP_CREATE, &[BPF_MAP_TYPE_XSKMAP, 4, 4, 1]))
}

/// Load the XDP program `return XDP_PASS`.
fn bpf_program() -> Result<()> {
    const BPF_PROG_LOAD: i32 = 5;
    const BPF_PROG_TYPE_XDP: u32 = 6;
    // r0 = XDP_PASS; exit
    let code: [u64; 2] = [0x2_0000_00b7, 0x95];
    let half = |address: u64| [(address & 0xffff_ffff) as u32, (address >> 32) as u32];
    let [code_low, code_high] = half(code.as_ptr() as u64);
    let licence = c"GPL";
    let [licence_low, licence_high] = half(licence.as_ptr() as u64);
    closed(bpf(BPF_PROG_LOAD, &[BPF_PROG_TYPE_XDP, 2, code_low, code_high, licence_low, licence_high]))
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn capabilities_text(mask: u64) -> String {
    let has = |wanted: bool| {
        let names = CAPABILITIES.iter().filter(|(_, bit)| (mask >> bit & 1 == 1) == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(" ")
    };
    match (has(true).as_str(), has(false).as_str()) {
        ("", _) => "none of those that matter".to_owned(),
        (yes, "") => yes.to_owned(),
        (yes, no) => format!("{yes}; without {no}"),
    }
}

/// The limit counts for direct only: the engine pins nothing.
fn memlock(capabilities: u64) -> Check {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the C library fills one live struct.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
    let found = match limit.rlim_cur {
        _ if failed => "cannot be read".to_owned(),
        libc::RLIM_INFINITY => "no limit".to_owned(),
        _ if capabilities >> 14 & 1 == 1 => format!("{} KiB, not enforced (CAP_IPC_LOCK)", limit.rlim_cur / 1024),
        bytes => format!("{} KiB: in direct all UMEMs of this user together may be this large", bytes / 1024),
    };
    Check::new("memlock", "locked memory", None, found)
}

fn bpffs() -> Check {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let at = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next() == Some("bpf")).then(|| place.to_owned())
    });
    let found = at.map_or_else(|| "not mounted (not needed)".to_owned(), |place| format!("mounted on {place}"));
    Check::new("bpffs", "BPF file system", None, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects that a refusal is explained and that its absence means every trial passed.
    #[test]
    fn direct_is_refused_exactly_when_a_trial_failed() {
        let machine = look();
        let failed = machine.checks.iter().any(|c| c.ok == Some(false));
        assert_eq!(machine.direct_refused.is_some(), failed);
        assert!(machine.checks.iter().all(|c| !c.found.is_empty()), "{:?}", machine.checks);
    }

    #[test]
    fn capabilities_are_named_with_those_that_lack() {
        assert_eq!(capabilities_text(0), "none of those that matter");
        assert_eq!(capabilities_text(1 << 13), "NET_RAW; without NET_ADMIN IPC_LOCK SYS_ADMIN PERFMON BPF");
        assert_eq!(capabilities_text(u64::MAX), "NET_ADMIN NET_RAW IPC_LOCK SYS_ADMIN PERFMON BPF");
    }
}
