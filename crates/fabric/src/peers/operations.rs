//! One-sided operations: begun by any thread, in pieces of a chunk each.

use hydrant_conduit::Ticket;
use rustc_hash::FxHashMap;

use super::{
    FabricPeers, FabricSession, FabricState, LentName, OperationWay,
    wire::{CHUNK, ChunkName, ChunkRefusal},
};

/// The reason why an operation failed. Whatever it is, nothing of the operation lands any more.
#[derive(Clone, Debug)]
pub enum PeerOperationFailure {
    /// The owner took the memory back, or never lent it.
    Revoked,
    /// The time for which the memory was lent is over.
    Expired,
    /// The range leaves the lent memory.
    OutOfBounds,
    /// The memory was not lent for that.
    NoRights,
    /// The owner could not register the memory, for instance because it is not mapped.
    NotRegistered,
    /// The session ended.
    Lost,
    /// It waited for the owner, and was [stopped](FabricPeers::stop_waiting).
    Stopped,
    /// The network refused it.
    Network(hydrant_conduit::Error),
}

/// The failure of an operation.
#[derive(Clone, Debug)]
pub struct PeerOperationError {
    /// The first reason.
    pub why: PeerOperationFailure,
    /// True if nothing of the operation reached the network.
    pub is_untouched: bool,
}

/// The end of an operation.
pub type PeerOperationEnd = std::result::Result<(), PeerOperationError>;
/// The end of a piece.
pub(super) type PieceEnd = std::result::Result<(), PeerOperationFailure>;
/// The function that is called at the end of an operation, on the room's thread or in the call that begins it.
pub type Finish = Box<dyn FnOnce(PeerOperationEnd) + Send>;

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
    ended: Vec<(FabricSession, Finish, PeerOperationEnd)>,
}

struct PeerOperation {
    session: FabricSession,
    group: u64,
    /// Pieces that have not ended.
    left: usize,
    outcome: PieceEnd,
    /// True once a piece was posted.
    is_posted: bool,
    finish: Finish,
}

impl PeerOperationFailure {
    /// Returns the failure of an operation of which nothing reached the network.
    pub fn untouched(self) -> PeerOperationError {
        PeerOperationError {
            why: self,
            is_untouched: true,
        }
    }
}

impl From<ChunkRefusal> for PeerOperationFailure {
    fn from(why: ChunkRefusal) -> Self {
        match why {
            ChunkRefusal::Revoked => Self::Revoked,
            ChunkRefusal::Expired => Self::Expired,
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
    /// Returns true if a piece is of an operation of this group.
    pub(super) fn is_of(&self, piece: &OperationPiece, group: u64) -> bool {
        (self.open.get(&piece.operation)).is_some_and(|open| open.group == group)
    }

    /// Returns the functions of all operations that have not ended or were not told.
    pub(super) fn into_open(self) -> Vec<Finish> {
        let open = self.open.into_values().map(|open| open.finish);
        let ended = self.ended.into_iter().map(|(_, finish, _)| finish);
        open.chain(ended).collect()
    }
}

impl FabricState {
    /// Takes the operations that have ended, to be told without the lock. The layer above is told of a lost session first.
    pub(super) fn take_ended(&mut self) -> Vec<(FabricSession, Finish, PeerOperationEnd)> {
        let sessions = &self.sessions;
        let ended = &mut self.operations.ended;
        let is_due = |session: &FabricSession, outcome: &PeerOperationEnd| {
            let is_lost =
                |error: &PeerOperationError| matches!(error.why, PeerOperationFailure::Lost);
            !outcome.as_ref().is_err_and(is_lost)
                || sessions.get(session).is_none_or(|record| record.is_told)
        };
        if ended
            .iter()
            .all(|(session, _, outcome)| is_due(session, outcome))
        {
            return std::mem::take(ended);
        }
        ended
            .extract_if(.., |(session, _, outcome)| is_due(session, outcome))
            .collect()
    }

    /// Notes that the network has a piece.
    pub(super) fn note_posted(&mut self, ticket: Ticket, piece: OperationPiece) {
        if let Some(open) = self.operations.open.get_mut(&piece.operation) {
            open.is_posted = true;
        }
        self.operations.posted.insert(ticket, piece);
    }

    /// Notes the end of a piece that the network transferred at once.
    pub(super) fn end_posted(&mut self, piece: &OperationPiece) {
        if let Some(open) = self.operations.open.get_mut(&piece.operation) {
            open.is_posted = true;
        }
        self.end_piece(piece, Ok(()));
    }

    /// Notes the end of a piece.
    pub(super) fn end_piece(&mut self, piece: &OperationPiece, outcome: PieceEnd) {
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
            let is_untouched = !open.is_posted;
            let outcome = (open.outcome).map_err(|why| PeerOperationError { why, is_untouched });
            self.operations
                .ended
                .push((open.session, open.finish, outcome));
            if let Some(record) = self.sessions.get_mut(&open.session) {
                record.uses -= 1;
            }
        }
    }
}

/// An operation of any number of runs, on one range of lent memory.
#[derive(Clone, Copy, Debug)]
pub struct PeerAccess {
    /// The direction.
    pub way: OperationWay,
    /// The session.
    pub session: FabricSession,
    /// The name of the lent memory, at its owner.
    pub lent: LentName,
    /// A number by which the operation can be stopped together with others.
    pub group: u64,
}

/// A run of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessRun {
    /// The address of the own memory. Its provenance is exposed.
    pub local: usize,
    /// The first byte in the lent memory.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl AccessRun {
    /// Returns the indexes of the chunks that the run touches. `None` if it has no end.
    fn chunks(&self) -> Option<std::ops::Range<u64>> {
        let end = self.offset.checked_add(self.len)?;
        let first = self.offset / CHUNK;
        Some(
            first..if self.len == 0 {
                first
            } else {
                end.div_ceil(CHUNK)
            },
        )
    }
}

