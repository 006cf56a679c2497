//! The register of live users: who of those that the counter of a default program counts is still there.
//!
//! A process that dies without a delete leaves its references in the counter, and nobody can tell them from living ones. So
//! each reference of ours has a *record*, an empty file whose flock its process holds: the kernel lets the lock go when the
//! process ends, however it ends, and a forked child keeps it. libxdp's users and `xsk_setup_xdp_prog` have none.
//!
//! Records are in [`DIRECTORY`], which is root's alone; not with the lock, because a BPF file system has no regular files.
//! A name says which boot, which lock, which counter map, which process and when: `BOOT.DEVICE-INODE.MAP.PID.NS`. Numbers of
//! maps are the kernel's, whatever the network namespace, and come again only after some thousand million maps. A record
//! is made, looked at and removed under the lock alone. `.unsure` at the end: the counter is being changed; a process that
//! dies there leaves open whether the reference is counted.
//!
//! Where no record can be made (no right, read-only `/run`, no lock) all works as without: nothing more is ever taken away.

use std::{
    ffi::CString,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use once_cell::sync::Lazy;

use super::lock::{Lock, c_path};
use crate::{
    direct::{
        bpf,
        calls::{self, OwnedFd},
    },
    errno::{Errno, Result},
    sync::{AtomicBool, Ordering},
    sys, warn,
};

/// Where records are.
pub(super) const DIRECTORY: &str = "/run/slipring-xdp";
const UNSURE: &str = ".unsure";

static BOOT: Lazy<Option<String>> = Lazy::new(|| {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty() && !id.contains(['.', '/']))
});

/// Whether it was said that the directory is unsafe; once is enough.
static SAID: AtomicBool = AtomicBool::new(false);

/// The register, for as long as the lock is held.
#[derive(Debug)]
pub(super) struct Register<'a> {
    path: &'a Path,
    /// `None`: it is not there, so nobody has a record.
    directory: Option<OwnedFd>,
    /// What names of records under this lock begin with.
    prefix: String,
}

/// One counted reference, made known to others.
#[derive(Debug)]
pub(super) struct Record {
    name: String,
    /// Its lock says that the process lives.
    _file: OwnedFd,
}

/// The records on one counter, without the asker's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Processes that live.
    pub(super) live: Vec<u32>,
    /// Records whose process has died.
    pub(super) dead: Vec<String>,
    /// The same, of references that may be counted or not.
    pub(super) unsure: Vec<String>,
}

impl Census {
    /// How many of `count` references belong to nobody any more, and the records that are settled with them.
    pub(super) fn owed(&self, count: i32) -> (i32, Vec<String>) {
        let number = |len: usize| i32::try_from(len).unwrap_or(i32::MAX);
        let (dead, unsure) = (number(self.dead.len()), number(self.unsure.len()));
        let unknown = count.saturating_sub(number(self.live.len()).saturating_add(dead));
        if unknown < 0 {
            // Somebody else has lowered the counter: the records say nothing about it.
            return (0, Vec::new());
        }
        if unknown <= unsure {
            // All are accounted for if as many of the doubtful ones are counted.
            return (dead + unknown, [self.dead.as_slice(), &self.unsure].concat());
        }
        (dead, self.dead.clone())
    }
}

/// What a record's name says.
struct Name<'a> {
    boot: &'a str,
    counter: u32,
    pid: u32,
    unsure: bool,
}

fn parse(name: &str) -> Option<Name<'_>> {
    let (name, unsure) = name.strip_suffix(UNSURE).map_or((name, false), |name| (name, true));
    let mut words = name.split('.');
    let (boot, _lock) = (words.next()?, words.next()?);
    let (counter, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next()?;
    words.next().is_none().then_some(Name { boot, counter, pid, unsure })
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Errno::EINVAL)
}

