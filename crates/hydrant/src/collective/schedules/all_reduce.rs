//! All-reduce.
//!
//! Few elements are piggybacked on the agreement, and every member folds them. Of many elements, each member
//! folds a slice for all, and the slices are shared. Blocks are folded by rank from the left, so the result
//! is that of a serial fold.

use super::reduce::{ReductionCall, reduction_by_function, reduction_by_op};
use crate::{
    Pod, Result,
    collective::{
        Op, Reducible,
        agreement::{BlockAgreement, CollectiveKind, Wanted},
        elements::{bytes, sized},
        fold::fold_with,
        op::fold_of,
        streams::DataPhase,
        team::{IDLE, Team, poll_once},
    },
};

impl Team {
    /// Reduces the members' elements, index by index, on every member. The result replaces `data`; it is
    /// the same on all, bit for bit.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn all_reduce<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let reduction = reduction_by_op::<T>(CollectiveKind::AllReduce, op);
        self.all_reduce_blocking("all_reduce", reduction, data, fold_of(op))
    }

    /// As [`all_reduce`](Self::all_reduce), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_with<T: Pod>(
        &self,
        data: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let reduction = reduction_by_function(CollectiveKind::AllReduce);
        self.all_reduce_blocking("all_reduce_with", reduction, data, fold_with(combine))
    }

    fn all_reduce_blocking<T: Pod>(
        &self,
        what: &'static str,
        call: ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let _turn = self.enter(what, IDLE)?;
        if !self.fits_piggyback(bytes(data).len()) {
            return poll_once(|| self.all_reduce_async(call, data, fold));
        }
        let blocks = poll_once(|| self.all_reduce_short(call, data))?;
        blocks.fold_all(data, &fold)
    }

    /// Agrees with the elements piggybacked, which all want.
    #[inline]
    fn all_reduce_short<'d, T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &'d [T],
    ) -> BlockAgreement<'_, 'd> {
        let header = header.of::<T>(data.len());
        let checked = checked.and_then(|()| sized::<T>());
        self.piggyback_blocks(header, checked, bytes(data), Wanted::ByAll)
    }

    pub(super) async fn all_reduce_async<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        if self.fits_piggyback(bytes(data).len()) {
            let blocks = self.all_reduce_short((header, checked), data).await?;
            return blocks.fold_all(data, &fold);
        }
        let header = header.of::<T>(data.len());
        let checked = checked.and_then(|()| sized::<T>());
        match self.board_for::<T>() {
            Some(board) => {
                let mut slices = self.slices_mut(data);
                let own = std::mem::take(&mut slices[self.me]);
                let others: Vec<&[T]> = slices.into_iter().map(|slice| &*slice).collect();
                let at = self.next(DataPhase::First);
                let given = (|member: usize| bytes(others[member]), own);
                let (streams, folding) = self.fold_streams(board, at, given, &fold)?;
                streams.agree_and_fold(header, checked, folding).await?;
            }
            None => {
                let checked = checked.and_then(|()| self.slices_to_fold::<T>(data.len()));
                let slices = self.agree(header, checked).await?;
                let slice = self.exchange_and_fold_slice(data, slices, &fold).await?;
                let mine = self.slice_range(data.len(), self.me);
                data[mine].copy_from_slice(&slice);
            }
        }
        let mut slices = self.byte_slices_mut(data);
        let mine = std::mem::take(&mut slices[self.me]);
        self.share(DataPhase::Second, mine, slices).await
    }
}
