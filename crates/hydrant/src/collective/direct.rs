//! Long data that goes from buffer to buffer: the receiver registers its own and *clears* it for the sender, whose
//! NIC writes there from the sender's, and the sender says how much (ARMCI §3, zero-copy and rendezvous).
//!
//! Data on a [channel](super::channel) moves in units, which both sides count: a unit is a chunk in a slot, or
//! what was written. Whoever receives much clears its buffer, or so much of it as may be registered at once, before
//! it waits, or says that it cannot; the sender waits for that. As far as a buffer is cleared the sender chooses
//! what a unit is: if it cannot register its own side, or a write fails, it sends chunks, which the receiver
//! copies from the slots.
//!
//! Both sides know from what is left of their calls, which are equally long, whether a buffer is cleared next.
//!
//! ```text
//! cleared    at the sender, a line each receiver: number, key, address, bytes, and how many of these at first go in chunks
//! written    at the receiver, behind a channel's flag, [unit modulo slots]: number, bytes
//! ```

use std::{mem, ops::Range, sync::atomic::Ordering::Acquire};

use hydrant_conduit::{Key, Remote};

use super::{
    awaited::Awaited,
    channel::{Inbound, Outbound},
    layout::{CHUNK, DIRECT, PIECE},
    team::{Team, outside},
};
use crate::{
    Error, Result,
    transfer::{Buffer, Transfer},
};

/// Bits of a number for units of one use of a channel. What they cannot tell apart lies so many units apart, and was
/// told of anew in between.
const UNITS: u32 = 20;

/// The number of a unit, or of the first for which a buffer is cleared.
fn number(epoch: u64, unit: usize) -> u64 {
    epoch << UNITS | (unit as u64 & ((1 << UNITS) - 1))
}

/// What a receiver has cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleared {
    /// Where it is to be written; nowhere if it goes in chunks.
    to: Option<Remote>,
    /// Bytes left of it.
    left: usize,
    /// Of these, bytes at first that go in chunks: the other side has not the whole of their bucket.
    before: usize,
}

/// What a member sends by one call.
pub(super) struct OutgoingData<'a> {
    data: &'a [u8],
    /// Bytes that were sent.
    at: usize,
    /// Bytes that are written as one unit, at most.
    unit: usize,
    /// Registered from this byte on, or not, if there was no room.
    buffer: Option<(usize, Buffer<'a>)>,
}

/// Where a member receives by one call.
pub(super) struct IncomingData<'a> {
    /// What is behind the landing.
    rest: &'a mut [u8],
    landing: Option<RegisteredBuffer<'a>>,
    /// All of it is one landing, which stays to be looked at.
    is_looked_at: bool,
}

/// A buffer that was registered to be cleared, if there was room.
struct RegisteredBuffer<'a> {
    buffer: Buffer<'a>,
    /// Bytes of it that were received.
    at: usize,
    /// Bytes behind these that were cleared, or were said to go in chunks.
    cleared: usize,
    /// Of these, bytes at first that go in chunks.
    before: usize,
}

/// Bytes of the next chunk, of so many that were cleared, `before` of them not to be written.
fn chunk_of(cleared: usize, before: usize) -> usize {
    CHUNK.min(if before > 0 { before } else { cleared })
}

/// What has come as a unit.
enum ReceivedUnit {
    Chunk,
    /// So many bytes were written.
    Written(usize),
}

impl Team {
    /// Whether whoever receives so many bytes from, or sends them to, a member clears its buffer. Both know it alike.
    pub(super) fn clears(&self, member: usize, len: usize) -> bool {
        len >= DIRECT && self.peers[member].mapped().is_none() && self.registers()
    }

    /// Whether buffers may be registered, where they are not mapped: alike at every member, whatever its settings.
    fn registers(&self) -> bool {
        self.progress.conduit().caps().registration.is_some()
    }

    /// Bytes of what is passed on at once.
    pub(super) fn piece(&self) -> usize {
        if self.registers() { PIECE } else { CHUNK }
    }

    fn transfer(&self) -> Result<std::sync::Arc<Transfer>> {
        self.transfer.upgrade().ok_or(Error::JobOver)
    }

    /// A word of the own scratch.
    fn word(&self, at: usize) -> Result<u64> {
        let word = self.scratch.atomic_u64(at).map_err(outside)?;
        Ok(word.load(Acquire))
    }
}

