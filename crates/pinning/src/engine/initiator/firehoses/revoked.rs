//! Memory that the peer takes back: what is there of it is closed, and goes when nothing uses it.

use super::FirehoseTable;
use crate::{Run, engine::choice::PulledMemory};

/// Revocations of one peer that operations of mine may stand in the way of at once. Its honest
/// ones are as many as the buffers it takes back at once.
const MAX_REVOKING: usize = 1 << 12;

/// What nobody finds any more, though operations of mine may still use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    run: Run,
    /// Whether it is made of firehoses, or was there from the start.
    owned: bool,
}

impl FirehoseTable {
    /// The peer takes memory back: nobody finds its firehoses any more. `false` if there are
    /// too many such wishes.
    pub(in crate::engine) fn begin_revocation(&mut self, id: u64, run: Run) -> bool {
        if self.revoking.len() == MAX_REVOKING {
            return false;
        }
        for extent in self.editor.extents_in(run) {
            self.closed(extent);
        }
        self.revoking.push((id, run));
        self.full_at = u64::MAX;
        self.pulled = PulledMemory::default();
        true
    }

    /// Whether the peer takes memory back that is not given back yet.
    pub(in crate::engine) fn is_revoked(&self) -> bool {
        !self.revoking.is_empty()
    }

    fn closed(&mut self, run: Run) {
        if self.closed.contains_key(&run.first) {
            return;
        }
        if let Some(slot) = self.editor.get(run.first) {
            self.editor.close(slot);
            let owned = !self.statics.contains(&run.first);
            self.closed.insert(run.first, Closed { run, owned });
        }
    }

    /// Takes out what was closed and is used no more; firehoses among it are owed.
    pub(super) fn sweep(&mut self) {
        let Self {
            editor,
            closed,
            statics,
            owed,
            used,
            reuse,
            full_at,
            leaving,
            ..
        } = self;
        closed.retain(|_, it| {
            let Some(slot) = editor.get(it.run.first) else {
                return false;
            };
            leaving.remove(&it.run.first);
            let was_hit = editor.take_hit(slot);
            if editor.remove(slot).is_none() {
                return true;
            }
            if it.owned {
                *used -= it.run.count;
                owed.push(it.run);
                reuse.note_gone(was_hit);
                if *used == 0 {
                    reuse.note_room();
                    *full_at = u64::MAX;
                }
            } else {
                statics.remove(&it.run.first);
            }
            false
        });
    }

    /// Revocations that nothing of mine stands in the way of any more; what is given back for
    /// them is owed.
    /// `loose`: what operations of mine use that is in no table.
    pub(in crate::engine) fn take_revoked(&mut self, loose: &[Run]) -> Vec<u64> {
        if self.closed.is_empty() && self.revoking.is_empty() {
            return Vec::new();
        }
        self.sweep();
        let Self {
            closed,
            revoking,
            moving,
            ..
        } = self;
        let mut over = Vec::new();
        revoking.retain(|(id, run)| {
            let comes = (moving.range(..run.end()).next_back())
                .is_some_and(|(_, (end, _))| *end > run.first);
            let used = (closed.range(..run.end()).next_back())
                .is_some_and(|(_, it)| it.run.end() > run.first);
            let stays = comes || used || loose.iter().any(|it| it.overlaps(*run));
            if !stays {
                over.push(*id);
            }
            stays
        });
        over
    }
}
