//! Wires and users: two users cannot reach each other's, whatever they put in each other's way. As root, with two users of its
//! own making; otherwise skipped, but for what one user can try.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests' own")]

mod common;
#[path = "common/peer.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod peer;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use peer::{Got, Peer};

/// Two users that nobody is.
const USERS: [u32; 2] = [61_731, 61_732];

#[test]
#[ignore = "the second process of the other tests"]
fn peer() {
    peer::serve();
}

/// Run as another user, without the directory that the caller's environment names.
fn as_user(user: u32, runtime: Option<&Path>) -> Command {
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args([
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--",
    ]);
    command.env_remove("XDG_RUNTIME_DIR");
    if let Some(dir) = runtime {
        command.env("XDG_RUNTIME_DIR", dir);
    }
    command
}

/// False, with a line: this cannot be tested here.
fn can_be_other_users() -> bool {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: other users need root");
        return false;
    }
    let exe = std::env::current_exe().expect("this binary");
    let reached = as_user(USERS[0], None).args(["test", "-x"]).arg(&exe).status();
    if !reached.is_ok_and(|s| s.success()) {
        println!("skipped: another user cannot run {}, or there is no setpriv", exe.display());
        return false;
    }
    true
}

/// A directory for one test, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("slipring-users-{test}-{}", std::process::id()));
        fs::create_dir(&dir).expect("a directory");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("ours");
        Scratch(dir)
    }

    /// A directory in it that belongs to a user.
    fn of(&self, name: &str, user: u32) -> PathBuf {
        let dir = self.0.join(name);
        fs::create_dir(&dir).expect("a directory");
        chown(&dir, Some(user), Some(user)).expect("root");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("root");
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where a user's wires are when XDG_RUNTIME_DIR does not say. Gone with the value.
struct Shared(PathBuf);

impl Shared {
    fn new(user: u32) -> Shared {
        let parent = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
        Shared(PathBuf::from(format!("{parent}/slipring-{user}")))
    }

    fn clear(&self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.clear();
    }
}

/// An end is refused with this errno and a line that has these words.
fn refused(mut peer: Peer, errno: &str, words: &[&str]) {
    assert_eq!(peer.ask("open wire:x/a"), errno);
    let message = peer.ask("message");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
    peer.exit();
}

/// The same name is another wire for another user, and one user's `slipring wires` and `link` do not see the other's.
#[test]
fn the_same_name_is_another_wire_for_another_user() {
    if !can_be_other_users() {
        return;
    }
    let shared = USERS.map(Shared::new);
    let peers = |user| (Peer::start_by(as_user(user, None)), Peer::start_by(as_user(user, None)));
    let ((mut a, mut b), (mut c, mut d)) = (peers(USERS[0]), peers(USERS[1]));
    for (end, peers) in [("a", [&mut a, &mut c]), ("b", [&mut b, &mut d])] {
        for peer in peers {
            assert_eq!(peer.ask(&format!("open wire:x/{end}?full=wait")), "ok");
        }
    }
    for (n, shared) in shared.iter().enumerate() {
        let st = fs::metadata(&shared.0).expect("made by the first end");
        assert_eq!((st.uid(), st.mode() & 0o7777), (USERS[n], 0o700));
    }
    assert_eq!(a.ask("send 0 50 60"), "ok");
    assert_eq!(c.ask("send 1000 70 60"), "ok");
    assert_eq!(b.ask_got("receive 100"), Got { n: 50, first: 0, last: 49 });
    assert_eq!(d.ask_got("receive 100"), Got { n: 70, first: 1000, last: 1069 });
    // Nor does the command line of a third reach them, given the name of the place.
    let command = |user, arguments: &[&str]| {
        let output = as_user(user, None).arg(env!("CARGO_BIN_EXE_slipring")).args(arguments).output().expect("it runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(command(USERS[0], &["wires"]).contains(&a.pid().to_string()));
    assert!(!command(USERS[0], &["wires"]).contains(&c.pid().to_string()));
    let _ = command(USERS[1], &["link", "wire:x/a", "down"]);
    assert_eq!(a.ask("send 100 10 60"), "ok");
    assert_eq!(b.ask_got("receive 100").n, 10, "the other user's cable was pulled, not this one");
    for peer in [a, b, c, d] {
        peer.exit();
    }
}

/// What somebody else has put where a user's directory is to be is neither used nor followed.
#[test]
fn a_directory_that_another_user_made_is_refused() {
    if !can_be_other_users() {
        return;
    }
    let [user, other] = USERS.map(|n| n + 10);
    let (scratch, shared) = (Scratch::new("squat"), Shared::new(user));
    let start = || Peer::start_by(as_user(user, None));
    let place = shared.0.to_str().expect("ASCII").to_owned();
    let own = format!("must belong to user {user} with mode 700");

    let theirs = scratch.of("theirs", other);
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("root");
    symlink(&theirs, &shared.0).expect("root");
    refused(start(), "EACCES", &[&place, "no link"]);
    assert_eq!(fs::read_dir(&theirs).expect("root").count(), 0, "the link was followed");
    shared.clear();

    fs::create_dir(&shared.0).expect("root");
    chown(&shared.0, Some(other), Some(other)).expect("root");
    fs::set_permissions(&shared.0, fs::Permissions::from_mode(0o777)).expect("root");
    refused(start(), "EACCES", &[&place, &format!("owner is user {other}"), &own]);
    fs::set_permissions(&shared.0, fs::Permissions::from_mode(0o700)).expect("root");
    refused(start(), "EACCES", &[&place]);
    assert_eq!(fs::read_dir(&shared.0).expect("root").count(), 0, "it was used");

    // Its own, but open to others.
    chown(&shared.0, Some(user), Some(user)).expect("root");
    fs::set_permissions(&shared.0, fs::Permissions::from_mode(0o750)).expect("root");
    refused(start(), "EACCES", &[&place, "mode 750", &own]);
    shared.clear();

    fs::write(&shared.0, "").expect("root");
    chown(&shared.0, Some(user), Some(user)).expect("root");
    refused(start(), "EACCES", &[&place]);
}

/// XDG_RUNTIME_DIR that su or sudo left, of another user, is passed over; a link in one's own is not followed.
#[test]
fn another_users_runtime_directory_is_not_used() {
    if !can_be_other_users() {
        return;
    }
    let [user, other] = USERS.map(|n| n + 20);
    let (scratch, shared) = (Scratch::new("runtime"), Shared::new(user));
    let theirs = scratch.of("theirs", other);
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("root");
    let (mut a, mut b) = (Peer::start_by(as_user(user, Some(&theirs))), Peer::start_by(as_user(user, None)));
    assert_eq!(a.ask("open wire:x/a"), "ok");
    assert_eq!(b.ask("open wire:x/b"), "ok");
    assert_eq!(a.ask("send 0 10 60"), "ok");
    assert_eq!(b.ask_got("receive 100").n, 10, "both use {}", shared.0.display());
    assert_eq!(fs::read_dir(&theirs).expect("root").count(), 0, "the other's directory was used");
    a.exit();
    b.exit();

    let own = scratch.of("own", user);
    symlink(&theirs, own.join("slipring")).expect("root");
    refused(Peer::start_by(as_user(user, Some(&own))), "EACCES", &["own/slipring", "no link"]);
    assert_eq!(fs::read_dir(&theirs).expect("root").count(), 0, "the link was followed");
}

/// The mask for new files has no part in it. Not as root, who may enter and write everything.
#[test]
fn ends_with_different_umasks_meet() {
    let scratch = Scratch::new("umask");
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if root && !can_be_other_users() {
        return;
    }
    let dir = if root { scratch.of("own", USERS[0] + 30) } else { scratch.0.clone() };
    for (first, second) in [("000", "077"), ("777", "000"), ("177", "777")] {
        let start = |mask: &str| {
            let mut command = if root { as_user(USERS[0] + 30, Some(&dir)) } else { Command::new("env") };
            command.env("XDG_RUNTIME_DIR", &dir).args(["sh", "-c", &format!("umask {mask}; exec \"$@\""), "sh"]);
            Peer::start_by(command)
        };
        let (mut a, mut b) = (start(first), start(second));
        for (peer, end) in [(&mut a, "a"), (&mut b, "b")] {
            let answer = peer.ask(&format!("open wire:x/{end}?full=wait"));
            assert_eq!(answer, "ok", "umask {first} and {second}, {end}: {}", peer.ask("message"));
        }
        let modes = fs::read_dir(dir.join("slipring")).expect("made by the first").map(|entry| {
            let st = entry.and_then(|e| e.metadata()).expect("a file");
            st.mode() & 0o7777
        });
        assert_eq!(modes.collect::<Vec<_>>(), [0o600; 4], "umask {first} and {second}");
        assert_eq!(fs::metadata(dir.join("slipring")).expect("made").mode() & 0o7777, 0o700, "umask {first}");
        assert_eq!(a.ask("send 0 10 60"), "ok");
        assert_eq!(b.ask_got("receive 100").n, 10, "umask {first} and {second}");
        a.exit();
        b.exit();
        fs::remove_dir(dir.join("slipring")).expect("empty");
    }
}

/// A process that gives up being root after it opened an end keeps the far end that it has. A later one cannot be let in, and
/// both the reason and the remedy are said.
#[test]
fn an_end_goes_on_after_privileges_are_dropped() {
    if !can_be_other_users() {
        return;
    }
    let scratch = Scratch::new("dropped");
    let start = || Peer::start(&scratch.0);
    let (mut a, mut b) = (start(), start());
    assert_eq!(a.ask("open wire:x/a?full=wait"), "ok");
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    assert_eq!(a.ask(&format!("become {}", USERS[0] + 40)), "ok");
    for (from, to) in [(true, false), (false, true)] {
        let (from, to) = if from && !to { (&mut a, &mut b) } else { (&mut b, &mut a) };
        to.tell("sleep 300 10000");
        assert_eq!(from.ask("send 0 300 600"), "ok");
        assert_eq!(to.answer(), "300 0 299");
    }
    b.exit();
    let mut b = start();
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    let message = a.ask("message");
    assert!(message.contains("of user 0 is not heard") && message.contains("before it opens the end"), "{message}");
    b.exit();
    a.exit();
}