impl<'a> OutgoingData<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self::in_units(data, usize::MAX)
    }

    /// As [`new`](Self::new), for a receiver that looks at units of so many bytes as they come.
    pub(super) fn in_units(data: &'a [u8], unit: usize) -> Self {
        Self {
            data,
            at: 0,
            unit,
            buffer: None,
        }
    }

    /// Bytes that were not sent.
    fn left(&self) -> usize {
        self.data.len() - self.at
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// Registers what comes next, if that is not done: what is registered, and where that lies there.
    fn registered(&mut self, team: &Team) -> Result<Option<(&Buffer<'a>, usize)>> {
        let covers = |(start, buffer): &(usize, Buffer<'_>)| self.at < start + buffer.len();
        if !self.buffer.as_ref().is_some_and(covers) {
            // Before its neighbour is: they may share a page.
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

    /// So many bytes go as the next unit.
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

    /// Writes what comes next, as much as was cleared and is registered here: how many bytes; none if that could not
    /// be.
    async fn write(&mut self, outbound: &Outbound<'_>, mut place: Remote) -> Result<Option<usize>> {
        let (team, peer) = (outbound.team, outbound.team.members[outbound.to]);
        let cleared = outbound.cleared.map_or(0, |cleared| cleared.left);
        let most = cleared.min(self.unit);
        let Some((buffer, start)) = self.registered(team)? else {
            return Ok(None);
        };
        let mut gone = 0;
        // In as many parts as it has extents, which are one unit: who waits for as much of the other waits once.
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
            is_looked_at: false,
        }
    }

    /// As [`new`](Self::new), where the sender lets this member [clear](Team::clears) it: what has come can be
    /// [looked at](Self::part).
    pub(super) fn looked_at(into: &'a mut [u8]) -> Self {
        Self {
            is_looked_at: true,
            ..Self::new(into)
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// Bytes of the landing that were received.
    pub(super) fn received(&self) -> usize {
        self.landing.as_ref().map_or(0, |landing| landing.at)
    }

    /// Some of these bytes.
    ///
    /// # Panics
    /// If they were not received.
    pub(super) fn part(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= self.received());
        match &mut self.landing {
            Some(landing) => landing.buffer.part(range),
            None => &mut [],
        }
    }

    /// Bytes that were not received.
    fn left(&self) -> usize {
        let landing = self.landing.as_ref();
        landing.map_or(0, |it| it.buffer.len() - it.at) + self.rest.len()
    }

    /// Clears what comes next, if that is much and was not done.
    pub(super) fn clear(&mut self, inbound: &Inbound<'_>) -> Result<()> {
        let (team, left) = (inbound.team, self.left());
        let is_cleared = (self.landing.as_ref()).is_some_and(|landing| landing.cleared > 0);
        if is_cleared || !team.clears(inbound.from, left) {
            return Ok(());
        }
        if self.landing.is_none() {
            let transfer = team.transfer()?;
            // What is left behind it is nothing, or enough to be cleared.
            let len = match transfer.registered_at_once().max(DIRECT) {
                _ if self.is_looked_at => left,
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
            landing.buffer.is_done();
            if !self.is_looked_at {
                self.landing = None;
            }
        }
        Ok(())
    }
}

impl Outbound<'_> {
    /// Waits until the other side has said what it clears.
    async fn until_cleared(&self) -> Result<Cleared> {
        let (team, at) = (self.team, self.team.layout.cleared(self.to));
        let said = Awaited::Word(at, number(self.epoch, self.sent));
        team.until_data(said).await?;
        let word = |index: usize| team.word(at + index * size_of::<u64>());
        let (key, offset) = (Key(word(1)?), word(2)?);
        let bytes = |index| Ok::<_, Error>(usize::try_from(word(index)?).unwrap_or(usize::MAX));
        // A peer that lies gains nothing by saying none.
        let left = bytes(3)?.max(1);
        Ok(Cleared {
            to: (key != Key::ANY).then_some(Remote { key, offset }),
            left,
            before: bytes(4)?.min(left),
        })
    }

    /// Says that the next unit was written: so many bytes.
    fn report_written(&mut self, len: usize) -> Result<()> {
        let at = self.team.layout.written(self.channel, self.sent);
        let words = [number(self.epoch, self.sent + 1), len as u64];
        self.store_unit(at, bytemuck::cast_slice(&words))
    }
}

impl Inbound<'_> {
    /// Clears a buffer for what comes next, or says that it goes in chunks.
    fn report_cleared(&self, place: Option<Remote>, len: usize, before: usize) -> Result<()> {
        let team = self.team;
        let Remote { key, offset } = place.unwrap_or(Remote {
            key: Key::ANY,
            offset: 0,
        });
        let number = number(self.epoch, self.received);
        let words = [number, key.0, offset, len as u64, before as u64];
        match team.store(self.from, 0, &[], (team.layout.cleared(team.me), &words)) {
            // A sender that is gone sends nothing; if anything of it is missing, that is told.
            Err(Error::PeerLost(_)) => Ok(()),
            other => other,
        }
    }

    /// What the next unit is, which has come.
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

    /// The sender says what cannot be: it is put out of the job.
    fn malformed(&self) -> Error {
        let rank = self.team.members[self.from];
        (self.team.progress).malformed(rank, "it wrote more than a collective cleared");
        self.team.blame_first_lost(Error::PeerLost(rank))
    }
}
