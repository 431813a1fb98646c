//! Reduce.
//!
//! Few elements are piggybacked on the agreement, and the members that get the result fold them. Of many
//! elements, each member folds a slice for all (by exchange), and the slices are gathered. In small flat
//! teams the root of a reduce folds everything while the others send the next elements. So each byte moves
//! once.
//!
//! Blocks are always folded by rank from the left, so the result is that of a serial fold.

use crate::{
    Pod, Result, TeamRank,
    collective::{
        Op, Reducible,
        agreement::{BlockAgreement, CallHeader, CollectiveKind, Wanted},
        blocks::apart,
        elements::{bytes, sized},
        fold::fold_with,
        op::{fold_of, kind_of, suits},
        streams::DataPhase,
        team::{IDLE, Team, poll_once},
    },
};

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
    /// If the function panics on a rank while others still wait for its data, the rank leaves the job, and the others
    /// get [`PeerLost`](crate::Error::PeerLost). With little data nobody waits any more: the panic is the rank's own.
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
            let (streams, folding) =
                self.fold_to_root_streams(board, at, root.index(), given, &fold)?;
            return streams.agree_and_fold(header, checked, folding).await;
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
            let (streams, folding) = self.fold_streams(board, at, (others, &mut folded), &fold)?;
            streams.agree_and_fold(header, checked, folding).await?;
            folded
        } else {
            let checked = checked.and_then(|()| self.slices_to_fold::<T>(len));
            let slices = self.agree(header, checked).await?;
            self.exchange_and_fold_slice(given, slices, &fold).await?
        };
        let bytes_of = |member| self.slice_range(len, member).len() * size_of::<T>();
        // Members other than the root have empty places, which are not used.
        let places = self.byte_slices_mut(own);
        let phase = DataPhase::Second;
        self.gather_long(phase, root.index(), bytes(&folded), bytes_of, places)
            .await
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
