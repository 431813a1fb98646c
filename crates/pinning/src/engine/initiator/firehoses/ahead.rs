//! Runs that are expected to be needed soon. Their firehoses stay if all of a run comes. Nobody
//! else would give them back, because foreseen ones are not taken off for others.

use super::FirehoseTable;
use crate::{Run, Use, wire::Grant};

/// The state of the firehoses on some memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// All firehoses are attached.
    All,
    /// A move in flight brings the missing ones.
    Coming,
    /// Some firehoses are missing.
    No,
}

/// A run that is expected to be needed, and of which a part is still to come.
#[derive(Debug)]
pub(super) struct ExpectedRun {
    run: Run,
    used: Use,
    /// The extents that came for it.
    brought: Vec<Run>,
}

impl FirehoseTable {
    /// Expects a run, whose missing part moves will bring.
    pub(in crate::engine) fn expect(&mut self, run: Run, used: Use) {
        let brought = self.cancel_leaving(run);
        match self.expected.iter_mut().find(|it| it.run == run) {
            Some(it) => it.brought.extend(brought),
            None => self.expected.push(ExpectedRun { run, used, brought }),
        }
    }

    /// Ends the expectation of a run.
    pub(in crate::engine) fn forget_expected(&mut self, run: Run) {
        self.expected.retain(|it| it.run != run);
    }

    /// Keeps extents of a run that were to leave, and returns them. Extents that reach beyond the
    /// run still leave, because a detach of the run would leave them.
    pub(in crate::engine) fn cancel_leaving(&mut self, run: Run) -> Vec<Run> {
        if self.leaving.is_empty() {
            return Vec::new();
        }
        let mut extents = self.editor.extents_in(run);
        extents.retain(|extent| run.contains(*extent) && self.leaving.remove(&extent.first));
        extents
    }

    /// Assigns arrived extents to the expected runs. Returns the extents of no such run, which are
    /// to be given up.
    pub(in crate::engine) fn assign_arrivals(&mut self, landed: &[Grant]) -> Vec<Run> {
        let extents = landed.iter().map(|grant| grant.run);
        extents
            .filter(|extent| !assign(&mut self.expected, *extent))
            .collect()
    }

    /// Settles after extents came or went. It gives up strays, and extents of a run that cannot be
    /// completed, unless another run needs them.
    pub(in crate::engine) fn settle_ahead(&mut self, strays: &[Run]) {
        for extent in strays {
            self.give_up(*extent);
        }
        let mut all = std::mem::take(&mut self.expected);
        // An extent given up for one run may be missing in another.
        while let Some(at) = all
            .iter()
            .position(|it| self.attached_state(it.run, it.used) == Attached::No)
        {
            for extent in all.swap_remove(at).brought {
                if !assign(&mut all, extent) {
                    self.give_up(extent);
                }
            }
        }
        all.retain(|it| self.attached_state(it.run, it.used) == Attached::Coming);
        self.expected = all;
    }

    /// The state of the firehoses on a run, for this use.
    pub(in crate::engine) fn attached_state(&mut self, run: Run, used: Use) -> Attached {
        let look = self.acquire_run(run, used);
        self.drop_holds(&look.holds);
        match (look.gaps.is_empty(), look.joins.is_empty()) {
            _ if look.read_only => Attached::No,
            (true, true) => Attached::All,
            (true, false) => Attached::Coming,
            (false, _) => Attached::No,
        }
    }

    /// The number of expected runs of which no move brings anything. There should be none.
    pub(super) fn expected_in_vain(&self) -> usize {
        let expected = self.expected.iter();
        expected.filter(|it| !self.is_coming(it.run)).count()
    }

    /// Returns true if a move in flight brings a part of a run.
    pub(super) fn is_coming(&self, run: Run) -> bool {
        let last = self.moving.range(..run.end()).next_back();
        last.is_some_and(|(_, (end, _))| *end > run.first)
    }
}

/// Adds an extent to all expected runs that contain it; returns true if there are any.
fn assign(expected: &mut [ExpectedRun], extent: Run) -> bool {
    let mut is_expected = false;
    for it in expected.iter_mut().filter(|it| it.run.contains(extent)) {
        if !it.brought.contains(&extent) {
            it.brought.push(extent);
        }
        is_expected = true;
    }
    is_expected
}
