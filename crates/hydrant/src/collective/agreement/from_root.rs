//! Data of a root that is piggybacked on an agreement. In a flat team the root shows it, and the others read
//! it after the agreement. In other teams members forward it.

use super::{
    blocks::PiggybackedBlocks,
    header::CallHeader,
    piggyback::{PiggybackData, Wanted, dealt_position},
    rounds::Agreement,
};
use crate::{
    Result, TeamRank,
    collective::{layout::SMALL, team::Team},
};

impl Team {
    /// Returns whether a root can show `len` bytes, or parts of `len` bytes.
    #[inline]
    pub(in crate::collective) fn root_can_show(&self, len: usize) -> bool {
        self.layout.is_flat() && len <= SMALL
    }

    /// Agrees in a flat team, and the root [shows](Self::root_can_show) its bytes to all.
    #[inline(always)]
    pub(in crate::collective) fn piggyback_shown<'t, 'd>(
        &'t self,
        header: CallHeader,
        checked: Result<()>,
        root: TeamRank,
        data: &'d [u8],
    ) -> Agreement<'t, 'd, ()> {
        let wanted = Wanted::ByAll;
        let shown = match root == self.rank() {
            true => PiggybackData::Shown { data, wanted },
            false => PiggybackData::Nothing,
        };
        self.agree_with(header, checked, shown)
    }

    /// Reads the bytes that the root has shown.
    #[inline]
    pub(in crate::collective) fn read_shown(&self, root: TeamRank, into: &mut [u8]) -> Result<()> {
        if root == self.rank() {
            return Ok(());
        }
        PiggybackedBlocks::in_scratch(self, into.len(), false).read(root.index(), into)
    }

    /// Agrees, and brings the root's bytes to all. At most [`SMALL`] bytes fit.
    pub(in crate::collective) async fn piggyback_spread(
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
        let root = self.agree_with(header, root, spread).await?;
        if root != self.me {
            data.copy_from_slice(&copy);
        }
        Ok(())
    }

    /// Agrees, and brings each member its part of the root's bytes. Parts as long as `mine`
    /// [fit](Self::fits_piggyback).
    pub(in crate::collective) async fn piggyback_dealt(
        &self,
        header: CallHeader,
        root: Result<usize>,
        all: &[u8],
        mine: &mut [u8],
    ) -> Result<()> {
        let (size, each) = (self.members.len(), mine.len());
        if self.root_can_show(each) {
            let parts = match root {
                Ok(root) if root == self.me => PiggybackData::Parts { data: all, each },
                _ => PiggybackData::Nothing,
            };
            let root = self.agree_with(header, root, parts).await?;
            if root != self.me {
                return PiggybackedBlocks::in_scratch(self, each, true).read(root, mine);
            }
            mine.copy_from_slice(&all[root * each..][..each]);
            return Ok(());
        }
        let distance = self.distance_to(&root);
        let mut parts = vec![0; size * each];
        if all.len() == parts.len() {
            for (member, part) in all.chunks(each.max(1)).enumerate() {
                let place = dealt_position((self.me + size - member) % size, size);
                parts[place * each..][..each].copy_from_slice(part);
            }
        }
        let dealt = PiggybackData::Dealt {
            parts: &mut parts,
            each,
            distance,
        };
        self.agree_with(header, root, dealt).await?;
        mine.copy_from_slice(&parts[dealt_position(distance, size) * each..][..each]);
        Ok(())
    }

    /// The distance from this member to the root.
    fn distance_to(&self, root: &Result<usize>) -> usize {
        let size = self.members.len();
        (root.as_ref()).map_or(0, |root| (root + size - self.me) % size)
    }
}
