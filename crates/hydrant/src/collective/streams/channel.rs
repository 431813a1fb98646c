//! Channels: data from one member to another, through slots in the receiver's scratch or
//! [directly](super::direct) into its buffer.
//!
//! The receiver opens a channel for a sender by giving it credit. The sender sends units as far as its
//! credit goes, and counts them in the channel's flag. The receiver returns credit for [several](CREDITED)
//! units at a time. A chunk lies in a slot, which is overwritten only after it was read. A channel serves
//! one sender after another, and the senders need not know of each other.
//!
//! The flag and the credit hold the use (`epoch`) of the channel and, in the low byte, a count of units
//! modulo 256. Sender and receiver are never further apart than the slots.

use super::cleared::Cleared;
use crate::{
    Error, Result,
    collective::{
        layout::{CHUNK, SLOTS},
        team::{Team, awaited::Awaited, outside},
    },
};

/// Units for which credit is returned at once. The sender has as many left meanwhile, and half as many
/// messages are sent.
const CREDITED: usize = SLOTS / 2;

/// The sender's end of a channel.
pub(in crate::collective) struct Outbound<'a> {
    pub(super) team: &'a Team,
    pub(super) channel: usize,
    pub(super) to: usize,
    pub(super) epoch: u64,
    /// Units that were sent.
    pub(super) sent: usize,
    /// The buffer that the receiver has cleared for the next units.
    pub(super) cleared: Option<Cleared>,
}

/// The receiver's end of a channel.
pub(in crate::collective) struct Inbound<'a> {
    pub(super) team: &'a Team,
    pub(super) channel: usize,
    pub(super) from: usize,
    pub(super) epoch: u64,
    /// Units that were taken.
    pub(super) received: usize,
}

impl<'a> Outbound<'a> {
    pub(in crate::collective) fn new(
        team: &'a Team,
        channel: usize,
        to: usize,
        epoch: u64,
    ) -> Self {
        Self {
            team,
            channel,
            to,
            epoch,
            sent: 0,
            cleared: None,
        }
    }

    /// Waits for credit to send a unit.
    pub(super) async fn until_credited(&self) -> Result<()> {
        let team = self.team;
        let credit = Awaited::CountBeyond(team.layout.credit(self.to), word(self.epoch, self.sent));
        team.until_data(credit).await
    }

    /// Sends a chunk as the next unit.
    pub(super) fn send_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let at = self.team.layout.slot(self.channel, self.sent % SLOTS);
        self.store_unit(at, chunk)
    }

    /// Stores `data` at offset `at` of the receiver's scratch, and counts it as a unit.
    pub(super) fn store_unit(&mut self, at: usize, data: &[u8]) -> Result<()> {
        let (team, flag) = (self.team, self.team.layout.flag(self.channel));
        self.sent += 1;
        team.store(self.to, at, data, (flag, &[word(self.epoch, self.sent)]))
    }
}

impl<'a> Inbound<'a> {
    /// Lets `from` send. All units of the channel's previous sender have been received.
    pub(in crate::collective) fn open(
        team: &'a Team,
        channel: usize,
        from: usize,
        epoch: u64,
    ) -> Result<Self> {
        let inbound = Self {
            team,
            channel,
            from,
            epoch,
            received: 0,
        };
        inbound.give_credit()?;
        Ok(inbound)
    }

    /// Waits until the next unit has arrived.
    pub(super) async fn until_filled(&self) -> Result<()> {
        let team = self.team;
        let filled = Awaited::CountBeyond(
            team.layout.flag(self.channel),
            word(self.epoch, self.received),
        );
        team.until_data(filled).await
    }

    /// Reads the next unit, a chunk that has arrived.
    pub(super) fn read_chunk(&mut self, chunk: &mut [u8]) -> Result<()> {
        let at = self.team.layout.slot(self.channel, self.received % SLOTS);
        self.team.scratch.read(at, chunk).map_err(outside)?;
        self.count_taken()
    }

    /// Counts a received unit, and returns credit if it is time.
    pub(super) fn count_taken(&mut self) -> Result<()> {
        self.received += 1;
        if self.received.is_multiple_of(CREDITED) {
            self.give_credit()
        } else {
            Ok(())
        }
    }

    /// Lets the sender send as many units beyond those received as there are slots.
    fn give_credit(&self) -> Result<()> {
        let credit = self.team.layout.credit(self.team.me);
        let value = word(self.epoch, self.received + SLOTS);
        match self.team.store(self.from, 0, &[], (credit, &[value])) {
            // A sender that has ended needs none; a later wait reports units that are missing.
            Err(Error::PeerLost(_)) => Ok(()),
            other => other,
        }
    }
}

/// Elements of a chunk.
pub(in crate::collective) fn in_chunk<T>() -> usize {
    (CHUNK / size_of::<T>()).max(1)
}

fn word(epoch: u64, count: usize) -> u64 {
    epoch << 8 | (count as u64 & 0xff)
}
