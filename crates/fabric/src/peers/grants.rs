//! The grants of peers' chunks that this process has, and the pieces of operations that wait for one.

use hydrant_conduit::{Access, Conduit, Key, Local, Posted, Remote};
use rustc_hash::FxHashMap;

use super::{
    EndpointRoom, FabricSession, FabricState, OperationWay,
    operations::{OperationPiece, PeerOperationFailure},
    wire::{ChunkMemory, ChunkName, ChunkRefusal, EndpointMessage},
};

/// The grants that this process has or asked for.
#[derive(Default)]
pub(super) struct KnownGrants(FxHashMap<(FabricSession, ChunkName), GrantUses>);

#[derive(Default)]
struct GrantUses {
    /// The memory, once it is granted.
    memory: Option<ChunkMemory>,
    /// Accesses in flight.
    uses: usize,
    is_recalled: bool,
    /// True if the owner was asked and has not answered.
    is_asked: bool,
    /// True if the owner was asked to grant writes.
    asks_to_write: bool,
    /// Pieces that wait for the grant, or for the next one.
    waiting: Vec<OperationPiece>,
}

impl KnownGrants {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets a session that has ended. Returns the pieces that waited.
    pub(super) fn forget(&mut self, session: FabricSession) -> Vec<OperationPiece> {
        let gone = self.0.extract_if(|(of, _), _| *of == session);
        gone.flat_map(|(_, grant)| grant.waiting).collect()
    }
}

impl FabricState {
    /// Ends the pieces of a group's operations that wait for grants. The grants stay asked for.
    pub(super) fn stop_waiting(&mut self, group: u64) {
        let mut stopped = Vec::new();
        for grant in self.grants.0.values_mut() {
            let its = (grant.waiting).extract_if(.., |piece| self.operations.is_of(piece, group));
            stopped.extend(its);
        }
        for piece in stopped {
            self.end_piece(&piece, Err(PeerOperationFailure::Stopped));
        }
    }
}

impl EndpointRoom {
    /// Posts a piece, or asks for the grant that it needs.
    pub(super) fn start_piece(&self, state: &mut FabricState, piece: OperationPiece) {
        let name = (piece.session, piece.chunk);
        let grant = state.grants.0.entry(name).or_default();
        match grant.memory {
            Some(memory) if !grant.is_recalled => self.post(state, piece, memory),
            _ => {
                grant.waiting.push(piece);
                if !grant.is_asked && grant.memory.is_none() {
                    grant.is_asked = true;
                    grant.asks_to_write = piece.way == OperationWay::Write;
                    let ask = EndpointMessage::Ask(piece.chunk, grant.asks_to_write);
                    self.tell(state, piece.session, ask);
                }
            }
        }
    }

    fn tell(&self, state: &mut FabricState, session: FabricSession, message: EndpointMessage<'_>) {
        if let Some(record) = state.sessions.get(&session).filter(|record| record.is_open) {
            state.outbox.tell(record.rank, message);
        }
    }

    /// Posts a piece under a grant.
    #[allow(unsafe_code)] // accesses the memory of an operation
    fn post(&self, state: &mut FabricState, piece: OperationPiece, memory: ChunkMemory) {
        let Some(rank) = state.sessions.get(&piece.session).map(|record| record.rank) else {
            return state.end_piece(&piece, Err(PeerOperationFailure::Lost));
        };
        let is_inside = (piece.offset.checked_add(piece.len)).is_some_and(|end| end <= memory.len);
        if !is_inside {
            return state.end_piece(&piece, Err(PeerOperationFailure::OutOfBounds));
        }
        if piece.way == OperationWay::Write && !memory.writable {
            return state.end_piece(&piece, Err(PeerOperationFailure::NoRights));
        }
        let local = Local {
            addr: std::ptr::with_exposed_provenance_mut(piece.local),
            key: Key::ANY,
        };
        let there = Remote {
            key: Key(memory.key),
            offset: memory.addr + piece.offset,
        };
        let make = match piece.way {
            OperationWay::Write => Access::put,
            OperationWay::Read => Access::get,
        };
        let access = make(rank, there, local, piece.len as usize);
        // SAFETY: 1. The caller of `begin` promised it for the operation, which ends after this piece. 2. The owner lent
        // the memory and told its key.
        match unsafe { self.conduit.post(&access) } {
            Ok(Posted::Pending(ticket)) => {
                let grant = state.grants.0.entry((piece.session, piece.chunk));
                grant.or_default().uses += 1;
                state.note_posted(ticket, piece);
            }
            Ok(_) => state.end_posted(&piece),
            Err(error) => state.end_piece(&piece, Err(error.into())),
        }
    }

    /// Handles the answer to a question for a grant.
    pub(super) fn granted(
        &self,
        state: &mut FabricState,
        session: FabricSession,
        chunk: ChunkName,
        answer: Result<ChunkMemory, ChunkRefusal>,
    ) {
        // An answer that nobody waits for is a lie, or that to a session that ended.
        let Some(grant) = state.grants.0.get_mut(&(session, chunk)) else {
            return;
        };
        if grant.memory.is_some() {
            return;
        }
        grant.is_asked = false;
        let waiting = std::mem::take(&mut grant.waiting);
        let asked_to_write = grant.asks_to_write;
        match answer {
            Ok(memory) => {
                grant.memory = Some(memory);
                for piece in waiting {
                    self.post(state, piece, memory);
                }
            }
            Err(why) => {
                state.grants.0.remove(&(session, chunk));
                for piece in waiting {
                    // The refusal is about the direction that was asked for.
                    let writes = piece.way == OperationWay::Write;
                    let is_other = why == ChunkRefusal::NoRights && writes != asked_to_write;
                    if is_other {
                        self.start_piece(state, piece);
                    } else {
                        state.end_piece(&piece, Err(why.into()));
                    }
                }
            }
        }
    }

    /// Handles the recall of a grant: it is returned once nothing uses it.
    pub(super) fn recalled(
        &self,
        state: &mut FabricState,
        session: FabricSession,
        chunk: ChunkName,
    ) {
        let Some(grant) = state.grants.0.get_mut(&(session, chunk)) else {
            return;
        };
        if grant.memory.is_some() {
            grant.is_recalled = true;
            self.return_if_unused(state, session, chunk);
        }
    }

    /// Returns a recalled grant that nothing uses any more, and asks for it again if pieces wait.
    pub(super) fn return_if_unused(
        &self,
        state: &mut FabricState,
        session: FabricSession,
        chunk: ChunkName,
    ) {
        let Some(grant) = state.grants.0.get_mut(&(session, chunk)) else {
            return;
        };
        if !grant.is_recalled || grant.uses > 0 {
            return;
        }
        let waiting = std::mem::take(&mut grant.waiting);
        state.grants.0.remove(&(session, chunk));
        self.tell(state, session, EndpointMessage::Return(chunk));
        for piece in waiting {
            self.start_piece(state, piece);
        }
    }

    /// Notes that an access under a grant has ended.
    pub(super) fn end_use(&self, state: &mut FabricState, piece: &OperationPiece) {
        if let Some(grant) = state.grants.0.get_mut(&(piece.session, piece.chunk)) {
            grant.uses -= 1;
            self.return_if_unused(state, piece.session, piece.chunk);
        }
    }
}
