//! Revocations by the peer: present firehoses are closed, and go when nothing uses them.

use super::FirehoseTable;
use crate::{Run, engine::choice::PulledMemory};

/// The most revocations of one peer at once that wait for this rank's operations. An honest peer
/// has as many as it takes back buffers at once.
const MAX_REVOKING: usize = 1 << 12;

/// An extent that nobody finds any more, though operations of this rank may still use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedExtent {
    run: Run,
    /// True if it is made of firehoses, and false if it was registered from the start.
    owned: bool,
}

impl FirehoseTable {
    /// Closes the firehoses of a revocation. Returns false if there are too many revocations.
    pub(in crate::engine) fn begin_revocation(&mut self, id: u64, run: Run) -> bool {
        if self.revoking.len() == MAX_REVOKING {
            return false;
        }
        for extent in self.editor.extents_in(run) {
            self.close_extent(extent);
        }
        self.revoking.push((id, run));
        self.full_at = u64::MAX;
        self.pulled = PulledMemory::default();
        true
    }

    /// Returns true if the peer takes memory back that is not given back yet.
    pub(in crate::engine) fn is_revoked(&self) -> bool {
        !self.revoking.is_empty()
    }

    fn close_extent(&mut self, run: Run) {
        if self.closed.contains_key(&run.first) {
            return;
        }
        if let Some(slot) = self.editor.get(run.first) {
            self.editor.close(slot);
            let owned = !self.statics.contains(&run.first);
            self.closed.insert(run.first, ClosedExtent { run, owned });
        }
    }

    /// Removes closed extents that are no longer used. Their firehoses are owed to the peer.
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

    /// Takes the revocations that no operation of this rank stands in the way of. Their firehoses
    /// are owed to the peer. `loose` are the runs that operations use outside the table.
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
