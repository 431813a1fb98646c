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
    board::{Board, DataPhase},
    channel::{Inbound, Outbound},
    channel_fold::in_chunk,
    elements::{bytes, bytes_mut, sized},
    header::{CallHeader, CollectiveKind},
    op::{fold_of, kind_of, suits},
    piggyback::{PiggybackData, Wanted},
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
        let reduced = self.reduce_async(
            root,
            reduction_by_op::<T>(CollectiveKind::Reduce, op),
            mine,
            fold_of(op),
        );
        self.run_blocking("reduce", reduced)
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
        let reduced = self.reduce_async(
            root,
            reduction_by_function(CollectiveKind::Reduce),
            mine,
            fold_with(combine),
        );
        self.run_blocking("reduce_with", reduced)
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
        let _turn = self.enter("reduce_in_place", IDLE)?;
        let reduction = reduction_by_op::<T>(CollectiveKind::Reduce, op);
        self.reduce_in_place_blocking(root, reduction, data, fold_of(op))
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
        let _turn = self.enter("reduce_in_place_with", IDLE)?;
        self.reduce_in_place_blocking(
            root,
            reduction_by_function(CollectiveKind::Reduce),
            data,
            fold_with(combine),
        )
    }

    /// Reduces the members' elements, index by index, on every member. The result replaces `data`; it is
    /// the same on all, bit for bit.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn all_reduce<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let _turn = self.enter("all_reduce", IDLE)?;
        self.all_reduce_blocking(
            reduction_by_op::<T>(CollectiveKind::AllReduce, op),
            data,
            fold_of(op),
        )
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
        let _turn = self.enter("all_reduce_with", IDLE)?;
        self.all_reduce_blocking(
            reduction_by_function(CollectiveKind::AllReduce),
            data,
            fold_with(combine),
        )
    }

    pub(super) async fn reduce_async<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        mine: &[T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<Option<Vec<T>>> {
        let at_root = root == self.rank();
        let room = || self.buffer(Some(if at_root { mine.len() } else { 0 }));
        let header = header.of::<T>(mine.len());
        if let Some(board) = self.board_for_few(mine) {
            let (mut result, checked) = apart(checked.and_then(|()| room()));
            if checked.is_ok() && at_root {
                result.copy_from_slice(mine);
            }
            self.reduce_few_members(board, root, (header, checked), mine, &mut result, fold)
                .await?;
            return Ok(at_root.then_some(result));
        }
        let folded = self
            .fold_for_root(root, (header, checked), mine, room, fold)
            .await?;
        match folded {
            FoldResult::All(all) => Ok(at_root.then_some(all)),
            FoldResult::Slice(slice, mut result) => {
                self.gather_slices(root, &slice, mine.len(), &mut result)
                    .await?;
                Ok(at_root.then_some(result))
            }
        }
    }

    /// As [`reduce_in_place_async`](Self::reduce_in_place_async), for a blocking call: short data takes no
    /// future.
    fn reduce_in_place_blocking<T: Pod>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        if !self.fits_piggyback(bytes(data).len()) {
            return poll_once(self.reduce_in_place_async(root, (header, checked), data, fold));
        }
        let header = header.of::<T>(data.len()).root(root);
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        let (checked, wanted) = (checked.map(drop), Wanted::ByMember(root.index()));
        let blocks = self.piggyback_blocks_blocking(header, checked, bytes(data), wanted)?;
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
        let (len, header) = (data.len(), header.of::<T>(data.len()));
        if let Some(board) = self.board_for_few(data) {
            let (mine, own): (&[T], &mut [T]) = if root == self.rank() {
                (&[], data)
            } else {
                (data, &mut [])
            };
            return self
                .reduce_few_members(board, root, (header, checked), mine, own, fold)
                .await;
        }
        let folded = self
            .fold_for_root(root, (header, checked), data, || Ok(()), fold)
            .await?;
        let result = if root == self.rank() { data } else { &mut [] };
        match folded {
            FoldResult::All(all) => {
                result.copy_from_slice(&all);
                Ok(())
            }
            FoldResult::Slice(slice, ()) => self.gather_slices(root, &slice, len, result).await,
        }
    }

    /// The boards, if few members reduce more elements than can be piggybacked.
    fn board_for_few<T: Pod>(&self, elements: &[T]) -> Option<&Board> {
        let are_many = !self.fits_piggyback(bytes(elements).len());
        let board = self.board_for::<T>();
        board.filter(|_| self.members.len() <= FEW_MEMBERS && are_many)
    }

    /// Agrees, and reduces at the root: `own` holds the root's elements and gets the result. The other
    /// members give `mine`.
    async fn reduce_few_members<T: Pod>(
        &self,
        board: &Board,
        root: TeamRank,
        (header, checked): ReductionCall,
        mine: &[T],
        own: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        let given = (bytes(mine), own);
        let at = self.next(DataPhase::Only);
        let (mut streams, mut folding) =
            self.fold_to_root_streams(board, at, root.index(), given, &fold)?;
        let checked = checked.and_then(|_| folding.make_room(self));
        self.agree_on(header.root(root), checked, &mut streams)
            .await?;
        streams.fold(folding).await
    }

    /// Agrees, after it has made room for a long result, and folds this member's share. The root folds all
    /// of few elements, or all of two members; every member folds a slice of many.
    async fn fold_for_root<T: Pod, R>(
        &self,
        root: TeamRank,
        (header, checked): ReductionCall,
        mine: &[T],
        room: impl FnOnce() -> Result<R>,
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<FoldResult<T, R>> {
        let header = header.root(root);
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        if self.fits_piggyback(bytes(mine).len()) {
            let (checked, wanted) = (checked.map(drop), Wanted::ByMember(root.index()));
            let blocks = self
                .piggyback_blocks(header, checked, bytes(mine), wanted)
                .await?;
            let mut folded = Vec::new();
            if root == self.rank() {
                folded.extend_from_slice(mine);
                blocks.fold_all(&mut folded, &fold)?;
            }
            return Ok(FoldResult::All(folded));
        }
        let slice = self.slice_range(mine.len(), self.me);
        if let Some(board) = self.board_for::<T>() {
            let made = checked.and_then(|_| Ok((room()?, self.buffer::<T>(Some(slice.len()))?)));
            let (room, mut own, checked) = match made {
                Ok((room, own)) => (Some(room), own, Ok(())),
                Err(cause) => (None, Vec::new(), Err(cause)),
            };
            let at = self.next(DataPhase::First);
            if checked.is_ok() {
                own.copy_from_slice(&mine[slice]);
            }
            let others = |member| match &checked {
                Ok(()) => bytes(&mine[self.slice_range(mine.len(), member)]),
                Err(_) => &[],
            };
            let (mut streams, mut folding) =
                self.fold_streams(board, at, (others, &mut own), &fold)?;
            let checked = checked.and_then(|()| folding.make_room(self));
            self.agree_on(header, checked, &mut streams).await?;
            streams.fold(folding).await?;
            let room = room.expect("all is well if it was agreed on");
            return Ok(FoldResult::Slice(own, room));
        }
        if self.members.len() == 2 && self.board.is_none() {
            let made = checked.and_then(|root| {
                let folded = self.buffer(Some(if root == self.me { mine.len() } else { 0 }))?;
                Ok((folded, self.room_to_fold(mine.len(), self.me == 0)?))
            });
            let (folded, room) = self.agree(header, made, PiggybackData::Nothing).await?;
            let folded = self.fold_two_members(mine, folded, room, &fold).await?;
            return Ok(FoldResult::All(folded));
        }
        let checked = checked.and_then(|_| Ok((room()?, self.slices_to_fold::<T>(mine.len())?)));
        let (room, slices) = self.agree(header, checked, PiggybackData::Nothing).await?;
        Ok(FoldResult::Slice(
            self.exchange_and_fold_slice(mine, slices, &fold).await?,
            room,
        ))
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

    /// Gathers the members' slices, of `len` elements together, at the root.
    async fn gather_slices<T: Pod>(
        &self,
        root: TeamRank,
        slice: &[T],
        len: usize,
        result: &mut [T],
    ) -> Result<()> {
        let bytes_of = |member| self.slice_range(len, member).len() * size_of::<T>();
        // Members other than the root have empty places, which are not used.
        let places = self.byte_slices_mut(result);
        self.gather_long(
            DataPhase::Second,
            root.index(),
            bytes(slice),
            bytes_of,
            places,
        )
        .await
    }

    /// As [`all_reduce_async`](Self::all_reduce_async), for a blocking call: short data takes no future.
    fn all_reduce_blocking<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        if !self.fits_piggyback(bytes(data).len()) {
            return poll_once(self.all_reduce_async((header, checked), data, fold));
        }
        let checked = checked.and_then(|()| sized::<T>());
        let header = header.of::<T>(data.len());
        let blocks = self.piggyback_blocks_blocking(header, checked, bytes(data), Wanted::ByAll)?;
        blocks.fold_all(data, &fold)
    }

    pub(super) async fn all_reduce_async<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &mut [T],
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let header = header.of::<T>(data.len());
        if self.fits_piggyback(bytes(data).len()) {
            let checked = checked.and_then(|()| sized::<T>());
            let blocks =
                (self.piggyback_blocks(header, checked, bytes(data), Wanted::ByAll)).await?;
            return blocks.fold_all(data, &fold);
        }
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

/// The elements that a member has folded for a root.
enum FoldResult<T, R> {
    /// All elements, at the root.
    All(Vec<T>),
    /// A slice, and the room for the result.
    Slice(Vec<T>, R),
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
