//! The ring helpers of `xdp/xsk.h` as exported functions.
//!
//! C programs compile the header's inline text; other languages, and C programs that take a helper's address, call these.
//! Both act on the caller's ring structs, so both must do exactly the same. One thread at a time per ring side, as in the
//! header; nothing here is checked, logged, or can panic.
//!
//! The other side's index is loaded with Acquire (pairs with its Release) and the own index stored with Release (pairs with
//! its Acquire). The own index and the flags word are loaded Relaxed.

use core::ffi::{c_int, c_void};

use super::types::{__u32, __u64, xsk_ring_cons, xsk_ring_prod};
use crate::{
    sync::{AtomicU32, Ordering},
    uapi::{Desc, XDP_RING_NEED_WAKEUP, XSK_UNALIGNED_BUF_ADDR_MASK, XSK_UNALIGNED_BUF_OFFSET_SHIFT},
};

/// An index or flags word of a mapped ring.
///
/// # Safety
///
/// `word` points to a live, aligned ring word that every side accesses atomically.
unsafe fn shared<'a>(word: *mut __u32) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU32::from_ptr(word) }
}

/// The slot of entry `idx` in the ring at `base`.
fn slot<T>(base: *mut c_void, mask: __u32, idx: __u32) -> *mut T {
    // Index arithmetic without a claim that the slot is inside one allocation: the caller's struct decides.
    base.cast::<T>().wrapping_add((idx & mask) as usize)
}

fn nb_free(prod: &mut xsk_ring_prod, nb: __u32) -> __u32 {
    let known = prod.cached_cons.wrapping_sub(prod.cached_prod);
    if known >= nb {
        return known;
    }
    // SAFETY: the struct describes a mapped ring.
    let consumer = unsafe { shared(prod.consumer) };
    prod.cached_cons = consumer.load(Ordering::Acquire).wrapping_add(prod.size);
    prod.cached_cons.wrapping_sub(prod.cached_prod)
}

fn nb_avail(cons: &mut xsk_ring_cons, nb: __u32) -> __u32 {
    if cons.cached_prod == cons.cached_cons {
        // SAFETY: the struct describes a mapped ring.
        let producer = unsafe { shared(cons.producer) };
        cons.cached_prod = producer.load(Ordering::Acquire);
    }
    cons.cached_prod.wrapping_sub(cons.cached_cons).min(nb)
}

/// Publish `nb` more entries in the index word that this side owns.
///
/// # Safety
///
/// As [`shared`], and no other thread writes the word.
unsafe fn advance(own: *mut __u32, nb: __u32) {
    // SAFETY: the caller's promise.
    let own = unsafe { shared(own) };
    own.store(own.load(Ordering::Relaxed).wrapping_add(nb), Ordering::Release);
}

/// The slot of fill-ring entry `idx`.
///
/// # Safety
///
/// `fill` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__fill_addr(fill: *mut xsk_ring_prod, idx: __u32) -> *mut __u64 {
    // SAFETY: a live ring struct, by the caller's promise.
    let fill = unsafe { &*fill };
    slot(fill.ring, fill.mask, idx)
}

/// The slot of completion-ring entry `idx`.
///
/// # Safety
///
/// `comp` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_cons__comp_addr(comp: *const xsk_ring_cons, idx: __u32) -> *const __u64 {
    // SAFETY: a live ring struct, by the caller's promise.
    let comp = unsafe { &*comp };
    slot(comp.ring, comp.mask, idx)
}

/// The slot of TX-ring entry `idx`.
///
/// # Safety
///
/// `tx` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__tx_desc(tx: *mut xsk_ring_prod, idx: __u32) -> *mut Desc {
    // SAFETY: a live ring struct, by the caller's promise.
    let tx = unsafe { &*tx };
    slot(tx.ring, tx.mask, idx)
}

/// The slot of RX-ring entry `idx`.
///
/// # Safety
///
/// `rx` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_cons__rx_desc(rx: *const xsk_ring_cons, idx: __u32) -> *const Desc {
    // SAFETY: a live ring struct, by the caller's promise.
    let rx = unsafe { &*rx };
    slot(rx.ring, rx.mask, idx)
}

