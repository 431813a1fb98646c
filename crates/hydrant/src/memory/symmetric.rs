//! Memory of which every rank owns a part.

use std::{marker::PhantomData, sync::Arc};

use bytemuck::Pod;

use super::{Block, GlobalPtr, View, check_range, view::ViewOwner};
use crate::{Error, Rank, Result};

/// A handle to symmetric memory: `len` elements on every rank. Made by
/// [`Job::alloc`](crate::Job::alloc).
///
/// Clones name the same memory. The drop of a handle frees nothing: [`Job::free`](crate::Job::free)
/// is collective. Memory that is not freed lives as long as the job.
///
/// The operations are the extended API of GASNet (Firehose §2):
///
/// - puts and gets ([`put`](Self::put)), with [signals](Self::put_signal), of
///   [sections](Self::put_section), [strided](Self::put_strided) and [indexed](Self::put_indexed);
/// - [atomics](Self::fetch_add);
/// - puts and gets by the [ranks of a team](Self::by_team).
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

    /// Returns the address of the first element of `rank` in this process, if it is mapped here:
    /// OpenSHMEM's `shmem_ptr`. Accesses by this address bypass all checks. The memory must not be
    /// [freed](crate::Job::free) meanwhile, others may change it at any time, and a store wakes no
    /// waiter.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::Freed`], [`Error::JobOver`].
    pub fn as_ptr(&self, rank: Rank) -> Result<Option<*mut T>> {
        let part = self.block.part(rank)?;
        Ok((part.mapped.as_ref()).map(|mapped| mapped.window.as_ptr().cast()))
    }

    /// Returns a handle to the same memory as elements of another type, as many as fit. Both
    /// handles name the memory until it is [freed](crate::Job::free).
    ///
    /// # Panics
    /// If `U` is zero-sized.
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

    /// Returns the number of elements that each rank owns.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether each rank owns no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the byte offset of `count` elements at `index`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[inline]
    pub(crate) fn offset(&self, index: usize, count: usize) -> Result<usize> {
        check_range(index, count, self.len)?;
        Ok(index * size_of::<T>())
    }

    /// Returns a view of this rank's part.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::JobOver`].
    pub fn local(&self) -> Result<View<'_, T>> {
        self.on(self.block.rank)?.ok_or(Error::JobOver)
    }

    /// Returns a view of the part of `rank`, or `None` if it cannot be reached directly, as on
    /// another host.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::Freed`], [`Error::JobOver`].
    pub fn on(&self, rank: Rank) -> Result<Option<View<'_, T>>> {
        let part = self.block.part(rank)?;
        Ok((part.mapped.as_ref())
            .map(|mapped| View::new(&mapped.window, self.len, ViewOwner::Part(&self.block, rank))))
    }

    /// Returns a pointer to element `index` of `rank`, which any rank of the job may use.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::OutOfBounds`], [`Error::Freed`],
    /// [`Error::JobOver`].
    pub fn pointer(&self, rank: Rank, index: usize) -> Result<GlobalPtr<T>> {
        self.block.part(rank)?;
        // A pointer past the end is allowed, as with slices, to count back from.
        let offset = self.offset(index, 0)?;
        Ok(GlobalPtr::symmetric(&self.block, rank, offset as u64))
    }

    /// Returns this rank's part as a slice.
    ///
    /// # Errors
    /// - [`Error::Freed`], [`Error::JobOver`].
    /// - [`Error::Misaligned`] if the elements need a larger alignment than segments have, which is
    ///   at least a page. An allocation is aligned for its type only within the segment.
    ///
    /// # Safety
    /// While the slice lives:
    /// 1. No rank writes to this part.
    /// 2. It is not freed.
    #[allow(unsafe_code)] // only the caller can keep the conditions
    pub unsafe fn local_slice(&self) -> Result<&[T]> {
        let at = self.local_start()?;
        // SAFETY: the part is mapped as long as `self.block` lives, is aligned, as `local_start`
        // checked, and any bytes are a valid `Pod`. By the caller's conditions 1 and 2 it is
        // neither written nor freed meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(at, self.len) })
    }

    /// Returns this rank's part as a mutable slice.
    ///
    /// # Errors
    /// As [`local_slice`](Self::local_slice).
    ///
    /// # Safety
    /// While the slice lives:
    /// 1. No other code reads or writes this part, other threads and handles of this rank included.
    /// 2. It is not freed.
    #[allow(unsafe_code, clippy::mut_from_ref)] // only the caller can keep the conditions
    pub unsafe fn local_slice_mut(&self) -> Result<&mut [T]> {
        let at = self.local_start()?;
        // SAFETY: as in `local_slice`. By the caller's condition 1 no other code reads it either.
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
