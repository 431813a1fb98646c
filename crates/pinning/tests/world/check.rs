//! The conditions that hold after every step, and at the end.

use std::collections::BTreeSet;

use hydrant_pinning::{Direction, EngineMessage, Run};

use super::{
    EngineWorld,
    model::{KnownOperation, overlap},
};

impl EngineWorld {
    pub(crate) fn check(&self) {
        for (rank, own) in self.ranks.iter().enumerate() {
            if own.lost || Some(rank) == self.hostile {
                continue;
            }
            if let Err(what) = own.engine.audit(&own.hits) {
                panic!("rank {rank} at step {}: {what}", self.steps);
            }
            assert_eq!(own.engine.stats().local.registered, own.nic.buckets);
            self.check_usage(rank);
            self.check_passing(rank);
            for (peer, theirs) in self.ranks.iter().enumerate() {
                if peer == rank || theirs.lost || Some(peer) == self.hostile {
                    continue;
                }
                let (attached, credit) = own.engine.firehoses(peer as u32);
                assert!(
                    self.plan.borrowing || attached <= credit || own.engine.statics(peer as u32),
                    "rank {rank} has {attached} firehoses to {peer} of {credit}"
                );
                if !own.knows_lost.contains(&(peer as u32)) && !self.keeps() {
                    self.check_pair(rank, peer);
                }
            }
        }
    }

    /// Each registered bucket has one use, and the firehoses of all peers are counted.
    fn check_usage(&self, rank: usize) {
        let own = &self.ranks[rank];
        let usage = own.engine.usage();
        let held = usage.dead + usage.permanent + usage.peers + usage.in_use;
        let all = held + usage.victims + usage.changing;
        assert_eq!(all, own.nic.buckets, "rank {rank}: {usage:?}");
        for peer in 0..self.ranks.len() as u32 {
            let counted = usage.firehoses.iter().find(|it| it.peer == peer);
            let counted = counted.map_or((0, 0), |it| (it.held_here, it.held_there));
            let here = own.engine.attached_by(peer);
            let there = own.engine.firehoses(peer).0;
            assert_eq!(counted, (here, there), "rank {rank}, peer {peer}");
        }
    }

    /// Transient memory is registered only while an operation in flight uses a part of it. The
    /// exception is a peer's pull of persistent memory beside it in the same extent.
    pub(super) fn check_passing(&self, rank: usize) {
        let own = &self.ranks[rank];
        for (key, it) in &own.nic.keys {
            let (addr, len) = own.memory.span(it.run);
            let uses = |known: &KnownOperation| {
                let own = known.rank == rank && overlap(known.local, known.len, addr, len);
                let pulled = known.direction == Direction::Get && !self.plan.reads;
                let pulls = known.peer == rank && overlap(known.remote, known.len, addr, len);
                own || (pulled && pulls)
            };
            assert!(
                own.kept == Some(it.run)
                    || own.memory.lasts_everywhere(it.run)
                    || !own.revoking.is_empty()
                    // Foreseen memory is held, closed, until all of it is registered.
                    || own.pinning.values().any(|run| run.overlaps(it.run))
                    || self.book.known.values().any(uses),
                "key {key} of rank {rank} outlives its operation: {it:?}"
            );
        }
    }

    /// The buckets that a target counts as attached are with its asker, or in flight between them.
    pub(super) fn check_pair(&self, asker: usize, target: usize) {
        let mut there = self.ranks[asker].engine.attached_at(target as u32);
        let sum = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u64>();
        let on_its_way = |from: usize, to: usize| {
            let queue = self.channels.get(&(from, to)).into_iter().flatten();
            queue.filter_map(|bytes| EngineMessage::decode(bytes).ok())
        };
        for (message, _) in on_its_way(asker, target) {
            there += match message {
                EngineMessage::Move(wanted) => sum(&wanted.releases),
                EngineMessage::Release { runs, .. } | EngineMessage::Revoked { runs, .. } => {
                    sum(&runs)
                }
                _ => 0,
            };
        }
        let mut lent = self.ranks[target].engine.lent_to(asker as u32);
        // A loan may have been recalled since, in the same channel.
        let mut to_come = 0;
        for (message, _) in on_its_way(target, asker) {
            match message {
                EngineMessage::Granted(granted) => {
                    there += granted.grants.iter().map(|it| it.run.count).sum::<u64>();
                    to_come += granted.lent;
                }
                EngineMessage::Recall { count } => lent += count,
                _ => {}
            }
        }
        let borrowed = self.ranks[asker].engine.borrowed_of(target as u32);
        assert_eq!(
            lent,
            borrowed + to_come,
            "what {target} has lent to {asker}"
        );
        let counted = self.ranks[target].engine.attached_by(asker as u32);
        assert_eq!(counted, there, "what {asker} has attached at {target}");
    }

    pub(super) fn check_end(&mut self) {
        self.check();
        let lost: BTreeSet<usize> = (0..self.ranks.len())
            .filter(|it| self.ranks[*it].lost)
            .collect();
        let left: Vec<_> = (self.book.known.iter())
            .filter(|(_, known)| !lost.contains(&known.rank))
            .collect();
        let first = left.first();
        assert!(
            left.is_empty(),
            "{} operations are stuck: {first:?}\n{:#?}",
            left.len(),
            first.map(|(_, known)| &self.ranks[known.rank].engine)
        );
        for (rank, own) in self.ranks.iter().enumerate() {
            if own.lost || Some(rank) == self.hostile {
                continue;
            }
            assert_eq!(own.engine.busy(), 0);
            assert!(
                own.revoking.is_empty(),
                "a revocation is stuck: {:#?}",
                own.engine
            );
            assert!(own.pinning.is_empty());
        }
        self.book.known.clear();
    }
}
