//! Memory that goes: firehoses on it are asked back, and it is deregistered when nobody uses it.

use super::Engine;
use crate::{Action, Message, Run};

#[derive(Debug)]
pub(super) struct Revocation {
    run: Run,
    /// Peers that have not given back yet.
    waits_for: Vec<u32>,
}

impl Engine {
    /// Takes own memory back: when [`Action::Revoked`] names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub fn revoke(&mut self, id: u64, run: Run, out: &mut Vec<Action>) {
        let waits_for = self.guests_with(run);
        for peer in &waits_for {
            self.send(*peer, Message::Revoke { id, run }, out);
        }
        self.revocations.insert(id, Revocation { run, waits_for });
        self.local.give_up(run, out);
        self.pump(out);
    }

    /// A peer gave back what it held of memory that goes.
    pub(super) fn revoked_by(
        &mut self,
        from: u32,
        id: u64,
        runs: &[Run],
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        self.take_back(from, runs, false, out)?;
        if let Some(revocation) = self.revocations.get_mut(&id) {
            revocation.waits_for.retain(|peer| *peer != from);
        }
        self.local.settle(out);
        Ok(())
    }

    pub(super) fn revocations_without(&mut self, peer: u32) {
        for revocation in self.revocations.values_mut() {
            revocation.waits_for.retain(|waits_for| *waits_for != peer);
        }
    }

    /// Answers a peer's revocations that nothing here stands in the way of.
    pub(super) fn answer_revocations(&mut self, peer: u32, out: &mut Vec<Action>) {
        let Some(far) = self.fars.get_mut(&peer) else {
            return;
        };
        for (id, mut runs) in far.take_revoked() {
            // What is owed from before is given back first.
            self.give_back(peer, out);
            let last = runs.split_off(runs.len().saturating_sub(crate::wire::MAX_LIST));
            for runs in runs.chunks(crate::wire::MAX_LIST) {
                let runs = runs.to_vec();
                self.send(peer, Message::Release { runs, unpin: false }, out);
            }
            self.send(peer, Message::Revoked { id, runs: last }, out);
        }
    }

    pub(super) fn look_at_revocations(&mut self, out: &mut Vec<Action>) {
        if self.revocations.is_empty() {
            return;
        }
        let given_back: Vec<(u64, Run)> = (self.revocations.iter())
            .filter(|(_, revocation)| revocation.waits_for.is_empty())
            .map(|(id, revocation)| (*id, revocation.run))
            .collect();
        for (id, run) in given_back {
            self.local.give_up(run, out);
            if !self.local.touches(run) {
                self.revocations.remove(&id);
                out.push(Action::Revoked { id });
            }
        }
    }
}
