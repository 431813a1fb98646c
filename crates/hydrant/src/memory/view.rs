//! Direct access to memory that peers also reach.

use std::{marker::PhantomData, sync::LazyLock};

use bytemuck::Pod;
use hydrant_conduit::Window;

use super::{Block, check_range};
use crate::{Error, Rank, Result, progress::Progress};

/// A window of no bytes.
static EMPTY: LazyLock<Window> = LazyLock::new(|| Window::private(0));

/// Elements of this rank's part, or of a part that is mapped here, for reads and writes while peers
/// do the same.
///
/// A read that races with a write of the same element may return a mixture of old and new bytes.
/// An aligned word of 4 or 8 bytes is never mixed. Barriers, signals and messages order accesses.
/// barriers, signals and messages.
pub struct View<'a, T> {
    window: &'a Window,
    /// The window for loads. It is empty in virtual time, so that loads take the slow path, which
    /// lets time pass.
    loads: &'a Window,
    /// The first element in the window.
    start: usize,
    len: usize,
    owner: ViewOwner<'a>,
    _elements: PhantomData<T>,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

/// The owner of the memory in view.
#[derive(Clone, Copy)]
pub(super) enum ViewOwner<'a> {
    /// A rank's part of an allocation.
    Part(&'a Block, Rank),
    /// An exposed buffer of this rank.
    Loan(&'a Progress),
}

impl<'a, T: Pod> View<'a, T> {
    pub(super) fn new(window: &'a Window, len: usize, owner: ViewOwner<'a>) -> Self {
        let simulated = match owner {
            ViewOwner::Part(block, _) => block.is_simulated(),
            ViewOwner::Loan(progress) => progress.virtual_time,
        };
        Self {
            window,
            loads: if simulated { &EMPTY } else { window },
            start: 0,
            len,
            owner,
            _elements: PhantomData,
        }
    }

    /// Returns the number of elements in view.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements in view.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first element, for callers that answer for the accesses
    /// themselves. The owner and all other ranks may read and write there at any time, and a free
    /// takes the memory away.
    #[inline]
    pub fn as_ptr(&self) -> *mut T {
        (self.window.as_ptr().cast::<T>()).wrapping_add(self.start)
    }

    /// Returns a view of some of the elements, counted from zero.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub fn part(&self, range: std::ops::Range<usize>) -> Result<Self> {
        let len = range.end.checked_sub(range.start).unwrap_or(usize::MAX);
        check_range(range.start, len, self.len)?;
        let start = self.start + range.start;
        Ok(Self {
            start,
            len,
            ..*self
        })
    }

    /// Returns a view of each row of a matrix, whose rows have `columns` elements and follow each
    /// other.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(1, |job| {
    /// let grid = job.alloc::<f64>(12)?;
    /// for (number, row) in grid.local()?.rows(4)?.enumerate() {
    ///     row.part(1..3)?.fill(0..2, number as f64)?;
    /// }
    /// assert_eq!(grid.local()?.to_vec()[4..8], [0.0, 1.0, 1.0, 0.0]);
    /// # Ok(())
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if the elements are no whole number of rows.
    pub fn rows(&self, columns: usize) -> Result<impl ExactSizeIterator<Item = Self> + use<'a, T>> {
        if columns == 0 && self.len > 0 || !self.len.is_multiple_of(columns.max(1)) {
            return Err(Error::LengthMismatch {
                what: "elements in view against elements in a row",
                left: self.len,
                right: columns,
            });
        }
        let all = *self;
        Ok((0..self.len / columns.max(1)).map(move |row| Self {
            start: all.start + row * columns,
            len: columns,
            ..all
        }))
    }

    /// Loads one element.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub fn load(&self, index: usize) -> Result<T> {
        check_range(index, 1, self.len)?;
        match self.loads.load((self.start + index) * size_of::<T>()) {
            Ok(element) => Ok(element),
            Err(_) => self.load_slowly(index),
        }
    }

    #[cold]
    fn load_slowly(&self, index: usize) -> Result<T> {
        self.poll_memory();
        (self.window.load((self.start + index) * size_of::<T>()))
            .map_err(|_| self.outside(index, 1))
    }

    /// Stores one element.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub fn store(&self, index: usize, value: T) -> Result<()> {
        self.write(index, std::slice::from_ref(&value))
    }

    /// Copies the elements from `index` on into `into`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Overlap`].
    #[inline]
    pub fn read(&self, index: usize, into: &mut [T]) -> Result<()> {
        check_range(index, into.len(), self.len)?;
        let offset = (self.start + index) * size_of::<T>();
        let bytes = bytemuck::cast_slice_mut(into);
        if self.window.overlaps(offset, bytes.len(), bytes) {
            return Err(overlap(bytes));
        }
        self.poll_memory();
        (self.window.read(offset, bytes)).map_err(|_| self.outside(index, into.len()))
    }

    /// Copies `from` to the elements from `index` on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Overlap`].
    #[inline]
    pub fn write(&self, index: usize, from: &[T]) -> Result<()> {
        check_range(index, from.len(), self.len)?;
        let offset = (self.start + index) * size_of::<T>();
        let bytes = bytemuck::cast_slice(from);
        if self.window.overlaps(offset, bytes.len(), bytes) {
            return Err(overlap(bytes));
        }
        (self.window.write(offset, bytes)).map_err(|_| self.outside(index, from.len()))?;
        self.wake_watchers();
        Ok(())
    }

    /// Returns a copy of all elements.
    pub fn to_vec(&self) -> Vec<T> {
        let mut elements = vec![T::zeroed(); self.len];
        let bytes = bytemuck::cast_slice_mut(&mut elements);
        self.poll_memory();
        // In bounds, because the window holds them.
        let _ = self.window.read(self.start * size_of::<T>(), bytes);
        elements
    }

    /// Sets the elements in `range` to `value`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn fill(&self, range: std::ops::Range<usize>, value: T) -> Result<()> {
        let count = range.end.checked_sub(range.start).unwrap_or(usize::MAX);
        check_range(range.start, count, self.len)?;
        fill(self.window, self.start + range.start, count, &value)
            .map_err(|()| self.outside(range.start, count))?;
        self.wake_watchers();
        Ok(())
    }

    /// Returns the window, and the index of the view's first element in it.
    pub(crate) fn place(&self) -> (&'a Window, usize) {
        (self.window, self.start)
    }

    /// Called before the memory is read.
    #[inline]
    pub(crate) fn poll_memory(&self) {
        match self.owner {
            ViewOwner::Part(block, _) if block.is_simulated() => block.poll_memory(),
            ViewOwner::Part(..) => {}
            ViewOwner::Loan(progress) => progress.poll_memory(),
        }
    }

    /// Wakes the threads that wait for this memory to change.
    #[inline]
    pub(crate) fn wake_watchers(&self) {
        if let ViewOwner::Part(block, rank) = self.owner {
            block.wake_watchers(rank);
        }
    }

    #[cold]
    pub(crate) fn outside(&self, index: usize, count: usize) -> Error {
        Error::OutOfBounds {
            index,
            count,
            len: self.len,
        }
    }
}

#[cold]
pub(crate) fn overlap(bytes: &[u8]) -> Error {
    Error::Overlap {
        addr: bytes.as_ptr().addr(),
        len: bytes.len(),
    }
}

/// Sets `count` elements at `index` of a window to `value`.
pub(crate) fn fill<T: Pod>(
    window: &Window,
    index: usize,
    count: usize,
    value: &T,
) -> std::result::Result<(), ()> {
    let bytes = bytemuck::bytes_of(value);
    let start = index * size_of::<T>();
    if bytes.iter().all(|byte| *byte == bytes[0]) {
        return window
            .fill(start, count * bytes.len(), bytes[0])
            .map_err(|_| ());
    }
    // A pattern is repeated to about a page, and written in such pieces.
    let elements = (4096 / bytes.len()).clamp(1, count.max(1));
    let pattern = bytes.repeat(elements);
    let mut done = 0;
    while done < count {
        let now = elements.min(count - done);
        let at = start + done * bytes.len();
        (window.write(at, &pattern[..now * bytes.len()])).map_err(|_| ())?;
        done += now;
    }
    Ok(())
}