/// Whether the other side wants a system call: 0 or 1.
///
/// # Safety
///
/// `prod` is a live ring struct of a mapped ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__needs_wakeup(prod: *const xsk_ring_prod) -> c_int {
    // SAFETY: a live ring struct, by the caller's promise.
    let prod = unsafe { &*prod };
    // SAFETY: the struct describes a mapped ring.
    let flags = unsafe { shared(prod.flags) };
    c_int::from(flags.load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0)
}

/// Entries that can be reserved; looks at the shared index only if fewer than `nb` are known of.
///
/// # Safety
///
/// `prod` is a live ring struct of a mapped ring that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_prod_nb_free(prod: *mut xsk_ring_prod, nb: __u32) -> __u32 {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    nb_free(unsafe { &mut *prod }, nb)
}

/// Entries that can be peeked at, at most `nb`; looks at the shared index only if none is known of.
///
/// # Safety
///
/// `cons` is a live ring struct of a mapped ring that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_cons_nb_avail(cons: *mut xsk_ring_cons, nb: __u32) -> __u32 {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    nb_avail(unsafe { &mut *cons }, nb)
}

/// Reserve exactly `nb` entries or none. 0 entries: returns 0 and writes `idx`.
///
/// # Safety
///
/// `prod` is a live ring struct of a mapped ring that no other thread uses meanwhile; `idx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__reserve(prod: *mut xsk_ring_prod, nb: __u32, idx: *mut __u32) -> __u32 {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    let prod = unsafe { &mut *prod };
    if nb_free(prod, nb) < nb {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { idx.write(prod.cached_prod) };
    prod.cached_prod = prod.cached_prod.wrapping_add(nb);
    nb
}

/// Give back the last `nb` entries that were reserved and not submitted.
///
/// # Safety
///
/// `prod` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__cancel(prod: *mut xsk_ring_prod, nb: __u32) {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    let prod = unsafe { &mut *prod };
    prod.cached_prod = prod.cached_prod.wrapping_sub(nb);
}

/// Hand over the first `nb` reserved entries.
///
/// # Safety
///
/// `prod` is a live ring struct of a mapped ring that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_prod__submit(prod: *mut xsk_ring_prod, nb: __u32) {
    // SAFETY: a live ring struct, by the caller's promise.
    let prod = unsafe { &*prod };
    // SAFETY: a mapped ring, whose producer index is the program's.
    unsafe { advance(prod.producer, nb) };
}

/// Take a look at up to `nb` entries; `idx` is written if there are any.
///
/// # Safety
///
/// `cons` is a live ring struct of a mapped ring that no other thread uses meanwhile; `idx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_cons__peek(cons: *mut xsk_ring_cons, nb: __u32, idx: *mut __u32) -> __u32 {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    let cons = unsafe { &mut *cons };
    let entries = nb_avail(cons, nb);
    if entries > 0 {
        // SAFETY: the caller's promise.
        unsafe { idx.write(cons.cached_cons) };
        cons.cached_cons = cons.cached_cons.wrapping_add(entries);
    }
    entries
}

/// Put back the last `nb` entries that were peeked at and not released.
///
/// # Safety
///
/// `cons` is a live ring struct that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_cons__cancel(cons: *mut xsk_ring_cons, nb: __u32) {
    // SAFETY: a live ring struct that is this thread's alone, by the caller's promise.
    let cons = unsafe { &mut *cons };
    cons.cached_cons = cons.cached_cons.wrapping_sub(nb);
}

/// Hand back the first `nb` entries that were peeked at.
///
/// # Safety
///
/// `cons` is a live ring struct of a mapped ring that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xsk_ring_cons__release(cons: *mut xsk_ring_cons, nb: __u32) {
    // SAFETY: a live ring struct, by the caller's promise.
    let cons = unsafe { &*cons };
    // SAFETY: a mapped ring, whose consumer index is the program's.
    unsafe { advance(cons.consumer, nb) };
}

