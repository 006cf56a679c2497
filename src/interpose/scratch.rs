//! Memory for the calls that sleep: on the stack up to `N` elements, else fresh pages.
//!
//! No allocator is called, since `poll` and `select` may be called from a signal handler, and nothing is released by a
//! destructor, since none may run in a frame that a cancelled thread leaves: the owner calls [`Scratch::release`].

use core::{
    mem::{MaybeUninit, size_of},
    ptr::NonNull,
    slice,
};

use crate::{errno::Result, sys};

/// A list of plain values.
pub(super) struct Scratch<T: Copy, const N: usize> {
    inline: [MaybeUninit<T>; N],
    pages: Option<NonNull<T>>,
    room: usize,
    len: usize,
}

impl<T: Copy, const N: usize> Scratch<T, N> {
    /// An empty list with room for `N`.
    pub(super) const fn new() -> Self {
        Scratch { inline: [MaybeUninit::uninit(); N], pages: None, room: N, len: 0 }
    }

    fn bytes(room: usize) -> Option<usize> {
        room.checked_mul(size_of::<T>())
    }

    fn start(&self) -> *const T {
        self.pages.map_or(self.inline.as_ptr().cast(), |p| p.as_ptr().cast_const())
    }

    fn start_mut(&mut self) -> *mut T {
        self.pages.map_or(self.inline.as_mut_ptr().cast(), NonNull::as_ptr)
    }

    /// Add a value. ENOMEM.
    pub(super) fn push(&mut self, value: T) -> Result<()> {
        if self.len == self.room {
            self.grow()?;
        }
        let len = self.len;
        // SAFETY: len < room.
        let at = unsafe { self.start_mut().add(len) };
        // SAFETY: inside the list's memory, which is unique to it.
        unsafe { at.write(value) };
        self.len += 1;
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> Result<()> {
        let room = self.room.checked_mul(2).ok_or(crate::errno::Errno::ENOMEM)?.max(4096 / size_of::<T>());
        let pages = sys::map_private(Self::bytes(room).ok_or(crate::errno::Errno::ENOMEM)?)?.cast::<T>();
        // SAFETY: the old memory holds `len` values, the new one has room for more, and they are distinct.
        unsafe { pages.as_ptr().copy_from_nonoverlapping(self.start(), self.len) };
        let len = self.len;
        self.release();
        self.len = len;
        self.room = room;
        self.pages = Some(pages);
        Ok(())
    }

    /// Forget the values and give back what was mapped.
    pub(super) fn release(&mut self) {
        if let (Some(pages), Some(bytes)) = (self.pages.take(), Self::bytes(self.room)) {
            sys::unmap(pages.cast(), bytes);
        }
        self.len = 0;
        self.room = N;
    }

    /// The values.
    pub(super) fn list(&self) -> &[T] {
        // SAFETY: the first `len` elements were written by `push`.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }

    /// The values.
    pub(super) fn list_mut(&mut self) -> &mut [T] {
        let len = self.len;
        // SAFETY: as above, and `self` is borrowed uniquely.
        unsafe { slice::from_raw_parts_mut(self.start_mut(), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_move_to_pages_and_release_empties() {
        let mut list = Scratch::<u64, 4>::new();
        for value in 0..10_000 {
            list.push(value).expect("memory");
        }
        assert!(list.list().iter().copied().eq(0..10_000));
        list.list_mut()[9_999] = 7;
        assert_eq!(list.list()[9_999], 7);
        list.release();
        assert!(list.list().is_empty());
        list.push(3).expect("memory");
        assert_eq!(list.list(), [3]);
    }
}