impl Register<'_> {
    /// The register under this lock; `None`: there is none to be had.
    pub(super) fn open(lock: &Lock) -> Option<Register<'_>> {
        Register::at(Path::new(DIRECTORY), lock.identity()?)
    }

    fn at(path: &Path, (device, inode): (u64, u64)) -> Option<Register<'_>> {
        let boot = BOOT.as_ref()?;
        let directory = match directory(path) {
            Ok(directory) => Some(directory),
            Err(Errno::ENOENT) => None,
            Err(_) => return None,
        };
        Some(Register { path, directory, prefix: format!("{boot}.{device:x}-{inode:x}.") })
    }

    /// Make the reference that this process is about to count, or has in a counter that nobody else sees yet, known to
    /// others. `unsure`: until [`Register::confirm`]. `None`: it cannot be made known.
    pub(super) fn enter(&mut self, counter: u32, unsure: bool) -> Option<Record> {
        if self.directory.is_none() {
            // A failure shows in the next line.
            let _ = DirBuilder::new().mode(0o700).create(self.path);
            self.directory = directory(self.path).ok();
        }
        let directory = self.directory.as_ref()?;
        tidy(directory);
        let suffix = if unsure { UNSURE } else { "" };
        let name = format!("{}{counter}.{}.{}{suffix}", self.prefix, sys::getpid(), sys::now_ns());
        let c_name = c_name(&name).ok()?;
        let file = calls::open_at(directory.raw(), &c_name, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).ok()?;
        if calls::try_lock(file.raw()).is_err() {
            let _ = calls::unlink_at(directory.raw(), &c_name);
            return None;
        }
        Some(Record { name, _file: file })
    }

    /// The reference is counted.
    pub(super) fn confirm(&self, record: &mut Record) {
        let Some(sure) = record.name.strip_suffix(UNSURE).map(str::to_owned) else { return };
        if self.rename(&record.name, &sure).is_ok() {
            record.name = sure;
        }
    }

    /// The reference is about to be taken out of the counter. False: the record is gone, for a fork of this process has
    /// done so already. One that cannot be renamed, since `/run` is read-only by now, stays as it is.
    pub(super) fn doubt(&self, record: &mut Record) -> bool {
        let unsure = format!("{}{UNSURE}", record.name.trim_end_matches(UNSURE));
        let renamed = self.rename(&record.name, &unsure);
        if renamed.is_ok() {
            record.name = unsure;
        }
        renamed != Err(Errno::ENOENT)
    }

    /// As [`Register::doubt`], for records whose processes have died.
    pub(super) fn doubt_all(&self, names: &mut [String]) {
        for name in names {
            let unsure = format!("{name}{UNSURE}");
            if self.rename(name, &unsure).is_ok() {
                *name = unsure;
            }
        }
    }

    /// The reference is counted no more.
    pub(super) fn remove(&self, record: Record) {
        self.strike(&[record.name]);
    }

    /// Remove records, and the directory with the last one.
    pub(super) fn strike(&self, names: &[String]) {
        let Some(directory) = self.directory.as_ref().filter(|_| !names.is_empty()) else { return };
        for name in names {
            if let Ok(name) = c_name(name) {
                let _ = calls::unlink_at(directory.raw(), &name);
            }
        }
        if fs::remove_dir(self.path).is_err() {
            // Others are there. Those that nobody will come back for must not keep the directory: somebody else has taken
            // the program that they were on from the interface.
            tidy(directory);
            let _ = fs::remove_dir(self.path);
        }
    }

    /// Who has records on a counter, but for `own`.
    pub(super) fn census(&self, counter: u32, own: Option<&Record>) -> Census {
        let mut census = Census::default();
        let Some(directory) = &self.directory else { return census };
        for name in names(directory) {
            let Some(parsed) = parse(&name) else { continue };
            if !name.starts_with(&self.prefix) || parsed.counter != counter || own.is_some_and(|o| o.name == name) {
                continue;
            }
            let Ok(c_name) = c_name(&name) else { continue };
            let Ok(file) = calls::open_at(directory.raw(), &c_name, libc::O_RDWR | libc::O_NOFOLLOW) else { continue };
            if calls::try_lock(file.raw()).is_err() {
                census.live.push(parsed.pid);
            } else if parsed.unsure {
                census.unsure.push(name);
            } else {
                census.dead.push(name);
            }
        }
        census
    }

    /// Forget the records on a counter map that was made a moment ago: they were on an earlier one of this number.
    pub(super) fn forget(&self, counter: u32) {
        let old = self.census(counter, None);
        self.strike(&[old.dead, old.unsure].concat());
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let directory = self.directory.as_ref().ok_or(Errno::ENOENT)?;
        calls::rename_at(directory.raw(), &c_name(from)?, &c_name(to)?)
    }
}

