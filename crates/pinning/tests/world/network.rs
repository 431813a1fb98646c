//! The network of the world: the registrations, and the transfers that its NICs carry out.

use hydrant_pinning::{Cause, Direction, Error, Refusal, RegisteredExtent, Run, Strategy};

use super::{EngineWorld, WorldTransfer, nic::NicEntry};

/// The key of memory that is reached without registration.
const ANY: u64 = u64::MAX;

impl EngineWorld {
    pub(super) fn register(
        &mut self,
        rank: usize,
        need: Run,
        preferred: Run,
        early: Option<Vec<u64>>,
    ) -> Result<RegisteredExtent, Refusal> {
        if self.fail_registrations > 0 && self.draw(u64::from(self.fail_registrations)) == 0 {
            return Err(Refusal::Exhausted);
        }
        let asked = preferred.first;
        let narrow = self.draw(4) == 0;
        let preferred = if narrow { need } else { preferred };
        let preferred = self.ranks[rank].memory.lasting(need, preferred);
        let (run, writable) = match self.ranks[rank].kept {
            Some(run) if run == need => (run, true),
            _ => self.ranks[rank].memory.clip(need, preferred)?,
        };
        let key = self.name();
        let own = &mut self.ranks[rank];
        let (addr, len) = own.memory.span(run);
        let now = own.memory.mapped(addr, len);
        let from = ((run.first - asked) * self.plan.pages as u64) as usize;
        let mapped = match early {
            Some(early) => early[from..from + now.len()].to_vec(),
            None => now.to_vec(),
        };
        let new = NicEntry {
            run,
            writable,
            mapped,
        };
        own.nic.keys.insert(key, new);
        Ok(RegisteredExtent { run, key, writable })
    }

    pub(super) fn transfer(&mut self, it: &WorldTransfer) -> Result<(), Error> {
        let (rank, peer) = (it.rank, it.peer as usize);
        let access = |why: &str| {
            Err(Error::Network {
                rank: it.peer,
                cause: Cause::new(std::io::Error::other(why.to_owned())),
            })
        };
        if self.ranks[peer].lost {
            return Err(Error::PeerLost(it.peer));
        }
        if Some(peer) == self.hostile && self.draw(2) == 0 {
            // The hostile rank accepts data for any address.
            return Ok(());
        }
        let bucket = self.plan.bucket();
        let (initiator, target) = (&self.ranks[rank], &self.ranks[peer]);
        let changes = (self.book).changes((rank, it.local), (peer, it.remote), it.len);
        let (mut own_is_there, mut theirs_is_there) = (true, true);
        assert!(it.len > 0, "{it:?}");
        let target_side = || {
            let memory = &target.memory;
            (target.nic).covers(
                it.remote_key,
                bucket,
                it.remote,
                it.len,
                it.direction.remote(),
                memory,
            )
        };
        if it.local_key == ANY && it.taken.is_none() {
            assert_eq!(self.plan.strategy, Strategy::Paging);
            let own = (initiator.memory).may(it.local, it.len, it.direction.local());
            if own.is_err() {
                assert!(changes, "{it:?} uses own memory that is not there");
                return access("an own page is gone");
            }
            if target
                .memory
                .may(it.remote, it.len, it.direction.remote())
                .is_err()
            {
                return access("a page is not there");
            }
        } else {
            if it.taken.is_none() {
                let memory = &initiator.memory;
                let fine = (initiator.nic).covers(
                    it.local_key,
                    bucket,
                    it.local,
                    it.len,
                    it.direction.local(),
                    memory,
                );
                own_is_there = fine.unwrap_or_else(|why| panic!("own side of {it:?}: {why}"));
            }
            match target_side() {
                Ok(is_there) => theirs_is_there = is_there,
                Err(why) if Some(peer) == self.hostile => return access(&why),
                // The asker of the pull is hostile, so its keys are worthless.
                Err(why) => panic!("remote side of {it:?}: {why}"),
            }
        }
        assert!(
            changes || own_is_there && theirs_is_there,
            "{it:?} reaches pages that were there before"
        );
        if self.fail_transfers && self.draw(4) == 0 {
            for known in self.book.known.values_mut() {
                if known.rank == rank && known.uses(rank, it.local, it.len) {
                    known.may_fail = true;
                }
            }
            return access("it was meant to fail");
        }
        let (from, to) = match it.direction {
            Direction::Put => ((rank, it.local), (peer, it.remote)),
            Direction::Get => ((peer, it.remote), (rank, it.local)),
        };
        if !(own_is_there && theirs_is_there) {
            self.stale += 1;
            return Ok(());
        }
        let data = (it.taken.clone())
            .unwrap_or_else(|| self.ranks[from.0].memory.bytes(from.1, it.len).to_vec());
        self.ranks[to.0].memory.store(to.1, &data);
        Ok(())
    }
}
