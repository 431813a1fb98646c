//! One-sided operations: begun by any thread, in pieces of a chunk each.

use hydrant_conduit::Ticket;
use rustc_hash::FxHashMap;

use super::{
    FabricPeers, FabricSession, FabricState, LentName, OperationWay,
    wire::{CHUNK, ChunkName, ChunkRefusal},
};
use crate::Result;

/// The reason why an operation failed. Whatever it is, nothing of the operation lands any more.
#[derive(Clone, Debug)]
pub(crate) enum PeerOperationFailure {
    /// The owner took the memory back, or never lent it.
    Revoked,
    /// The range leaves the lent memory.
    OutOfBounds,
    /// The memory was lent to read only.
    NoRights,
    /// The owner could not register the memory.
    NotRegistered,
    /// The session ended.
    Lost,
    /// The network refused it.
    #[cfg_attr(test, expect(dead_code, reason = "endpoints read the cause"))]
    Network(hydrant_conduit::Error),
}

/// The end of an operation.
pub(crate) type PeerOperationEnd = std::result::Result<(), PeerOperationFailure>;
/// The function that is called at the end of an operation, on the room's thread or in the call that begins it.
pub(crate) type Finish = Box<dyn FnOnce(PeerOperationEnd) + Send>;

/// A piece of an operation: within one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperationPiece {
    operation: u64,
    pub(super) session: FabricSession,
    pub(super) way: OperationWay,
    pub(super) chunk: ChunkName,
    /// The first byte, from the start of the chunk, and the number of bytes.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The address of the own memory.
    pub(super) local: usize,
}

/// Operations that have not ended.
#[derive(Default)]
pub(super) struct OpenOperations {
    open: FxHashMap<u64, PeerOperation>,
    next: u64,
    /// The pieces that the conduit has.
    pub(super) posted: FxHashMap<Ticket, OperationPiece>,
    /// Operations that have ended and were not told.
    ended: Vec<(Finish, PeerOperationEnd)>,
}

struct PeerOperation {
    session: FabricSession,
    /// Pieces that have not ended.
    left: usize,
    outcome: PeerOperationEnd,
    finish: Finish,
}

impl From<ChunkRefusal> for PeerOperationFailure {
    fn from(why: ChunkRefusal) -> Self {
        match why {
            ChunkRefusal::Revoked => Self::Revoked,
            ChunkRefusal::OutOfBounds => Self::OutOfBounds,
            ChunkRefusal::NoRights => Self::NoRights,
            ChunkRefusal::NotRegistered => Self::NotRegistered,
        }
    }
}

impl From<hydrant_conduit::Error> for PeerOperationFailure {
    fn from(error: hydrant_conduit::Error) -> Self {
        match error {
            hydrant_conduit::Error::PeerLost(_) => Self::Lost,
            hydrant_conduit::Error::Revoked { .. } => Self::Revoked,
            hydrant_conduit::Error::OutOfExtent { .. } => Self::OutOfBounds,
            error => Self::Network(error),
        }
    }
}

impl OpenOperations {
    /// Takes the operations that have ended, to be told without the lock.
    pub(super) fn take_ended(&mut self) -> Vec<(Finish, PeerOperationEnd)> {
        std::mem::take(&mut self.ended)
    }
}

impl FabricState {
    /// Notes the end of a piece.
    pub(super) fn end_piece(&mut self, piece: &OperationPiece, outcome: PeerOperationEnd) {
        let Some(open) = self.operations.open.get_mut(&piece.operation) else {
            return;
        };
        open.left -= 1;
        if open.outcome.is_ok() {
            open.outcome = outcome;
        }
        if open.left > 0 {
            return;
        }
        if let Some(open) = self.operations.open.remove(&piece.operation) {
            self.operations.ended.push((open.finish, open.outcome));
            if let Some(record) = self.sessions.get_mut(&open.session) {
                record.uses -= 1;
            }
        }
    }
}

impl FabricPeers {
    /// Begins to write own memory to a peer's lent memory, or to read that into own memory. `finish` is called once, at
    /// the end: then the data is there, or nothing of it lands any more.
    ///
    /// # Safety
    /// Until `finish` is called, or this endpoint was dropped: the own memory is valid for `len` bytes. Nobody changes it
    /// for a write, and nobody else uses it for a read.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if the session has ended; `finish` is not called then.
    #[allow(unsafe_code)] // accesses the memory
    #[allow(clippy::too_many_arguments)] // the description of an access
    pub(crate) unsafe fn begin(
        &self,
        way: OperationWay,
        session: FabricSession,
        lent: LentName,
        offset: u64,
        local: *mut u8,
        len: usize,
        finish: Finish,
    ) -> Result<()> {
        let room = &self.room;
        let mut state = room.state.lock();
        state.open(session)?;
        let (local, len) = (local.expose_provenance(), len as u64);
        let Some(end) = offset.checked_add(len) else {
            drop(state);
            finish(Err(PeerOperationFailure::OutOfBounds));
            return Ok(());
        };
        let indexes = (offset / CHUNK)..end.div_ceil(CHUNK);
        if len == 0 {
            drop(state);
            finish(Ok(()));
            return Ok(());
        }
        state.operations.next += 1;
        let operation = state.operations.next;
        let open = PeerOperation {
            session,
            left: (indexes.end - indexes.start) as usize,
            outcome: Ok(()),
            finish,
        };
        state.operations.open.insert(operation, open);
        if let Some(record) = state.sessions.get_mut(&session) {
            record.uses += 1;
        }
        for index in indexes {
            let (from, to) = (offset.max(index * CHUNK), end.min((index + 1) * CHUNK));
            let piece = OperationPiece {
                operation,
                session,
                way,
                chunk: ChunkName { lent, index },
                offset: from - index * CHUNK,
                len: to - from,
                local: local + (from - offset) as usize,
            };
            room.start_piece(&mut state, piece);
        }
        room.flush(&mut state);
        room.tell_ended(state);
        Ok(())
    }
}