/// The directory of that path, if no other user can have put anything into it. ENOENT: it is not there.
fn directory(path: &Path) -> Result<OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_RDONLY;
    let safe = calls::open_at(libc::AT_FDCWD, &c_path(path)?, flags).and_then(|fd| {
        let (owner, mode) = calls::owner_and_mode(fd.raw())?;
        if owner == calls::effective_user() && mode & 0o077 == 0 { Ok(fd) } else { Err(Errno::EPERM) }
    });
    // Others than root cannot make it and are not told; ELOOP and ENOTDIR are what links get.
    if matches!(safe, Err(Errno::EPERM | Errno::ELOOP | Errno::ENOTDIR))
        && calls::effective_user() == 0
        // Relaxed: only whether the line was written, nothing hangs on it.
        && !SAID.swap(true, Ordering::Relaxed)
    {
        warn!(
            "{} is not a directory that only root can use, so it is left alone, and after a crash the default XDP program \
             stays on its interface; remove it",
            path.display()
        );
    }
    safe
}

/// Remove the records on counter maps that are no more.
fn tidy(directory: &OwnedFd) {
    let mut known: Vec<(u32, bool)> = Vec::new();
    for name in names(directory) {
        let Some(parsed) = parse(&name) else { continue };
        let this_boot = BOOT.as_deref() == Some(parsed.boot);
        let gone = !this_boot
            || match known.iter().find(|(counter, _)| *counter == parsed.counter) {
                Some((_, gone)) => *gone,
                None => {
                    let gone = matches!(bpf::map_by_id(parsed.counter), Err(Errno::ENOENT));
                    known.push((parsed.counter, gone));
                    gone
                }
            };
        if gone && let Ok(name) = c_name(&name) {
            let _ = calls::unlink_at(directory.raw(), &name);
        }
    }
}

