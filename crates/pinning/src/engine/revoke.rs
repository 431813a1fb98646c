//! Memory that goes: firehoses on it are asked back, and it is deregistered when nobody uses it.

use super::{Engine, Remote};
use crate::{Action, Message, Run, strategy::After, wire::MAX_LIST};

#[derive(Debug)]
pub(super) struct Revocation {
    run: Run,
    /// All of the extents that have a bucket of it: peers that use any of them use their keys.
    reach: Run,
    /// Peers that have not given back yet.
    waits_for: Vec<u32>,
}

impl Engine {
    /// Takes own memory back: when [`Action::Revoked`] names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub fn revoke(&mut self, id: u64, run: Run, out: &mut Vec<Action>) {
        let reach = self.local.reach(run);
        let waits_for = match self.local.is_pinned(reach) {
            // All were told of it and nobody asks before using it; that they forget it first is
            // why a key that is theirs still is in force.
            true => self.peers_left(),
            false => self.guests_with(reach),
        };
        for peer in &waits_for {
            self.send(*peer, Message::Revoke { id, run: reach }, out);
        }
        let revocation = Revocation {
            run,
            reach,
            waits_for,
        };
        self.revocations.insert(id, revocation);
        self.local.withdraw(run, out);
        self.pump(out);
    }

    /// Whether memory of a run is being taken back: nobody is given a firehose on it then, so
    /// that all there are were known when it began.
    pub(super) fn is_going(&self, run: Run) -> bool {
        let goes = |it: &Revocation| it.run.overlaps(run) || it.reach.overlaps(run);
        self.revocations.values().any(goes)
    }

    /// A peer takes its memory back.
    pub(super) fn doomed(
        &mut self,
        from: u32,
        id: u64,
        run: Run,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        let Some(far) = self.fars.get_mut(&from) else {
            // Nothing of it was ever used here.
            let runs = Vec::new();
            self.send(from, Message::Revoked { id, runs }, out);
            return Ok(());
        };
        if !far.doom(id, run) {
            return Err("more revocations at once than there can be");
        }
        self.firehoses_free(from, out);
        Ok(())
    }

    /// A peer gave back what it held of memory that goes.
    pub(super) fn revoked_by(
        &mut self,
        from: u32,
        id: u64,
        runs: &[Run],
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        let outcome = self.take_back(from, runs, false, out);
        self.local.settle(out);
        outcome?;
        let revocation = (self.revocations.get_mut(&id))
            .filter(|revocation| revocation.waits_for.contains(&from))
            .ok_or("the end of a revocation that was not asked for")?;
        revocation.waits_for.retain(|peer| *peer != from);
        if self.policy.remote == Remote::Handshake(After::Keep) {
            // Nobody else says what of it is not used any more.
            let reach = revocation.reach;
            self.forget_kept(from, reach, out);
            self.local.settle(out);
        }
        Ok(())
    }

    fn peers_left(&self) -> Vec<u32> {
        let all = (0..self.config.ranks).filter(|peer| *peer != self.config.rank);
        all.filter(|peer| !self.lost.contains(peer)).collect()
    }

    pub(super) fn revocations_without(&mut self, peer: u32) {
        for revocation in self.revocations.values_mut() {
            revocation.waits_for.retain(|waits_for| *waits_for != peer);
        }
    }

    /// Answers a peer's revocations that nothing here stands in the way of.
    pub(super) fn answer_revocations(&mut self, peer: u32, out: &mut Vec<Action>) {
        let Some(far) = self.fars.get(&peer) else {
            return;
        };
        // What operations were granted for themselves is in no table.
        let pieces = self.pieces.values().filter(|_| far.is_revoked());
        let loose: Vec<Run> = (pieces.filter(|piece| piece.peer == peer))
            .flat_map(|piece| &piece.reach.holds)
            .filter(|hold| hold.slot.is_none())
            .map(|hold| hold.run)
            .collect();
        for id in self.far(peer).take_revoked(&loose) {
            // What is given back goes before the answer, and the last of it with the answer.
            let owed = &mut self.far(peer).owed;
            let runs = owed.split_off(owed.len().saturating_sub(MAX_LIST));
            self.stats.released += runs.len() as u64;
            self.give_back(peer, out);
            self.send(peer, Message::Revoked { id, runs }, out);
        }
    }

    pub(super) fn look_at_revocations(&mut self, out: &mut Vec<Action>) {
        if self.revocations.is_empty() {
            return;
        }
        let mut given_back: Vec<(u64, Run)> = (self.revocations.iter())
            .filter(|(_, revocation)| revocation.waits_for.is_empty())
            // When that is over it is looked at again: once, not for every extent of many.
            .filter(|(_, revocation)| !self.local.is_changing(revocation.run))
            .map(|(id, revocation)| (*id, revocation.run))
            .collect();
        given_back.sort_unstable();
        for (id, run) in given_back {
            self.local.give_up(run, out);
            if !self.local.is_changing(run) && !self.local.touches(run) {
                self.revocations.remove(&id);
                out.push(Action::Revoked { id });
            }
        }
    }
}
