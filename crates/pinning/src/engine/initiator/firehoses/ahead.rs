//! Runs that are expected to be needed soon: what moves bring for them stays if all of a run comes. Nobody else
//! would give it back, for nothing that is foreseen is taken off for others.

use super::FirehoseTable;
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

    /// A move has been answered that brought extents ahead of need. Those that lie in no run that is expected are
    /// given up, and so are those that came for a run of which the rest was refused.
    pub(in crate::engine) fn settle_ahead(&mut self, landed: &[Grant]) {
        for grant in landed {
            let mut is_expected = false;
            for it in (self.expected.iter_mut()).filter(|it| it.run.contains(grant.run)) {
                it.brought.push(grant.run);
                is_expected = true;
            }
            if !is_expected {
                self.give_up(grant.run);
            }
        }
        let (coming, over): (Vec<_>, Vec<_>) =
            (std::mem::take(&mut self.expected).into_iter()).partition(|it| self.is_coming(it.run));
        self.expected = coming;
        let (there, missed): (Vec<_>, Vec<_>) = over.into_iter().partition(|it| self.has_all(it));
        for extent in missed.into_iter().flat_map(|it| it.brought) {
            let others = self.expected.iter().chain(&there);
            if !others.into_iter().any(|it| it.run.contains(extent)) {
                self.give_up(extent);
            }
        }
    }

    fn has_all(&mut self, it: &Expected) -> bool {
        let look = self.look(it.run, it.used);
        self.drop_holds(&look.holds);
        look.gaps.is_empty() && !look.read_only
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
