//! The slices of a reduction: each member folds one for all.

use std::ops::Range;

use crate::{
    Pod, Result,
    collective::{
        elements::{bytes, bytes_mut},
        fold::fold_blocks,
        streams::DataPhase,
        team::Team,
    },
};

impl Team {
    /// The range of elements, of `len`, that a member folds.
    pub(super) fn slice_range(&self, len: usize, member: usize) -> Range<usize> {
        let each = len.div_ceil(self.members.len());
        let from = len.min(member * each);
        from..len.min(from + each)
    }

    /// The bytes of the members' slices.
    pub(super) fn byte_slices_mut<'a, T: Pod>(&self, data: &'a mut [T]) -> Vec<&'a mut [u8]> {
        let slices = self.slices_mut(data);
        slices.into_iter().map(bytes_mut).collect()
    }

    pub(super) fn slices_mut<'a, T>(&self, mut data: &'a mut [T]) -> Vec<&'a mut [T]> {
        let len = data.len();
        (0..self.members.len())
            .map(|member| {
                let (slice, rest) =
                    std::mem::take(&mut data).split_at_mut(self.slice_range(len, member).len());
                data = rest;
                slice
            })
            .collect()
    }

    /// Room for this member's slice from every member.
    pub(super) fn slices_to_fold<T: Pod>(&self, len: usize) -> Result<Vec<T>> {
        self.buffer(
            self.slice_range(len, self.me)
                .len()
                .checked_mul(self.members.len()),
        )
    }

    /// Gets this member's slice from every member, in the order of members.
    pub(super) async fn exchange_slices<T: Pod>(&self, data: &[T], slices: &mut [T]) -> Result<()> {
        self.exchange(
            DataPhase::First,
            |member| bytes(&data[self.slice_range(data.len(), member)]),
            self.equal_parts_mut(slices),
        )
        .await
    }

    /// Splits elements into equally long parts, one for each member.
    pub(super) fn equal_parts_mut<'a, T: Pod>(&self, mut data: &'a mut [T]) -> Vec<&'a mut [u8]> {
        let each = data.len() / self.members.len();
        (self.members.iter())
            .map(|_| {
                let (part, rest) = std::mem::take(&mut data).split_at_mut(each);
                data = rest;
                bytes_mut(part)
            })
            .collect()
    }

    /// Gets this member's slice from all members and folds it.
    pub(super) async fn exchange_and_fold_slice<T: Pod>(
        &self,
        data: &[T],
        mut slices: Vec<T>,
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<Vec<T>> {
        self.exchange_slices(data, &mut slices).await?;
        let each = self.slice_range(data.len(), self.me).len();
        self.run_user_function(|| fold_blocks(&mut slices, each, fold));
        slices.truncate(each);
        Ok(slices)
    }
}
