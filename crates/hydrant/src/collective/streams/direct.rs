//! Long data that goes from buffer to buffer (ARMCI §3, zero-copy and rendezvous). The receiver registers
//! its buffer and *clears* it for the sender. The sender's NIC writes into it, and the sender reports how
//! much was written.
//!
//! Data on a [channel](super::channel) moves in units, which both sides count. A unit is a chunk in a slot
//! or a direct write. Before it waits, a receiver of long data clears its buffer, or as much of it as may
//! be registered at once, or reports that it cannot. The sender waits for that. Within a cleared buffer the
//! sender chooses the kind of each unit. If it cannot register its own side, or a write fails, it sends
//! chunks, which the receiver copies from the slots.
//!
//! Both sides make calls of equal length. So both know from the bytes left whether a buffer is cleared
//! next.
//!
//! ```text
//! cleared    at the sender, a line for each receiver: number, key, address, bytes, leading bytes that go in chunks
//! written    at the receiver, behind a channel's flag, [unit modulo slots]: number, bytes
//! ```

use std::{mem, sync::atomic::Ordering::Acquire};

use hydrant_conduit::{Key, Remote};

use super::{
    channel::{Inbound, Outbound},
    cleared::Cleared,
};
use crate::{
    Error, Result,
    collective::{
        layout::{CHUNK, DIRECT, PIECE},
        team::{Team, awaited::Awaited, outside},
    },
    transfer::{Transfer, TransferBuffer},
};

/// Bits that number the units of one use of a channel. Two units of equal number are so far apart that the
/// buffer was cleared anew between them.
const UNITS: u32 = 20;

/// The number of a unit, or of the first unit for which a buffer is cleared.
fn number(epoch: u64, unit: usize) -> u64 {
    epoch << UNITS | (unit as u64 & ((1 << UNITS) - 1))
}

/// The data of one send call.
pub(super) struct OutgoingData<'a> {
    data: &'a [u8],
    /// Bytes sent.
    at: usize,
    /// The buffer registered from this offset on, or an attempt that found no room.
    buffer: Option<(usize, TransferBuffer<'a>)>,
}

/// The destination of one receive call.
pub(super) struct IncomingData<'a> {
    /// The bytes behind the landing.
    rest: &'a mut [u8],
    landing: Option<RegisteredBuffer<'a>>,
}

/// A buffer that was registered to be cleared, if there was room.
struct RegisteredBuffer<'a> {
    buffer: TransferBuffer<'a>,
    /// Bytes received.
    at: usize,
    /// Bytes after these that were cleared, or were announced to go in chunks.
    cleared: usize,
    /// Leading bytes of these that go in chunks.
    before: usize,
}

/// Bytes of the next chunk, of `cleared` bytes of which the first `before` are not written.
fn chunk_of(cleared: usize, before: usize) -> usize {
    CHUNK.min(if before > 0 { before } else { cleared })
}

/// The kind of a received unit.
enum ReceivedUnit {
    Chunk,
    /// A direct write of this many bytes.
    Written(usize),
}

impl Team {
    /// Returns whether the receiver of `len` bytes clears its buffer, between this member and `member`.
    /// Both sides compute the same.
    pub(super) fn clears(&self, member: usize, len: usize) -> bool {
        len >= DIRECT && self.peers[member].mapped().is_none() && self.registers()
    }

    /// Returns whether buffers are registered on this network: the same at every member, whatever its
    /// settings.
    fn registers(&self) -> bool {
        self.progress.conduit().caps().registration.is_some()
    }

    /// Bytes that are forwarded at once.
    pub(in crate::collective) fn piece(&self) -> usize {
        if self.registers() { PIECE } else { CHUNK }
    }

    fn transfer(&self) -> Result<std::sync::Arc<Transfer>> {
        self.transfer.upgrade().ok_or(Error::JobOver)
    }

    /// Loads a word of this member's scratch.
    fn word(&self, at: usize) -> Result<u64> {
        let word = self.scratch.atomic_u64(at).map_err(outside)?;
        Ok(word.load(Acquire))
    }
}

impl Outbound<'_> {
    /// Sends data that the receiver takes by one [`Inbound::receive`] of the same length.
    pub(in crate::collective) async fn send(&mut self, data: &[u8]) -> Result<()> {
        let mut source = OutgoingData::new(data);
        while !source.is_over() {
            source.send_one(self).await?;
        }
        Ok(())
    }
}

impl Inbound<'_> {
    /// Receives data that the sender sends by one [`Outbound::send`] of the same length.
    pub(in crate::collective) async fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        IncomingData::new(into).receive_all(self).await
    }
}

