//! Scatter.

use crate::{
    Error, Pod, Result, TeamRank,
    collective::{
        agreement::{CallHeader, CollectiveKind},
        blocks::{Blocks, apart, bytes_in},
        elements::{bytes, bytes_mut, sized},
        team::Team,
    },
};

impl Team {
    /// Gives each member its part of the root's elements: as many as `mine` holds, in the order of members.
    /// `all` is read on the root alone.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`]; [`Error::LengthMismatch`] on a root whose elements are not one part
    /// for each member; [`Error::TeamRankOutOfRange`] for the root; and as for every collective of a
    /// [`Team`].
    pub fn scatter<T: Pod>(&self, root: TeamRank, all: Option<&[T]>, mine: &mut [T]) -> Result<()> {
        self.run_blocking("scatter", || self.scatter_async(root, all, mine))
    }

    pub(super) async fn scatter_async<T: Pod>(
        &self,
        root: TeamRank,
        all: Option<&[T]>,
        mine: &mut [T],
    ) -> Result<()> {
        let (size, part) = (self.members.len(), mine.len());
        let header = CallHeader::new(CollectiveKind::Scatter)
            .of::<T>(part)
            .root(root);
        let all = if root == self.rank() {
            all.unwrap_or(&[])
        } else {
            &[]
        };
        let wanted = part.checked_mul(size);
        let checked = sized::<T>()
            .and_then(|()| self.check_member(root))
            .and_then(|root| {
                if root == self.me && wanted != Some(all.len()) {
                    return Err(Error::LengthMismatch {
                        what: "the root's elements against one part for each member",
                        left: all.len(),
                        right: wanted.unwrap_or(usize::MAX),
                    });
                }
                Ok(root)
            });
        let (all, mine) = (bytes(all), bytes_mut(mine));
        let each = mine.len();
        if self.fits_piggyback(each) {
            return self.piggyback_dealt(header, checked, all, mine).await;
        }
        let root = self.agree(header, checked).await?;
        let block = |member| &all[member * each..][..each];
        self.scatter_long(root, block, |_| each, mine).await
    }

    /// As [`scatter`](Self::scatter), with blocks of any length, as MPI's `Scatterv`: member m gets
    /// block m of what the root has. `all` is looked at on the root alone; its blocks may overlap.
    ///
    /// # Errors
    /// [`Error::TeamRankOutOfRange`] for the root; on the root, while the others get an
    /// [`Error::CollectiveMismatch`],
    /// - [`Error::LengthMismatch`] if there is not one block for each member,
    /// - [`Error::BlockOutOfBounds`] if a block is not within the buffer,
    /// - [`Error::CountMismatch`] if a member has room for another number of elements than its
    ///   block has;
    ///
    /// and as for every collective of a [`Team`].
    pub fn scatter_v<T: Pod>(
        &self,
        root: TeamRank,
        all: Option<(&[T], Blocks<'_>)>,
        mine: &mut [T],
    ) -> Result<()> {
        self.run_blocking("scatter_v", || self.scatter_v_async(root, all, mine))
    }

    pub(super) async fn scatter_v_async<T: Pod>(
        &self,
        root: TeamRank,
        all: Option<(&[T], Blocks<'_>)>,
        mine: &mut [T],
    ) -> Result<()> {
        let header = CallHeader::new(CollectiveKind::ScatterV)
            .of_uneven::<T>()
            .root(root);
        let (all, blocks) = all.unwrap_or((&[], Blocks::packed(&[])));
        let ranges = sized::<T>()
            .and_then(|()| self.check_member(root))
            .and_then(|root| {
                if root == self.me {
                    blocks.ranges(self.members.len(), all.len())
                } else {
                    Ok(Vec::new())
                }
            });
        let (ranges, checked) = apart(ranges);
        let counts = self
            .agree_and_all_gather(header, checked, &[mine.len() as u64])
            .await?;
        // Only the root has ranges.
        let checked =
            (counts.iter().zip(&ranges).enumerate()).try_for_each(|(m, (room, range))| {
                self.same_count(self.me, m, range.len() as u64, *room)
            });
        self.agree(header, checked).await?;
        self.scatter_long(
            root.index(),
            |member| bytes(&all[ranges[member].clone()]),
            |member| bytes_in::<T>(counts[member]),
            bytes_mut(mine),
        )
        .await
    }
}
