//! Replies that come late, as requests, because they follow the news of changed memory.
//!
//! A rank that sends one first announces it by a reply of the same kind, without content. The announcement has the
//! reply's place in the order of replies. So later replies of that rank wait here until the late one has come.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use hydrant_conduit::Delivery;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{
    Rank, Result,
    progress::{For, On, Progress},
};

/// The most replies of a peer that wait for a late one.
const MOST: usize = 1 << 16;

/// Replies of peers that were announced and have not come, and those behind them.
#[derive(Default)]
pub(super) struct LateReplies {
    /// True if there may be any.
    is_used: AtomicBool,
    peers: Mutex<FxHashMap<Rank, ReplyOrder>>,
}

/// The replies of a peer that were not handled yet.
#[derive(Default)]
struct ReplyOrder {
    /// Announcements, and replies behind them. The first is an announcement.
    waiting: VecDeque<WaitingReply>,
    /// Late replies that overtook their announcements. Nothing waits then.
    early: VecDeque<KeptReply>,
}

enum WaitingReply {
    Announced,
    Kept(KeptReply),
}

/// A reply that is handled later.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeptReply {
    kind: u8,
    tag: u16,
    args: Vec<u64>,
    payload: Vec<u8>,
}

impl KeptReply {
    fn of(delivery: &Delivery<'_>) -> Self {
        Self {
            kind: delivery.kind,
            tag: delivery.tag,
            args: delivery.args.to_vec(),
            payload: delivery.payload.to_vec(),
        }
    }

    /// Returns the reply as it came from a peer.
    pub(super) fn delivery(&self, from: Rank) -> Delivery<'_> {
        Delivery {
            from,
            kind: self.kind,
            tag: self.tag,
            args: &self.args,
            payload: &self.payload,
        }
    }
}

/// The turn of a reply that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyTurn {
    /// It is handled at once. Then the [next](LateReplies::next) may be.
    Now,
    /// It was kept.
    Later,
    /// Too many wait.
    TooMany,
}

impl LateReplies {
    /// Returns whether a reply waits for a late one. It is kept then.
    #[inline]
    pub(super) fn precede(&self, delivery: &Delivery<'_>) -> ReplyTurn {
        match self.is_used.load(Relaxed) {
            false => ReplyTurn::Now,
            true => self.keep_behind(delivery),
        }
    }

    #[cold]
    fn keep_behind(&self, delivery: &Delivery<'_>) -> ReplyTurn {
        let mut peers = self.peers.lock();
        let order = peers.get_mut(&delivery.from);
        match order.map(|order| &mut order.waiting) {
            Some(waiting) if waiting.len() >= MOST => ReplyTurn::TooMany,
            Some(waiting) if !waiting.is_empty() => {
                waiting.push_back(WaitingReply::Kept(KeptReply::of(delivery)));
                ReplyTurn::Later
            }
            _ => ReplyTurn::Now,
        }
    }

    /// Notes that a peer has announced a reply. Returns the reply if it has come.
    pub(super) fn announced(&self, peer: Rank) -> Option<KeptReply> {
        let mut peers = self.peers.lock();
        self.is_used.store(true, Relaxed);
        let order = peers.entry(peer).or_default();
        let come = order.early.pop_front();
        if come.is_none() {
            order.waiting.push_back(WaitingReply::Announced);
        }
        self.tidy(&mut peers, peer);
        come
    }

    /// Notes that a late reply has come.
    pub(super) fn has_come(&self, delivery: &Delivery<'_>) -> ReplyTurn {
        let mut peers = self.peers.lock();
        self.is_used.store(true, Relaxed);
        let order = peers.entry(delivery.from).or_default();
        match order.waiting.front() {
            // Its place stays taken until it was handled.
            Some(_) => ReplyTurn::Now,
            None if order.early.len() >= MOST => ReplyTurn::TooMany,
            None => {
                order.early.push_back(KeptReply::of(delivery));
                ReplyTurn::Later
            }
        }
    }

