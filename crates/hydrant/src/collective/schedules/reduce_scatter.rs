//! Reduce-scatter: each member gets a part of the reduction of all.
//!
//! Few elements are piggybacked on the agreement. Of many elements, each member gets its part from all
//! members and folds it.

use super::reduce::{ReductionCall, reduction_by_function, reduction_by_op};
use crate::{
    Pod, Result,
    collective::{
        Op, Reducible,
        agreement::CollectiveKind,
        blocks::{Blocks, same_length},
        elements::{bytes, sized},
        fold::{fold_blocks, fold_with},
        op::fold_of,
        streams::DataPhase,
        team::Team,
    },
};

impl Team {
    /// Reduces the members' elements, index by index, and gives each member its part: as many
    /// elements as `mine` holds, by member.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch) if `data` is not one part for each
    /// member, and as [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter<T: Reducible>(&self, data: &[T], mine: &mut [T], op: Op) -> Result<()> {
        let reduction = reduction_by_op::<T>(CollectiveKind::ReduceScatter, op);
        self.run_blocking("reduce_scatter", || {
            self.reduce_scatter_async(reduction, data, mine, fold_of(op))
        })
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
        let reduction = reduction_by_function(CollectiveKind::ReduceScatter);
        self.run_blocking("reduce_scatter_with", || {
            self.reduce_scatter_async(reduction, data, mine, fold_with(combine))
        })
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
        let reduction = reduction_by_op::<T>(CollectiveKind::ReduceScatterV, op);
        self.run_blocking("reduce_scatter_v", || {
            self.reduce_scatter_v_async(reduction, data, counts, mine, fold_of(op))
        })
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
        let reduction = reduction_by_function(CollectiveKind::ReduceScatterV);
        self.run_blocking("reduce_scatter_v_with", || {
            self.reduce_scatter_v_async(reduction, data, counts, mine, fold_with(combine))
        })
    }

    pub(super) async fn reduce_scatter_async<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &[T],
        mine: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let (header, part) = (header.of::<T>(data.len()), mine.len());
        let wanted = part.saturating_mul(self.members.len());
        let checked = checked.and_then(|()| sized::<T>()).and_then(|()| {
            same_length(
                "elements against one part for each member",
                data.len(),
                wanted,
            )
        });
        if self.parts_fit_piggyback(bytes(data).len()) {
            let parts = self.piggyback_parts(header, checked, bytes(data)).await?;
            mine.copy_from_slice(self.own_part(data));
            return parts.fold_all(mine, &fold);
        }
        let checked = checked.and_then(|()| self.buffer(Some(data.len())));
        let parts = self.agree(header, checked).await?;
        self.fold_parts(
            |member| bytes(&data[member * part..][..part]),
            parts,
            mine,
            &fold,
        )
        .await
    }

    pub(super) async fn reduce_scatter_v_async<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &[T],
        counts: &[usize],
        mine: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
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
                let none = vec![0_u64; size];
                return self.transpose(header, Err(error), &none).await.map(drop);
            }
        };
        let counts: Vec<u64> = counts.iter().map(|count| *count as u64).collect();
        let counts = self.transpose(header, Ok(()), &counts).await?;
        // If every member finds its own column right, all counts are equal.
        let checked = (counts.iter().enumerate())
            .try_for_each(|(m, sent)| self.same_count(m, self.me, *sent, mine.len() as u64));
        self.agree(header, checked).await?;
        self.fold_parts(
            |member| bytes(&data[ranges[member].clone()]),
            parts,
            mine,
            &fold,
        )
        .await
    }

    /// Gets this member's part from all members into `parts`, and folds it.
    async fn fold_parts<'a, T: Pod>(
        &self,
        part_of: impl Fn(usize) -> &'a [u8],
        mut parts: Vec<T>,
        mine: &mut [T],
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        self.exchange(DataPhase::Only, part_of, self.equal_parts_mut(&mut parts))
            .await?;
        self.run_user_function(|| fold_blocks(&mut parts, mine.len(), fold));
        mine.copy_from_slice(&parts[..mine.len()]);
        Ok(())
    }
}