/// The bytes at address `addr` of an area.
#[unsafe(no_mangle)]
pub extern "C" fn xsk_umem__get_data(umem_area: *mut c_void, addr: __u64) -> *mut c_void {
    #[expect(clippy::cast_possible_truncation, reason = "as C's pointer arithmetic: a 32-bit area has 32-bit offsets")]
    let offset = addr as usize;
    umem_area.wrapping_byte_add(offset)
}

/// Unaligned chunks: the address of the chunk.
#[unsafe(no_mangle)]
pub extern "C" fn xsk_umem__extract_addr(addr: __u64) -> __u64 {
    addr & XSK_UNALIGNED_BUF_ADDR_MASK
}

/// Unaligned chunks: the offset of the data from the chunk.
#[unsafe(no_mangle)]
pub extern "C" fn xsk_umem__extract_offset(addr: __u64) -> __u64 {
    addr >> XSK_UNALIGNED_BUF_OFFSET_SHIFT
}

/// Unaligned chunks: the address of the data.
#[unsafe(no_mangle)]
pub extern "C" fn xsk_umem__add_offset_to_addr(addr: __u64) -> __u64 {
    // Below 2^49: no overflow.
    xsk_umem__extract_addr(addr) + xsk_umem__extract_offset(addr)
}

#[cfg(test)]
mod tests {
    //! The edge cases are what programs compiled with libxdp's header see; `c-tests/header/inline.c` runs the same ones
    //! through the inline functions of this header and of libxdp's.

    use core::ptr::null_mut;

    use super::*;

    /// A ring as the kernel maps it, and the program's two sides of it.
    struct Ring {
        words: Box<[AtomicU32; 3]>,
        slots: Box<[u64]>,
        size: u32,
    }

    impl Ring {
        fn new(size: u32, start: u32) -> Ring {
            let words = Box::new([AtomicU32::new(start), AtomicU32::new(start), AtomicU32::new(0)]);
            Ring { words, slots: vec![0; 2 * size as usize].into_boxed_slice(), size }
        }

        fn prod(&mut self) -> xsk_ring_prod {
            let start = self.words[0].load(Ordering::Relaxed);
            xsk_ring_prod {
                cached_prod: start,
                cached_cons: self.consumer().wrapping_add(self.size),
                mask: self.size - 1,
                size: self.size,
                producer: self.words[0].as_ptr(),
                consumer: self.words[1].as_ptr(),
                ring: self.slots.as_mut_ptr().cast(),
                flags: self.words[2].as_ptr(),
            }
        }

        fn cons(&mut self) -> xsk_ring_cons {
            xsk_ring_cons {
                cached_prod: self.producer(),
                cached_cons: self.consumer(),
                mask: self.size - 1,
                size: self.size,
                producer: self.words[0].as_ptr(),
                consumer: self.words[1].as_ptr(),
                ring: self.slots.as_mut_ptr().cast(),
                flags: self.words[2].as_ptr(),
            }
        }

        fn producer(&self) -> u32 {
            self.words[0].load(Ordering::Relaxed)
        }

        fn consumer(&self) -> u32 {
            self.words[1].load(Ordering::Relaxed)
        }

        fn take(&self, nb: u32) {
            self.words[1].store(self.consumer().wrapping_add(nb), Ordering::Relaxed);
        }

        fn give(&self, nb: u32) {
            self.words[0].store(self.producer().wrapping_add(nb), Ordering::Relaxed);
        }
    }

    const UNTOUCHED: u32 = 0xdead_beef;

    fn reserve(prod: &mut xsk_ring_prod, nb: u32) -> (u32, u32) {
        let mut idx = UNTOUCHED;
        // SAFETY: a live ring of this thread, as in every call below.
        (unsafe { xsk_ring_prod__reserve(prod, nb, &raw mut idx) }, idx)
    }

    fn peek(cons: &mut xsk_ring_cons, nb: u32) -> (u32, u32) {
        let mut idx = UNTOUCHED;
        // SAFETY: as above.
        (unsafe { xsk_ring_cons__peek(cons, nb, &raw mut idx) }, idx)
    }

