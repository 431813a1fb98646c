//! Reduce-scatter: each member gets a part of what all reduce to.
//!
//! As reductions go: few elements ride on the agreement; of many, each member gets its part from
//! all, and folds it.

use super::{
    Op, Reducible,
    agree::Piggyback,
    all_gather::{bytes, sized},
    blocks::{Blocks, same_length},
    header::{Header, Operation},
    op::{fold_of, kind_of},
    reduce::{Fold, by, fold_blocks},
    team::{IDLE, Team},
};
use crate::{Pod, Result};

impl Team {
    /// Reduces the members' elements, index by index, and gives each member its part: as many
    /// elements as `mine` holds, by member.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) if `data` is not one part for each
    /// member, and as [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<T: Reducible>(&self, data: &[T], mine: &mut [T], op: Op) -> Result<()> {
        let header = Header::new(Operation::ReduceScatter).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.reduce_parts(header, Ok(()), data, mine, &fold),
            Err(error) => self.reduce_parts(header, Err(error), data, mine, &|_, _| {}),
        }
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter_with<T: Pod>(
        &self,
        data: &[T],
        mine: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let header = Header::new(Operation::ReduceScatter).reduction(None, 0);
        self.reduce_parts(header, Ok(()), data, mine, &by(combine))
    }

    /// As [`reduce_scatter`](Self::reduce_scatter), with parts of any length: member m gets
    /// `counts[m]` elements. All give the same counts.
    ///
    /// # Errors
    /// As there; and
    /// - [`Error::LengthMismatch`](crate::Error::LengthMismatch) if there is not one count for each
    ///   member, or the counts do not add up to the elements of `data`, or this member's is not the
    ///   length of `mine`.
    /// - [`Error::BlockOutOfBounds`](crate::Error::BlockOutOfBounds) if the counts add up to more.
    /// - [`Error::CountMismatch`](crate::Error::CountMismatch) if another member counts otherwise.
    pub fn reduce_scatter_v<T: Reducible>(
        &self,
        data: &[T],
        counts: &[usize],
        mine: &mut [T],
        op: Op,
    ) -> Result<()> {
        let header = Header::new(Operation::ReduceScatterV).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.reduce_blocks(header, Ok(()), data, counts, mine, &fold),
            Err(error) => self.reduce_blocks(header, Err(error), data, counts, mine, &|_, _| {}),
        }
    }

    /// As [`reduce_scatter_v`](Self::reduce_scatter_v), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter_v_with<T: Pod>(
        &self,
        data: &[T],
        counts: &[usize],
        mine: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let header = Header::new(Operation::ReduceScatterV).reduction(None, 0);
        self.reduce_blocks(header, Ok(()), data, counts, mine, &by(combine))
    }

    fn reduce_parts<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        data: &[T],
        mine: &mut [T],
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        let _turn = self.enter("reduce_scatter", IDLE)?;
        let (header, part) = (header.of::<T>(data.len()), mine.len());
        let wanted = part.saturating_mul(self.members.len());
        let checked = checked.and_then(|()| sized::<T>()).and_then(|()| {
            same_length(
                "elements against one part for each member",
                data.len(),
                wanted,
            )
        });
        if self.fits(bytes(data).len()) {
            let all = self.gather_blocks(header, checked, data)?;
            let parts: Vec<T> = (all.chunks(data.len().max(1)))
                .flat_map(|of| &of[self.me * part..][..part])
                .copied()
                .collect();
            mine.copy_from_slice(&fold_blocks(&parts, part, fold));
            return Ok(());
        }
        let checked = checked.and_then(|()| self.buffer(Some(data.len())));
        let parts = self.agree(header, checked, Piggyback::Nothing)?;
        self.fold_parts(
            |member| bytes(&data[member * part..][..part]),
            parts,
            mine,
            fold,
        )
    }

    fn reduce_blocks<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        data: &[T],
        counts: &[usize],
        mine: &mut [T],
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        let _turn = self.enter("reduce_scatter_v", IDLE)?;
        let size = self.members.len();
        let header = header.of::<T>(data.len());
        let ranges = checked.and_then(|()| sized::<T>()).and_then(|()| {
            let ranges = Blocks::packed(counts).ranges(size, data.len())?;
            let total = ranges.iter().map(ExactSizeIterator::len).sum();
            same_length("elements against the sum of counts", data.len(), total)?;
            same_length(
                "elements to receive against the count",
                mine.len(),
                ranges[self.me].len(),
            )?;
            Ok((ranges, self.buffer(mine.len().checked_mul(size))?))
        });
        let (ranges, parts) = match ranges {
            Ok(ranges) => ranges,
            Err(error) => {
                return self
                    .transpose(header, Err(error), &vec![0_u64; size])
                    .map(drop);
            }
        };
        let counts: Vec<u64> = counts.iter().map(|count| *count as u64).collect();
        let counts = self.transpose(header, Ok(()), &counts)?;
        // If all find their own column right, all counts are alike.
        let checked = (counts.iter().enumerate())
            .try_for_each(|(m, sent)| self.same_count(m, self.me, *sent, mine.len() as u64));
        self.agree(header, checked, Piggyback::Nothing)?;
        self.fold_parts(
            |member| bytes(&data[ranges[member].clone()]),
            parts,
            mine,
            fold,
        )
    }

    /// Gets this member's part from all into `parts`, and folds it.
    fn fold_parts<'a, T: Pod>(
        &self,
        part_of: impl Fn(usize) -> &'a [u8],
        mut parts: Vec<T>,
        mine: &mut [T],
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        self.exchange(part_of, &mut self.even(&mut parts))?;
        mine.copy_from_slice(&self.or_leave(|| fold_blocks(&parts, mine.len(), fold)));
        Ok(())
    }
}
