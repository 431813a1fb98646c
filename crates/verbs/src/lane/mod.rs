//! The way to a peer: what this rank asks of it, in order.
//!
//! Each direction of a pair has a connection of its own. So an access that the peer's NIC
//! refuses, which breaks a connection, leaves no doubt about the rest: everything before the
//! refused request was done, nothing after it was, and nothing of the peer's own is touched.
//! The connection is made anew, what came after is asked again, and the peer says what was wrong.
//!
//! If acknowledgements stay away the peer, if it is there, says which packet it expects next.
//! From that follows what was done, for every request takes a known number of packets; the rest
//! is asked again. So a link that is down for a while costs time and nothing else.

mod alone;
mod work;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use hydrant_conduit::{Error, Rank, Ticket};

use crate::{
    ffi,
    nic::{Batch, QueuePair},
    slots::SendSlots,
    words::Words,
};

use work::{Fate, post, post_one, request};

pub(crate) use alone::Alone;
pub(crate) use work::{Access, Atomic, Whole, Work};

/// Requests under way from which on more are gathered before the doorbell is rung again: the
/// NIC has enough to do meanwhile.
const BUSY: usize = 8;

/// Messages in a row whose completions are not told: the next one's is, and stands for them.
const SILENT: usize = 7;

/// An operation that ended.
pub(crate) type Ended = (Ticket, Result<(), Error>);

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Never used.
    Idle,
    /// Being made, or made anew.
    Connecting,
    Ready,
    /// Broken; the peer is asked how far it got.
    Unclear,
    /// The peer is gone.
    Ended,
}

/// What lanes share.
pub(crate) struct Roads {
    pub(crate) slots: SendSlots,
    pub(crate) words: Words,
    /// Requests with the NIC on all lanes, and how many there may be, so that their completions
    /// find room.
    pub(crate) posted: AtomicU32,
    pub(crate) most_posted: u32,
    /// Requests with the NIC on one lane.
    pub(crate) depth: usize,
    /// Bytes that a NIC is asked to take along with a request.
    pub(crate) inline: u32,
    /// Most bytes of a request.
    pub(crate) longest: u64,
}

/// How far a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is with the NIC.
    None,
    /// The connection is made, or made anew.
    Broken,
    /// The oldest request that is not known to be done.
    At {
        epoch: u32,
        number: u32,
        /// What it, and those told together with it, carry.
        bytes: u64,
        /// Whether no completion will tell of it, as no other request comes after it.
        silent: bool,
    },
}

pub(crate) struct Lane {
    pub(crate) state: State,
    /// Counts the connections made.
    pub(crate) epoch: u32,
    pub(crate) pair: Option<Arc<QueuePair>>,
    /// What the peer's NIC refused, while the peer is asked why.
    pub(crate) refused: Option<Access>,
    /// Whether it is among those that a poll looks after.
    pub(crate) listed: bool,
    peer: u32,
    queue: VecDeque<Work>,
    posted: VecDeque<Posted>,
    /// The last of these, messages whose completions are not told.
    silent: usize,
    /// The number of the first one posted.
    first: u32,
    /// The number of the next packet, and how much data one carries.
    packet: u32,
    mtu: u32,
    /// How often in a row the own NIC could not send, with nothing done between.
    unsent: u32,
}

/// Work that is with the NIC.
#[derive(Debug)]
struct Posted {
    work: Work,
    /// The number of the packet after its last.
    end: u32,
}

/// How often in a row the own NIC may be unable to send although the peer was reached, before that
/// is the NIC's own failure.
const UNSENT: u32 = 16;

/// Packets are counted modulo this.
const PACKETS: u32 = 1 << 24;

/// What a failed request means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection is to be made anew.
    Broken,
    /// The peer is to be asked how far it got.
    Unclear,
    /// The peer cannot be reached.
    Lost(&'static str),
}

impl Lane {
    pub(crate) fn new(peer: u32) -> Self {
        Self {
            state: State::Idle,
            epoch: 0,
            pair: None,
            refused: None,
            listed: false,
            peer,
            queue: VecDeque::new(),
            posted: VecDeque::new(),
            silent: 0,
            first: 0,
            packet: 0,
            mtu: 1024,
            unsent: 0,
        }
    }

