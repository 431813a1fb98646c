//! Scheduled events, in the order of time.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use crate::{time::VirtualTime, transfer::Packet};

/// An event that happens without a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SimEvent {
    /// A rank's NIC takes up a transfer that its host posted.
    Start(u64),
    /// A rank's NIC is free to send the next packet.
    Send(u32),
    /// The head of a packet reaches the receiver's link.
    Packet(Packet),
    /// The last byte of a transfer is through the receiver's NIC.
    Landed(u64),
    /// The NIC has read the whole source of a write.
    Local(u64),
    /// The initiator's NIC learns the outcome of a write.
    Acked(u64),
    /// A message has left, so its rank may send another.
    Token(u32),
    /// The second rank has handled a request of the first.
    Handled(u32, u32),
    /// The second rank has taken a reply of the first.
    Taken(u32, u32),
    /// The timeout of an actor's wait with this number; stale if the actor is in a later wait.
    Timer(usize, u64),
    /// A rank dies.
    Death(u32),
}

impl SimEvent {
    /// Two words that identify the event in the digest of a run.
    pub(crate) fn words(&self) -> [u64; 2] {
        match *self {
            SimEvent::Start(transfer) => [1, transfer],
            SimEvent::Packet(packet) => [2, packet.transfer << 8 | u64::from(packet.retry)],
            SimEvent::Landed(transfer) => [3, transfer],
            SimEvent::Local(transfer) => [4, transfer],
            SimEvent::Acked(transfer) => [5, transfer],
            SimEvent::Token(rank) => [6, u64::from(rank)],
            SimEvent::Handled(rank, peer) => [7, u64::from(rank) << 32 | u64::from(peer)],
            SimEvent::Taken(rank, peer) => [8, u64::from(rank) << 32 | u64::from(peer)],
            SimEvent::Timer(..) => [9, 0],
            SimEvent::Death(rank) => [10, u64::from(rank)],
            SimEvent::Send(rank) => [11, u64::from(rank)],
        }
    }
}

struct Scheduled {
    time: VirtualTime,
    /// Of two events at one time, the event scheduled first comes first.
    sequence: u64,
    event: SimEvent,
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

/// All scheduled events.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
}

impl EventQueue {
    pub(crate) fn at(&mut self, time: VirtualTime, event: SimEvent) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.heap.push(Reverse(Scheduled {
            time,
            sequence,
            event,
        }));
    }

    pub(crate) fn next_time(&self) -> Option<VirtualTime> {
        self.heap.peek().map(|Reverse(next)| next.time)
    }

    pub(crate) fn pop(&mut self) -> Option<(VirtualTime, SimEvent)> {
        (self.heap.pop()).map(|Reverse(next)| (next.time, next.event))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
