//! The lock that all users of default programs share, libxdp's included.
//!
//! It is an flock on a directory: `xdp` in the BPF file system where one is mounted, else `/run/xdp`. Every holder opens the
//! directory anew, so it also keeps threads apart; a thread must not take it twice. Held for a few system calls.

use std::{
    ffi::{CString, OsString},
    fs::{self, DirBuilder},
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use once_cell::sync::Lazy;

use crate::{
    direct::calls::{self, OwnedFd},
    errno::{Errno, Result},
    sync::{AtomicBool, Ordering},
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
    let automount = sys::secure_env(c"LIBXDP_BPFFS_AUTOMOUNT").is_some_and(|v| v == "1");
    choose(sys::secure_env(c"LIBXDP_BPFFS"), automount)
});

/// libxdp's choice.
fn choose(bpffs: Option<OsString>, automount: bool) -> Place {
    let bpffs = PathBuf::from(bpffs.unwrap_or_else(|| OsString::from("/sys/fs/bpf")));
    let mut in_bpffs = calls::is_bpffs(&bpffs);
    if !in_bpffs && automount {
        calls::mount_bpffs(&bpffs);
        in_bpffs = calls::is_bpffs(&bpffs);
    }
    if in_bpffs {
        Place { directory: bpffs.join("xdp"), in_bpffs }
    } else {
        Place { directory: PathBuf::from("/run/xdp"), in_bpffs }
    }
}

/// Whether it was said that there is no lock; once is enough.
static SAID: AtomicBool = AtomicBool::new(false);

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock(Option<OwnedFd>);

impl Lock {
    /// Wait for the lock. ETIMEDOUT: somebody has held it for ten seconds. EMFILE, ENFILE, ENOMEM: it is there, but no
    /// descriptor for it can be had.
    ///
    /// Where the directory cannot be made, which is so without root's rights over `/run`, the lock is not there for anybody
    /// of these rights: the caller goes on without it.
    pub(super) fn take() -> Result<Lock> {
        Lock::take_in(&PLACE.directory, LIMIT_NS)
    }

    fn take_in(directory: &Path, limit_ns: u64) -> Result<Lock> {
        let fd = match open(directory) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => {
                // Another process may make it at the same moment.
                let _ = DirBuilder::new().mode(0o700).create(directory);
                match open(directory) {
                    Ok(fd) => fd,
                    Err(error) => return Lock::without(directory, error),
                }
            }
            Err(error) => return Lock::without(directory, error),
        };
        let end = sys::now_ns() + limit_ns;
        loop {
            match calls::try_lock(fd.raw()) {
                Ok(()) => return Ok(Lock(Some(fd))),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if sys::now_ns() < end => thread::sleep(STEP),
                Err(Errno::EAGAIN) => {
                    let holder = holder(&fd).unwrap_or_else(|| "another process".to_owned());
                    warn!(
                        "{holder} has held the lock on {} for {} s; if it is stopped or hangs, let it go on or end it",
                        directory.display(),
                        limit_ns / 1_000_000_000
                    );
                    return Err(Errno::ETIMEDOUT);
                }
                Err(error) => return Lock::without(directory, error),
            }
        }
    }

    fn without(directory: &Path, error: Errno) -> Result<Lock> {
        // Others still have the lock, and would be disturbed.
        if matches!(error, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) {
            warn!("cannot lock {}, as users of the default XDP program must: {error}", directory.display());
            return Err(error);
        }
        // Relaxed: only whether the line was written, nothing hangs on it.
        if !SAID.swap(true, Ordering::Relaxed) {
            warn!(
                "cannot lock {}: {error}: programs that start or stop on the same interface at the same moment may \
                 disturb each other",
                directory.display()
            );
        }
        Ok(Lock(None))
    }

    /// Which lock it is: device and inode of the directory. `None`: there is no lock.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        sys::identity(self.0.as_ref()?.raw()).ok()
    }
}

/// Who holds the lock on an open directory, as far as this process may see it.
fn holder(directory: &OwnedFd) -> Option<String> {
    let (_, inode) = sys::identity(directory.raw()).ok()?;
    let pid = holder_in(&fs::read_to_string("/proc/locks").ok()?, inode)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// The holder of the flock on an inode, from lines such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:393217 0 EOF`. Waiters'
/// lines have an arrow first. The device is not compared: some file systems show another one here than in stat.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    let suffix = format!(":{inode}");
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fits = words.len() > 5 && words[1] == "FLOCK" && words[5].ends_with(&suffix);
        // A holder in another process namespace is shown as 0 or -1.
        if fits { words[4].parse().ok().filter(|pid| *pid != 0) } else { None }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A stopped holder must not hang every other program, and the message must say whom to look at.
    #[test]
    fn d25_a_lock_that_is_not_let_go_is_waited_for_a_bounded_time() {
        let directory = std::env::temp_dir().join(format!("slipring-lock-{}", std::process::id()));
        let held = Lock::take_in(&directory, 0).unwrap();
        assert_eq!(Lock::take_in(&directory, 50_000_000).map(drop), Err(Errno::ETIMEDOUT));
        let Some(fd) = &held.0 else { panic!("a temporary directory can be locked") };
        let said = holder(fd).unwrap();
        assert!(said.starts_with(&format!("process {} (", std::process::id())), "{said}");
        drop(held);
        let again = Lock::take_in(&directory, 0).unwrap();
        assert!(again.identity().is_some());
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn d25_waiters_and_other_kinds_of_locks_are_not_taken_for_the_holder() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fe:00:17 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:7 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 14 fe:00:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fe:00:9 0 EOF\n";
        assert_eq!(holder_in(locks, 7), Some(13));
        assert_eq!(holder_in(locks, 9), None);
        assert_eq!(holder_in(locks, 8), None);
    }

    /// libxdp's users must find the same place.
    #[test]
    fn d24_the_lock_is_in_the_bpf_file_system_where_there_is_one_and_else_in_run() {
        let directory = std::env::temp_dir().join(format!("slipring-bpffs-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let at = |automount| choose(Some(directory.clone().into_os_string()), automount);
        let place = at(false);
        assert_eq!((place.directory.as_path(), place.in_bpffs), (Path::new("/run/xdp"), false));
        // In a mount namespace of its own, which ends with the thread.
        let mounted = thread::scope(|scope| {
            let trial = scope.spawn(|| {
                // SAFETY: no pointers.
                let own = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
                let (kind, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
                // SAFETY: NUL-terminated strings.
                if !own || unsafe { libc::mount(kind, c"/".as_ptr(), kind, flags, std::ptr::null()) } != 0 {
                    return None;
                }
                let place = at(true);
                let lock = place.in_bpffs.then(|| Lock::take_in(&place.directory, 0).unwrap());
                lock.map(|lock| (place.directory.clone(), lock.identity(), at(false).directory))
            });
            trial.join().unwrap()
        });
        fs::remove_dir(&directory).unwrap();
        let Some((place, identity, again)) = mounted else { return println!("skipped in part: no BPF file system") };
        assert_eq!((&place, &again), (&directory.join("xdp"), &directory.join("xdp")));
        assert!(identity.is_some());
    }

    /// Where no lock can be had, work goes on without: nobody else of these rights has one either.
    #[test]
    fn d24_a_directory_that_cannot_be_made_is_done_without() {
        let lock = Lock::take_in(Path::new("/proc/self/xdp"), 0).unwrap();
        assert_eq!(lock.identity(), None);
    }
}