    /// The connection is there: its first packet's number, and how much data a packet carries.
    pub(crate) fn begin(&mut self, packet: u32, mtu: u32) {
        self.state = State::Ready;
        self.packet = packet % PACKETS;
        self.mtu = mtu.max(256);
    }

    /// Whether nothing is under way, of which the NIC may tell.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.posted.len() == self.silent && self.refused.is_none()
    }

    /// Whether everything that was asked is known to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && self.silent == 0
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        let together = self.posted.iter().take(Batch::MOST);
        match self.state {
            State::Connecting | State::Unclear => Progress::Broken,
            // It is closed, and about to be lost.
            State::Ready if self.pair.is_none() => Progress::Broken,
            State::Ready if !self.posted.is_empty() => Progress::At {
                epoch: self.epoch,
                number: self.first,
                bytes: together.map(|it| u64::from(it.work.len())).sum(),
                silent: self.posted.len() == self.silent,
            },
            _ => Progress::None,
        }
    }

    /// Whether something waits for the doorbell.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.queue.is_empty() && self.state == State::Ready
    }

    /// Hands work to the NIC, if nothing is in its way and the NIC has not plenty to do: the name
    /// of its completion. Else the work.
    #[inline(always)] // where it is known what is asked, the request is made at once
    pub(crate) fn post_now(
        &mut self,
        roads: &Roads,
        mut work: Work,
    ) -> Result<io::Result<u64>, Work> {
        let Some(pair) = &self.pair else {
            return Err(work);
        };
        if self.state != State::Ready
            || !self.queue.is_empty()
            || self.posted.len() >= roads.depth
            || self.posted.len() - self.silent >= BUSY
            || roads.posted.load(Relaxed) >= roads.most_posted
            || !work.is_ready(roads)
        {
            return Err(work);
        }
        let number = self.first.wrapping_add(self.posted.len() as u32);
        let id = id(self.peer, self.epoch, number);
        let silent = matches!(work, Work::Send { .. })
            && self.silent < SILENT.min(roads.depth - 1)
            && roads.has_plenty();
        let asked = post_one(pair, &request(id, &work, roads, pair), !silent);
        self.under_way(roads, work);
        self.silent = if silent { self.silent + 1 } else { 0 };
        Ok(match asked {
            Ok(()) => Ok(id),
            Err(cause) => {
                self.close(roads);
                Err(cause)
            }
        })
    }

    /// Adds something to be done, which could not be done at once. It is on its way when this
    /// returns, unless the connection is not there or the NIC has plenty to do.
    pub(crate) fn push(&mut self, roads: &Roads, work: Work) -> io::Result<()> {
        let urgent = matches!(work, Work::Send { .. });
        self.queue.push_back(work);
        if urgent || self.posted.len() < BUSY || self.queue.len() >= BUSY {
            self.flush(roads)?;
        }
        Ok(())
    }

    /// Hands what is queued to the NIC, as far as there is room.
    pub(crate) fn flush(&mut self, roads: &Roads) -> io::Result<()> {
        let (State::Ready, Some(pair)) = (self.state, &self.pair) else {
            return Ok(());
        };
        let pair = Arc::clone(pair);
        while !self.queue.is_empty() {
            let mut batch = Batch::new();
            let mut taken = 0;
            while !batch.is_full() && self.posted.len() < roads.depth {
                let Some(work) = self.queue.front_mut() else {
                    break;
                };
                if roads.posted.load(Relaxed) >= roads.most_posted || !work.is_ready(roads) {
                    break;
                }
                let number = self.first.wrapping_add(self.posted.len() as u32);
                let id = id(self.peer, self.epoch, number);
                batch.push(&request(id, work, roads, &pair));
                taken += 1;
                if let Some(work) = self.queue.pop_front() {
                    self.under_way(roads, work);
                }
            }
            if taken == 0 {
                return Ok(());
            }
            // One completion for all: what came before is done then, too.
            batch.signal_last();
            self.silent = 0;
            if let Err(cause) = post(&pair, &mut batch) {
                self.close(roads);
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Notes what is with the NIC.
    #[inline(always)]
    fn under_way(&mut self, roads: &Roads, work: Work) {
        roads.posted.fetch_add(1, Relaxed);
        self.count_packets(work.len());
        let end = self.packet;
        self.posted.push_back(Posted { work, end });
    }

    /// A request of so many bytes was handed to the NIC.
    #[inline(always)]
    fn count_packets(&mut self, len: u32) {
        let packets = if len <= self.mtu {
            1
        } else {
            len.div_ceil(self.mtu)
        };
        self.packet = (self.packet + packets) % PACKETS;
    }

    /// A completion came that names the connection's epoch and a number: everything up to that
    /// request is done.
    pub(crate) fn done(&mut self, roads: &Roads, number: u32, ended: &mut Vec<Ended>) {
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        if count > self.posted.len() {
            return; // Retired by a later completion.
        }
        for posted in self.posted.drain(..count) {
            posted.work.succeed(roads, ended);
        }
        self.silent = self.silent.min(self.posted.len());
        self.first = self.first.wrapping_add(count as u32);
        self.unsent = 0;
        roads.posted.fetch_sub(count as u32, Relaxed);
    }

    /// As [`done`](Self::done), if that is the end of the one operation that is looked for and of
    /// messages before it: then it is told by this alone.
    #[inline]
    pub(crate) fn done_alone(&mut self, roads: &Roads, completion: u64, ticket: Ticket) -> bool {
        let (.., number) = named(completion);
        let before = number.wrapping_sub(self.first) as usize;
        let alone = completion == id(self.peer, self.epoch, number)
            && self.pair.is_some()
            && matches!(
                self.posted.get(before),
                Some(Posted { work: Work::Access(access), .. }) if access.last && access.ticket == ticket
            )
            && (before == 0 || self.are_messages(before));
        if alone {
            for _ in 0..before {
                if let Some(Posted {
                    work: Work::Send { slot, .. },
                    ..
                }) = self.posted.pop_front()
                {
                    roads.slots.give_back(slot);
                }
            }
            self.posted.pop_front();
            self.first = number.wrapping_add(1);
            self.unsent = 0;
            roads.posted.fetch_sub(before as u32 + 1, Relaxed);
        }
        alone
    }

    /// Whether so many, the first that were posted, are messages.
    fn are_messages(&self, count: usize) -> bool {
        let is_message = |posted: &Posted| matches!(posted.work, Work::Send { .. });
        self.posted.iter().take(count).all(is_message)
    }

    /// The request of that number failed; the connection is broken. What came after it is queued
    /// again.
    pub(crate) fn failed(
        &mut self,
        roads: &Roads,
        number: u32,
        status: ffi::ibv_wc_status,
        ended: &mut Vec<Ended>,
    ) -> Failure {
        let before = number.wrapping_sub(self.first) as usize;
        if before >= self.posted.len() {
            return Failure::Lost("a completion of what was not asked for");
        }
        if before > 0 {
            self.done(roads, number.wrapping_sub(1), ended);
        }
        match status {
            ffi::IBV_WC_REM_ACCESS_ERR | ffi::IBV_WC_REM_INV_REQ_ERR | ffi::IBV_WC_REM_OP_ERR => {
                self.refused(roads)
            }
            // What soft-RoCE says when it finds no way to the peer, as while the link is down.
            ffi::IBV_WC_LOC_QP_OP_ERR if self.unsent < UNSENT => {
                self.unsent += 1;
                self.give_up(roads);
                Failure::Unclear
            }
            ffi::IBV_WC_RETRY_EXC_ERR
            | ffi::IBV_WC_RNR_RETRY_EXC_ERR
            | ffi::IBV_WC_RESP_TIMEOUT_ERR
            | ffi::IBV_WC_WR_FLUSH_ERR => {
                self.give_up(roads);
                Failure::Unclear
            }
            _ => {
                self.close(roads);
                Failure::Lost(meaning(status))
            }
        }
    }

    /// The NIC says nothing of what it was asked: as if it had said that no answer came.
    pub(crate) fn give_up(&mut self, roads: &Roads) {
        self.close(roads);
        self.state = State::Unclear;
    }

    /// The peer's NIC refused the first of what was posted.
    fn refused(&mut self, roads: &Roads) -> Failure {
        self.close(roads);
        let access = match self.posted.pop_front().map(|posted| posted.work) {
            Some(Work::Access(access)) => access,
            Some(Work::Atomic(mut atomic)) => {
                atomic.let_go(roads);
                atomic.as_access()
            }
            Some(Work::Send { slot, .. }) => {
                roads.slots.give_back(slot);
                return Failure::Lost("it refused a message");
            }
            None => return Failure::Lost("it refused what was not asked"),
        };
        self.refused = Some(access);
        let again = self.posted.drain(..).map(|posted| posted.work);
        let mut again: VecDeque<Work> = again.map(|work| work.unposted(roads)).collect();
        again.append(&mut self.queue);
        again.retain(|work| !is_part_of(work, access.ticket));
        self.queue = again;
        self.renew();
        Failure::Broken
    }

    /// The peer says which packet it expects next on the connection that broke.
    pub(crate) fn clarify(&mut self, roads: &Roads, expected: u32, ended: &mut Vec<Ended>) {
        let mut again = VecDeque::new();
        let mut done = true;
        for Posted { work, end } in self.posted.drain(..) {
            // In order: after one that is not done none is.
            done = done && expected.wrapping_sub(end) % PACKETS < PACKETS / 2;
            match work.fate(done) {
                Fate::Done => work.succeed(roads, ended),
                Fate::Again => again.push_back(work.unposted(roads)),
                Fate::ResultLost => {
                    if let Work::Atomic(mut atomic) = work {
                        atomic.let_go(roads);
                        let peer = Rank(self.peer);
                        ended.push((atomic.ticket, Err(Error::ResultLost { peer })));
                    }
                }
            }
        }
        again.append(&mut self.queue);
        self.queue = again;
        self.renew();
    }

    /// No request is with the NIC any more when its queue pair is gone.
    fn close(&mut self, roads: &Roads) {
        self.pair = None;
        // How far it came is found out.
        self.silent = 0;
        roads.posted.fetch_sub(self.posted.len() as u32, Relaxed);
    }

    fn renew(&mut self) {
        self.first = 0;
        self.state = State::Connecting;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// The peer is gone: everything under way ends.
    pub(crate) fn end(&mut self, roads: &Roads, lost: &Error, ended: &mut Vec<Ended>) {
        if self.pair.is_some() {
            self.close(roads);
        }
        self.state = State::Ended;
        if let Some(access) = self.refused.take() {
            ended.push((access.ticket, Err(lost.clone())));
        }
        let posted = self.posted.drain(..).map(|posted| posted.work);
        for work in posted.chain(self.queue.drain(..)) {
            match work {
                Work::Send { slot, .. } => roads.slots.give_back(slot),
                Work::Atomic(mut atomic) => {
                    atomic.let_go(roads);
                    ended.push((atomic.ticket, Err(lost.clone())));
                }
                Work::Access(access) if access.last => {
                    ended.push((access.ticket, Err(lost.clone())));
                }
                Work::Access(_) => {}
            }
        }
    }
}

impl Roads {
    /// Whether slots, and room for completions, are left for whoever else needs some while those
    /// of messages that nobody tells of are kept.
    #[inline]
    fn has_plenty(&self) -> bool {
        self.slots.has_plenty() && self.posted.load(Relaxed) < self.most_posted / 2
    }
}

fn is_part_of(work: &Work, ticket: Ticket) -> bool {
    matches!(work, Work::Access(access) if access.ticket == ticket)
}

/// What a completion names.
fn id(peer: u32, epoch: u32, number: u32) -> u64 {
    u64::from(peer) << 40 | u64::from(epoch & 0xff) << 32 | u64::from(number)
}

/// The peer, the connection's epoch modulo 256, and the number of a request.
pub(crate) fn named(id: u64) -> (u32, u32, u32) {
    ((id >> 40) as u32, (id >> 32) as u32 & 0xff, id as u32)
}

fn meaning(status: ffi::ibv_wc_status) -> &'static str {
    match status {
        ffi::IBV_WC_LOC_PROT_ERR => "own memory was not registered as it should be",
        _ => "the connection failed",
    }
}

#[cfg(test)]
mod tests {
    use super::{id, named};

    #[test]
    fn completions_name_what_they_complete() {
        assert_eq!(named(id(4095, 3, u32::MAX)), (4095, 3, u32::MAX));
        assert_eq!(named(id(7, 259, 1)), (7, 3, 1));
    }
}