    fn submit(prod: &mut xsk_ring_prod, nb: u32) {
        // SAFETY: as above.
        unsafe { xsk_ring_prod__submit(prod, nb) }
    }

    #[test]
    fn reserve_is_all_or_nothing() {
        let mut ring = Ring::new(8, 0);
        let mut prod = ring.prod();
        assert_eq!(reserve(&mut prod, 6), (6, 0));
        assert_eq!(reserve(&mut prod, 3), (0, UNTOUCHED), "room for 2 only, index left alone");
        assert_eq!(reserve(&mut prod, 2), (2, 6));
        assert_eq!(reserve(&mut prod, 1), (0, UNTOUCHED));
        assert_eq!(reserve(&mut prod, 9), (0, UNTOUCHED), "more than the ring has");
        assert_eq!(ring.producer(), 0, "reserving publishes nothing");
    }

    #[test]
    fn reserving_nothing_succeeds_as_zero_and_writes_the_index() {
        let mut ring = Ring::new(8, 0);
        let mut prod = ring.prod();
        assert_eq!(reserve(&mut prod, 8), (8, 0));
        submit(&mut prod, 8);
        ring.take(8);
        assert_eq!(reserve(&mut prod, 0), (0, 8));
        assert_eq!(prod.cached_cons, 8, "asking for nothing does not look at the shared index");
    }

    #[test]
    fn free_count_may_be_stale_but_is_refreshed_when_it_does_not_suffice() {
        let mut ring = Ring::new(8, 0);
        let mut prod = ring.prod();
        assert_eq!(reserve(&mut prod, 5), (5, 0));
        submit(&mut prod, 5);
        ring.take(4);
        // SAFETY: as above.
        assert_eq!(unsafe { xsk_prod_nb_free(&raw mut prod, 3) }, 3, "3 known of: not refreshed");
        // SAFETY: as above.
        assert_eq!(unsafe { xsk_prod_nb_free(&raw mut prod, 4) }, 7, "refreshed");
        // SAFETY: as above.
        assert_eq!(unsafe { xsk_prod_nb_free(&raw mut prod, 0) }, 7);
    }

    #[test]
    fn cancelled_slots_are_reserved_again() {
        // C08: 64 reserved, 13 given back, 51 submitted, again and again.
        let mut ring = Ring::new(64, u32::MAX - 200);
        let mut prod = ring.prod();
        for round in 0..100 {
            let (got, idx) = reserve(&mut prod, 64);
            assert_eq!(got, 64, "round {round}");
            assert_eq!(idx, ring.producer());
            // SAFETY: as above.
            unsafe { xsk_ring_prod__cancel(&raw mut prod, 13) };
            submit(&mut prod, 51);
            ring.take(51);
        }
        assert_eq!(ring.producer(), (u32::MAX - 200).wrapping_add(5100));
        assert_eq!(prod.cached_prod, ring.producer());
    }

    #[test]
    fn submit_is_independent_of_reserve() {
        let mut ring = Ring::new(8, 0);
        let mut prod = ring.prod();
        submit(&mut prod, 0);
        assert_eq!(ring.producer(), 0);
        submit(&mut prod, 3);
        assert_eq!((ring.producer(), prod.cached_prod), (3, 0));
    }

    #[test]
    fn producer_indices_and_slots_wrap() {
        let mut ring = Ring::new(8, 0xffff_fffd);
        let mut prod = ring.prod();
        assert_eq!(reserve(&mut prod, 6), (6, 0xffff_fffd));
        let base = prod.ring.cast::<u64>();
        for (i, expected) in [5_usize, 6, 7, 0, 1, 2].into_iter().enumerate() {
            let idx = 0xffff_fffd_u32.wrapping_add(u32::try_from(i).unwrap());
            // SAFETY: as above.
            assert_eq!(unsafe { xsk_ring_prod__fill_addr(&raw mut prod, idx) }, base.wrapping_add(expected));
            // SAFETY: as above.
            let desc = unsafe { xsk_ring_prod__tx_desc(&raw mut prod, idx) };
            assert_eq!(desc.cast::<u64>(), base.wrapping_add(2 * expected));
        }
        submit(&mut prod, 6);
        assert_eq!(ring.producer(), 3);
        ring.take(6);
        assert_eq!(reserve(&mut prod, 8), (8, 3));
    }

