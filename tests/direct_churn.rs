//! Many processes that make and delete sockets with the default program at once, on different queues of one interface,
//! some of them killed meanwhile. Needs root and AF_XDP; the parts with libxdp need its development files. The ordinary
//! run is a short one; `make soak` runs the ignored tests, which are the same with full counts.

#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    reason = "the C interface is called as C calls it"
)]

mod direct_support;

use std::{
    thread,
    time::{Duration, Instant},
};

use direct_support::*;

/// Make and delete a socket `rounds` times; an exit status. The first attempts may meet the queue still taken by a process
/// that was killed a moment ago, if `after_another`.
fn churn(queue: u32, rounds: u32, after_another: bool) -> i32 {
    // Not to outlive a test that fails.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let patience = Instant::now() + Duration::from_secs(if after_another { 10 } else { 0 });
    let mut round = 0;
    while round < rounds {
        let umem = TestUmem::new();
        match TestSocket::new(&umem, "va", queue, PROGRAM) {
            Ok(socket) => {
                socket.delete();
                round += 1;
            }
            Err(error) => {
                let said = messages();
                if round > 0 || Instant::now() > patience || !said.contains("has the queue") {
                    eprint!("queue {queue}, round {round}: {error}: {said}");
                    return 1;
                }
            }
        }
        if umem.delete() != 0 {
            return 2;
        }
    }
    let said = messages();
    eprint!("{said}");
    if said.is_empty() { 0 } else { 3 }
}

/// Ours on queues `0..ours`, libxdp's on those after.
fn together(ours: u32, libxdps: u32, rounds: u32) {
    let Some(_world) = World::with_veth(ours + libxdps) else { return };
    let mut users = Vec::new();
    if libxdps > 0 {
        let Some(binary) = LibxdpUser::available() else { return };
        users.extend((ours..ours + libxdps).map(|queue| LibxdpUser::start(&binary, "va", queue, 0)));
    }
    for user in &mut users {
        user.order(&format!("churn {rounds}"));
    }
    let children: Vec<_> = (0..ours).map(|queue| fork(move || churn(queue, rounds, false))).collect();
    let failed = children.into_iter().map(wait).filter(|status| *status != 0).count();
    // libxdp itself fails now and then when others come and go.
    let theirs: Vec<String> = users.iter_mut().map(LibxdpUser::answer).collect();
    println!("{ours} of ours: {failed} failed; rounds that failed in libxdp's users, of {rounds} each: {theirs:?}");
    assert_eq!(failed, 0);
    assert_eq!(xdp_on("va"), None);
}

/// Ours on eight queues, one of them killed and replaced every few milliseconds, `kills` times.
fn with_kills(kills: u32) {
    const QUEUES: u32 = 8;
    let Some(_world) = World::with_veth(QUEUES + 1) else { return };
    let start = |queue, again| fork(move || churn(queue, u32::MAX, again));
    let mut users: Vec<_> = (0..QUEUES).map(|queue| start(queue, false)).collect();
    let mut random = 1u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    for _ in 0..kills {
        thread::sleep(Duration::from_micros(u64::from(next(8000))));
        let queue = next(QUEUES);
        let user = &mut users[queue as usize];
        // Negative: it ended by the signal, not by a failure of its own.
        unsafe { libc::kill(*user, libc::SIGKILL) };
        assert_eq!(wait(*user), -1);
        *user = start(queue, true);
    }
    for user in users {
        kill(user);
    }
    assert_eq!(in_child(|| churn(QUEUES, 1, false)), 0);
    assert_eq!(xdp_on("va"), None);
}

#[test]
fn d22_ours_do_not_disturb_each_other() {
    together(4, 0, 50);
}

#[test]
fn d22_nothing_of_ours_fails_beside_libxdps_users() {
    together(4, 4, 25);
}

#[test]
fn d22_whoever_is_killed_the_next_to_come_and_go_leaves_nothing_attached() {
    with_kills(40);
}

#[test]
#[ignore = "minutes long: make soak"]
fn d22_soak_eight_of_ours() {
    together(8, 0, 200);
}

#[test]
#[ignore = "minutes long: make soak"]
fn d22_soak_four_of_ours_and_four_of_libxdps() {
    together(4, 4, 200);
}

#[test]
#[ignore = "minutes long: make soak"]
fn d22_soak_with_kills() {
    with_kills(1000);
}
