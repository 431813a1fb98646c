//! Collectives as point-to-point messages: dissemination, binomial trees and pairwise exchange.

use super::step::{MessageEnd, MessagePlace, ReplayStep};

/// The content of a message that only says that its sender arrived.
const TOKEN: MessagePlace = MessagePlace::Scratch { bytes: 8 };

/// The peers that a rank sends to and receives from in each round of an exchange; itself first.
pub(super) fn rounds(own: u32, ranks: u32) -> impl Iterator<Item = (u32, u32)> {
    let (own, all) = (u64::from(own), u64::from(ranks.max(1)));
    (0..all).map(move |round| {
        (
            ((own + round) % all) as u32,
            ((own + all - round) % all) as u32,
        )
    })
}

/// A barrier by dissemination.
pub(super) fn barrier(own: u32, ranks: u32, base: u64) -> Vec<ReplayStep> {
    let all = u64::from(ranks);
    let rounds = (0..32).take_while(|round| 1 << round < all);
    let step = |round: u64| {
        let far = 1 << round;
        let end = |peer: u64| MessageEnd {
            peer: (peer % all) as u32,
            tag: base + round,
            place: TOKEN,
        };
        ReplayStep::SendReceive(end(u64::from(own) + far), end(u64::from(own) + all - far))
    };
    rounds.map(step).collect()
}

/// A broadcast along a binomial tree.
pub(super) fn broadcast(
    own: u32,
    ranks: u32,
    root: u32,
    base: u64,
    buffer: MessagePlace,
) -> Vec<ReplayStep> {
    let tree = ReplayTree::new(own, ranks, root);
    let end = |peer: u32| MessageEnd {
        peer,
        tag: base,
        place: buffer,
    };
    let receive = tree.parent().map(|parent| ReplayStep::Receive(end(parent)));
    let sends = tree
        .children()
        .into_iter()
        .map(|child| ReplayStep::Send(end(child)));
    receive.into_iter().chain(sends).collect()
}

/// A reduction along a binomial tree. Data is received beside the caller's buffer.
pub(super) fn reduce(
    own: u32,
    ranks: u32,
    root: u32,
    base: u64,
    buffer: MessagePlace,
) -> Vec<ReplayStep> {
    let tree = ReplayTree::new(own, ranks, root);
    let beside = MessagePlace::Scratch {
        bytes: buffer.bytes(),
    };
    let end = |peer: u32, place: MessagePlace| MessageEnd {
        peer,
        tag: base,
        place,
    };
    // The smallest subtrees are done first, so they come first.
    let receives = tree.children().into_iter().rev();
    let receives = receives.map(|child| ReplayStep::Receive(end(child, beside)));
    let send = tree
        .parent()
        .map(|parent| ReplayStep::Send(end(parent, buffer)));
    receives.chain(send).collect()
}

/// A rank in a binomial tree.
struct ReplayTree {
    /// Its number, counted from the root.
    own: u64,
    ranks: u64,
    root: u64,
}

impl ReplayTree {
    fn new(own: u32, ranks: u32, root: u32) -> Self {
        let (ranks, root) = (u64::from(ranks.max(1)), u64::from(root));
        let own = (u64::from(own) + ranks - root % ranks) % ranks;
        Self { own, ranks, root }
    }

    fn rank(&self, number: u64) -> u32 {
        ((number + self.root) % self.ranks) as u32
    }

    fn parent(&self) -> Option<u32> {
        (self.own > 0).then(|| self.rank(self.own & (self.own - 1)))
    }

    /// The children, the largest subtree first.
    fn children(&self) -> Vec<u32> {
        let own = self.own;
        let bits = (0..32_u64).map(|bit| 1 << bit);
        let below = bits.take_while(|bit| own & bit == 0 && *bit < self.ranks);
        let children = below.map(|bit| own | bit).filter(|it| *it < self.ranks);
        let mut children: Vec<u32> = children.map(|it| self.rank(it)).collect();
        children.reverse();
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_reach_every_rank_once() {
        for ranks in 1..40 {
            for root in [0, ranks / 2, ranks - 1] {
                let mut reached = vec![0; ranks as usize];
                for own in 0..ranks {
                    let tree = ReplayTree::new(own, ranks, root);
                    for child in tree.children() {
                        reached[child as usize] += 1;
                        assert_eq!(ReplayTree::new(child, ranks, root).parent(), Some(own));
                    }
                }
                assert_eq!(ReplayTree::new(root, ranks, root).parent(), None);
                for (rank, count) in (0..).zip(reached) {
                    assert_eq!(count, u32::from(rank != root), "rank {rank} of {ranks}");
                }
            }
        }
    }

    #[test]
    fn each_round_of_an_exchange_pairs_senders_with_receivers() {
        for ranks in 1..20 {
            for own in 0..ranks {
                for (round, (to, from)) in rounds(own, ranks).enumerate() {
                    let (_, back) = rounds(to, ranks).nth(round).unwrap();
                    assert_eq!(back, own);
                    assert_eq!(rounds(from, ranks).nth(round).unwrap().0, own);
                }
                assert_eq!(rounds(own, ranks).count() as u32, ranks);
            }
        }
    }
}
