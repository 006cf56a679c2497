//! Protects programs whose UMEM is heap memory: the library frees memory of its own while it keeps its list of UMEMs, and
//! that `free` is the interposed one. It must neither wait for itself nor take its own blocks for a UMEM.
#![cfg(feature = "heap-guard")]

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use slipring::{
    engine,
    uapi::{Socket, UmemReg},
};
const PAGE: usize = 4096;

/// A socket with a UMEM of one page in the heap, and that block.
fn socket() -> (Arc<dyn Socket>, Vec<u8>) {
    let mut block = vec![0u8; 5 * PAGE];
    let start = block.as_mut_ptr().addr().next_multiple_of(PAGE) as u64;
    let socket = engine::provider().socket().expect("engine sockets need nothing");
    let reg = UmemReg { addr: start, len: 4 * PAGE as u64, chunk_size: 2048, ..UmemReg::default() };
    socket.register_umem(&reg).expect("mapped memory");
    (socket, block)
}

/// Run `body`; a deadlock fails instead of hanging. The limit is far beyond what any machine needs.
fn ends(what: &str, body: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    assert!(wait.recv_timeout(Duration::from_secs(60)).is_ok(), "{what}: does not end");
}

/// A program frees its UMEM, keeps the socket, and goes on: malloc hands the same memory to the library.
#[test]
fn memory_of_a_umem_that_was_freed_may_be_the_librarys_next() {
    ends("UMEMs freed under living sockets", || {
        let mut living = Vec::new();
        for _ in 0..200 {
            let (socket, block) = socket();
            drop(block);
            living.push(socket);
        }
        for socket in living {
            socket.close();
        }
    });
}

/// With more UMEMs than places in the table of ranges, the last place covers blocks in between that are no UMEM.
#[test]
fn many_umems_among_other_blocks() {
    ends("a hundred UMEMs", || {
        let living: Vec<_> = (0..100).map(|_| socket()).collect();
        for (socket, block) in living {
            socket.close();
            drop(block);
        }
    });
}
