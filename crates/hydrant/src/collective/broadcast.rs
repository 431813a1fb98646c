//! Broadcast.

use super::{
    agree::Agreement,
    board::DataPhase,
    elements::{bytes, bytes_mut, sized},
    header::{CallHeader, CollectiveKind},
    layout::SMALL,
    piggyback::{PiggybackData, Wanted},
    piggybacked_blocks::PiggybackedBlocks,
    team::{IDLE, Team, poll_once},
};
use crate::{Pod, Result, TeamRank};

impl Team {
    /// Sends the elements of `root` to every member.
    ///
    /// At the root, the call returns when the elements are in flight, and `data` may be reused.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::TeamRankOutOfRange`](crate::Error::TeamRankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn broadcast<T: Pod>(&self, root: TeamRank, data: &mut [T]) -> Result<()> {
        let _turn = self.enter("broadcast", IDLE)?;
        if !self.shows_broadcast::<T>(data.len()) {
            return poll_once(|| self.broadcast_async(root, data));
        }
        poll_once(|| self.broadcast_shown(root, data))?;
        self.read_broadcast(root, data)
    }

    pub(super) async fn broadcast_async<T: Pod>(
        &self,
        root: TeamRank,
        data: &mut [T],
    ) -> Result<()> {
        if self.shows_broadcast::<T>(data.len()) {
            self.broadcast_shown(root, data).await?;
            return self.read_broadcast(root, data);
        }
        let (header, root) = self.broadcast_call::<T>(root, data.len());
        let data = bytes_mut(data);
        if data.len() > SMALL {
            self.broadcast_long(header, root, data).await
        } else {
            self.broadcast_spread(header, root, data).await
        }
    }

    /// The header of a broadcast, and the checked root.
    fn broadcast_call<T: Pod>(&self, root: TeamRank, len: usize) -> (CallHeader, Result<usize>) {
        let header = CallHeader::new(CollectiveKind::Broadcast)
            .of::<T>(len)
            .root(root);
        let checked = sized::<T>().and_then(|()| self.check_member(root));
        (header, checked)
    }

    /// Returns whether the root shows `len` elements to all on the agreement of a flat team.
    fn shows_broadcast<T>(&self, len: usize) -> bool {
        self.layout.is_flat() && len * size_of::<T>() <= SMALL
    }

    /// Agrees in a flat team, and the root shows its elements.
    #[inline]
    fn broadcast_shown<'d, T: Pod>(&self, root: TeamRank, data: &'d [T]) -> Agreement<'_, 'd, ()> {
        let (header, checked) = self.broadcast_call::<T>(root, data.len());
        let shown = if root == self.rank() {
            PiggybackData::Shown {
                data: bytes(data),
                wanted: Wanted::ByAll,
            }
        } else {
            PiggybackData::Nothing
        };
        self.agree(header, checked.map(drop), shown)
    }

    /// Reads the elements that the root shows.
    #[inline]
    fn read_broadcast<T: Pod>(&self, root: TeamRank, data: &mut [T]) -> Result<()> {
        if root == self.rank() {
            return Ok(());
        }
        let data = bytes_mut(data);
        PiggybackedBlocks::in_scratch(self, data.len(), false).read(root.index(), data)
    }

    /// The distance from this member to the root.
    pub(super) fn distance_to(&self, root: &Result<usize>) -> usize {
        let size = self.members.len();
        (root.as_ref()).map_or(0, |root| (root + size - self.me) % size)
    }

    /// A broadcast of piggybacked bytes in a team that is not flat.
    async fn broadcast_spread(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<()> {
        // `data` stays unchanged unless all agree.
        let (mut copy, distance) = (data.to_vec(), self.distance_to(&root));
        let spread = PiggybackData::Spread {
            data: &mut copy,
            distance,
        };
        let root = self.agree(header, root, spread).await?;
        if root != self.me {
            data.copy_from_slice(&copy);
        }
        Ok(())
    }

    /// A broadcast of bytes that are not piggybacked.
    async fn broadcast_long(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<()> {
        let Some(board) = &self.board else {
            let root = self.agree(header, root, PiggybackData::Nothing).await?;
            return self.broadcast_by_tree(root, data).await;
        };
        let at = self.next(DataPhase::Only);
        let mut streams = match &root {
            Ok(root) => self.broadcast_streams(board, at, *root, data)?,
            Err(_) => self.no_streams(board, at),
        };
        self.agree_on(header, root.map(drop), &mut streams).await?;
        streams.run().await
    }
}