/// The names in a directory.
fn names(directory: &OwnedFd) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/self/fd/{}", directory.raw())).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
        process,
    };

    use super::*;

    const LOCK: (u64, u64) = (1, 2);
    /// A map that does exist where maps may be made, so that its records are not taken for leftovers.
    fn counter() -> Option<OwnedFd> {
        bpf::map_create(bpf::MAP_ARRAY, "slipring_test", 1, 0).ok()
    }

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("slipring-register-{name}-{}", process::id()))
    }

    fn census(live: usize, dead: usize, unsure: usize) -> Census {
        let names = |kind: &str, n: usize| (0..n).map(|i| format!("{kind}{i}")).collect();
        Census { live: vec![7; live], dead: names("dead", dead), unsure: names("unsure", unsure) }
    }

    /// Protects references of libxdp's users: what the register does not account for is never taken away.
    #[test]
    fn only_what_the_dead_have_left_is_owed() {
        for (count, (live, dead, unsure), owed, settled) in [
            (1, (0, 1, 0), 1, 1),
            (3, (0, 3, 0), 3, 3),
            // Somebody unknown is there too.
            (2, (0, 1, 0), 1, 1),
            (5, (1, 2, 1), 2, 2),
            (3, (1, 2, 0), 2, 2),
            // It died before or after it was counted.
            (0, (0, 0, 1), 0, 1),
            (1, (0, 0, 1), 1, 1),
            (2, (1, 0, 2), 1, 2),
            // The counter was lowered by somebody else.
            (1, (0, 2, 0), 0, 0),
            (1, (1, 1, 3), 0, 0),
            (1, (0, 0, 0), 0, 0),
        ] {
            let (n, names) = census(live, dead, unsure).owed(count);
            assert_eq!((n, names.len()), (owed, settled), "{count} {live} {dead} {unsure}");
        }
    }

    #[test]
    fn a_record_lives_as_long_as_its_lock_and_the_directory_as_long_as_records() {
        let Some(map) = counter() else { return println!("skipped: no BPF maps") };
        let id = bpf::map_info(&map).unwrap().id;
        let path = place("life");
        let mut register = Register::at(&path, LOCK).unwrap();
        let mut record = register.enter(id, true).unwrap();
        assert_eq!(register.census(id, Some(&record)), Census::default());
        assert_eq!(register.census(id, None).live, [process::id()]);
        // Under another lock, and on another counter, it is not seen.
        assert_eq!(Register::at(&path, (1, 3)).unwrap().census(id, None), Census::default());
        assert_eq!(register.census(id + 1, None), Census::default());
        let unsure = record.name.clone();
        register.confirm(&mut record);
        assert_eq!(unsure, format!("{}.unsure", record.name));
        let name = record.name.clone();
        drop(record);
        assert_eq!(register.census(id, None).dead, std::slice::from_ref(&name));
        let mut names = [name];
        register.doubt_all(&mut names);
        assert_eq!(register.census(id, None), Census { unsure: vec![unsure], ..Census::default() });
        register.strike(&names);
        assert!(!path.exists());
        let mut record = Register::at(&path, LOCK).unwrap().enter(id, false).unwrap();
        let register = Register::at(&path, LOCK).unwrap();
        assert!(register.doubt(&mut record));
        register.strike(&[record.name.clone()]);
        assert!(!register.doubt(&mut record), "a fork has given it back");
    }

    #[test]
    fn leftovers_of_other_boots_and_of_maps_that_are_gone_go_with_the_next_record() {
        let Some(map) = counter() else { return println!("skipped: no BPF maps") };
        let id = bpf::map_info(&map).unwrap().id;
        let path = place("leftovers");
        let mut register = Register::at(&path, LOCK).unwrap();
        let first = register.enter(id, false).unwrap();
        let old = [format!("{}{}.1.5", register.prefix, i32::MAX), format!("another-boot.1-2.{id}.1.5")];
        for name in old.iter().map(String::as_str).chain(["not ours"]) {
            fs::write(path.join(name), "").unwrap();
        }
        let second = register.enter(id, false).unwrap();
        for name in &old {
            assert!(!path.join(name).exists());
        }
        assert!(path.join("not ours").exists() && path.join(&first.name).exists());
        // A new map has no records; those that are there were on an earlier one of this number. But the living stay.
        drop(first);
        register.forget(id);
        assert_eq!(register.census(id, None), Census { live: vec![process::id()], ..Census::default() });
        register.remove(second);
        fs::remove_file(path.join("not ours")).unwrap();
        fs::remove_dir(&path).unwrap();
    }

    /// Protects against a folder that stays for a record of the dead, whose program somebody else (Open vSwitch, when it
    /// starts again) has taken off.
    #[test]
    fn leftovers_of_maps_that_are_gone_go_with_the_last_record_too() {
        let Some(map) = counter() else { return println!("skipped: no BPF maps") };
        let id = bpf::map_info(&map).unwrap().id;
        let path = place("last");
        let mut register = Register::at(&path, LOCK).unwrap();
        let last = register.enter(id, false).unwrap();
        fs::write(path.join(format!("{}{}.1.5", register.prefix, i32::MAX)), "").unwrap();
        register.remove(last);
        assert!(!path.exists());
    }

    /// Protects against a place that somebody else has prepared.
    #[test]
    fn what_is_not_a_directory_of_our_own_is_not_used() {
        let (path, target) = (place("unsafe"), place("target"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &path).unwrap();
        assert!(Register::at(&path, LOCK).is_none());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(Register::at(&path, LOCK).is_none());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(Register::at(&path, LOCK).is_none());
        fs::remove_dir(&path).unwrap();
        fs::remove_dir(&target).unwrap();
    }
}
