//! Takes requests of one kind from the fronts of the rings, past the sink.

use hydrant_conduit::Delivery;

use super::{PeerRings, RingInbox, TURN, delivery};
use crate::shared::SharedState;

impl RingInbox {
    /// Passes `take` the requests of a kind that are first in their rings, until it returns false.
    /// Returns true if a poll would find other messages.
    #[inline]
    pub(crate) fn take_requests(
        &mut self,
        shared: &SharedState,
        kind: u8,
        take: &mut dyn FnMut(&Delivery<'_>) -> bool,
    ) -> bool {
        self.meet(shared);
        let mut front = FrontSearch {
            kind,
            wants: true,
            others: false,
        };
        // The search begins behind the peer that was served last, so that no peer starves the
        // others.
        let mut at = self.first;
        for _ in 0..self.peers.len() {
            if at >= self.peers.len() {
                at = 0;
            }
            let wanted = front.wants;
            self.peers[at].take_requests(shared, &mut front, take);
            at += 1;
            if wanted && !front.wants {
                self.first = at;
            }
        }
        front.others
    }
}

/// The search for requests of one kind, and its findings.
struct FrontSearch {
    /// The kind of the requests.
    kind: u8,
    /// True while `take` wants more of them.
    wants: bool,
    /// True if another message waits.
    others: bool,
}

impl PeerRings {
    /// Returns true if the peer's next request is of this kind and can be
    /// [taken](RingInbox::take_requests).
    pub(super) fn is_to_take(&self, kind: u8) -> bool {
        let front = self.requests.front();
        !self.broken && self.back.stuck.is_none() && front.is_some_and(|it| it.kind() == kind)
    }

    #[inline]
    fn take_requests(
        &mut self,
        shared: &SharedState,
        front: &mut FrontSearch,
        take: &mut dyn FnMut(&Delivery<'_>) -> bool,
    ) {
        if self.broken {
            return;
        }
        // A poll handles a reply that waits for room, and a message that breaks a rule.
        front.others |= self.replies.waiting() || self.back.stuck.is_some();
        if self.back.stuck.is_some() {
            return;
        }
        for _ in 0..TURN {
            let Some(header) = self.requests.front() else {
                break;
            };
            if header.kind() != front.kind {
                front.others = true;
                break;
            }
            if !front.wants {
                break;
            }
            let taken = match self.requests.read(header) {
                Ok(taken) if taken.head.payload <= shared.caps.max_payload => taken,
                _ => {
                    front.others = true;
                    break;
                }
            };
            let payload = (self.requests.memory()).payload(taken.offset, taken.head.payload);
            let args = self.requests.args();
            front.wants = take(&delivery(self.back.peer, &taken.head, &args, payload));
            self.requests.pass(&taken);
        }
        if self.requests.publish() {
            shared.notify_room(self.back.peer);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use hydrant_conduit::{Conduit, Message, Rank, Sent};

    use super::super::tests::{Log, MESSAGE, start};
    use crate::Smp;

    const WANTED: u8 = 3;

    fn send(rank: &Smp, kind: u8) {
        let sent = rank.send(Rank(0), &Message { kind, ..MESSAGE });
        assert_eq!(sent.unwrap(), Sent::Yes);
    }

    /// Takes at most `most` requests. Returns their senders, and whether other messages wait.
    fn take(rank: &Smp, most: usize) -> (Vec<Rank>, bool) {
        let mut from = Vec::new();
        let others = rank.take(WANTED, &mut |delivery| {
            from.push(delivery.from);
            from.len() < most
        });
        (from, others)
    }

    fn leave(ranks: &[Smp]) {
        for rank in ranks {
            hydrant_conduit::Membership::leave(rank, true);
        }
    }

    #[test]
    fn a_request_behind_another_kind_stays_in_the_ring() {
        let ranks = start(2);
        for kind in [WANTED, WANTED, 0, WANTED] {
            send(&ranks[1], kind);
        }
        assert_eq!(take(&ranks[0], 1), (vec![Rank(1)], false));
        assert_eq!(ranks[1].handled(Rank(0)).0, 1, "it counts as handled");
        assert_eq!(take(&ranks[0], 1), (vec![Rank(1)], true));
        assert_eq!(take(&ranks[0], 1), (vec![], true));
        let mut log = Log::default();
        ranks[0].poll(&mut log);
        assert_eq!(log.requests.len(), 2);
        assert_eq!(take(&ranks[0], 1), (vec![], false));
        leave(&ranks);
    }

    #[test]
    fn a_poll_past_a_kind_leaves_its_requests() {
        let ranks = start(3);
        for (rank, kind) in [(1, WANTED), (1, 0), (2, WANTED), (2, 0)] {
            send(&ranks[rank], kind);
        }
        let mut log = Log::default();
        assert_eq!(ranks[0].poll_past(WANTED, None, &mut log), 0);
        assert_eq!(ranks[0].poll_past(WANTED, Some(Rank(1)), &mut log), 2);
        assert_eq!(log.requests, [Rank(2); 2]);
        assert_eq!(take(&ranks[0], 1), (vec![Rank(1)], true));
        assert_eq!(ranks[0].poll_past(WANTED, None, &mut log), 1);
        assert_eq!(log.requests, [2, 2, 1].map(Rank));
        leave(&ranks);
    }

    #[test]
    fn peers_take_turns() {
        let ranks = start(4);
        for _ in 0..3 {
            ranks[1..].iter().for_each(|rank| send(rank, WANTED));
        }
        for _ in 0..3 {
            let mut round: Vec<Rank> = (0..3).flat_map(|_| take(&ranks[0], 1).0).collect();
            round.sort_unstable();
            assert_eq!(round, [1, 2, 3].map(Rank));
        }
        leave(&ranks);
    }
}
