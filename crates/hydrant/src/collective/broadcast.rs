//! Broadcast.

use super::{
    agree::Piggyback,
    all_gather::{bytes_mut, sized},
    header::{Header, Operation},
    layout::SMALL,
    team::{IDLE, Team},
};
use crate::{Pod, Rank, Result};

impl Team {
    /// Brings the elements of `root` to every member.
    ///
    /// Returns at the root when they are on their way; `data` may be used again.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::RankOutOfRange`](crate::Error::RankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn broadcast<T: Pod>(&self, root: Rank, data: &mut [T]) -> Result<()> {
        let _turn = self.enter("broadcast", IDLE)?;
        let header = Header::new(Operation::Broadcast)
            .of::<T>(data.len())
            .root(root);
        let checked = sized::<T>().and_then(|()| self.check_member(root));
        self.spread(header, checked, bytes_mut(data))
    }

    /// Agrees, and brings the root's bytes to all.
    fn spread(&self, header: Header, root: Result<usize>, data: &mut [u8]) -> Result<()> {
        if data.len() > SMALL {
            let root = self.agree(header, root, Piggyback::Nothing)?;
            return self.stream_down(root, data);
        }
        // Not to be changed unless all agree.
        let mut copy = data.to_vec();
        let root = self.agree_and_spread(header, root, &mut copy)?;
        if root != self.me {
            data.copy_from_slice(&copy);
        }
        Ok(())
    }

    /// Agrees while the root's bytes spread: few.
    pub(super) fn agree_and_spread(
        &self,
        header: Header,
        root: Result<usize>,
        data: &mut [u8],
    ) -> Result<usize> {
        let size = self.members.len();
        let distance = root
            .as_ref()
            .map_or(0, |root| (root + size - self.me) % size);
        self.agree(header, root, Piggyback::Spread { data, distance })
    }
}
