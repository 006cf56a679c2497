//! The engine through the kernel's interface, without libxdp's layer: what a program that does without libxdp gets.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of the tests' own")]

mod common;

use std::{
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use common::{Shape, Xsk};
use slipring::{errno::Errno, uapi::Desc};

const POLLIN: i16 = libc::POLLIN | libc::POLLRDNORM;
const POLLOUT: i16 = libc::POLLOUT | libc::POLLWRNORM;

fn frame(n: u8) -> Vec<u8> {
    let mut f = vec![n; 60];
    f[12] = 0x88;
    f[13] = 0xb5;
    f
}

/// A frame crosses a wire: content, address (C27), completion with the submitted address, readiness on the way.
#[test]
fn a_frame_crosses_a_wire() {
    let shape = Shape { headroom: 100, ..Shape::default() };
    let a = Xsk::open("wire:basic/a", shape).expect("end a");
    let b = Xsk::open("wire:basic/b", shape).expect("end b");
    assert_eq!(b.socket.readiness(), POLLOUT);
    assert!(b.fill().push(5 * 2048));
    a.send(4096, &frame(7));
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(a.comp().pop(), Some(4096));
    assert_eq!(b.socket.readiness(), POLLIN | POLLOUT);
    let d = b.rx.pop().expect("a frame");
    assert_eq!(d, Desc { addr: 5 * 2048 + 356, len: 60, options: 0 });
    assert_eq!(b.area.bytes(d.addr, 60), frame(7));
    assert_eq!(b.socket.readiness(), POLLOUT);
}

/// C14: 32 descriptors a call, EAGAIN while more is left; C11: the TX flag is set, the fill flag is not.
#[test]
fn a_kick_sends_at_most_the_budget() {
    let shape = Shape { ring: 512, ..Shape::default() };
    let a = Xsk::open("null?mtu=1500", shape).expect("null");
    assert_eq!((a.tx.flags(), a.fill().flags()), (1, 0));
    for i in 0..300 {
        a.send(i % 256 * 2048, &frame(1));
    }
    for _ in 0..9 {
        assert_eq!(a.kick(), Err(Errno::EAGAIN));
    }
    assert_eq!(a.comp().waiting(), 288);
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(a.comp().waiting(), 300);
}

/// Back-pressure: no completion place, no frame; nothing is lost, and room lets it go on.
#[test]
fn a_full_completion_ring_holds_the_sender_back() {
    let a = Xsk::open("null?mtu=1501", Shape { ring: 16, ..Shape::default() }).expect("null");
    for round in 0..2 {
        for i in 0..16 {
            a.send(i * 2048, &frame(round));
        }
        let _ = a.kick();
    }
    assert_eq!((a.comp().waiting(), a.tx.waiting()), (16, 16));
    assert_eq!(a.kick(), Err(Errno::EAGAIN));
    assert_eq!(a.socket.readiness(), 0, "more than half of the TX ring is used");
    for _ in 0..16 {
        assert!(a.comp().pop().is_some());
    }
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((a.comp().waiting(), a.tx.waiting()), (16, 0));
}

/// C57: a receiver without room loses frames as on veth, and counts them as the kernel does; the sender completes.
#[test]
fn a_receiver_without_room_counts_as_the_kernel() {
    let a = Xsk::open("wire:counts/a", Shape::default()).expect("end a");
    let b = Xsk::open("wire:counts/b", Shape { ring: 16, ..Shape::default() }).expect("end b");
    a.send(0, &frame(1));
    assert_eq!(a.kick(), Ok(()));
    let s = b.socket.statistics().expect("statistics");
    assert_eq!((s.rx_dropped, s.rx_fill_ring_empty_descs, s.rx_ring_full), (1, 1, 0));
    for i in 0..16 {
        assert!(b.fill().push(i * 2048));
    }
    for i in 0..16 {
        a.send(i * 2048, &frame(2));
    }
    assert_eq!(a.kick(), Ok(()));
    for i in 16..20 {
        assert!(b.fill().push(i * 2048));
        a.send(i * 2048, &frame(3));
    }
    assert_eq!(a.kick(), Ok(()));
    let s = b.socket.statistics().expect("statistics");
    assert_eq!((s.rx_dropped, s.rx_ring_full, s.rx_fill_ring_empty_descs), (1, 4, 1));
    assert_eq!(a.comp().waiting(), 21);
    assert_eq!(b.fill().waiting(), 4, "no chunk is taken for a frame that is lost");
    while b.rx.pop().is_some() {}
    for i in 0..4 {
        a.send(i * 2048, &frame(4));
    }
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(b.rx.waiting(), 4);
    assert_eq!(b.rx.pop().map(|d| d.addr), Some(16 * 2048 + 256));
}

/// `full=wait`: the sender is held back instead, descriptors stay, nothing is counted as lost.
#[test]
fn a_lossless_wire_holds_the_sender_back() {
    let a = Xsk::open("wire:wait/a?full=wait", Shape::default()).expect("end a");
    a.send(0, &frame(0));
    assert_eq!(a.kick(), Ok(()), "with nobody at the far end it behaves as drop");
    let b = Xsk::open("wire:wait/b?full=wait", Shape::default()).expect("end b");
    for i in 0..8 {
        a.send(i * 2048, &frame(1));
    }
    for i in 0..3 {
        assert!(b.fill().push(i * 2048));
    }
    assert_eq!(a.kick(), Err(Errno::EAGAIN));
    assert_eq!((a.tx.waiting(), b.rx.waiting(), a.comp().waiting()), (5, 3, 4));
    for i in 3..8 {
        assert!(b.fill().push(i * 2048));
    }
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((a.tx.waiting(), b.rx.waiting()), (0, 8));
    assert_eq!(b.socket.statistics().expect("statistics").rx_dropped, 0);
}

/// C30: a frame larger than a chunk takes several descriptors with XDP_USE_SG, and is dropped without; on the sending
/// side a chain goes out as one frame, and a half chain is kept until its end comes.
#[test]
fn large_frames_span_several_descriptors() {
    let shape = Shape { flags: 16, ..Shape::default() };
    let a = Xsk::open("wire:sg/a?mtu=8000", shape).expect("end a");
    let b = Xsk::open("wire:sg/b?mtu=8000", shape).expect("end b");
    for i in 0..8 {
        assert!(b.fill().push(i * 2048));
    }
    let bytes: Vec<u8> = (0..3500u32).map(|i| (i * 7) as u8).collect();
    a.area.write(0, &bytes[..2000]);
    a.area.write(2048, &bytes[2000..]);
    assert!(a.tx.push(Desc { addr: 0, len: 2000, options: 1 }));
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((a.tx.waiting(), b.rx.waiting(), a.comp().waiting()), (0, 0, 0));
    assert!(a.tx.push(Desc { addr: 2048, len: 1500, options: 0 }));
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((a.comp().pop(), a.comp().pop()), (Some(0), Some(2048)));
    let (one, two) = (b.rx.pop().expect("first"), b.rx.pop().expect("second"));
    assert_eq!((one.len, one.options, two.len, two.options), (1792, 1, 1708, 0));
    assert_eq!([b.area.bytes(one.addr, 1792), b.area.bytes(two.addr, 1708)].concat(), bytes);
    drop(b);
    let b = Xsk::open("wire:sg/b?mtu=8000", Shape::default()).expect("end b without chains");
    assert!(b.fill().push(0));
    assert!(
        a.tx.push(Desc { addr: 0, len: 2000, options: 1 }) && a.tx.push(Desc { addr: 2048, len: 1500, options: 0 })
    );
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((b.rx.waiting(), b.socket.statistics().map(|s| s.rx_dropped)), (0, Ok(1)));
}

/// Closing the socket that receives lets the sibling that was bound before take over; the pool lives on with the last.
#[test]
fn a_sibling_takes_over() {
    let a = Xsk::open("wire:sibling/a", Shape::default()).expect("end a");
    let b = Xsk::open("wire:sibling/b", Shape::default()).expect("end b");
    let c = b.sibling("wire:sibling/b", Shape::default()).expect("sibling");
    for i in 0..4 {
        assert!(b.fill().push(i * 2048));
    }
    let send = || {
        a.send(0, &frame(1));
        assert_eq!(a.kick(), Ok(()));
    };
    send();
    assert_eq!((b.rx.waiting(), c.rx.waiting()), (0, 1), "the one bound last");
    drop(c);
    send();
    assert_eq!(b.rx.waiting(), 1);
    assert_eq!(Xsk::open("wire:sibling/b", Shape::default()).err(), Some(Errno::EBUSY));
    drop(b);
    Xsk::open("wire:sibling/b", Shape::default()).expect("free again");
}

/// C04: several threads with a socket each on one UMEM and one queue: every completion exactly once, and nothing is lost
/// on a lossless wire.
#[test]
fn several_sockets_share_one_completion_ring() {
    const SOCKETS: u64 = 4;
    const FRAMES: u64 = 5_000;
    let shape = Shape { ring: 64, ..Shape::default() };
    let first = Xsk::open("wire:many/a?full=wait", shape).expect("end a");
    let mut sockets: Vec<Xsk> =
        (1..SOCKETS).map(|_| first.sibling("wire:many/a?full=wait", shape).expect("sibling")).collect();
    let rx = Xsk::open("wire:many/b?full=wait", shape).expect("end b");
    for i in 0..64 {
        assert!(rx.fill().push(i * 2048));
    }
    sockets.push(first);
    // Addresses 0..SOCKETS*16 belong to the sender address / 16; in flight until seen in the completion ring.
    let free: Arc<Vec<AtomicU64>> = Arc::new((0..SOCKETS).map(|_| AtomicU64::new(0xffff)).collect());
    let received = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let comp = sockets.last_mut().and_then(|s| s.comp.take()).expect("the first socket's");
    thread::scope(|s| {
        let mut threads = Vec::new();
        for (n, socket) in sockets.iter().enumerate() {
            let (free, done) = (&free, &done);
            threads.push(s.spawn(move || {
                let mut sent = 0u64;
                while sent < FRAMES {
                    let mine = free[n].load(Ordering::Acquire);
                    if mine != 0 {
                        let slot = u64::from(mine.trailing_zeros());
                        free[n].fetch_and(!(1 << slot), Ordering::AcqRel);
                        let mut f = frame(n as u8);
                        f[16..24].copy_from_slice(&sent.to_le_bytes());
                        socket.send((n as u64 * 16 + slot) * 2048, &f);
                        sent += 1;
                    }
                    match socket.kick() {
                        Ok(()) => {}
                        Err(e) => {
                            assert_eq!(e, Errno::EAGAIN);
                            thread::yield_now();
                        }
                    }
                }
                while socket.kick().is_err() {
                    thread::yield_now();
                }
                done.fetch_add(1, Ordering::Release);
            }));
        }
        threads.push(s.spawn(|| {
            let mut completed = 0;
            while completed < SOCKETS * FRAMES {
                let Some(addr) = comp.pop() else {
                    thread::yield_now();
                    continue;
                };
                let (n, bit) = ((addr / 2048 / 16) as usize, 1 << (addr / 2048 % 16));
                let before = free[n].fetch_or(bit, Ordering::AcqRel);
                assert_eq!(before & bit, 0, "address {addr} completed twice");
                completed += 1;
            }
        }));
        let mut next = [0u64; SOCKETS as usize];
        while received.load(Ordering::Relaxed) < SOCKETS * FRAMES {
            let Some(d) = rx.rx.pop() else {
                thread::yield_now();
                continue;
            };
            let f = rx.area.bytes(d.addr, 60);
            let n = f[0] as usize;
            let number = u64::from_le_bytes(f[16..24].try_into().expect("eight bytes"));
            assert_eq!(number, next[n], "frames of one socket stay in order, none lost, none twice");
            next[n] += 1;
            assert!(rx.fill().push(d.addr));
            received.fetch_add(1, Ordering::Relaxed);
        }
        // By hand: the end of a scope is not seen by ThreadSanitizer.
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
    });
    assert_eq!(rx.socket.statistics().map(|s| (s.rx_dropped, s.rx_ring_full)), Ok((0, 0)));
}

/// C09: impossible indices in the program's rings: no crash, no hang, and the ring works again when they are sane.
#[test]
fn wild_indices_are_harmless() {
    let a = Xsk::open("wire:wild/a", Shape::default()).expect("end a");
    let b = Xsk::open("wire:wild/b", Shape::default()).expect("end b");
    for wild in [1 << 31, u32::MAX, 65, 1000] {
        for word in [a.tx.producer(), a.comp().consumer(), b.fill().producer(), b.rx.consumer()] {
            let sane = word.swap(wild, Ordering::SeqCst);
            let _ = a.kick();
            let _ = a.socket.readiness() | b.socket.readiness();
            word.store(sane, Ordering::SeqCst);
        }
    }
    while a.comp().pop().is_some() {}
    while b.rx.pop().is_some() {}
    assert!(b.fill().push(0));
    a.send(0, &frame(9));
    assert_eq!(a.kick(), Ok(()));
    assert!(b.rx.pop().is_some());
}

/// Completed addresses, in units of 2048, and the counters of invalid descriptors and of an empty ring.
fn outcome(a: &Xsk) -> (Vec<u64>, u64, u64) {
    let done = std::iter::from_fn(|| a.comp().pop()).map(|addr| addr / 2048).collect();
    let s = a.socket.statistics().expect("statistics");
    (done, s.tx_invalid_descs, s.tx_ring_empty_descs)
}

/// What the kernel does with an invalid descriptor: it completes, with the chain that it spoils, and the call stops behind
/// it; the rest of the chain completes without being sent. The same for a chain that is too long, without a stop.
#[test]
fn invalid_descriptors_complete_and_end_the_turn() {
    let wild = u64::MAX / 2048 * 2048;
    let a = Xsk::open("null?mtu=1502", Shape::default()).expect("null");
    let push = |at: u64, more: bool| assert!(a.tx.push(Desc { addr: at * 2048, len: 60, options: u32::from(more) }));
    push(1, true);
    push(wild / 2048, true);
    push(2, true);
    push(3, false);
    push(4, false);
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(outcome(&a), (vec![1, wild / 2048], 2, 0));
    assert_eq!(a.tx.waiting(), 3);
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(outcome(&a), (vec![2, 3, 4], 4, 1));
    for d in [
        Desc { addr: 2000, len: 60, options: 0 },
        Desc { addr: 0, len: 0, options: 0 },
        Desc { addr: 0, len: 60, options: 0x80 },
    ] {
        assert!(a.tx.push(d));
        assert_eq!(a.kick(), Ok(()));
        assert_eq!((a.tx.waiting(), a.comp().pop()), (0, Some(d.addr)));
    }
    for n in 1..=18 {
        push(n, n != 18);
    }
    push(20, false);
    assert_eq!(a.kick(), Ok(()));
    assert_eq!(outcome(&a).0.len(), 19);
    assert_eq!(outcome(&a).1, 7, "18 descriptors are a frame");
    for n in 1..=20 {
        push(n, n != 20);
    }
    push(21, false);
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((outcome(&a).0, outcome(&a).1), ((1..=21).collect(), 27), "19 are none");
}

/// A frame that is too short or too long for the device completes, and the call stops there with EBUSY.
#[test]
fn frames_that_no_device_takes_complete_with_ebusy() {
    let a = Xsk::open("wire:lengths/a", Shape::default()).expect("end a");
    let b = Xsk::open("wire:lengths/b", Shape::default()).expect("end b");
    for i in 0..16 {
        assert!(b.fill().push(i * 2048));
    }
    for (len, result) in [(13, Err(Errno::EBUSY)), (14, Ok(())), (1518, Ok(())), (1519, Err(Errno::EBUSY))] {
        a.send(0, &vec![0; len]);
        a.send(2048, &frame(1));
        assert_eq!(a.kick(), result, "{len} bytes");
        assert_eq!(a.tx.waiting(), u32::from(result.is_err()));
        let _ = a.kick();
        assert_eq!(outcome(&a).0, [0, 1]);
        assert_eq!(b.rx.waiting(), if result.is_ok() { 2 } else { 1 });
        while b.rx.pop().is_some() {}
    }
}

/// The budget does not keep an invalid descriptor back, and needs no completion place less.
#[test]
fn an_invalid_descriptor_goes_beyond_the_budget() {
    let a = Xsk::open("null?mtu=1503", Shape::default()).expect("null");
    for i in 0..32 {
        a.send(i * 2048, &frame(1));
    }
    assert!(a.tx.push(Desc { addr: u64::MAX, len: 60, options: 0 }));
    assert_eq!(a.kick(), Ok(()));
    assert_eq!((a.tx.waiting(), outcome(&a).0.len()), (0, 33));
    let b = Xsk::open("null?mtu=1504", Shape { ring: 4, ..Shape::default() }).expect("null");
    for i in 0..4 {
        b.send(i * 2048, &frame(1));
    }
    assert_eq!(b.kick(), Ok(()));
    assert!(b.tx.push(Desc { addr: u64::MAX, len: 60, options: 0 }));
    assert_eq!(b.kick(), Err(Errno::EAGAIN));
    assert_eq!(outcome(&b).0.len(), 4);
    assert_eq!(b.kick(), Ok(()));
    assert_eq!(b.comp().pop(), Some(u64::MAX));
}

/// `null` makes frames, as many as there is room for.
#[test]
fn null_makes_frames() {
    let a = Xsk::open("null?gen=64", Shape::default()).expect("null");
    for i in 0..10 {
        assert!(a.fill().push(i * 2048));
    }
    assert_eq!(a.socket.kick_rx(libc::MSG_DONTWAIT), Ok(()));
    let mut got = 0u64;
    while let Some(d) = a.rx.pop() {
        assert_eq!(d.len, 64);
        assert_eq!(a.area.bytes(d.addr + 14, 8), got.to_be_bytes());
        got += 1;
    }
    assert_eq!(got, 10);
}

/// The state machine of set-up and bind, with the kernel's numbers.
#[test]
fn bind_fails_as_in_the_kernel() {
    let taken = Xsk::open("null?queues=2", Shape::default()).expect("null");
    let open = |shape| Xsk::open("null?queues=2", shape).err();
    assert_eq!(open(Shape::default()), Some(Errno::EBUSY));
    assert_eq!(open(Shape { queue: 2, ..Shape::default() }), Some(Errno::EINVAL));
    assert_eq!(open(Shape { queue: 1, flags: 4, ..Shape::default() }), Some(Errno::EOPNOTSUPP));
    assert_eq!(open(Shape { queue: 1, flags: 6, ..Shape::default() }), Some(Errno::EINVAL));
    assert_eq!(open(Shape { queue: 1, flags: 1 << 15, ..Shape::default() }), Some(Errno::EINVAL));
    assert_eq!(open(Shape { queue: 1, flags: 1, ..Shape::default() }), Some(Errno::EINVAL));
    assert_eq!(open(Shape { queue: 1, ring: 1000, ..Shape::default() }), Some(Errno::EINVAL));
    assert_eq!(open(Shape { queue: 1, ..Shape::default() }), None);
    let fresh = common::provider().socket().expect("socket");
    assert_eq!(fresh.kick_tx(libc::MSG_DONTWAIT), Err(Errno::ENXIO));
    assert_eq!(fresh.readiness(), 0);
    fresh.close();
    drop(taken);
}
