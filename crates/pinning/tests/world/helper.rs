//! Acts as the helper threads do: memory is registered and firehoses move ahead of need.

use hydrant_pinning::{
    Attached, Decisions, Detached, Direction, Error, RegionNumber, Run, Strategy,
};

use super::EngineWorld;

/// The region of memory that is foreseen to be needed.
pub(super) const AHEAD: RegionNumber = RegionNumber(u64::MAX - 1);

impl EngineWorld {
    /// Acts as a helper on its own rank's memory, at any time.
    pub(super) fn help(&mut self) {
        if self.plan.strategy != Strategy::Foresight || self.draw(3) > 0 {
            return;
        }
        let rank = self.draw(self.ranks.len() as u64) as usize;
        if self.ranks[rank].lost || Some(rank) == self.hostile {
            return;
        }
        let bucket = self.plan.bucket();
        // Half of the actions are on the same few buckets.
        let places = if self.draw(2) == 0 {
            8
        } else {
            self.plan.memory
        };
        let first = self.draw(places.min(self.plan.memory));
        let count = (1 + self.draw(6)).min(self.plan.memory - first);
        let run = Run {
            first: self.ranks[rank].memory.base() / bucket + first,
            count,
        };
        let (addr, len) = (run.first * bucket, run.count * bucket);
        let mut out = Decisions::default();
        match self.draw(7) {
            0 => {
                let most = [0, 0, 1, 2, 5, 12, u64::MAX / bucket][self.draw(7) as usize];
                self.ranks[rank].engine.keep_within(most * bucket);
            }
            1 => {
                let is_apart = self.draw(3) > 0;
                self.ranks[rank].engine.set_apart(addr, is_apart).unwrap();
            }
            2 => {
                let it = self.ranks[rank].engine.take_crowded_out();
                assert!(it.runs.len() <= 256);
                self.crowded += it.runs.len() as u64;
            }
            3 => {
                _ = self.ranks[rank]
                    .engine
                    .give_up(addr, len, &mut out)
                    .unwrap()
            }
            4 => {
                _ = (self.ranks[rank].engine)
                    .give_up_apart(addr, &mut out)
                    .unwrap()
            }
            _ => {
                let own = &self.ranks[rank];
                if !own.revoking.is_empty() || !own.memory.lasts_everywhere(run) {
                    return;
                }
                let id = self.name();
                self.ranks[rank].pinning.insert(id, run);
                self.ranks[rank]
                    .engine
                    .foresee(id, addr, len, &mut out)
                    .unwrap();
            }
        }
        self.perform(rank, out, &[]);
    }

    /// Moves firehoses of a rank ahead, or gives them back.
    pub(super) fn foresee(
        &mut self,
        (rank, peer): (u16, u16),
        direction: Direction,
        (bucket, buckets): (u16, u16),
        soon: bool,
    ) {
        let all = self.ranks.len();
        let rank = usize::from(rank) % all;
        let peer = (rank + 1 + usize::from(peer) % (all - 1)) % all;
        if self.ranks[rank].lost || Some(rank) == self.hostile {
            return;
        }
        let memory = &self.ranks[peer].memory;
        let (len, bucket_bytes) = (memory.len(), self.plan.bucket());
        // Half of the actions are on the same few buckets.
        let places = match bucket % 2 {
            0 => (len / bucket_bytes).clamp(1, 4),
            _ => (len / bucket_bytes).max(1),
        };
        let start = memory.base() + u64::from(bucket >> 1) % places * bucket_bytes;
        let bytes = (1 + u64::from(buckets % 6)) * bucket_bytes;
        let bytes = bytes.min(memory.base() + len - start);
        // Now and then the memory was foreseen before, and may be attached by now.
        let mut again =
            (self.foreseen.keys()).filter(|(of, ..)| soon && bucket % 4 == 3 && *of == rank);
        let (peer, there) = match again.next_back() {
            Some(&(_, peer, there)) => (peer, there),
            None => (peer as u32, (start, bytes)),
        };
        let mut out = Decisions::default();
        let own = &mut self.ranks[rank];
        let before = own.engine.attached(peer, there, direction);
        if soon {
            let attached = own.engine.attach((peer, AHEAD), there, direction, &mut out);
            match attached {
                Ok(Attached::No) => {}
                Ok(attached) => {
                    let is_there = attached == Attached::All;
                    let it = self.foreseen.entry((rank, peer, there));
                    it.or_insert((direction, is_there)).1 |= is_there;
                    assert_eq!(own.engine.attached(peer, there, direction), attached);
                    self.ahead += u64::from(attached == Attached::Coming);
                    self.ahead_there += u64::from(before == Attached::All);
                }
                Err(cause) => assert_eq!(cause, Error::PeerLost(peer)),
            }
        } else {
            self.foreseen.remove(&(rank, peer, there));
            match own.engine.detach(peer, there, &mut out) {
                Ok(Detached::Now) => {
                    assert_eq!(own.engine.attached(peer, there, direction), Attached::No);
                    self.given_back += 1;
                }
                Ok(Detached::WhenUnused) => self.given_back_later += 1,
                _ => {}
            }
        }
        self.perform(rank, out, &[]);
    }

    /// Forgets foreseen memory that was refused, which nobody gives back.
    pub(super) fn look_at_foreseen(&mut self) {
        let Self {
            foreseen, ranks, ..
        } = self;
        foreseen.retain(|(rank, peer, there), (direction, is_there)| {
            if *is_there {
                return true;
            }
            let engine = &mut ranks[*rank].engine;
            let attached = engine.attached(*peer, *there, *direction);
            *is_there = attached == Attached::All;
            attached != Attached::No
        });
    }

    /// Ends all expectations, so that nobody holds memory of another rank.
    pub(crate) fn foresee_nothing(&mut self) {
        for (rank, peer, there) in std::mem::take(&mut self.foreseen).into_keys() {
            let mut out = Decisions::default();
            let outcome = self.ranks[rank].engine.detach(peer, there, &mut out);
            assert!(matches!(outcome, Ok(_) | Err(Error::PeerLost(_))));
            self.perform(rank, out, &[]);
        }
        self.drain();
        for (rank, own) in self.ranks.iter().enumerate() {
            for peer in 0..self.ranks.len() {
                if peer != rank && !own.lost && !self.ranks[peer].lost {
                    let held = own.engine.attached_at(peer as u32);
                    assert_eq!(held, 0, "what {rank} holds at {peer}");
                }
            }
        }
    }
}
