//! Revocations: peers give firehoses on the memory back, and it is deregistered when nobody uses
//! it.
//!
//! Registered memory is taken back in this one way, whatever the strategy. Each peer that knows of an extent on the
//! memory ends its transfers and forgets the extent; then the extent is deregistered. Other memory of the extent is at
//! worst copied meanwhile. An allocation begins where a bucket begins, and shares no extent.

use super::{EngineMessage, StepContext, Target};
use crate::{
    Action, Run, Violation,
    strategy::{AfterUse, RemotePolicy},
};

/// A revocation of own memory.
#[derive(Debug)]
pub(super) struct Revocation {
    /// The run that is taken back.
    run: Run,
    /// The run with all extents that have a bucket of it: peers with any of these use their keys.
    reach: Run,
    /// The peers that have not given back yet.
    waits_for: Vec<u32>,
    /// The reason of the revocation.
    cause: RevocationCause,
}

/// The reason why own memory is taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RevocationCause {
    /// The driver asked, and waits for the end.
    Asked,
    /// The memory has changed.
    Changed,
}

impl Target {
    /// Takes own memory back: when [`Action::Revoked`] names `id`, no peer holds a bucket of the
    /// run and none is registered. `id` is the driver's choice, not in use.
    pub(in crate::engine) fn revoke(&mut self, id: u64, run: Run, cx: &mut StepContext<'_>) {
        self.begin_to_revoke((id, RevocationCause::Asked), run, cx);
    }

    /// Takes own memory back because it has changed. Nobody hits it from now on.
    pub(in crate::engine) fn revoke_changed(
        &mut self,
        id: u64,
        run: Run,
        cx: &mut StepContext<'_>,
    ) {
        cx.local.outdate(run, cx.out);
        if !cx.local.touches(run) {
            return;
        }
        self.begin_to_revoke((id, RevocationCause::Changed), run, cx);
        let is_over = |it: &Revocation| it.waits_for.is_empty();
        if self.revocations.get(&id).is_some_and(is_over) && !cx.local.touches(run) {
            // Later registrations hold the memory as it is after the change.
            self.revocations.remove(&id);
        }
    }

    /// Takes back what is registered of a run, but not what is kept for good.
    pub(in crate::engine) fn revoke_unheard(
        &mut self,
        run: Run,
        name: &mut dyn FnMut() -> u64,
        cx: &mut StepContext<'_>,
    ) {
        cx.local.outdate(run, cx.out);
        for extent in cx.local.passing_extents(run) {
            self.revoke_changed(name(), extent, cx);
        }
    }

    /// Returns true if a peer has not answered yet that it forgot changed memory.
    pub(in crate::engine) fn has_unanswered(&self) -> bool {
        let waits =
            |it: &Revocation| it.cause == RevocationCause::Changed && !it.waits_for.is_empty();
        self.revocations.values().any(waits)
    }

    fn begin_to_revoke(
        &mut self,
        (id, cause): (u64, RevocationCause),
        run: Run,
        cx: &mut StepContext<'_>,
    ) {
        let reach = cx.local.reach(run);
        let waits_for = match cx.local.is_pinned(reach) {
            // All peers know pinned memory, and use it without asking. So each must forget it
            // first.
            true => cx.common.peers().collect(),
            false => self.holders.with(reach),
        };
        for peer in &waits_for {
            cx.send(*peer, EngineMessage::Revoke { id, run: reach });
        }
        let revocation = Revocation {
            run,
            reach,
            waits_for,
            cause,
        };
        self.revocations.insert(id, revocation);
        self.stats.revocations += 1;
        cx.local.withdraw(run, cx.out);
    }

    /// The runs that are being taken back.
    pub(in crate::engine) fn going(&self) -> Vec<Run> {
        self.revocations.values().map(|it| it.run).collect()
    }

    /// Returns true if memory of a run is being taken back. Nobody is given a firehose on it then,
    /// so that all holders were known at the start.
    pub(super) fn is_going(&self, run: Run) -> bool {
        let goes = |it: &Revocation| it.run.overlaps(run) || it.reach.overlaps(run);
        self.revocations.values().any(goes)
    }

    /// Answers a pin whose memory is registered or refused. Memory whose revocation began meanwhile
    /// is refused, because peers that have forgotten it must not be told of it again.
    pub(in crate::engine) fn answer_pin(&self, id: u64, request: u64, cx: &mut StepContext<'_>) {
        let extents = (cx.local.get(request)).map_or_else(Vec::new, |it| cx.local.extents(it));
        let going = extents.into_iter().find(|extent| self.is_going(*extent));
        cx.local.answer_pin(id, request, going, cx.out);
    }

    /// Handles a peer's answer to a revocation.
    pub(in crate::engine) fn on_revoked(
        &mut self,
        from: u32,
        id: u64,
        runs: &[Run],
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        let outcome = self.take_back(from, runs, false, cx);
        cx.local.settle(cx.out);
        outcome?;
        let revocation = (self.revocations.get_mut(&id))
            .filter(|revocation| revocation.waits_for.contains(&from))
            .ok_or(Violation::RevokedUnasked)?;
        revocation.waits_for.retain(|peer| *peer != from);
        if cx.policy().remote == RemotePolicy::Handshake(AfterUse::Keep) {
            // The peer sends no other word that it uses none of it.
            let reach = revocation.reach;
            self.forget_kept(from, reach, cx);
            cx.local.settle(cx.out);
        }
        Ok(())
    }

    pub(super) fn forget_revocations_of(&mut self, peer: u32) {
        for revocation in self.revocations.values_mut() {
            revocation.waits_for.retain(|waits_for| *waits_for != peer);
        }
    }

    pub(in crate::engine) fn finish_revocations(&mut self, cx: &mut StepContext<'_>) {
        if self.revocations.is_empty() {
            return;
        }
        let mut given_back: Vec<(u64, Run)> = (self.revocations.iter())
            .filter(|(_, revocation)| revocation.waits_for.is_empty())
            // The end of the change leads here again: once, and not for every extent of many.
            .filter(|(_, revocation)| !cx.local.is_changing(revocation.run))
            .map(|(id, revocation)| (*id, revocation.run))
            .collect();
        given_back.sort_unstable();
        for (id, run) in given_back {
            cx.local.give_up(run, cx.out);
            if !cx.local.is_changing(run) && !cx.local.touches(run) {
                let over = self.revocations.remove(&id);
                if over.is_some_and(|it| it.cause == RevocationCause::Asked) {
                    cx.out.actions.push(Action::Revoked { id });
                }
            }
        }
    }
}
