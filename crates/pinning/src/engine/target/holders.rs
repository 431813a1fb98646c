//! Each peer's holds on own memory, and sums over them.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::{
    super::{agree::agree, local::LocalHold, usage::PeerFirehoses},
    peer_grants::{HeldGrant, PeerGrants},
};
use crate::Run;

/// The peers that hold firehoses here, with running sums, so that no move has to count them anew.
#[derive(Debug, Default)]
pub(super) struct Holders {
    peers: FxHashMap<u32, Holder>,
    /// The sum over peers of the buckets attached or lent, whichever is more.
    used: u64,
    /// The number of buckets that each peer is sure to find, whatever others were lent and keep.
    sure: u64,
    /// The number of buckets beyond the sure ones that peers have attached, or are about to.
    above: u64,
    /// The borrowers, by the number of firehoses lent.
    borrowers: BTreeSet<(u64, u32)>,
}

impl Holders {
    pub(super) fn new(sure: u64) -> Self {
        Self {
            sure,
            ..Self::default()
        }
    }

    fn get(&self, peer: u32) -> Option<&Holder> {
        self.peers.get(&peer)
    }

    fn change<T>(&mut self, peer: u32, change: impl FnOnce(&mut Holder) -> T) -> T {
        let holder = self.peers.entry(peer).or_default();
        let sure = self.sure;
        let before = (holder.used(), holder.lent, holder.above(sure));
        let outcome = change(holder);
        let after = (holder.used(), holder.lent, holder.above(sure));
        self.used = self.used - before.0 + after.0;
        self.above = self.above - before.2 + after.2;
        if before.1 != after.1 {
            self.borrowers.remove(&(before.1, peer));
            if after.1 > 0 {
                self.borrowers.insert((after.1, peer));
            }
        }
        outcome
    }

    /// Returns true if the peer ever asked for anything.
    pub(super) fn has_asked(&self, peer: u32) -> bool {
        self.peers.contains_key(&peer)
    }

    /// The buckets that a peer has attached or asks for, and the most firehoses that it was ever
    /// lent.
    pub(super) fn counts(&self, peer: u32) -> (u64, u64) {
        self.get(peer).map_or((0, 0), |holder| {
            (holder.buckets + holder.asked, holder.most_lent)
        })
    }

    /// Returns true if a peer with `has` buckets may have `count` more. It may have its sure ones,
    /// and more as long as each of `peers` finds its sure ones among `all`.
    pub(super) fn leaves_enough(&self, has: u64, count: u64, peers: u64, all: u64) -> bool {
        let Self { sure, above, .. } = *self;
        let more = (has + count).saturating_sub(sure) - has.saturating_sub(sure);
        more == 0 || peers * sure + above + more <= all
    }

    /// Notes that a move for so many buckets is in progress.
    pub(super) fn begin_move(&mut self, peer: u32, count: u64) {
        self.change(peer, |holder| holder.asked += count);
    }

    /// Notes that the answer of a move for so many buckets is decided.
    pub(super) fn end_move(&mut self, peer: u32, count: u64) {
        self.change(peer, |holder| holder.asked -= count);
    }

    /// Adds a peer's holds on grants, each with a reference on its record.
    pub(super) fn attach(&mut self, peer: u32, holds: &[LocalHold]) {
        self.change(peer, |holder| {
            for hold in holds {
                holder.add(hold.run, hold.slot);
            }
        });
    }

    /// Adds a peer's hold on an extent; returns false if it had one.
    pub(super) fn attach_once(&mut self, peer: u32, extent: Run, slot: u32) -> bool {
        self.change(peer, |holder| {
            let new = !holder.attached.contains(extent);
            if new {
                holder.add(extent, slot);
            }
            new
        })
    }

    /// Removes a peer's hold on a grant. Returns the slot whose reference goes, or `None` without
    /// such a hold.
    pub(super) fn detach(&mut self, peer: u32, run: Run) -> Option<u32> {
        self.change(peer, |holder| holder.remove(run))
    }

    /// The runs that a peer holds within a run, in order.
    pub(super) fn attached_in(&self, peer: u32, run: Run) -> Vec<Run> {
        let attached = self.get(peer).map(|holder| holder.attached.in_run(run));
        let mut held: Vec<Run> = attached.into_iter().flatten().collect();
        held.sort_unstable();
        held
    }

    /// The sum over peers of the buckets attached or lent, whichever is more.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Lends a peer firehoses beyond its share.
    pub(super) fn lend(&mut self, peer: u32, count: u64) {
        self.change(peer, |holder| {
            holder.lent += count;
            holder.most_lent = holder.most_lent.max(holder.lent);
        });
    }

