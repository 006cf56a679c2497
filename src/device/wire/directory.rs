//! Where wires are known by name: a private directory of the user, and in it two files for each end that is open.
//!
//! `NAME.END.lock` is held with a record lock by the process that has the end. The lock ends with the process whatever it
//! has forked, and tells its number. `NAME.END.sock` is the end's socket (`post`). Whoever holds the lock owns both names;
//! they go with an orderly end, and what a killed process leaves goes when somebody gets the lock.
//!
//! Who holds an end has the lock of the whole file; who only removes what is left of one, of all bytes but the first: so it is
//! not taken for the holder by somebody who wants the end at that moment, and waits a little.
//!
//! A record lock is given up when its process closes *any* descriptor of the file. So nothing here may be asked about an
//! end that this process holds: `super::local` knows those.

use core::ffi::CStr;
use std::{
    ffi::{CString, OsString},
    os::{
        fd::RawFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    time::Duration,
};

use crate::{
    config::{End, WIRE_NAME_MAX},
    engine::InternalFd,
    errno::{Errno, Result},
    sync::thread,
    sys, warn,
};

/// Tries to get the lock of a file that others remove at the same time, and the pause when one of them is at it.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// First byte that is locked by the holder of an end, and by who removes what is left of one.
const HOLDER: u8 = 0;
const SWEEPER: u8 = 1;

/// The directory, open.
#[derive(Debug)]
pub(super) struct Directory {
    fd: InternalFd,
    /// For messages.
    pub(super) path: String,
}

/// Where the directory is to be, for a user.
fn place(user: u32) -> OsString {
    let runtime = sys::secure_env(c"XDG_RUNTIME_DIR").filter(|dir| dir.as_bytes().starts_with(b"/"));
    if let Some(mut dir) = runtime.filter(|dir| is_own_directory(dir, user)) {
        dir.push("/slipring");
        return dir;
    }
    let memory = sys::openat(libc::AT_FDCWD, c"/dev/shm", libc::O_DIRECTORY | libc::O_RDONLY, 0);
    let parent = memory.map_or("/tmp", |fd| {
        sys::close(fd);
        "/dev/shm"
    });
    format!("{parent}/slipring-{user}").into()
}

fn is_own_directory(dir: &OsString, user: u32) -> bool {
    let Ok(path) = CString::new(dir.as_bytes()) else { return false };
    let Ok(fd) = sys::openat(libc::AT_FDCWD, &path, libc::O_DIRECTORY | libc::O_RDONLY, 0) else { return false };
    let own = sys::fstat(fd).is_ok_and(|st| st.st_uid == user);
    sys::close(fd);
    own
}

/// Give a directory that was just made its mode, whatever the process's umask has taken from it.
fn unmask(name: &CStr) -> Result<()> {
    let fd = sys::openat(libc::AT_FDCWD, name, libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH, 0)?;
    let path = CString::new(format!("/proc/self/fd/{fd}")).expect("a number has no NUL");
    let done = sys::chmod(&path, 0o700);
    sys::close(fd);
    done
}

impl Directory {
    /// Open the directory, made if it is not there. EACCES (logged): somebody else has put something in its place, or others
    /// than its owner may enter.
    pub(super) fn open() -> Result<Directory> {
        let user = sys::geteuid();
        let place = place(user);
        let path = place.to_string_lossy().into_owned();
        let name = CString::new(place.into_vec()).map_err(|_| Errno::EINVAL)?;
        let open = || sys::openat(libc::AT_FDCWD, &name, libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_RDONLY, 0);
        let fd = match open() {
            Err(Errno::ENOENT) => match sys::mkdir(&name, 0o700) {
                Ok(()) => unmask(&name).and_then(|()| open()),
                Err(Errno::EEXIST) => open(),
                Err(error) => Err(error),
            },
            // A link, or no directory.
            Err(Errno::ENOTDIR) => Err(Errno::EACCES),
            other => other,
        };
        let fd = fd.inspect_err(|e| {
            warn!(
                "cannot use {path} as the directory of this user's wires: {e}; it must be a directory of its own, no link: \
                 remove what is there, or let XDG_RUNTIME_DIR name a directory of this user"
            );
        })?;
        let directory = Directory { fd: InternalFd::new(fd), path };
        let st = sys::fstat(directory.fd.number())?;
        if st.st_uid != user || st.st_mode & 0o077 != 0 {
            warn!(
                "{} is not used as the directory of this user's wires: its owner is user {} and its mode {:o}; it must belong \
                 to user {user} with mode 700",
                directory.path,
                st.st_uid,
                st.st_mode & 0o7777
            );
            return Err(Errno::EACCES);
        }
        Ok(directory)
    }

    /// A file in the directory: by its descriptor, so of any length, and whatever the path leads to by now.
    fn file(&self, file: &CStr) -> Vec<u8> {
        let mut path = format!("/proc/self/fd/{}/", self.fd.number()).into_bytes();
        path.extend_from_slice(file.to_bytes());
        path
    }

    /// The address of a socket in the directory.
    pub(super) fn address(&self, file: &CStr) -> Result<libc::sockaddr_un> {
        sys::unix_address(&self.file(file))
    }

    /// Give a file that was just made its mode, whatever the process's umask has taken from it.
    pub(super) fn unmask(&self, file: &CStr) -> Result<()> {
        let path = CString::new(self.file(file)).map_err(|_| Errno::EINVAL)?;
        sys::chmod(&path, 0o600)
    }

    /// Take a name away. Only who holds the end may.
    pub(super) fn remove(&self, file: &CStr) {
        let _ = sys::unlinkat(self.fd.number(), file);
    }

    /// Open a lock file. `create`: made if it is not there.
    fn lock_file(&self, file: &CStr, create: bool) -> Result<RawFd> {
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | if create { libc::O_CREAT } else { 0 };
        let fd = sys::openat(self.fd.number(), file, flags, 0o600)?;
        let mode = sys::fstat(fd).map_or(0, |st| st.st_mode);
        if mode & libc::S_IFMT == libc::S_IFREG {
            if create && mode & 0o600 != 0o600 {
                // Our umask. Where it fails the others are told that they may not.
                let _ = sys::fchmod(fd, 0o600);
            }
            return Ok(fd);
        }
        sys::close(fd);
        Err(Errno::EPERM)
    }

    /// Whether `fd` is still what the name stands for.
    fn is_named(&self, fd: RawFd, file: &CStr) -> bool {
        let Ok(now) = sys::openat(self.fd.number(), file, libc::O_PATH | libc::O_NOFOLLOW, 0) else { return false };
        // O_PATH: closing it leaves the file's locks alone.
        let same = sys::identity(now).is_ok_and(|id| sys::identity(fd) == Ok(id));
        sys::close(now);
        same
    }

    /// Get the lock of an end. `Err(Ok(pid))`: that process has it (0: one that cannot be seen from here).
    fn try_hold(&self, file: &CStr) -> core::result::Result<RawFd, Result<u32>> {
        for _ in 0..TRIES {
            let fd = self.lock_file(file, true).map_err(Err)?;
            match sys::lock(fd, HOLDER) {
                // Its last holder may have removed the name between our two calls.
                Ok(()) if self.is_named(fd, file) => return Ok(fd),
                Ok(()) => sys::close(fd),
                Err(Errno::EAGAIN | Errno::EACCES) => {
                    let holder = sys::locked_by(fd);
                    sys::close(fd);
                    if let Some(pid) = holder.map_err(Err)? {
                        return Err(Ok(pid));
                    }
                    thread::sleep(PAUSE);
                }
                Err(error) => {
                    sys::close(fd);
                    return Err(Err(error));
                }
            }
        }
        Err(Err(Errno::EAGAIN))
    }

    /// The process that has an end, 0 if it cannot be seen from here; `None`: nobody. Not for an end of this process.
    pub(super) fn holder(&self, names: &Names) -> Option<u32> {
        let fd = self.lock_file(&names.lock, false).ok()?;
        let holder = sys::locked_by(fd);
        sys::close(fd);
        holder.ok().flatten()
    }

    /// Remove what a killed process has left of an end. Not for an end of this process.
    pub(super) fn sweep(&self, names: &Names) {
        let Ok(fd) = self.lock_file(&names.lock, false) else { return };
        if sys::lock(fd, SWEEPER).is_ok() && self.is_named(fd, &names.lock) {
            self.remove(&names.socket);
            self.remove(&names.lock);
        }
        sys::close(fd);
    }

    /// The wires that have a file here, by name, each once.
    pub(super) fn wires(&self) -> Result<Vec<String>> {
        // By its path: a listing of the descriptor would move its position. A cold path of the command line.
        let entries = std::fs::read_dir(&self.path).map_err(|e| Errno::new(e.raw_os_error().unwrap_or(0)))?;
        let files = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
        let mut names: Vec<String> = files.filter_map(|file| wire_of(&file).map(str::to_owned)).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

/// The wire that a file belongs to.
fn wire_of(file: &str) -> Option<&str> {
    let end = file.strip_suffix(".lock").or_else(|| file.strip_suffix(".sock"))?;
    let name = end.strip_suffix(".a").or_else(|| end.strip_suffix(".b"))?;
    let odd = name.is_empty() || name.len() > WIRE_NAME_MAX || name.starts_with('.');
    (!odd).then_some(name)
}

/// The files of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) lock: CString,
    pub(super) socket: CString,
}

impl Names {
    /// The parser of specifications has seen to it that `wire` is a plain file name.
    pub(super) fn new(wire: &str, end: End) -> Names {
        let name = |kind: &str| {
            CString::new(format!("{wire}.{}.{kind}", end.name())).expect("a wire's name has no control characters")
        };
        Names { lock: name("lock"), socket: name("sock") }
    }
}

/// An end that this process holds. Given back with the value, with its files.
#[derive(Debug)]
pub(super) struct Held {
    directory: Directory,
    names: Names,
    /// A forked child has a copy of this value, and not the lock.
    pid: u32,
    _lock: InternalFd,
}

impl Held {
    /// Take an end. `Err(Ok(pid))`: that process has it (0: one that cannot be seen from here). Not for an end of this process.
    pub(super) fn take(directory: Directory, names: Names) -> core::result::Result<Held, Result<u32>> {
        let lock = InternalFd::new(directory.try_hold(&names.lock)?);
        Ok(Held { directory, names, pid: sys::getpid(), _lock: lock })
    }

    /// Where the end is.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Its files.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Remove the files; the lock stays.
    pub(super) fn remove_files(&self) {
        if sys::getpid() == self.pid {
            self.directory.remove(&self.names.socket);
            self.directory.remove(&self.names.lock);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the lock is given back: who finds the names gone makes new ones, who has the old file open looks again.
        self.remove_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_whatever_the_name() {
        for name in ["lab", "a", "a.b", "x.a.lock", "grüße", "%41"] {
            for end in [End::A, End::B] {
                let names = Names::new(name, end);
                for file in [names.lock, names.socket] {
                    assert_eq!(wire_of(file.to_str().unwrap()), Some(name));
                }
            }
        }
        for other in ["lab.a", "lab.c.lock", ".a.lock", "..a.lock", "a.lock", "lab.a.lock2"] {
            assert_eq!(wire_of(other), None, "{other}");
        }
    }
}
