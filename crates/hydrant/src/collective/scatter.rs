//! Scatter.

use super::{
    agree::Piggyback,
    all_gather::{bytes, bytes_mut, sized},
    header::{Header, Operation},
    layout::SMALL,
    team::{IDLE, Team},
};
use crate::{Error, Pod, Rank, Result};

impl Team {
    /// Gives each member its part of what `root` has: as many elements as `mine` holds, by
    /// member. `all` is looked at on the root alone.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`]; [`Error::LengthMismatch`] on a root whose elements are
    /// not one part for each member; [`Error::RankOutOfRange`] for the root; and as for every
    /// collective of a [`Team`].
    pub fn scatter<T: Pod>(&self, root: Rank, all: Option<&[T]>, mine: &mut [T]) -> Result<()> {
        let _turn = self.enter("scatter", IDLE)?;
        let (size, part) = (self.members.len(), mine.len());
        let header = Header::new(Operation::Scatter).of::<T>(part).root(root);
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
        match each.checked_mul(size).filter(|total| *total <= SMALL) {
            Some(total) => {
                // Everybody's parts ride along to everybody.
                let mut copy = all.to_vec();
                copy.resize(total, 0);
                self.agree_and_spread(header, checked, &mut copy)?;
                mine.copy_from_slice(&copy[self.me * each..][..each]);
                Ok(())
            }
            None => {
                let root = self.agree(header, checked, Piggyback::Nothing)?;
                self.stream_apart(root, |member| &all[member * each..][..each], mine)
            }
        }
    }
}
