//! Revocations by peers: this rank gives the firehoses back as soon as none of its operations uses
//! them.

use super::{Initiator, StepContext, firehoses::FirehoseTable};
use crate::{EngineMessage, Run, Violation, wire::MAX_LIST};

impl Initiator {
    /// Handles a peer's revocation.
    pub(in crate::engine) fn on_revoke(
        &mut self,
        from: u32,
        id: u64,
        run: Run,
        cx: &mut StepContext<'_>,
    ) -> Result<(), Violation> {
        if let Some(choice) = &mut self.choice {
            choice.forget_revoked(from, run);
        }
        let Some(table) = self.tables.get_mut(&from) else {
            // Nothing of the memory was ever used here.
            let runs = Vec::new();
            cx.send(from, EngineMessage::Revoked { id, runs });
            return Ok(());
        };
        if !table.begin_revocation(id, run) {
            return Err(Violation::TooManyRevocations);
        }
        self.settle_ahead(from, &[], cx);
        self.serve_waiting(from, cx);
        Ok(())
    }

    /// Returns true if a peer takes memory back that is not given back yet.
    pub(in crate::engine) fn is_asked_back(&self) -> bool {
        self.tables.values().any(FirehoseTable::is_revoked)
    }

    /// Answers a peer's revocations once no operation of this rank uses the memory.
    pub(super) fn answer_revocations(&mut self, peer: u32, cx: &mut StepContext<'_>) {
        let Some(table) = self.tables.get(&peer) else {
            return self
                .impossible
                .note("a revocation is answered to a peer that has no table");
        };
        // Memory that was granted for one operation is in no table.
        let pieces = self.pieces.values().filter(|_| table.is_revoked());
        let loose: Vec<Run> = (pieces.filter(|piece| piece.peer == peer))
            .flat_map(|piece| &piece.remote_side.holds)
            .filter(|hold| hold.slot.is_none())
            .map(|hold| hold.run)
            .collect();
        for id in self.table_of(peer).take_revoked(&loose) {
            // The firehoses go back before the answer, and the last of them with the answer.
            let runs = self.table_of(peer).take_owed(MAX_LIST);
            self.stats.released += runs.len() as u64;
            self.give_back(peer, cx);
            cx.send(peer, EngineMessage::Revoked { id, runs });
        }
    }
}
