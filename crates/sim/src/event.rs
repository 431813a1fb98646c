//! What is going to happen, in the order of time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use crate::{time::Time, transfer::Packet};

/// Something that happens by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A rank's NIC takes up a transfer that its host posted.
    Start(u64),
    /// A rank's NIC is free to send the next packet.
    Send(u32),
    /// The head of a packet reaches the receiver's link.
    Packet(Packet),
    /// The last byte of a transfer is through the receiver's NIC.
    Landed(u64),
    /// The source of a write has been read.
    Local(u64),
    /// The initiator of a write hears how it ended.
    Acked(u64),
    /// A message has left: its rank may send another.
    Token(u32),
    /// A request of the first rank was handled by the second.
    Handled(u32, u32),
    /// A reply of the first rank was taken by the second.
    Taken(u32, u32),
    /// A wait is over: of this actor, if it is still its wait of this number.
    Timer(usize, u64),
    /// A rank dies.
    Death(u32),
}

impl Event {
    /// Two words that tell it from others, for the digest of a run.
    pub(crate) fn words(&self) -> [u64; 2] {
        match *self {
            Event::Start(transfer) => [1, transfer],
            Event::Packet(packet) => [2, packet.transfer << 8 | u64::from(packet.retry)],
            Event::Landed(transfer) => [3, transfer],
            Event::Local(transfer) => [4, transfer],
            Event::Acked(transfer) => [5, transfer],
            Event::Token(rank) => [6, u64::from(rank)],
            Event::Handled(rank, peer) => [7, u64::from(rank) << 32 | u64::from(peer)],
            Event::Taken(rank, peer) => [8, u64::from(rank) << 32 | u64::from(peer)],
            Event::Timer(..) => [9, 0],
            Event::Death(rank) => [10, u64::from(rank)],
            Event::Send(rank) => [11, u64::from(rank)],
        }
    }
}

struct Scheduled {
    time: Time,
    /// Of two at one time, the one scheduled first is first.
    sequence: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.sequence).cmp(&(other.time, other.sequence))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

/// All that is going to happen.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
}

impl Queue {
    pub(crate) fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Reverse(Scheduled {
            time,
            sequence,
            event,
        }));
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(next)| next.time)
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        (self.heap.pop()).map(|Reverse(next)| (next.time, next.event))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
