//! Memory that every rank owns a part of.

use std::{marker::PhantomData, sync::Arc};

use bytemuck::Pod;

use super::{Block, GlobalPtr, View, check_range, view::Owner};
use crate::{Error, Rank, Result};

/// A handle to symmetric memory: `len` elements on every rank. Made by
/// [`Job::alloc`](crate::Job::alloc).
///
/// Clones name the same memory. Dropping a handle frees nothing: freeing is collective,
/// [`Job::free`](crate::Job::free); what is not freed lives as long as the job.
///
/// The operations are the extended API of GASNet (Firehose §2): puts and gets
/// ([`put`](Self::put)), with [signals](Self::put_signal), of [sections](Self::put_section),
/// [strided](Self::put_strided) and [indexed](Self::put_indexed), and
/// [atomics](Self::fetch_add); and puts and gets by the [ranks of a team](Self::by_team).
pub struct Symmetric<T> {
    block: Arc<Block>,
    len: usize,
    _elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Symmetric<T> {
    fn clone(&self) -> Self {
        Self {
            block: Arc::clone(&self.block),
            len: self.len,
            _elements: PhantomData,
        }
    }
}

impl<T> std::fmt::Debug for Symmetric<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = std::any::type_name::<T>();
        write!(
            f,
            "Symmetric<{what}>(allocation {}, {} elements)",
            self.block.number, self.len
        )
    }
}

impl<T: Pod> Symmetric<T> {
    pub(crate) fn new(block: Arc<Block>, len: usize) -> Self {
        Self {
            block,
            len,
            _elements: PhantomData,
        }
    }

    /// Where the first element of `rank` is mapped in this process, if it is: OpenSHMEM's `shmem_ptr`.
    /// Whoever goes there goes past all checks: the memory must not be [freed](crate::Job::free)
    /// meanwhile, others may change it at any time, and who waits for it is not notified.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::Freed`], [`Error::JobOver`].
    pub fn as_ptr(&self, rank: Rank) -> Result<Option<*mut T>> {
        let part = self.block.part(rank)?;
        Ok((part.mapped.as_ref()).map(|mapped| mapped.window.as_ptr().cast()))
    }

    /// The same memory, as elements of another type; as many as fit. Both handles name it until it is
    /// [freed](crate::Job::free).
    ///
    /// # Panics
    /// If `U` has no size.
    pub fn cast<U: Pod>(&self) -> Symmetric<U> {
        assert!(size_of::<U>() > 0, "elements without a size");
        Symmetric::new(Arc::clone(&self.block), self.block.len / size_of::<U>())
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    pub(crate) fn shared_block(&self) -> &Arc<Block> {
        &self.block
    }

    pub(crate) fn into_block(self) -> Arc<Block> {
        self.block
    }

    /// Elements that each rank owns.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether each rank owns none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte offset of `count` elements at `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub(crate) fn offset(&self, index: usize, count: usize) -> Result<usize> {
        check_range(index, count, self.len)?;
        Ok(index * size_of::<T>())
    }

    /// This rank's part.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::JobOver`].
    pub fn local(&self) -> Result<View<'_, T>> {
        self.on(self.block.rank)?.ok_or(Error::JobOver)
    }

    /// The part of `rank`, if it can be reached directly: `None` on another host.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::Freed`], [`Error::JobOver`].
    pub fn on(&self, rank: Rank) -> Result<Option<View<'_, T>>> {
        let part = self.block.part(rank)?;
        Ok((part.mapped.as_ref())
            .map(|mapped| View::new(&mapped.window, self.len, Owner::Part(&self.block, rank))))
    }

    /// A pointer to element `index` of `rank`, which any rank of the job may use.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::OutOfBounds`], [`Error::Freed`],
    /// [`Error::JobOver`].
    pub fn pointer(&self, rank: Rank, index: usize) -> Result<GlobalPtr<T>> {
        self.block.part(rank)?;
        // One past the end is a place to count back from, as with slices.
        let offset = self.offset(index, 0)?;
        Ok(GlobalPtr::symmetric(&self.block, rank, offset as u64))
    }

    /// This rank's part as a slice.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::JobOver`]; [`Error::Misaligned`] for elements aligned to more
    /// than the segments are, which is a page at least: only the place in the segment is chosen
    /// for the type.
    ///
    /// # Safety
    /// While the slice lives:
    /// 1. No rank writes to this part.
    /// 2. It is not freed.
    #[allow(unsafe_code)] // a promise that only the caller can make
    pub unsafe fn local_slice(&self) -> Result<&[T]> {
        let at = self.local_start()?;
        // SAFETY: mapped as long as `self.block`, aligned, as was checked, and any bytes are a
        // `Pod`; nobody writes meanwhile, says the caller.
        Ok(unsafe { std::slice::from_raw_parts(at, self.len) })
    }

    /// This rank's part as a slice to write to.
    ///
    /// # Errors
    /// As [`local_slice`](Self::local_slice).
    ///
    /// # Safety
    /// While the slice lives:
    /// 1. Nobody else reads or writes this part, other threads and handles of this rank included.
    /// 2. It is not freed.
    #[allow(unsafe_code, clippy::mut_from_ref)] // a promise that only the caller can make
    pub unsafe fn local_slice_mut(&self) -> Result<&mut [T]> {
        let at = self.local_start()?;
        // SAFETY: as in `local_slice`; nobody else touches it, says the caller.
        Ok(unsafe { std::slice::from_raw_parts_mut(at, self.len) })
    }

    pub(crate) fn local_start(&self) -> Result<*mut T> {
        let part = self.block.part(self.block.rank)?;
        let mapped = part.mapped.as_ref().ok_or(Error::JobOver)?;
        let start: *mut T = mapped.window.as_ptr().cast();
        if !start.is_aligned() {
            return Err(Error::Misaligned {
                offset: start.addr() as u64,
                align: align_of::<T>(),
                what: std::any::type_name::<T>(),
            });
        }
        Ok(start)
    }
}
