//! Memory that goes: firehoses on it are asked back, and it is deregistered when nobody uses it.

use super::{Context, Message, Target};
use crate::{
    Action, Run, Violation,
    strategy::{After, Remote},
};

/// Own memory being taken back.
#[derive(Debug)]
pub(super) struct Revocation {
    /// What is taken back.
    run: Run,
    /// All of the extents that have a bucket of it: peers that use any of them use their keys.
    reach: Run,
    /// Peers that have not given back yet.
    waits_for: Vec<u32>,
}

impl Target {
    /// Takes own memory back: when [`Action::Revoked`] names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub(in crate::engine) fn revoke(&mut self, id: u64, run: Run, cx: &mut Context<'_>) {
        let reach = cx.local.reach(run);
        let waits_for = match cx.local.is_pinned(reach) {
            // All were told of it and nobody asks before using it; that they forget it first is
            // why a key that is theirs still is in force.
            true => cx.common.peers().collect(),
            false => self.holders.with(reach),
        };
        for peer in &waits_for {
            cx.send(*peer, Message::Revoke { id, run: reach });
        }
        let revocation = Revocation {
            run,
            reach,
            waits_for,
        };
        self.revocations.insert(id, revocation);
        cx.local.withdraw(run, cx.out);
    }

    /// Whether memory of a run is being taken back: nobody is given a firehose on it then, so
    /// that all there are were known when it began.
    pub(super) fn is_going(&self, run: Run) -> bool {
        let goes = |it: &Revocation| it.run.overlaps(run) || it.reach.overlaps(run);
        self.revocations.values().any(goes)
    }

    /// What was to be pinned is registered, or was refused. What began to go meanwhile is refused: peers that have
    /// forgotten it are not to be told of it once more.
    pub(in crate::engine) fn answer_pin(&self, id: u64, request: u64, cx: &mut Context<'_>) {
        let extents = (cx.local.get(request)).map_or_else(Vec::new, |it| cx.local.extents(it));
        let going = extents.into_iter().find(|extent| self.is_going(*extent));
        cx.local.pinned(id, request, going, cx.out);
    }

    /// A peer gave back what it held of memory that goes.
    pub(in crate::engine) fn revoked_by(
        &mut self,
        from: u32,
        id: u64,
        runs: &[Run],
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let outcome = self.take_back(from, runs, false, cx);
        cx.local.settle(cx.out);
        outcome?;
        let revocation = (self.revocations.get_mut(&id))
            .filter(|revocation| revocation.waits_for.contains(&from))
            .ok_or(Violation::RevokedUnasked)?;
        revocation.waits_for.retain(|peer| *peer != from);
        if cx.policy().remote == Remote::Handshake(After::Keep) {
            // Nobody else says what of it is not used any more.
            let reach = revocation.reach;
            self.forget_kept(from, reach, cx);
            cx.local.settle(cx.out);
        }
        Ok(())
    }

    pub(super) fn revocations_without(&mut self, peer: u32) {
        for revocation in self.revocations.values_mut() {
            revocation.waits_for.retain(|waits_for| *waits_for != peer);
        }
    }

    pub(in crate::engine) fn look_at_revocations(&mut self, cx: &mut Context<'_>) {
        if self.revocations.is_empty() {
            return;
        }
        let mut given_back: Vec<(u64, Run)> = (self.revocations.iter())
            .filter(|(_, revocation)| revocation.waits_for.is_empty())
            // When that is over it is looked at again: once, not for every extent of many.
            .filter(|(_, revocation)| !cx.local.is_changing(revocation.run))
            .map(|(id, revocation)| (*id, revocation.run))
            .collect();
        given_back.sort_unstable();
        for (id, run) in given_back {
            cx.local.give_up(run, cx.out);
            if !cx.local.is_changing(run) && !cx.local.touches(run) {
                self.revocations.remove(&id);
                cx.out.actions.push(Action::Revoked { id });
            }
        }
    }
}
