//! Gather.

use crate::{
    Pod, Result, TeamRank,
    collective::{
        agreement::{BlockAgreement, CallHeader, CollectiveKind, Wanted},
        blocks::{Blocks, apart, bytes_in, places},
        elements::{bytes, bytes_mut, sized},
        streams::DataPhase,
        team::{IDLE, Team, poll_once},
    },
};

impl Team {
    /// What every member gave, by member, at `root`; `None` elsewhere. All give equally many
    /// elements.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::TeamRankOutOfRange`](crate::Error::TeamRankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn gather<T: Pod>(&self, root: TeamRank, mine: &[T]) -> Result<Option<Vec<T>>> {
        self.run_blocking("gather", || self.gather_async(root, mine))
    }

    pub(super) async fn gather_async<T: Pod>(
        &self,
        root: TeamRank,
        mine: &[T],
    ) -> Result<Option<Vec<T>>> {
        if root != self.rank() {
            self.gather_into_checked(root, Ok(()), mine, &mut [])
                .await?;
            return Ok(None);
        }
        let room =
            sized::<T>().and_then(|()| self.buffer(mine.len().checked_mul(self.members.len())));
        let (mut all, checked) = apart(room);
        self.gather_into_checked(root, checked, mine, &mut all)
            .await?;
        Ok(Some(all))
    }

    /// As [`gather`](Self::gather), into a buffer with room for the elements of every member.
    /// `into` is looked at on the root alone. Other members may call either.
    ///
    /// # Errors
    /// As there; and [`Error::LengthMismatch`](crate::Error::LengthMismatch) on a root whose buffer
    /// is longer or shorter.
    pub fn gather_into<T: Pod>(
        &self,
        root: TeamRank,
        mine: &[T],
        into: Option<&mut [T]>,
    ) -> Result<()> {
        let (into, checked) = if root == self.rank() {
            let into = into.unwrap_or_default();
            let checked = self.room_for_all(mine.len(), into.len());
            (into, checked)
        } else {
            (&mut [][..], Ok(()))
        };
        let _turn = self.enter("gather_into", IDLE)?;
        if !self.fits_piggyback(bytes(mine).len()) {
            return poll_once(|| self.gather_into_checked(root, checked, mine, into));
        }
        let blocks = poll_once(|| self.gather_short(root, checked, mine))?;
        blocks.copy_blocks(Some(bytes(mine)), bytes_mut(into))
    }

    /// As [`gather_into`](Self::gather_into), with blocks of any length, as MPI's `Gatherv`: what
    /// member m gives is block m of the buffer at the root. Elements outside the blocks stay as they are.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); and on the root, while the others get a
    /// [`CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// - [`Error::LengthMismatch`](crate::Error::LengthMismatch) if there is not one block for each member,
    /// - [`Error::BlockOutOfBounds`](crate::Error::BlockOutOfBounds) if a block is not within the buffer,
    /// - [`Error::BlocksOverlap`](crate::Error::BlocksOverlap) if blocks do,
    /// - [`Error::CountMismatch`](crate::Error::CountMismatch) if a member gives another number of
    ///   elements than its block has.
    pub fn gather_v_into<T: Pod>(
        &self,
        root: TeamRank,
        mine: &[T],
        into: Option<(&mut [T], Blocks<'_>)>,
    ) -> Result<()> {
        self.run_blocking("gather_v_into", || {
            self.gather_v_into_async(root, mine, into)
        })
    }

    pub(super) async fn gather_v_into_async<T: Pod>(
        &self,
        root: TeamRank,
        mine: &[T],
        into: Option<(&mut [T], Blocks<'_>)>,
    ) -> Result<()> {
        let header = CallHeader::new(CollectiveKind::GatherV)
            .of_uneven::<T>()
            .root(root);
        let (into, blocks) = into
            .filter(|_| root == self.rank())
            .unwrap_or((&mut [], Blocks::packed(&[])));
        let ranges = sized::<T>()
            .and_then(|()| self.check_member(root))
            .and_then(|root| {
                if root == self.me {
                    blocks.ranges_apart(self.members.len(), into.len())
                } else {
                    Ok(Vec::new())
                }
            });
        let (ranges, checked) = apart(ranges);
        let counts = self
            .agree_and_all_gather(header, checked, &[mine.len() as u64])
            .await?;
        // None but the root has ranges.
        let checked =
            (counts.iter().zip(&ranges).enumerate()).try_for_each(|(m, (sent, range))| {
                self.same_count(m, self.me, *sent, range.len() as u64)
            });
        self.agree(header, checked).await?;
        self.gather_long(
            DataPhase::Only,
            root.index(),
            bytes(mine),
            |member| bytes_in::<T>(counts[member]),
            places(into, &ranges),
        )
        .await
    }

    /// Brings every member's block to the root, which has room for them if all was well so far.
    /// The header of a gather, and the checked root.
    fn gather_call<T: Pod>(
        &self,
        root: TeamRank,
        checked: Result<()>,
        len: usize,
    ) -> (CallHeader, Result<usize>) {
        let header = CallHeader::new(CollectiveKind::Gather)
            .of::<T>(len)
            .root(root);
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        (header, checked)
    }

    /// Agrees with the blocks piggybacked, which the root wants.
    #[inline]
    fn gather_short<'d, T: Pod>(
        &self,
        root: TeamRank,
        checked: Result<()>,
        mine: &'d [T],
    ) -> BlockAgreement<'_, 'd> {
        let (header, checked) = self.gather_call::<T>(root, checked, mine.len());
        let wanted = Wanted::ByMember(root.index());
        self.piggyback_blocks(header, checked.map(drop), bytes(mine), wanted)
    }

    async fn gather_into_checked<T: Pod>(
        &self,
        root: TeamRank,
        checked: Result<()>,
        mine: &[T],
        into: &mut [T],
    ) -> Result<()> {
        let each = bytes(mine).len();
        if self.fits_piggyback(each) {
            let blocks = self.gather_short(root, checked, mine).await?;
            return blocks.copy_blocks(Some(bytes(mine)), bytes_mut(into));
        }
        let (header, checked) = self.gather_call::<T>(root, checked, mine.len());
        let root = self.agree(header, checked).await?;
        let blocks = bytes_mut(into).chunks_mut(each).collect();
        self.gather_long(DataPhase::Only, root, bytes(mine), |_| each, blocks)
            .await
    }
}