    #[test]
    fn peek_uses_up_what_it_knows_before_it_looks_again() {
        let mut ring = Ring::new(8, 0);
        let mut cons = ring.cons();
        assert_eq!(peek(&mut cons, 4), (0, UNTOUCHED));
        ring.give(3);
        assert_eq!(peek(&mut cons, 2), (2, 0));
        ring.give(4);
        assert_eq!(peek(&mut cons, 8), (1, 2), "one known of, although five are there");
        assert_eq!(peek(&mut cons, 8), (4, 3));
        // SAFETY: as above.
        unsafe { xsk_ring_cons__release(&raw mut cons, 7) };
        assert_eq!(ring.consumer(), 7);
    }

    #[test]
    fn peeking_at_nothing_may_look_but_takes_nothing() {
        let mut ring = Ring::new(8, 0);
        let mut cons = ring.cons();
        ring.give(5);
        assert_eq!(peek(&mut cons, 0), (0, UNTOUCHED));
        assert_eq!((cons.cached_prod, cons.cached_cons), (5, 0));
        // SAFETY: as above.
        assert_eq!(unsafe { xsk_cons_nb_avail(&raw mut cons, u32::MAX) }, 5, "as many as there are for a huge wish");
    }

    #[test]
    fn consumer_wraps_and_cancel_gives_the_entries_again() {
        let mut ring = Ring::new(8, 0xffff_fffe);
        let mut cons = ring.cons();
        ring.give(5);
        assert_eq!(peek(&mut cons, 8), (5, 0xffff_fffe));
        // SAFETY: as above.
        unsafe { xsk_ring_cons__cancel(&raw mut cons, 4) };
        assert_eq!(peek(&mut cons, 8), (4, 0xffff_ffff));
        let base = cons.ring.cast::<u64>().cast_const();
        for (idx, expected) in [(0xffff_fffe_u32, 6_usize), (0xffff_ffff, 7), (0, 0), (1, 1), (2, 2)] {
            // SAFETY: as above.
            assert_eq!(unsafe { xsk_ring_cons__comp_addr(&raw const cons, idx) }, base.wrapping_add(expected));
            // SAFETY: as above.
            let desc = unsafe { xsk_ring_cons__rx_desc(&raw const cons, idx) };
            assert_eq!(desc.cast::<u64>(), base.wrapping_add(2 * expected));
        }
        // SAFETY: as above.
        unsafe { xsk_ring_cons__release(&raw mut cons, 5) };
        assert_eq!(ring.consumer(), 3);
    }

    #[test]
    fn wakeup_is_bit_0_alone() {
        let mut ring = Ring::new(8, 0);
        let prod = ring.prod();
        for (flags, expected) in [(0, 0), (1, 1), (2, 0), (u32::MAX, 1), (u32::MAX - 1, 0)] {
            ring.words[2].store(flags, Ordering::Relaxed);
            // SAFETY: as above.
            assert_eq!(unsafe { xsk_ring_prod__needs_wakeup(&raw const prod) }, expected, "flags {flags:#x}");
        }
    }

    #[test]
    fn unaligned_addresses_split_at_bit_48() {
        let addr = 0x0123_4567_89ab_cdef;
        assert_eq!(xsk_umem__extract_addr(addr), 0x4567_89ab_cdef);
        assert_eq!(xsk_umem__extract_offset(addr), 0x0123);
        assert_eq!(xsk_umem__add_offset_to_addr(addr), 0x4567_89ab_cdef + 0x0123);
        assert_eq!(xsk_umem__add_offset_to_addr(u64::MAX), 0x1_0000_0000_fffe);
        assert_eq!(xsk_umem__get_data(null_mut(), 4096).addr(), 4096);
    }
}
