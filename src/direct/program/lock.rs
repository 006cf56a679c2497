//! The lock that all users of default programs share, libxdp's included.
//!
//! It is an flock on a directory: `xdp` in the BPF file system where one is mounted, else `/run/xdp`. Every holder opens the
//! directory anew, so it also keeps threads apart; a thread must not take it twice. Held for a few system calls.

use std::{
    ffi::{CString, OsString},
    fs::DirBuilder,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use once_cell::sync::Lazy;

use crate::{
    direct::calls::{self, OwnedFd},
    errno::{Errno, Result},
    sys, warn,
};

/// Longer than any holder needs by far; a stopped holder must not hang every other program.
const LIMIT_NS: u64 = 10_000_000_000;
const STEP: Duration = Duration::from_millis(1);

/// Where the lock is, chosen once in the life of the process as libxdp does it.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    /// The directory is in a BPF file system: dispatchers are pinned there.
    in_bpffs: bool,
}

static PLACE: Lazy<Place> = Lazy::new(|| {
    let bpffs = sys::secure_env(c"LIBXDP_BPFFS").unwrap_or_else(|| OsString::from("/sys/fs/bpf"));
    let bpffs = PathBuf::from(bpffs);
    if !calls::is_bpffs(&bpffs) && sys::secure_env(c"LIBXDP_BPFFS_AUTOMOUNT").is_some_and(|v| v == "1") {
        calls::mount_bpffs(&bpffs);
    }
    if calls::is_bpffs(&bpffs) {
        Place { directory: bpffs.join("xdp"), in_bpffs: true }
    } else {
        Place { directory: PathBuf::from("/run/xdp"), in_bpffs: false }
    }
});

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing the descriptor lets the lock go")] Option<OwnedFd>);

impl Lock {
    /// Wait for the lock. ETIMEDOUT: somebody has held it for ten seconds.
    ///
    /// Where the directory cannot be made, which is so without root's rights over `/run`, the lock is not there for anybody
    /// of these rights: the caller goes on without it.
    pub(super) fn take() -> Result<Lock> {
        let directory = &PLACE.directory;
        let fd = match open(directory) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => {
                // Another process may make it at the same moment.
                let _ = DirBuilder::new().mode(0o700).create(directory);
                match open(directory) {
                    Ok(fd) => fd,
                    Err(error) => return Ok(Lock::without(directory, error)),
                }
            }
            Err(error) => return Ok(Lock::without(directory, error)),
        };
        let end = sys::now_ns() + LIMIT_NS;
        loop {
            match calls::try_lock(fd.raw()) {
                Ok(()) => return Ok(Lock(Some(fd))),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if sys::now_ns() < end => thread::sleep(STEP),
                Err(Errno::EAGAIN) => {
                    warn!("another process has held the lock on {} for ten seconds", directory.display());
                    return Err(Errno::ETIMEDOUT);
                }
                Err(error) => return Ok(Lock::without(directory, error)),
            }
        }
    }

    fn without(directory: &Path, error: Errno) -> Lock {
        warn!(
            "cannot lock {}: {error}: programs that start or stop on the same interface at the same moment may disturb \
             each other",
            directory.display()
        );
        Lock(None)
    }
}

fn open(directory: &Path) -> Result<OwnedFd> {
    calls::open_directory(&c_path(directory)?)
}

/// Where a dispatcher's programs are pinned; `None`: there is no BPF file system.
pub(super) fn dispatcher_directory(ifindex: u32, dispatcher_id: u32) -> Option<PathBuf> {
    PLACE.in_bpffs.then(|| PLACE.directory.join(format!("dispatch-{ifindex}-{dispatcher_id}")))
}

/// A path for a system call.
pub(super) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
