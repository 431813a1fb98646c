//! Gather.

use super::{
    agree::Piggyback,
    all_gather::{bytes, bytes_mut, sized},
    header::{Header, Operation},
    team::{IDLE, Team},
};
use crate::{Pod, Rank, Result};

impl Team {
    /// What every member gave, by member, at `root`; `None` elsewhere. All give equally many
    /// elements.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::RankOutOfRange`](crate::Error::RankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn gather<T: Pod>(&self, root: Rank, mine: &[T]) -> Result<Option<Vec<T>>> {
        let _turn = self.enter("gather", IDLE)?;
        let header = Header::new(Operation::Gather)
            .of::<T>(mine.len())
            .root(root);
        let checked = sized::<T>().and_then(|()| self.check_member(root));
        let at_root = root == self.rank();
        let each = bytes(mine).len();
        if self.fits(each) {
            // They ride along to everybody.
            let all = self.gather_blocks(header, checked.map(|_| ()), mine)?;
            return Ok(at_root.then_some(all));
        }
        let checked = checked.and_then(|root| {
            let all = if at_root {
                mine.len().checked_mul(self.members.len())
            } else {
                Some(0)
            };
            Ok((root, self.buffer(all)?))
        });
        let (root, mut all) = self.agree(header, checked, Piggyback::Nothing)?;
        let mut blocks: Vec<_> = bytes_mut(&mut all).chunks_mut(each).collect();
        self.stream_up(root, bytes(mine), |_| each, &mut blocks)?;
        Ok(at_root.then_some(all))
    }
}
