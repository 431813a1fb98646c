//! Runs that are expected to be needed soon: what moves bring for them stays if all of a run comes. Nobody else
//! would give it back, for nothing that is foreseen is taken off for others.

use super::{super::foreseen::Attached, FirehoseTable};
use crate::{Run, Use, wire::Grant};

/// A run that is expected to be needed, and of which something is still to come.
#[derive(Debug)]
pub(super) struct Expected {
    run: Run,
    used: Use,
    /// The extents that came for it.
    brought: Vec<Run>,
}

impl FirehoseTable {
    /// A run is expected to be needed, of which moves bring what is missing.
    pub(in crate::engine) fn expect(&mut self, run: Run, used: Use) {
        let brought = self.stay(run);
        match self.expected.iter_mut().find(|it| it.run == run) {
            Some(it) => it.brought.extend(brought),
            None => self.expected.push(Expected { run, used, brought }),
        }
    }

    /// A run is not expected to be needed any more.
    pub(in crate::engine) fn expect_no_more(&mut self, run: Run) {
        self.expected.retain(|it| it.run != run);
    }

    /// The extents of a run are needed again, if they were to leave: which were. Not those that reach beyond it:
    /// whoever gives it back would leave them.
    pub(in crate::engine) fn stay(&mut self, run: Run) -> Vec<Run> {
        if self.leaving.is_empty() {
            return Vec::new();
        }
        let mut extents = self.editor.extents_in(run);
        extents.retain(|extent| run.contains(*extent) && self.leaving.remove(&extent.first));
        extents
    }

    /// A move brought extents ahead of need: those that lie in no run that is expected, which are to be given up.
    pub(in crate::engine) fn came(&mut self, landed: &[Grant]) -> Vec<Run> {
        let extents = landed.iter().map(|grant| grant.run);
        extents
            .filter(|extent| !bring(&mut self.expected, *extent))
            .collect()
    }

    /// Extents came, or went. Given up are strays, and what came for a run of which a part will not be there, unless
    /// others have use for it.
    pub(in crate::engine) fn settle_ahead(&mut self, strays: &[Run]) {
        for extent in strays {
            self.give_up(*extent);
        }
        let mut all = std::mem::take(&mut self.expected);
        // What is given up of one run may be missing in another.
        while let Some(at) = all
            .iter()
            .position(|it| self.standing(it.run, it.used) == Attached::No)
        {
            for extent in all.swap_remove(at).brought {
                if !bring(&mut all, extent) {
                    self.give_up(extent);
                }
            }
        }
        all.retain(|it| self.standing(it.run, it.used) == Attached::Coming);
        self.expected = all;
    }

    /// How the firehoses on a run stand, for what is used so.
    pub(in crate::engine) fn standing(&mut self, run: Run, used: Use) -> Attached {
        let look = self.look(run, used);
        self.drop_holds(&look.holds);
        match (look.gaps.is_empty(), look.joins.is_empty()) {
            _ if look.read_only => Attached::No,
            (true, true) => Attached::All,
            (true, false) => Attached::Coming,
            (false, _) => Attached::No,
        }
    }

    /// Runs that are expected though no move brings anything of them: there are none.
    pub(super) fn expected_in_vain(&self) -> usize {
        let expected = self.expected.iter();
        expected.filter(|it| !self.is_coming(it.run)).count()
    }

    /// Whether a move is on its way that brings some of a run.
    pub(super) fn is_coming(&self, run: Run) -> bool {
        let last = self.moving.range(..run.end()).next_back();
        last.is_some_and(|(_, (end, _))| *end > run.first)
    }
}

/// Whether an extent lies in runs that are expected: it is there for these then.
fn bring(expected: &mut [Expected], extent: Run) -> bool {
    let mut is_expected = false;
    for it in expected.iter_mut().filter(|it| it.run.contains(extent)) {
        if !it.brought.contains(&extent) {
            it.brought.push(extent);
        }
        is_expected = true;
    }
    is_expected
}
