//! Buffers that begin at a page and a bucket of their own.
//!
//! The cost of registering a buffer follows from the pages that it touches. A heap buffer may touch
//! one page more in another run, or share one with its neighbour. These buffers touch the same
//! number of pages in every run, so that the same command has the same figures in virtual time.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use hydrant::Pod;

/// The alignment of buffers, like that of segments. Buckets are usually no larger.
const ALIGN: usize = 2 << 20;

/// Elements that share no page with anything else.
pub struct Buffer<T> {
    /// The memory, with unused room before and after the elements.
    room: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Pod> Buffer<T> {
    /// Zeros.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub fn zeroed(len: usize) -> Self {
        // Room up to the first boundary, and from the last element to the next one.
        let spare = 2 * ALIGN.div_ceil(size_of::<T>().max(1));
        let room = vec![T::zeroed(); len + spare];
        let start = room.as_ptr().align_offset(ALIGN).min(spare);
        Self { room, start, len }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.room[self.start..][..self.len]
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.room[self.start..][..self.len]
    }
}

impl<T: Pod> From<&[T]> for Buffer<T> {
    fn from(elements: &[T]) -> Self {
        let mut buffer = Self::zeroed(elements.len());
        buffer.copy_from_slice(elements);
        buffer
    }
}

/// A copy has its own memory and alignment.
impl<T: Pod> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl<T: PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_boundary_and_shares_no_page() {
        for len in [0, 1, 511, 512, 100_000] {
            let mut buffer = Buffer::<f64>::zeroed(len);
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % ALIGN), (len, 0));
            assert!(buffer.iter().all(|element| *element == 0.0));
            buffer.fill(2.5);
            let copy = buffer.clone();
            assert_eq!(copy, buffer);
            assert_eq!((copy.len(), copy.as_ptr().addr() % ALIGN), (len, 0));
            let (from, to) = (buffer.as_ptr_range(), buffer.room.as_ptr_range());
            assert!(from.end.addr().next_multiple_of(4096) <= to.end.addr());
        }
    }
}