    /// The peer that was lent most, other than `but`, and the number.
    pub(super) fn largest_borrower(&self, but: Option<u32>) -> Option<(u64, u32)> {
        let mut borrowers = self.borrowers.iter().rev().copied();
        borrowers.find(|(_, peer)| Some(*peer) != but)
    }

    /// Notes that lent firehoses are asked back.
    pub(super) fn recall(&mut self, peer: u32, count: u64) {
        self.change(peer, |holder| holder.lent -= count);
    }

    pub(super) fn lent_to(&self, peer: u32) -> u64 {
        self.get(peer).map_or(0, |holder| holder.lent)
    }

    pub(super) fn attached_by(&self, peer: u32) -> u64 {
        self.get(peer).map_or(0, |holder| holder.buckets)
    }

    /// The buckets that each peer has attached.
    pub(super) fn holding(&self) -> impl Iterator<Item = PeerFirehoses> {
        let holders = self.peers.iter().filter(|(_, holder)| holder.buckets > 0);
        holders.map(|(peer, holder)| PeerFirehoses {
            peer: *peer,
            held_here: holder.buckets,
            held_there: 0,
        })
    }

    /// The references by slot.
    pub(super) fn audit(&self) -> Result<FxHashMap<u32, u32>, String> {
        let mut slots = FxHashMap::default();
        for slot in self.peers.values().flat_map(Holder::slots) {
            *slots.entry(slot).or_default() += 1;
        }
        for (peer, holder) in &self.peers {
            let attached = holder.attached.iter();
            let buckets = attached
                .map(|(run, it)| run.count * u64::from(it.times))
                .sum();
            agree(&format!("buckets of rank {peer}"), holder.buckets, buckets)?;
        }
        let used = self.peers.values().map(Holder::used).sum();
        agree("buckets used or lent", self.used, used)?;
        let above = self
            .peers
            .values()
            .map(|holder| holder.above(self.sure))
            .sum();
        agree("buckets beyond what is sure", self.above, above)?;
        let borrowers = self.peers.values().filter(|holder| holder.lent > 0);
        agree("borrowers", self.borrowers.len(), borrowers.count())?;
        Ok(slots)
    }

    pub(super) fn entries(&self) -> usize {
        (self.peers.values())
            .map(|holder| 1 + holder.attached.len())
            .sum()
    }

    /// Forgets a peer. Returns the slots of its grants, each as often as the peer held it.
    pub(super) fn remove(&mut self, peer: u32) -> Option<Vec<u32>> {
        let holder = self.peers.remove(&peer)?;
        self.used -= holder.used();
        self.above -= holder.above(self.sure);
        self.borrowers.remove(&(holder.lent, peer));
        Some(holder.slots())
    }

    /// The peers that hold any extent of a run.
    pub(super) fn with(&self, run: Run) -> Vec<u32> {
        let holds = |holder: &Holder| holder.attached.in_run(run).next().is_some();
        let mut peers: Vec<u32> = (self.peers.iter())
            .filter(|(_, holder)| holds(holder))
            .map(|(peer, _)| *peer)
            .collect();
        peers.sort_unstable();
        peers
    }
}

/// A peer that holds firehoses here.
#[derive(Debug, Default)]
struct Holder {
    /// The grants, with their slots.
    attached: PeerGrants,
    /// The number of attached buckets.
    buckets: u64,
    /// The buckets of moves in progress.
    asked: u64,
    /// The number of firehoses lent beyond the peer's share.
    lent: u64,
    /// The most firehoses ever lent. The peer may not know yet that some were asked back.
    most_lent: u64,
}

impl Holder {
    fn used(&self) -> u64 {
        self.buckets.max(self.lent)
    }

    fn above(&self, sure: u64) -> u64 {
        (self.buckets + self.asked).saturating_sub(sure)
    }

    fn add(&mut self, run: Run, slot: u32) {
        self.attached.add(run, slot);
        self.buckets += run.count;
    }

    /// Removes a hold, and returns the slot whose reference goes.
    fn remove(&mut self, run: Run) -> Option<u32> {
        let slot = self.attached.remove(run)?;
        self.buckets -= run.count;
        Some(slot)
    }

    /// The slots of its grants, each as often as the peer holds it. The order does not depend on
    /// the addresses of the memory.
    fn slots(&self) -> Vec<u32> {
        let times = |(_, grant): (_, HeldGrant)| (0..grant.times).map(move |_| grant.slot);
        let mut slots: Vec<u32> = self.attached.iter().flat_map(times).collect();
        slots.sort_unstable();
        slots
    }
}
