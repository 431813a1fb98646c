//! Channels: chunks from one member to another, through slots in the receiver's scratch.
//!
//! The receiver opens a channel for a sender by giving it credit; the sender fills slots as
//! far as its credit goes and counts them in the channel's flag; slots read are new credit, [some](CREDITED) at a time.
//! So nothing is overwritten before it was read, and a channel serves one sender after the
//! other without either knowing of the next.
//!
//! Both words hold the use (`epoch`) of the channel and, in the low byte, a count of chunks
//! modulo 256: sender and receiver are never further apart than the slots.

use std::ops::Range;

use super::{
    layout::{CHUNK, SLOTS},
    sought::Sought,
    team::{Team, outside},
};
use crate::{Error, Result};

/// So many slots read are told at once: the sender has as many left meanwhile, and half as much is said.
const CREDITED: usize = SLOTS / 2;

/// The end of a channel that gives.
pub(super) struct Outbound<'a> {
    team: &'a Team,
    channel: usize,
    to: usize,
    epoch: u64,
    sent: usize,
}

/// The end of a channel that takes.
pub(super) struct Inbound<'a> {
    team: &'a Team,
    channel: usize,
    from: usize,
    epoch: u64,
    received: usize,
}

impl<'a> Outbound<'a> {
    pub(super) fn new(team: &'a Team, channel: usize, to: usize, epoch: u64) -> Self {
        Self {
            team,
            channel,
            to,
            epoch,
            sent: 0,
        }
    }

    /// Sends what the other side receives by one [`Inbound::receive`] of the same length.
    pub(super) async fn send(&mut self, data: &[u8]) -> Result<()> {
        for chunk in data.chunks(CHUNK) {
            self.send_chunk(chunk).await?;
        }
        Ok(())
    }

    async fn send_chunk(&mut self, chunk: &[u8]) -> Result<()> {
        let Self { team, epoch, .. } = *self;
        let sent = self.sent;
        let credit = Sought::Beyond(team.layout.credit(self.to), word(epoch, sent));
        team.until(&team.members, credit).await?;
        let at = team.layout.slot(self.channel, sent % SLOTS);
        self.sent += 1;
        let (flag, value) = (team.layout.flag(self.channel), word(epoch, self.sent));
        team.store(self.to, at, chunk, flag, value)
    }
}

impl<'a> Inbound<'a> {
    /// Lets `from` send. Whoever sent on this channel before has been heard to the end.
    pub(super) fn open(team: &'a Team, channel: usize, from: usize, epoch: u64) -> Result<Self> {
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

    /// Receives what the other side sent by one [`Outbound::send`] of the same length.
    pub(super) async fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        for chunk in into.chunks_mut(CHUNK) {
            self.receive_chunk(chunk).await?;
        }
        Ok(())
    }

    async fn receive_chunk(&mut self, chunk: &mut [u8]) -> Result<()> {
        let Self { team, epoch, .. } = *self;
        let received = self.received;
        let filled = Sought::Beyond(team.layout.flag(self.channel), word(epoch, received));
        team.until(&team.members, filled).await?;
        let at = team.layout.slot(self.channel, received % SLOTS);
        team.scratch.read(at, chunk).map_err(outside)?;
        self.received += 1;
        match self.received.is_multiple_of(CREDITED) {
            true => self.give_credit(),
            false => Ok(()),
        }
    }

    /// The sender may fill as many slots as there are beyond what was received.
    fn give_credit(&self) -> Result<()> {
        let credit = self.team.layout.credit(self.team.me);
        let value = word(self.epoch, self.received + SLOTS);
        match self.team.store(self.from, 0, &[], credit, value) {
            // A sender that is gone needs none; if anything of it is missing, that is told.
            Err(Error::PeerLost(_)) => Ok(()),
            other => other,
        }
    }
}

/// Sends and receives at once, chunk by chunk, as members of a ring must.
///
/// No ring of members can stop: whoever is at the lowest chunk of all finds that its
/// receiver has read every chunk before that, of which it has told all but the last few, and that
/// its sender has sent that one.
pub(super) async fn shift(
    mut outbound: Outbound<'_>,
    data: &[u8],
    mut inbound: Inbound<'_>,
    into: &mut [u8],
) -> Result<()> {
    let (mut data, mut into) = (data.chunks(CHUNK), into.chunks_mut(CHUNK));
    loop {
        let (chunk, place) = (data.next(), into.next());
        if chunk.is_none() && place.is_none() {
            return Ok(());
        }
        if let Some(chunk) = chunk {
            outbound.send_chunk(chunk).await?;
        }
        if let Some(place) = place {
            inbound.receive_chunk(place).await?;
        }
    }
}

/// As [`shift`], from and to pieces of one buffer, which do not overlap. Both sides have the same pieces.
pub(super) async fn shift_within(
    mut outbound: Outbound<'_>,
    data: [Range<usize>; 2],
    mut inbound: Inbound<'_>,
    into: [Range<usize>; 2],
    buffer: &mut [u8],
) -> Result<()> {
    let (mut data, mut into) = (chunks_of(data), chunks_of(into));
    loop {
        let (chunk, place) = (data.next(), into.next());
        if chunk.is_none() && place.is_none() {
            return Ok(());
        }
        if let Some(chunk) = chunk {
            outbound.send_chunk(&buffer[chunk]).await?;
        }
        if let Some(place) = place {
            inbound.receive_chunk(&mut buffer[place]).await?;
        }
    }
}

/// The chunks of two pieces, one after the other.
fn chunks_of(pieces: [Range<usize>; 2]) -> impl Iterator<Item = Range<usize>> {
    pieces.into_iter().flat_map(|piece| {
        let end = piece.end;
        piece.step_by(CHUNK).map(move |at| at..end.min(at + CHUNK))
    })
}

fn word(epoch: u64, count: usize) -> u64 {
    epoch << 8 | (count as u64 & 0xff)
}
