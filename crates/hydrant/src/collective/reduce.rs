//! Reduce and all-reduce.
//!
//! Few elements are piggybacked on the agreement, and the members that get the result fold them. Of many
//! elements, each member folds a slice for all (by exchange), and the slices are gathered. In small flat
//! teams, and in teams of two that are not flat, the root of a reduce folds everything while the others
//! send the next elements. So each byte moves once.
//!
//! Blocks are always folded by rank from the left, so the result is that of a serial fold.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{
    Op, Reducible,
    blocks::apart,
    board::DataPhase,
    channel::{Inbound, Outbound},
    channel_fold::in_chunk,
    elements::{bytes, bytes_mut, sized},
    header::{CallHeader, CollectiveKind},
    op::{fold_of, kind_of, suits},
    piggyback::{PiggybackData, Wanted},
    piggybacked_blocks::BlockAgreement,
    team::{IDLE, Team, poll_once},
};
use crate::{Pod, Result, TeamRank};

/// Most members for which the root folds alone: with more members the others would idle too long.
const FEW_MEMBERS: usize = 4;

/// The header of a reduction, and the check of its operation.
pub(super) type ReductionCall = (CallHeader, Result<()>);

impl Team {
    /// Reduces the members' elements, index by index, to `root`; `None` elsewhere.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::UnsuitableOp`](crate::Error::UnsuitableOp) for bits of floats,
    /// [`Error::TeamRankOutOfRange`](crate::Error::TeamRankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn reduce<T: Reducible>(
        &self,
        root: TeamRank,
        mine: &[T],
        op: Op,
    ) -> Result<Option<Vec<T>>> {
        self.run_blocking("reduce", || {
            self.reduce_async(
                root,
                reduction_by_op::<T>(CollectiveKind::Reduce, op),
                mine,
                fold_of(op),
            )
        })
    }

    /// As [`reduce`](Self::reduce), by a function of the left and the right element. The function must be
    /// associative. It need not be commutative, because members are combined by rank.
    ///
    /// If the function panics on a rank, the rank leaves the job, and the others get
    /// [`PeerLost`](crate::Error::PeerLost).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_with<T: Pod>(
        &self,
        root: TeamRank,
        mine: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>> {
        self.run_blocking("reduce_with", || {
            self.reduce_async(
                root,
                reduction_by_function(CollectiveKind::Reduce),
                mine,
                fold_with(combine),
            )
        })
    }

    /// As [`reduce`](Self::reduce), with the result in the root's `data`. The data of other members stays
    /// as it is. Other members may call either.
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place<T: Reducible>(
        &self,
        root: TeamRank,
        data: &mut [T],
        op: Op,
    ) -> Result<()> {
        let reduction = reduction_by_op::<T>(CollectiveKind::Reduce, op);
        self.reduce_in_place_blocking("reduce_in_place", root, reduction, data, fold_of(op))
    }

    /// As [`reduce_in_place`](Self::reduce_in_place), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place_with<T: Pod>(
        &self,
        root: TeamRank,
        data: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let reduction = reduction_by_function(CollectiveKind::Reduce);
        let fold = fold_with(combine);
        self.reduce_in_place_blocking("reduce_in_place_with", root, reduction, data, fold)
    }

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

    pub(super) async fn reduce_async<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        mine: &[T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<Option<Vec<T>>> {
        let header = header.of::<T>(mine.len());
        let at_root = root == self.rank();
        let room = |()| self.buffer(Some(if at_root { mine.len() } else { 0 }));
        let (mut result, checked) = apart(checked.and_then(room));
        if at_root && checked.is_ok() {
            result.copy_from_slice(mine);
        }
        let mine = if at_root { &[] } else { mine };
        self.reduce_to(root, (header, checked), mine, &mut result, fold)
            .await?;
        Ok(at_root.then_some(result))
    }

    fn reduce_in_place_blocking<T: Pod>(
        &self,
        what: &'static str,
        root: TeamRank,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let _turn = self.enter(what, IDLE)?;
        if !self.fits_piggyback(bytes(data).len()) {
            return poll_once(|| self.reduce_in_place_async(root, (header, checked), data, fold));
        }
        let header = header.of::<T>(data.len());
        let blocks = poll_once(|| self.reduce_short(root, (header, checked), data))?;
        if root == self.rank() {
            blocks.fold_all(data, &fold)?;
        }
        Ok(())
    }

    pub(super) async fn reduce_in_place_async<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let header = header.of::<T>(data.len());
        let (mine, own): (&[T], &mut [T]) = if root == self.rank() {
            (&[], data)
        } else {
            (data, &mut [])
        };
        self.reduce_to(root, (header, checked), mine, own, fold)
            .await
    }

    /// The header of a reduction to a root, and the check of its arguments.
    fn reduce_call<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
    ) -> ReductionCall {
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        (header.root(root), checked.map(drop))
    }

    /// Agrees with the elements piggybacked, which the root wants.
    #[inline]
    fn reduce_short<'d, T: Pod>(
        &self,
        root: TeamRank,
        call: ReductionCall,
        given: &'d [T],
    ) -> BlockAgreement<'_, 'd> {
        let (header, checked) = self.reduce_call::<T>(root, call);
        let wanted = Wanted::ByMember(root.index());
        self.piggyback_blocks(header, checked, bytes(given), wanted)
    }

    /// Agrees, and reduces at the root: `own` holds the root's elements and gets the result. The other
    /// members give `mine`. The header has the number of elements.
    async fn reduce_to<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        mine: &[T],
        own: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let at_root = root == self.rank();
        let given = if at_root { &*own } else { mine };
        if self.fits_piggyback(bytes(given).len()) {
            let blocks = self.reduce_short(root, (header, checked), given).await?;
            return if at_root {
                blocks.fold_all(own, &fold)
            } else {
                Ok(())
            };
        }
        let (header, checked) = self.reduce_call::<T>(root, (header, checked));
        let board = self.board_for::<T>();
        if let Some(board) = board
            && self.members.len() <= FEW_MEMBERS
        {
            let at = self.next(DataPhase::Only);
            let given = (bytes(mine), own);
            let (mut streams, mut folding) =
                self.fold_to_root_streams(board, at, root.index(), given, &fold)?;
            let checked = checked.and_then(|()| folding.make_room(self));
            self.agree_on(header, checked, &mut streams).await?;
            return streams.fold(folding).await;
        }
        if self.members.len() == 2 && self.board.is_none() {
            let made = checked.and_then(|()| {
                let folded = self.buffer(Some(if at_root { given.len() } else { 0 }))?;
                Ok((folded, self.room_to_fold(given.len(), self.me == 0)?))
            });
            let (folded, room) = self.agree(header, made, PiggybackData::Nothing).await?;
            let folded = self.fold_two_members(given, folded, room, &fold).await?;
            if at_root {
                own.copy_from_slice(&folded);
            }
            return Ok(());
        }
        // Each member folds a slice.
        let len = given.len();
        let folded = if let Some(board) = board {
            let slice = self.slice_range(len, self.me);
            let (mut folded, checked) =
                apart(checked.and_then(|()| self.buffer(Some(slice.len()))));
            if checked.is_ok() {
                folded.copy_from_slice(&given[slice]);
            }
            let others = |member| bytes(&given[self.slice_range(len, member)]);
            let at = self.next(DataPhase::First);
            let (mut streams, mut folding) =
                self.fold_streams(board, at, (others, &mut folded), &fold)?;
            let checked = checked.and_then(|()| folding.make_room(self));
            self.agree_on(header, checked, &mut streams).await?;
            streams.fold(folding).await?;
            folded
        } else {
            let checked = checked.and_then(|()| self.slices_to_fold::<T>(len));
            let slices = self.agree(header, checked, PiggybackData::Nothing).await?;
            self.exchange_and_fold_slice(given, slices, &fold).await?
        };
        let bytes_of = |member| self.slice_range(len, member).len() * size_of::<T>();
        // Members other than the root have empty places, which are not used.
        let places = self.byte_slices_mut(own);
        let phase = DataPhase::Second;
        self.gather_long(phase, root.index(), bytes(&folded), bytes_of, places)
            .await
    }

    /// Folds the elements of two members at the root, as they [arrive](super::channel_fold). `folded` has
    /// room for all elements at the root, and none at the other member. Member 0 has room for a chunk.
    async fn fold_two_members<T: Pod>(
        &self,
        mine: &[T],
        mut folded: Vec<T>,
        mut room: Vec<T>,
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<Vec<T>> {
        const CHANNEL: usize = 0;
        let (other, epoch) = (1 - self.me, self.epochs(1));
        if folded.is_empty() {
            let mut outbound = Outbound::new(self, CHANNEL, other, epoch);
            outbound.send_to_fold(mine).await?;
            return Ok(folded);
        }
        let mut inbound = Inbound::open(self, CHANNEL, other, epoch)?;
        let mut fold = |range: Range<usize>, came: &mut [T]| {
            let mine = &mine[range];
            // The first member's elements go on the left.
            if self.me != 0 {
                return fold(came, mine);
            }
            let each = room.len();
            for (mine, came) in mine.chunks(each).zip(came.chunks_mut(each)) {
                let left = &mut room[..mine.len()];
                left.copy_from_slice(mine);
                fold(left, came);
                came.copy_from_slice(left);
            }
        };
        let shown = |range, came: &mut [T]| self.run_user_function(|| fold(range, came));
        inbound.receive_to_fold(&mut folded, shown).await?;
        Ok(folded)
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
                let (mut streams, mut folding) = self.fold_streams(board, at, given, &fold)?;
                let checked = checked.and_then(|()| folding.make_room(self));
                self.agree_on(header, checked, &mut streams).await?;
                streams.fold(folding).await?;
            }
            None => {
                let checked = checked.and_then(|()| self.slices_to_fold::<T>(data.len()));
                let slices = self.agree(header, checked, PiggybackData::Nothing).await?;
                let slice = self.exchange_and_fold_slice(data, slices, &fold).await?;
                let mine = self.slice_range(data.len(), self.me);
                data[mine].copy_from_slice(&slice);
            }
        }
        let mut slices = self.byte_slices_mut(data);
        let mine = std::mem::take(&mut slices[self.me]);
        self.share(DataPhase::Second, mine, slices).await
    }

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

    fn slices_mut<'a, T>(&self, mut data: &'a mut [T]) -> Vec<&'a mut [T]> {
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

    /// Room for a chunk of `len` elements, if `needs`.
    fn room_to_fold<T: Pod>(&self, len: usize, needs: bool) -> Result<Vec<T>> {
        self.buffer(Some(if needs { in_chunk::<T>().min(len) } else { 0 }))
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
    async fn exchange_and_fold_slice<T: Pod>(
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

    /// Runs a user's function while the other members wait. If the function panics, only the end of this
    /// rank can tell them.
    pub(super) fn run_user_function<R>(&self, run: impl FnOnce() -> R) -> R {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
            // The panic may fall between two phases.
            self.abandon();
            self.progress.conduit().leave(false);
            resume_unwind(cause)
        })
    }
}

/// A reduction by one of the operations that all ranks know.
pub(super) fn reduction_by_op<T: Reducible>(operation: CollectiveKind, op: Op) -> ReductionCall {
    let header = CallHeader::new(operation).reduction(Some(op), kind_of::<T>());
    (header, suits::<T>(op))
}

/// A reduction by a function.
pub(super) fn reduction_by_function(operation: CollectiveKind) -> ReductionCall {
    (CallHeader::new(operation).reduction(None, 0), Ok(()))
}

/// A fold by a function of two elements: combines the second slice into the first, element by element, with
/// the first on the left.
pub(super) fn fold_with<T: Pod>(combine: impl Fn(T, T) -> T) -> impl Fn(&mut [T], &[T]) {
    move |into, with| {
        for (into, with) in into.iter_mut().zip(with) {
            *into = combine(*into, *with);
        }
    }
}

/// Folds all blocks of `len` elements into the first, from the left.
pub(super) fn fold_blocks<T: Pod>(blocks: &mut [T], len: usize, fold: &impl Fn(&mut [T], &[T])) {
    let (first, rest) = blocks.split_at_mut(len);
    for block in rest.chunks(len.max(1)) {
        fold(first, block);
    }
}
