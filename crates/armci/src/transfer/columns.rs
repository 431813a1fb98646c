//! Puts and gets of columns of arrays: sections whose runs are mostly one element each. This is the
//! fast path for memory that is mapped here, with the fewest checks. [`strided`](super::strided)
//! handles all other sections.

#![allow(unsafe_code)] // memory is named by its address

use hydrant::Column;

use super::{PutOrGet, Strides};
use crate::{Armci, memory::Memory};

impl Strides<'_> {
    /// The column that the strides describe, if they describe one.
    #[inline(always)]
    fn column(&self, direction: PutOrGet) -> Option<Column> {
        let (&[bytes, rows], &[src, ..], &[dst, ..]) = (self.count, self.src, self.dst) else {
            return None;
        };
        if (bytes | rows | src | dst) < 0 {
            return None;
        }
        let [there, here] = match direction {
            PutOrGet::Put => [dst, src],
            PutOrGet::Get => [src, dst],
        };
        Column::new(bytes as u32, rows as u32, [there as u32, here as u32])
    }
}

impl Armci {
    /// Puts a column. Returns false, and puts nothing, if the strides are no column, an argument is
    /// wrong, or the slow path is needed.
    ///
    /// # Safety
    /// As [`put_strided`](Self::put_strided).
    #[inline(always)]
    pub(super) unsafe fn put_column(
        &self,
        src: *const u8,
        dst: *mut u8,
        strides: &Strides<'_>,
        proc: i32,
    ) -> bool {
        let Some((offset, column)) = self.column(src, dst, strides, PutOrGet::Put, proc) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1 and 2. The elements are readable and nobody writes to them, by the caller's
        // condition 1.
        unsafe { arena.put_column_raw(rank, offset, src, &column) }
    }

    /// As [`put_column`](Self::put_column), for a get.
    ///
    /// # Safety
    /// As [`get_strided`](Self::get_strided).
    #[inline(always)]
    pub(super) unsafe fn get_column(
        &self,
        src: *mut u8,
        dst: *mut u8,
        strides: &Strides<'_>,
        proc: i32,
    ) -> bool {
        let Some((offset, column)) = self.column(dst, src, strides, PutOrGet::Get, proc) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: 1 and 2. The elements are writable and nobody else uses them, by the caller's
        // condition 1.
        unsafe { arena.get_column_raw(rank, offset, dst, &column) }
    }

    /// The column that the strides describe, and its offset in the arena of `proc`.
    #[inline(always)]
    fn column(
        &self,
        here: *const u8,
        there: *mut u8,
        strides: &Strides<'_>,
        direction: PutOrGet,
        proc: i32,
    ) -> Option<(usize, Column)> {
        let column = strides.column(direction)?;
        let [remote, _] = column.spans()?;
        let offset = self.memory.find_last(proc, there, remote)?;
        (!here.is_null()).then_some((offset, column))
    }
}
