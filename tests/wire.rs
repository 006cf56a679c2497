//! Wires between processes: found by name, lost and found again, without one side's restart.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests' own")]

mod common;
#[path = "common/peer.rs"]
mod peer;

use std::{os::fd::AsRawFd, path::PathBuf};

use peer::{Got, Peer};

/// A directory of wires for one test. Gone with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Dir {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        Dir(dir)
    }

    fn peer(&self) -> Peer {
        Peer::start(&self.0)
    }

    /// What is left of wires.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join("slipring")).expect("made by the first end");
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "the second process of the other tests"]
fn peer() {
    peer::serve();
}

fn got(n: u32, first: u32, last: u32) -> Got {
    Got { n, first, last }
}

/// Two processes, whichever comes first: frames of all sizes cross in both directions, whole and in order.
#[test]
fn frames_cross_between_processes() {
    let dir = Dir::new("cross");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a?full=wait"), "ok");
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    for (round, len) in [(0, 60), (1, 64), (2, 1514), (3, 22)] {
        let first = round * 100_000;
        for (from, to) in [(true, false), (false, true)] {
            let (from, to) = if from && !to { (&mut a, &mut b) } else { (&mut b, &mut a) };
            to.tell("receive 300 3000");
            assert_eq!(from.ask(&format!("send {first} 3000 {len}")), "ok");
            let answer = to.answer();
            assert_eq!(answer, format!("3000 {first} {}", first + 2999), "{len} bytes");
        }
    }
    a.exit();
    b.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// An end that has nobody at the far end completes and loses its frames; a far end that comes later gets the later ones,
/// from a sender that sleeps in poll to a receiver that does.
#[test]
fn either_end_comes_first_and_sleepers_wake() {
    let dir = Dir::new("first");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    assert_eq!(b.ask("send 0 100 60"), "ok");
    assert_eq!(a.ask("open wire:x/a?full=wait"), "ok");
    assert_eq!(b.ask("send 100 50 60"), "ok");
    assert_eq!(a.ask_got("sleep 50 10000"), got(50, 100, 149));
    a.tell("sleep 3 10000");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(b.ask("send 200 3 60"), "ok");
    assert_eq!(a.answer(), "3 200 202");
}

/// The C library changes the user of every thread of a process, and waits for each: also for the library's own.
#[test]
fn a_process_with_an_end_can_change_its_user() {
    let dir = Dir::new("user");
    let mut a = dir.peer();
    assert_eq!(a.ask("open wire:x/a"), "ok");
    // SAFETY: no arguments, cannot fail.
    let user = unsafe { libc::getuid() };
    assert_eq!(a.ask(&format!("become {user}")), "ok");
    assert_eq!(a.ask("send 0 10 60"), "ok");
    a.exit();
}

/// A second process is refused, and told who has the end; after that one's exit it gets it.
#[test]
fn an_end_is_held_by_one_process() {
    let dir = Dir::new("busy");
    let (mut a, mut second) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a"), "ok");
    assert_eq!(second.ask("open wire:x/a"), "EBUSY");
    let message = second.ask("message");
    let holder = format!("end a of wire x is held by process {}", a.pid());
    assert!(message.contains(&holder), "{message}");
    // Also while the holder has a child, and when the holder is gone and the child is not.
    assert_eq!(a.ask("fork 5000"), "ok");
    assert_eq!(second.ask("open wire:x/a"), "EBUSY");
    a.exit();
    assert_eq!(second.ask("open wire:x/a"), "ok");
    assert_eq!(second.ask("close"), "ok");
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// An end is killed, with and without a child that outlives it, and opened anew: the other side goes on. What was in flight
/// is gone, and a sender that waited for room is not held back for ever.
#[test]
fn a_killed_end_is_attached_anew() {
    let dir = Dir::new("killed");
    let mut b = dir.peer();
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    for round in 0..6 {
        let mut a = dir.peer();
        assert_eq!(a.ask("open wire:x/a?full=wait"), "ok");
        let first = round * 10_000;
        assert_eq!(b.ask(&format!("send {first} 300 1000")), "ok");
        assert_eq!(a.ask("receive 100 300"), format!("300 {first} {}", first + 299));
        assert_eq!(a.ask(&format!("send {first} 200 60")), "ok");
        if round % 2 == 1 {
            assert_eq!(a.ask("fork 3000"), "ok");
        }
        if round < 3 {
            // In flight when it dies; the next round's receiver sees none of them.
            assert_eq!(b.ask(&format!("send {} 100 60", first + 5000)), "ok");
            a.kill();
        } else {
            // More than the ring and its rings hold: the sender waits until the receiver is dead.
            b.tell(&format!("send {} 5000 1500", first + 5000));
            std::thread::sleep(std::time::Duration::from_millis(20));
            a.kill();
            assert_eq!(b.answer(), "ok");
        }
        assert_eq!(b.ask_got("receive 50 200").n, 200);
    }
    b.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// An end that is stopped for long, with its socket full of messages, is attached once it goes on.
#[test]
fn a_stopped_end_with_a_full_socket_is_attached_later() {
    let dir = Dir::new("stopped");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a"), "ok");
    let pid = i32::try_from(a.pid()).expect("a process number");
    // SAFETY: a child of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    let files = std::fs::File::open(dir.0.join("slipring")).expect("made by the first end");
    let socket = format!("/proc/self/fd/{}/x.a.sock", std::os::fd::AsRawFd::as_raw_fd(&files));
    let filler = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("a socket can be so");
    while filler.send_to(&[0], &socket).is_ok() {}
    assert_eq!(b.ask("open wire:x/b"), "ok", "a far end that is stopped does not hold it back");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(b.ask("send 0 10 60"), "ok");
    assert_eq!(a.ask("receive 500"), "10 0 9");
    b.exit();
    a.exit();
}

/// A limit on the size of files, which counts for a wire's memory: an error that can be read, no signal that ends the program.
#[test]
fn a_limit_on_file_sizes_is_an_error() {
    let dir = Dir::new("fsize");
    let mut a = dir.peer();
    assert_eq!(a.ask("limit-file-size 1000000"), "ok");
    assert_eq!(a.ask("open wire:x/a"), "EFBIG");
    let message = a.ask("message");
    assert!(message.contains("see the limits on files, their size"), "{message}");
    assert_eq!(dir.files(), Vec::<String>::new(), "nothing is left");
    a.exit();
}

/// An end is killed at random moments under traffic both ways, thirty times: every frame that arrives is whole, traffic goes on
/// with the next process, and nothing is left.
#[test]
fn an_end_is_killed_at_random_moments() {
    let dir = Dir::new("random");
    let mut b = dir.peer();
    assert_eq!(b.ask("open wire:x/b"), "ok");
    let mut chance = 12345u32;
    for round in 0..30u32 {
        let mut a = dir.peer();
        assert_eq!(a.ask("open wire:x/a"), "ok");
        if round % 5 == 4 {
            assert_eq!(a.ask("fork 1000"), "ok");
        }
        assert_eq!(a.ask("send 0 1 60"), "ok");
        assert_eq!(b.ask_got("sleep 1 5000").n, 1, "round {round}");
        a.tell("send 0 4000000 300");
        b.tell("send 0 20000 1000");
        chance = chance.wrapping_mul(1_103_515_245).wrapping_add(12345);
        std::thread::sleep(std::time::Duration::from_micros(u64::from(chance >> 16) % 30_000));
        a.kill();
        assert_eq!(b.answer(), "ok");
        // Whole frames only: the peer fails on others.
        b.ask_got("receive 20");
    }
    b.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// Both ends are killed: what they leave is no obstacle, and goes with the next who comes.
#[test]
fn what_two_killed_ends_leave_goes_with_the_next() {
    let dir = Dir::new("both");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a"), "ok");
    assert_eq!(b.ask("open wire:x/b"), "ok");
    assert_eq!(dir.files().len(), 4);
    a.kill();
    b.kill();
    let mut next = dir.peer();
    assert_eq!(next.ask("open wire:x/b"), "ok");
    assert_eq!(dir.files().len(), 2, "its own");
    next.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// Somebody clears up after a killed process at the very moment when its end is opened anew: he is waited for, and not taken
/// for one who holds the end.
#[test]
fn who_clears_up_is_not_taken_for_the_holder() {
    let dir = Dir::new("sweeper");
    let mut a = dir.peer();
    assert_eq!(a.ask("open wire:x/a"), "ok");
    assert_eq!(a.ask("close"), "ok");
    let path = dir.0.join("slipring/x.a.lock");
    let left = std::fs::File::create(&path).expect("what a killed process leaves");
    // SAFETY: a struct of integers: zero is valid.
    let mut all_but_the_first: libc::flock = unsafe { std::mem::zeroed() };
    all_but_the_first.l_type = libc::F_WRLCK as libc::c_short;
    all_but_the_first.l_start = 1;
    // SAFETY: the kernel reads one live struct.
    let locked = unsafe { libc::fcntl(left.as_raw_fd(), libc::F_SETLK, &raw const all_but_the_first) };
    assert_eq!(locked, 0);
    a.tell("open wire:x/a");
    std::thread::sleep(std::time::Duration::from_millis(50));
    std::fs::remove_file(&path).expect("cleared up");
    drop(left);
    assert_eq!(a.answer(), "ok");
    assert_eq!(a.ask("send 0 10 60"), "ok");
    a.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// Frames are spread over the queues of the receiving end by flow, whatever queue and number of queues the sender has; a
/// flow stays on its queue; what has none keeps the sender's, and what is for a queue without a receiver is lost.
#[test]
fn flows_are_spread_over_the_queues_of_the_receiver() {
    let dir = Dir::new("queues");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a?queues=2 1"), "ok");
    assert_eq!(b.ask("open wire:x/b?queues=3"), "ok");
    assert_eq!(b.ask("more wire:x/b?queues=3 1"), "ok");
    let spread = |a: &mut Peer, b: &mut Peer, n: u32| -> Vec<u32> {
        assert_eq!(a.ask(&format!("flows 1000 {n}")), "ok");
        b.ask("all 100").split(' ').map(|w| w.parse().expect("a number")).collect()
    };
    let two = spread(&mut a, &mut b, 120);
    assert_eq!(b.ask("more wire:x/b?queues=3 2"), "ok");
    let three = spread(&mut a, &mut b, 120);
    assert_eq!(three.iter().sum::<u32>(), 120);
    assert!(three.iter().all(|n| *n > 20), "{three:?}");
    assert_eq!(two, three[..2], "the same flows on the same queues, and none in place of the third");
    assert_eq!(a.ask("send 0 30 60"), "ok");
    assert_eq!(b.ask("all 100"), "0 30 0", "sent on queue 1");
    // And back: two queues, of which nobody receives on the first.
    assert_eq!(b.ask("send 0 30 60"), "ok");
    assert_eq!(b.ask("flows 1000 120"), "ok");
    let back: u32 = a.ask("all 100").parse().expect("a number");
    assert!((30..90).contains(&back), "{back}");
}

fn slipring(dir: &Dir, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_slipring"))
        .args(arguments)
        .env("XDG_RUNTIME_DIR", &dir.0)
        .env_remove("SLIPRING_DEVICES")
        .output()
        .expect("the program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

/// `slipring wires` shows who has which end and what passed; `slipring link` pulls the cable, and frames are lost as without
/// a far end; what killed processes left is removed.
#[test]
fn the_command_line_shows_wires_and_pulls_cables() {
    let dir = Dir::new("command");
    // Where it looks, so that two ends that have not met can be told why.
    let place = dir.0.join("slipring").display().to_string();
    let (_, none, code) = slipring(&dir, &["wires"]);
    assert!(code == Some(1) && none.contains(&place), "none yet: {none}");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a?mtu=2000"), "ok");
    assert_eq!(b.ask("open wire:x/b?queues=2"), "ok");
    assert_eq!(a.ask("send 0 10 60"), "ok");
    assert_eq!(b.ask("receive 100 10"), "10 0 9");
    let (shown, _, code) = slipring(&dir, &["wires", "--json"]);
    assert_eq!(code, Some(0));
    let end = |name: &str, pid: u32, rest: &str| format!("{{\"end\":\"{name}\",\"pid\":{pid},{rest}}}");
    let numbers = |peer: u32, sent: u32, received: u32| {
        let bytes = sent * 60;
        format!(
            "\"peer\":{peer},\"sent\":{sent},\"bytes\":{bytes},\"dropped\":0,\"received\":{received},\"faulty\":false"
        )
    };
    let first = format!("\"queues\":1,\"mtu\":2000,\"link\":\"up\",{}", numbers(b.pid(), 10, 0));
    let second = format!("\"queues\":2,\"mtu\":1500,\"link\":\"up\",{}", numbers(a.pid(), 0, 10));
    let ends = [end("a", a.pid(), &first), end("b", b.pid(), &second)].join(",");
    assert_eq!(shown, format!("{{\"wire\":\"x\",\"ends\":[{ends}]}}\n"));
    // Pulled at one end, nothing passes either way.
    assert_eq!(slipring(&dir, &["link", "wire:x/b", "down"]).2, Some(0));
    for (from, to) in [(true, false), (false, true)] {
        let (from, to) = if from && !to { (&mut a, &mut b) } else { (&mut b, &mut a) };
        assert_eq!(from.ask("send 100 10 60"), "ok");
        assert_eq!(to.ask("receive 50"), "0 0 0");
    }
    let shown = slipring(&dir, &["wires"]).0;
    assert!(shown.contains(" down ") && shown.contains(&place), "{shown}");
    assert_eq!(slipring(&dir, &["link", "wire:x/b", "up"]).2, Some(0));
    assert_eq!(a.ask("send 200 10 60"), "ok");
    assert_eq!(b.ask("receive 100 10"), "10 200 209");
    let (_, why, code) = slipring(&dir, &["link", "wire:y/b", "up"]);
    assert!(code == Some(1) && why.contains("no process of this user has that end open"), "{why}");
    a.kill();
    b.kill();
    assert_eq!(slipring(&dir, &["wires"]).2, Some(1));
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// A far end that writes nonsense to all that is shared: no crash, no endless loop; it is told once that the far end is not to
/// be believed; and an honest one that comes later is served.
#[test]
fn a_far_end_that_is_not_to_be_believed_does_no_harm() {
    let dir = Dir::new("vandal");
    let mut a = dir.peer();
    let mut told = 0;
    for seed in 0..8 {
        let full = if seed % 2 == 0 { "wait" } else { "drop" };
        assert_eq!(a.ask(&format!("open wire:x{seed}/a?depth=16&full={full}")), "ok");
        let mut vandal = dir.peer();
        assert_eq!(vandal.ask(&format!("open wire:x{seed}/b?depth=16")), "ok");
        vandal.tell(&format!("vandal 300 {seed}"));
        a.ask("churn 400");
        assert_eq!(vandal.answer(), "ok");
        told += u32::from(a.ask("message").contains("make no sense; no frame passes until that end is attached anew"));
        // Its sender is not held back either.
        assert_eq!(a.ask("send 0 100 60"), "ok");
        vandal.kill();
        let mut honest = dir.peer();
        assert_eq!(honest.ask(&format!("open wire:x{seed}/b")), "ok");
        a.ask("churn 10");
        honest.ask("churn 50");
        assert_eq!(a.ask("send 500 100 60"), "ok");
        assert_eq!(honest.ask_got("receive 100").last, 599);
        honest.exit();
    }
    assert!(told > 0);
    a.exit();
    assert_eq!(dir.files(), Vec::<String>::new());
}

/// A sender that sleeps for room is woken when the far process makes some, and when it dies; nobody who sleeps on an idle or
/// a full wire uses the processor.
#[test]
fn sleepers_cost_nothing_and_wake_for_room() {
    let dir = Dir::new("room");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a?full=wait&depth=16"), "ok");
    assert_eq!(b.ask("open wire:x/b?full=wait&depth=16"), "ok");
    let cpu = |p: &mut Peer| p.ask("cpu").parse::<u64>().expect("a number");
    let (cpu_a, cpu_b) = (cpu(&mut a), cpu(&mut b));
    a.tell("sleep 1 1000");
    b.tell("sleep 1 1000");
    assert_eq!((a.answer(), b.answer()), ("0 0 0".to_owned(), "0 0 0".to_owned()));
    let idle = (cpu(&mut a) - cpu_a, cpu(&mut b) - cpu_b);
    assert!(idle.0 < 50 && idle.1 < 50, "an idle second cost {idle:?} ms");
    // More than the ring and the receiver's own rings take.
    a.tell("wait-send 0 4000 1000");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let before = cpu(&mut b);
    assert_eq!(b.ask("receive 300 4000"), "4000 0 3999");
    assert_eq!(a.answer(), "ok");
    assert!(before - cpu_b < 200, "a receiver that does not look cost {} ms", before - cpu_b);
    let full = cpu(&mut a) - cpu_a;
    assert!(full < 700, "a sender without room cost {full} ms");
    a.tell("wait-send 0 4000 1000");
    std::thread::sleep(std::time::Duration::from_millis(50));
    b.kill();
    assert_eq!(a.answer(), "ok");
}

/// Single frames there and back, each end asleep, about to sleep or awake by chance: no wake-up is lost.
#[test]
fn no_wake_up_is_lost_between_processes() {
    let dir = Dir::new("pingpong");
    let (mut a, mut b) = (dir.peer(), dir.peer());
    assert_eq!(a.ask("open wire:x/a?full=wait"), "ok");
    assert_eq!(b.ask("open wire:x/b?full=wait"), "ok");
    b.tell("pong 20000");
    assert_eq!(a.ask("ping 20000"), "ok");
    assert_eq!(b.answer(), "ok");
}