    /// Returns the next reply to handle, after one of the same peer was handled. The place of that one is free then.
    pub(super) fn next(&self, peer: Rank) -> Option<KeptReply> {
        let mut peers = self.peers.lock();
        let waiting = &mut peers.get_mut(&peer)?.waiting;
        waiting.pop_front();
        match waiting.front_mut() {
            Some(WaitingReply::Kept(kept)) => Some(std::mem::take(kept)),
            Some(WaitingReply::Announced) => None,
            None => {
                self.tidy(&mut peers, peer);
                None
            }
        }
    }

    /// Forgets a peer of which nothing is kept.
    fn tidy(&self, peers: &mut FxHashMap<Rank, ReplyOrder>, peer: Rank) {
        let is_empty = |order: &ReplyOrder| order.waiting.is_empty() && order.early.is_empty();
        if peers.get(&peer).is_some_and(is_empty) {
            peers.remove(&peer);
            self.is_used.store(!peers.is_empty(), Relaxed);
        }
    }

    /// Waits until the announced replies were handled.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost).
    pub(super) fn wait(&self, progress: &Progress) -> Result<()> {
        let peers: Vec<Rank> = self.peers.lock().keys().copied().collect();
        peers.into_iter().try_for_each(|peer| {
            progress.wait(On::Rank(peer), For::Message, || !self.is_owed_by(peer))
        })
    }

    fn is_owed_by(&self, peer: Rank) -> bool {
        let peers = self.peers.lock();
        (peers.get(&peer)).is_some_and(|order| !order.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Rank = Rank(1);

    fn reply(number: &u64) -> Delivery<'_> {
        Delivery {
            from: PEER,
            kind: 1,
            tag: 2,
            args: std::slice::from_ref(number),
            payload: &[],
        }
    }

    #[test]
    fn replies_behind_a_late_one_wait_for_it() {
        let late = LateReplies::default();
        assert_eq!(late.precede(&reply(&1)), ReplyTurn::Now);
        assert_eq!(late.announced(PEER), None);
        assert_eq!(late.precede(&reply(&3)), ReplyTurn::Later);
        assert_eq!(late.announced(PEER), None);
        assert_eq!(late.precede(&reply(&5)), ReplyTurn::Later);
        let other = Delivery {
            from: Rank(2),
            ..reply(&1)
        };
        assert_eq!(late.precede(&other), ReplyTurn::Now);
        // The handler of a reply may see further ones come.
        assert_eq!(late.has_come(&reply(&2)), ReplyTurn::Now);
        assert_eq!(late.precede(&reply(&6)), ReplyTurn::Later);
        assert_eq!(late.next(PEER).expect("the third").args, [3]);
        assert!(late.is_owed_by(PEER));
        assert_eq!(late.next(PEER), None);
        assert_eq!(late.has_come(&reply(&4)), ReplyTurn::Now);
        assert_eq!(late.next(PEER).expect("the fifth").args, [5]);
        assert_eq!(late.next(PEER).expect("the sixth").args, [6]);
        assert_eq!(late.next(PEER), None);
        assert!(!late.is_owed_by(PEER));
        assert_eq!(late.precede(&reply(&7)), ReplyTurn::Now);
        assert!(late.peers.lock().is_empty() && !late.is_used.load(Relaxed));
    }

    #[test]
    fn a_late_reply_may_overtake_its_announcement() {
        let late = LateReplies::default();
        assert_eq!(late.has_come(&reply(&2)), ReplyTurn::Later);
        assert_eq!(late.has_come(&reply(&3)), ReplyTurn::Later);
        assert_eq!(late.precede(&reply(&1)), ReplyTurn::Now);
        assert_eq!(late.announced(PEER).expect("the second").args, [2]);
        assert_eq!(late.announced(PEER).expect("the third").args, [3]);
        assert!(late.peers.lock().is_empty() && !late.is_used.load(Relaxed));
    }

    #[test]
    fn a_peer_that_never_sends_what_it_announced_does_not_fill_memory() {
        let late = LateReplies::default();
        assert_eq!(late.announced(PEER), None);
        for _ in 1..MOST {
            assert_eq!(late.precede(&reply(&1)), ReplyTurn::Later);
        }
        assert_eq!(late.precede(&reply(&1)), ReplyTurn::TooMany);
    }
}