impl<'a> OutgoingData<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self {
            data,
            at: 0,
            buffer: None,
        }
    }

    /// Bytes not sent yet.
    fn left(&self) -> usize {
        self.data.len() - self.at
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// Registers the next bytes unless they are registered. Returns the buffer and the offset in it.
    fn registered(&mut self, team: &Team) -> Result<Option<(&TransferBuffer<'a>, usize)>> {
        let covers = |(start, buffer): &(usize, TransferBuffer<'_>)| self.at < start + buffer.len();
        if !self.buffer.as_ref().is_some_and(covers) {
            // Released before the next one is registered: the two may share a page.
            self.buffer = None;
            let transfer = team.transfer()?;
            let len = self.left().min(transfer.registered_at_once().max(DIRECT));
            let next = &self.data[self.at..self.at + len];
            self.buffer = Some((self.at, transfer.to_be_read(next)));
        }
        Ok((self.buffer.as_ref()).map(|(start, buffer)| (buffer, self.at - start)))
    }

    /// Sends one unit.
    pub(super) async fn send_one(&mut self, outbound: &mut Outbound<'_>) -> Result<()> {
        let (team, to) = (outbound.team, outbound.to);
        if outbound.cleared.is_none() && team.clears(to, self.left()) {
            outbound.cleared = Some(outbound.until_cleared().await?);
        }
        outbound.until_credited().await?;
        let cleared = outbound.cleared.filter(|cleared| cleared.before == 0);
        if let Some(place) = cleared.and_then(|cleared| cleared.to)
            && let Some(written) = self.write(outbound, place).await?
        {
            self.advance(outbound, written);
            return outbound.report_written(written);
        }
        let most = (outbound.cleared).map_or(CHUNK, |it| chunk_of(it.left, it.before));
        let len = most.min(self.left());
        let chunk = &self.data[self.at..self.at + len];
        self.advance(outbound, len);
        outbound.send_chunk(chunk)
    }

    /// Moves on by a unit of `len` bytes.
    fn advance(&mut self, outbound: &mut Outbound<'_>, len: usize) {
        self.at += len;
        if let Some(cleared) = &mut outbound.cleared {
            cleared.left -= len;
            cleared.before = cleared.before.saturating_sub(len);
            if let Some(place) = &mut cleared.to {
                place.offset = place.offset.wrapping_add(len as u64);
            }
        }
        outbound.cleared = outbound.cleared.filter(|cleared| cleared.left > 0);
    }

    /// Writes the next bytes, as far as they are cleared and registered here. Returns the bytes written, or
    /// `None` if nothing could be written.
    async fn write(&mut self, outbound: &Outbound<'_>, mut place: Remote) -> Result<Option<usize>> {
        let (team, peer) = (outbound.team, outbound.team.members[outbound.to]);
        let most = outbound.cleared.map_or(0, |cleared| cleared.left);
        let Some((buffer, start)) = self.registered(team)? else {
            return Ok(None);
        };
        let mut gone = 0;
        // One write for each extent; together they are one unit, so that the receiver waits once.
        let failed = loop {
            let written = match buffer.write(start + gone, (peer, place), most - gone) {
                Ok(None) => break None,
                Ok(Some((write, len))) => team.until_write_ends(write).await.map(|()| len),
                Err(cause) => Err(cause),
            };
            match written {
                Ok(len) => {
                    gone += len;
                    place.offset = place.offset.wrapping_add(len as u64);
                }
                Err(cause) => break Some(cause),
            }
            if gone == most || start + gone == buffer.len() {
                break None;
            }
        };
        match failed {
            Some(cause @ (Error::PeerLost(_) | Error::JobOver | Error::Expelled(_))) => {
                team.abandon();
                Err(team.blame_first_lost(cause))
            }
            Some(cause) => {
                tracing::debug!(%cause, "a part of a collective is copied: it could not be written");
                Ok((gone > 0).then_some(gone))
            }
            None => Ok((gone > 0).then_some(gone)),
        }
    }
}

impl<'a> IncomingData<'a> {
    pub(super) fn new(into: &'a mut [u8]) -> Self {
        Self {
            rest: into,
            landing: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// Bytes not received yet.
    fn left(&self) -> usize {
        let landing = self.landing.as_ref();
        landing.map_or(0, |it| it.buffer.len() - it.at) + self.rest.len()
    }

    /// Clears the next bytes if they are long and not cleared yet.
    pub(super) fn clear(&mut self, inbound: &Inbound<'_>) -> Result<()> {
        let (team, left) = (inbound.team, self.left());
        let is_cleared = (self.landing.as_ref()).is_some_and(|landing| landing.cleared > 0);
        if is_cleared || !team.clears(inbound.from, left) {
            return Ok(());
        }
        if self.landing.is_none() {
            let transfer = team.transfer()?;
            // The rest behind it is empty or long enough to be cleared.
            let len = match transfer.registered_at_once().max(DIRECT) {
                most if left - left.min(most) < DIRECT => left,
                most => most,
            };
            let (next, rest) = mem::take(&mut self.rest).split_at_mut(len);
            self.rest = rest;
            self.landing = Some(RegisteredBuffer {
                buffer: transfer.to_be_written(next),
                at: 0,
                cleared: 0,
                before: 0,
            });
        }
        let Some(landing) = &mut self.landing else {
            return Ok(());
        };
        let all = landing.buffer.len() - landing.at;
        let (place, before, len) = match landing.buffer.lend(landing.at) {
            Some((place, before, len)) => (Some(place), before, before + len),
            None => (None, 0, all),
        };
        (landing.cleared, landing.before) = (len, before);
        inbound.report_cleared(place, len, before)
    }

    /// Receives all that is left.
    pub(super) async fn receive_all(&mut self, inbound: &mut Inbound<'_>) -> Result<()> {
        while !self.is_over() {
            self.receive_one(inbound).await?;
        }
        Ok(())
    }

    /// Receives one unit.
    pub(super) async fn receive_one(&mut self, inbound: &mut Inbound<'_>) -> Result<()> {
        self.clear(inbound)?;
        inbound.until_filled().await?;
        let Some(landing) = &mut self.landing else {
            let len = CHUNK.min(self.rest.len());
            let (chunk, rest) = mem::take(&mut self.rest).split_at_mut(len);
            self.rest = rest;
            return inbound.read_chunk(chunk);
        };
        let (at, cleared, before) = (landing.at, landing.cleared, landing.before);
        let left = landing.buffer.len() - at;
        let came = match inbound.unit()? {
            ReceivedUnit::Written(len) if before == 0 && (1..=cleared).contains(&len) => {
                inbound.count_taken()?;
                len
            }
            ReceivedUnit::Written(_) => return Err(inbound.malformed()),
            ReceivedUnit::Chunk => {
                let len = chunk_of(if cleared > 0 { cleared } else { left }, before);
                inbound.read_chunk(landing.buffer.part(at..at + len))?;
                len
            }
        };
        landing.at += came;
        landing.cleared = cleared.saturating_sub(came);
        landing.before = before.saturating_sub(came);
        if came == left {
            landing.buffer.mark_unlent();
            self.landing = None;
        }
        Ok(())
    }
}

impl Outbound<'_> {
    /// Waits until the receiver has reported its cleared buffer.
    async fn until_cleared(&self) -> Result<Cleared> {
        let (team, at) = (self.team, self.team.layout.cleared(self.to));
        let said = Awaited::Word(at, number(self.epoch, self.sent));
        team.until_data(said).await?;
        let word = |index: usize| team.word(at + index * size_of::<u64>());
        let (key, offset) = (Key(word(1)?), word(2)?);
        let bytes = |index| Ok::<_, Error>(usize::try_from(word(index)?).unwrap_or(usize::MAX));
        // A peer that reports zero bytes gains nothing.
        let left = bytes(3)?.max(1);
        Ok(Cleared {
            to: (key != Key::ANY).then_some(Remote { key, offset }),
            left,
            before: bytes(4)?.min(left),
        })
    }

    /// Reports that the next unit was written directly.
    fn report_written(&mut self, len: usize) -> Result<()> {
        let at = self.team.layout.written(self.channel, self.sent);
        let words = [number(self.epoch, self.sent + 1), len as u64];
        self.store_unit(at, bytemuck::cast_slice(&words))
    }
}

impl Inbound<'_> {
    /// Clears a buffer for the next bytes, or reports that they go in chunks.
    fn report_cleared(&self, place: Option<Remote>, len: usize, before: usize) -> Result<()> {
        let team = self.team;
        let Remote { key, offset } = place.unwrap_or(Remote {
            key: Key::ANY,
            offset: 0,
        });
        let number = number(self.epoch, self.received);
        let words = [number, key.0, offset, len as u64, before as u64];
        match team.store(self.from, 0, &[], (team.layout.cleared(team.me), &words)) {
            // A sender that has ended sends nothing; a later wait reports units that are missing.
            Err(Error::PeerLost(_)) => Ok(()),
            other => other,
        }
    }

    /// The kind of the next unit, which has arrived.
    fn unit(&self) -> Result<ReceivedUnit> {
        let at = self.team.layout.written(self.channel, self.received);
        if self.team.word(at)? == number(self.epoch, self.received + 1) {
            let len = self.team.word(at + size_of::<u64>())?;
            Ok(ReceivedUnit::Written(
                usize::try_from(len).unwrap_or(usize::MAX),
            ))
        } else {
            Ok(ReceivedUnit::Chunk)
        }
    }

    /// Expels the sender, whose report is impossible.
    fn malformed(&self) -> Error {
        let rank = self.team.members[self.from];
        (self.team.progress).malformed(rank, "it wrote more than a collective cleared");
        self.team.blame_first_lost(Error::PeerLost(rank))
    }
}
