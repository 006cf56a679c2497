//! What can stand in a ring: an address (`u64`) or a descriptor ([`Desc`]).
//!
//! An entry is moved as one or two 64-bit words, each with a relaxed atomic access: the other side may write the memory
//! at any moment, so a reference to an entry or a plain copy of it would be a data race.

use core::fmt;

use crate::uapi::Desc;

/// A line of 64 bytes that the owner of the ring reads and writes by itself: an entry without words.
#[derive(Clone, Copy, Debug)]
pub struct Line;

/// An entry of a ring; sealed.
pub trait Entry: Copy + fmt::Debug + Send + Sync + Words + 'static {}

impl Entry for u64 {}
impl Entry for Desc {}
impl Entry for Line {}

/// An entry as 64-bit words in memory order.
pub trait Words: Sized {
    /// 0 to 2.
    const WORDS: usize;
    /// The words; the second is ignored where `WORDS` is 1.
    fn to_words(self) -> [u64; 2];
    /// Back from the words.
    fn from_words(words: [u64; 2]) -> Self;
}

impl Words for u64 {
    const WORDS: usize = 1;

    #[inline]
    fn to_words(self) -> [u64; 2] {
        [self, 0]
    }

    #[inline]
    fn from_words(words: [u64; 2]) -> u64 {
        words[0]
    }
}

impl Words for Line {
    const WORDS: usize = 0;

    #[inline]
    fn to_words(self) -> [u64; 2] {
        [0; 2]
    }

    #[inline]
    fn from_words(_: [u64; 2]) -> Line {
        Line
    }
}

impl Words for Desc {
    const WORDS: usize = 2;

    #[inline]
    fn to_words(self) -> [u64; 2] {
        let (len, options) = (u64::from(self.len), u64::from(self.options));
        [self.addr, if cfg!(target_endian = "little") { len | options << 32 } else { len << 32 | options }]
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes a word apart into its halves")]
    fn from_words(words: [u64; 2]) -> Desc {
        let (low, high) = (words[1] as u32, (words[1] >> 32) as u32);
        let (len, options) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        Desc { addr: words[0], len, options }
    }
}

const _: () = assert!(size_of::<Desc>() == 8 * Desc::WORDS);
