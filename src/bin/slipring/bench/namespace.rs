//! A network namespace of one thread's own, with a veth pair, for benches of the kernel's AF_XDP.

use std::{ffi::CStr, io, process::Command, ptr, thread};

use slipring::uapi::AF_XDP;

/// The ends of the veth pair.
pub(super) const NEAR: &str = "va";
pub(super) const FAR: &str = "vb";
/// Queues of each end.
pub(super) const QUEUES: u32 = 8;

/// Do `work` in a thread that has a network namespace with the pair, and a `/run` of its own: the lock of the default
/// program lies there, and other programs of the machine use it too. All of it goes with the thread.
///
/// The outer error says why there can be no such thing here.
pub(super) fn inside<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<Result<T, String>, String> {
    let thread = || {
        enter()?;
        Ok(work())
    };
    let failed = |_| Ok(Err("a thread of the bench failed".to_owned()));
    thread::scope(|scope| scope.spawn(thread).join()).unwrap_or_else(failed)
}

fn enter() -> Result<(), String> {
    // SAFETY: no pointers; what this thread has of its own from here on nobody else relies on.
    if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
        return Err(format!("no namespace of its own: {} (root is needed)", io::Error::last_os_error()));
    }
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(AF_XDP, libc::SOCK_RAW, 0) };
    if socket < 0 {
        return Err(format!("no AF_XDP socket can be made: {}", io::Error::last_os_error()));
    }
    // SAFETY: made a line above.
    unsafe { libc::close(socket) };
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"run", c"/run", Some(c"tmpfs"), 0)?;
    let queues = QUEUES.to_string();
    let queues = ["numrxqueues", &queues, "numtxqueues", &queues];
    ip(&[&["link", "add", NEAR], &queues[..], &["type", "veth", "peer", "name", FAR], &queues[..]].concat())?;
    for end in [NEAR, FAR] {
        // Without addresses nothing but the bench sends.
        ip(&["link", "set", "dev", end, "addrgenmode", "none"])?;
        ip(&["link", "set", "dev", end, "up"])?;
    }
    Ok(())
}

fn mount(source: &CStr, target: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) -> Result<(), String> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: NUL-terminated strings, or NULL where the kernel takes none.
    if unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) } == 0 {
        return Ok(());
    }
    Err(format!("mount on {}: {}", target.to_string_lossy(), io::Error::last_os_error()))
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
