//! Splitting a team into new teams.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use crate::{
    Error, Result,
    collective::{
        agreement::CollectiveKind,
        area::ScratchPiece,
        layout::{BOARD, Layout},
        team::{IDLE, Team, outside, peer::is_mapped, poll_once},
    },
};

/// The color and key that a member gives.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SplitChoice {
    /// A color, or `NONE`.
    color: u64,
    key: u64,
}

/// A member's scratch for its new team.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ScratchOffer {
    /// Bytes from the segment's start, or `NONE` if there is no room.
    offset: u64,
    wanted: u64,
    /// Bytes of the largest gap, if there is no room.
    available: u64,
}

const NONE: u64 = u64::MAX;

impl Team {
    /// Makes a team of the members that give the same color. They are numbered by `key` and, where keys are
    /// equal, by their rank in this team. A member that gives no color gets no team.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] on every caller if some member has no room for the scratch of its new team;
    /// nothing is kept then. And as for every collective of a [`Team`].
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Team>> {
        let _turn = self.enter("split", IDLE)?;
        let choice = SplitChoice {
            color: color.map_or(NONE, u64::from),
            key: u64::from(key),
        };
        self.area.settle(&self.progress, &self.members)?;
        let choices = poll_once(|| self.all_gather_one(CollectiveKind::Split, &choice))?;
        let mut chosen: Vec<usize> = match color {
            None => Vec::new(),
            Some(_) => (0..choices.len())
                .filter(|m| choices[*m].color == choice.color)
                .collect(),
        };
        chosen.sort_by_key(|member| choices[*member].key);
        let (piece, offer) = self.find_room(&chosen)?;
        let offers = poll_once(|| self.all_gather_one(CollectiveKind::Split, &offer));
        let offers = match offers.and_then(|offers| self.check_offers(offers)) {
            Ok(offers) => offers,
            Err(error) => {
                // If a member is lost, the others may have continued and use the piece.
                if !matches!(error, Error::PeerLost(_)) {
                    piece.into_iter().for_each(|piece| self.area.give(piece));
                }
                return Err(error);
            }
        };
        let Some(me) = chosen.iter().position(|member| *member == self.me) else {
            return Ok(None);
        };
        let members = chosen.iter().map(|member| self.members[*member]).collect();
        let offsets: Vec<usize> = chosen.iter().map(|m| offers[*m].offset as usize).collect();
        Self::new(
            (&self.progress, self.transfer.clone()),
            Arc::clone(&self.area),
            members,
            me,
            (self.layout_of(&chosen), &offsets),
            piece,
        )
        .map(Some)
    }

    /// Takes a piece of the system area for a team of these members, if there are any.
    fn find_room(&self, members: &[usize]) -> Result<(Option<ScratchPiece>, ScratchOffer)> {
        let mut offer = ScratchOffer {
            offset: 0,
            wanted: 0,
            available: 0,
        };
        if members.is_empty() {
            return Ok((None, offer));
        }
        let layout = self.layout_of(members);
        offer.wanted = layout.total() as u64;
        let piece = match self.area.take(layout.total()) {
            Ok(piece) => piece,
            Err(available) => {
                offer.offset = NONE;
                offer.available = available as u64;
                return Ok((None, offer));
            }
        };
        offer.offset = piece.offset as u64;
        // Clears the words that an earlier team left.
        let window = self.progress.conduit().window(self.progress.rank);
        (window.map_or(Ok(()), |window| {
            window.fill(piece.offset, layout.control(), 0)
        }))
        .map_err(outside)?;
        Ok((Some(piece), offer))
    }

    /// The layout of a team of these members.
    fn layout_of(&self, members: &[usize]) -> Layout {
        let mut ranks = members.iter().map(|member| self.members[*member]);
        Layout::new(
            members.len(),
            ranks.all(|rank| is_mapped(&self.progress, rank)),
            BOARD,
        )
    }

    /// Checks that every member has room.
    fn check_offers(&self, offers: Vec<ScratchOffer>) -> Result<Vec<ScratchOffer>> {
        match offers.iter().position(|offer| offer.offset == NONE) {
            None => Ok(offers),
            Some(member) => Err(Error::OutOfMemory {
                rank: self.members[member],
                wanted: offers[member].wanted,
                available: offers[member].available,
                remedy: "for another team; drop teams that are no longer needed, on every member",
            }),
        }
    }
}
