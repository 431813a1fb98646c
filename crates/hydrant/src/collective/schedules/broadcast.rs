//! Broadcast.

use crate::{
    Pod, Result, TeamRank,
    collective::{
        agreement::{Agreement, CallHeader, CollectiveKind},
        elements::{bytes, bytes_mut, sized},
        layout::SMALL,
        streams::DataPhase,
        team::{IDLE, Team, poll_once},
    },
};

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
        if !self.root_can_show(size_of_val(data)) {
            return poll_once(|| self.broadcast_async(root, data));
        }
        poll_once(|| self.broadcast_short(root, data))?;
        self.read_shown(root, bytes_mut(data))
    }

    pub(super) async fn broadcast_async<T: Pod>(
        &self,
        root: TeamRank,
        data: &mut [T],
    ) -> Result<()> {
        if self.root_can_show(size_of_val(data)) {
            self.broadcast_short(root, data).await?;
            return self.read_shown(root, bytes_mut(data));
        }
        let (header, root) = self.broadcast_call::<T>(root, data.len());
        let data = bytes_mut(data);
        if data.len() > SMALL {
            self.broadcast_long(header, root, data).await
        } else {
            self.piggyback_spread(header, root, data).await
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

    /// Agrees in a flat team, and the root shows its elements.
    #[inline]
    fn broadcast_short<'d, T: Pod>(&self, root: TeamRank, data: &'d [T]) -> Agreement<'_, 'd, ()> {
        let (header, checked) = self.broadcast_call::<T>(root, data.len());
        self.piggyback_shown(header, checked.map(drop), root, bytes(data))
    }

    /// A broadcast of bytes that are not piggybacked.
    async fn broadcast_long(
        &self,
        header: CallHeader,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<()> {
        let Some(board) = &self.board else {
            let root = self.agree(header, root).await?;
            return self.broadcast_by_tree(root, data).await;
        };
        let at = self.next(DataPhase::Only);
        let streams = match &root {
            Ok(root) => self.broadcast_streams(board, at, *root, data)?,
            Err(_) => self.no_streams(board, at),
        };
        streams.agree_and_run(header, root.map(drop)).await
    }
}
