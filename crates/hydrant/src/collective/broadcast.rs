//! Broadcast.

use super::{
    board::DataPhase,
    elements::{bytes_mut, sized},
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
        let (header, root) = self.broadcast_call::<T>(root, data.len());
        let data = bytes_mut(data);
        if data.len() > SMALL {
            return poll_once(self.broadcast_bytes(header, root, data));
        }
        if !self.layout.is_flat() {
            return poll_once(self.broadcast_bytes(header, root, data));
        }
        let given = match root {
            Ok(root) if root == self.me => shown_to_all(data),
            _ => PiggybackData::Nothing,
        };
        match self.agree_blocking(header, root, given)? {
            root if root == self.me => Ok(()),
            root => PiggybackedBlocks::in_scratch(self, data.len(), false).read(root, data),
        }
    }

    /// A broadcast, for blocking and background calls.
    pub(super) async fn broadcast_async<T: Pod>(
        &self,
        root: TeamRank,
        data: &mut [T],
    ) -> Result<()> {
        let (header, root) = self.broadcast_call::<T>(root, data.len());
        self.broadcast_bytes(header, root, bytes_mut(data)).await
    }

    /// The header of a broadcast, and the checked root.
    fn broadcast_call<T: Pod>(&self, root: TeamRank, len: usize) -> (CallHeader, Result<usize>) {
        let header = CallHeader::new(CollectiveKind::Broadcast)
            .of::<T>(len)
            .root(root);
        let checked = sized::<T>().and_then(|()| self.check_member(root));
        (header, checked)
    }

    /// The distance from this member to the root.
    pub(super) fn distance_to(&self, root: &Result<usize>) -> usize {
        let size = self.members.len();
        (root.as_ref()).map_or(0, |root| (root + size - self.me) % size)
    }

    /// Agrees, and sends the root's bytes to all.
    async fn broadcast_bytes(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<()> {
        if data.len() > SMALL {
            let Some(board) = &self.board else {
                let root = self.agree(header, root, PiggybackData::Nothing).await?;
                return self.broadcast_long(root, data).await;
            };
            let at = self.next(DataPhase::Only);
            let mut streams = match &root {
                Ok(root) => self.broadcast_streams(board, at, *root, data)?,
                Err(_) => self.no_streams(board, at),
            };
            self.agree_on(header, root.map(drop), &mut streams).await?;
            return streams.run().await;
        }
        if self.layout.is_flat() {
            let each = data.len();
            let (root, blocks) = self
                .piggyback_from_root(header, root, shown_to_all(data), each)
                .await?;
            return if root == self.me {
                Ok(())
            } else {
                blocks.read(root, data)
            };
        }
        // `data` stays unchanged unless all agree.
        let mut copy = data.to_vec();
        let root = self.piggyback_spread(header, root, &mut copy).await?;
        if root != self.me {
            data.copy_from_slice(&copy);
        }
        Ok(())
    }

    /// Agrees with the root's bytes piggybacked, in a team that is not flat.
    pub(super) async fn piggyback_spread(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<usize> {
        let distance = self.distance_to(&root);
        self.agree(header, root, PiggybackData::Spread { data, distance })
            .await
    }
}

fn shown_to_all(data: &[u8]) -> PiggybackData<'_> {
    let wanted = Wanted::ByAll;
    PiggybackData::Shown { data, wanted }
}
