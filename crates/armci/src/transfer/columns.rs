//! Puts and gets of columns of arrays, as sections whose runs are one element each mostly are: on memory that is mapped
//! here, with no more checks than they need. All else goes by [`strided`](super::strided).

#![allow(unsafe_code)] // memory is named by its address

use hydrant::Column;

use super::{Direction, Strides};
use crate::{Armci, memory::Memory};

impl Strides<'_> {
    /// The column that they are, if they are one.
    #[inline(always)]
    fn column(&self, direction: Direction) -> Option<Column> {
        let (&[bytes, rows], &[src, ..], &[dst, ..]) = (self.count, self.src, self.dst) else {
            return None;
        };
        if (bytes | rows | src | dst) < 0 {
            return None;
        }
        let [there, here] = match direction {
            Direction::Put => [dst, src],
            Direction::Get => [src, dst],
        };
        Column::new(bytes as u32, rows as u32, [there as u32, here as u32])
    }
}

impl Armci {
    /// Puts a column, and says whether it did: not if they are none, or anything is wrong or in the way.
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
        let Some((offset, column)) = self.column(src, dst, strides, Direction::Put, proc) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: the caller's promise.
        unsafe { arena.put_column_raw(rank, offset, src, &column) }
    }

    /// As [`put_column`](Self::put_column), the other way.
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
        let Some((offset, column)) = self.column(dst, src, strides, Direction::Get, proc) else {
            return false;
        };
        let (arena, rank) = (&self.memory.arena, Memory::rank(proc as usize));
        // SAFETY: the caller's promise.
        unsafe { arena.get_column_raw(rank, offset, dst, &column) }
    }

    /// Where in the arena of a process a column begins, and which it is.
    #[inline(always)]
    fn column(
        &self,
        here: *const u8,
        there: *mut u8,
        strides: &Strides<'_>,
        direction: Direction,
        proc: i32,
    ) -> Option<(usize, Column)> {
        let column = strides.column(direction)?;
        let [remote, _] = column.spans()?;
        let offset = self.memory.find_last(proc, there, remote)?;
        (!here.is_null()).then_some((offset, column))
    }
}