impl FabricPeers {
    /// Lets the operations of a group wait no longer for grants. What the network has of them ends as usual.
    pub fn stop_waiting(&self, group: u64) {
        let mut state = self.room.state.lock();
        state.stop_waiting(group);
        self.room.tell_ended(state);
    }

    /// Begins to write own memory to a peer's lent memory, or to read that into own memory. `finish` is called once, at
    /// the end: then the data is there, or nothing of it lands any more.
    ///
    /// # Safety
    /// Until `finish` is called, or this endpoint was dropped: the own memory of each run is valid. Nobody changes it for a
    /// write, and nobody else uses it for a read.
    ///
    /// # Errors
    /// The function, not called, if the session has ended.
    #[allow(unsafe_code)] // accesses the memory
    pub unsafe fn begin(
        &self,
        access: PeerAccess,
        runs: impl Iterator<Item = AccessRun> + Clone,
        finish: Finish,
    ) -> std::result::Result<(), Finish> {
        let room = &*self.room;
        let session = access.session;
        let mut state = room.state.lock();
        if state.open(session).is_err() {
            if !state.is_to_be_told(session) {
                return Err(finish);
            }
            let lost = Err(PeerOperationFailure::Lost.untouched());
            state.operations.ended.push((session, finish, lost));
            return Ok(());
        }
        let mut left = 0;
        for run in runs.clone() {
            match run.chunks() {
                Some(chunks) => left += (chunks.end - chunks.start) as usize,
                None => {
                    drop(state);
                    finish(Err(PeerOperationFailure::OutOfBounds.untouched()));
                    return Ok(());
                }
            }
        }
        if left == 0 {
            drop(state);
            finish(Ok(()));
            return Ok(());
        }
        state.operations.next += 1;
        let operation = state.operations.next;
        let open = PeerOperation {
            session,
            group: access.group,
            left,
            outcome: Ok(()),
            is_posted: false,
            finish,
        };
        state.operations.open.insert(operation, open);
        if let Some(record) = state.sessions.get_mut(&session) {
            record.uses += 1;
        }
        for run in runs {
            let end = run.offset + run.len;
            for index in run.chunks().unwrap_or_default() {
                let (from, to) = (run.offset.max(index * CHUNK), end.min((index + 1) * CHUNK));
                let piece = OperationPiece {
                    operation,
                    session,
                    way: access.way,
                    chunk: ChunkName {
                        lent: access.lent,
                        index,
                    },
                    offset: from - index * CHUNK,
                    len: to - from,
                    local: run.local + (from - run.offset) as usize,
                };
                room.start_piece(&mut state, piece);
            }
        }
        room.flush(&mut state);
        room.tell_ended(state);
        Ok(())
    }
}
