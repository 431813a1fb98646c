//! Own memory that is lent to peers, and the chunks of it that are registered.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering::SeqCst,
};

use hydrant_conduit::{Conduit, Key, Permission};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    EndpointRoom, FabricPeers, FabricSession, FabricState, LentName, LentRights,
    wire::{CHUNK, ChunkMemory, ChunkName, ChunkRefusal, EndpointMessage},
};

/// All own memory that is lent.
pub(super) struct LentChunks {
    ranges: FxHashMap<LentName, FabricRange>,
    next: u64,
    /// The chunks that each session has grants of.
    held: FxHashMap<FabricSession, FxHashSet<ChunkName>>,
    /// Chunks to be registered, in the order in which they were asked for.
    wanted: VecDeque<ChunkName>,
    /// Registrations to be ended, with their chunks and bytes.
    unused: Vec<(ChunkName, Key, u64)>,
    /// The registered bytes, those to be ended included, and the most.
    registered: u64,
    limit: u64,
    /// The number of the last grant of a chunk that was not registered.
    turn: u64,
}

struct FabricRange {
    addr: u64,
    len: u64,
    rights: LentRights,
    /// True once it is taken back.
    is_ending: bool,
    chunks: BTreeMap<u64, LentChunk>,
    /// Registrations of the range, those to be ended included.
    registrations: usize,
}

#[derive(Default)]
struct LentChunk {
    /// The key, once it is registered.
    key: Option<Key>,
    holders: FxHashSet<FabricSession>,
    /// Sessions that asked for it and got no answer.
    asking: Vec<FabricSession>,
    is_recalled: bool,
    /// When it was registered, in turns.
    turn: u64,
}

impl FabricRange {
    /// Returns the address and the length of a chunk.
    fn chunk(&self, index: u64) -> Option<(u64, u64)> {
        let offset = index
            .checked_mul(CHUNK)
            .filter(|offset| *offset < self.len)?;
        Some((self.addr + offset, CHUNK.min(self.len - offset)))
    }

    fn permission(&self) -> Permission {
        match self.rights {
            LentRights::Read => Permission::Read,
            LentRights::ReadWrite => Permission::ReadWrite,
        }
    }
}

impl LentChunks {
    /// Lends memory of which at most `limit` bytes are registered, one chunk at least.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            ranges: FxHashMap::default(),
            next: 0,
            held: FxHashMap::default(),
            wanted: VecDeque::new(),
            unused: Vec::new(),
            registered: 0,
            limit: limit.max(CHUNK),
            turn: 0,
        }
    }

    fn chunk(&mut self, name: ChunkName) -> Option<&mut LentChunk> {
        let range = self.ranges.get_mut(&name.lent)?;
        range.chunks.get_mut(&name.index)
    }

    /// Begins the end of a registration that nobody uses. Its chunk is registered again if somebody asked for it.
    fn drop_registration(&mut self, name: ChunkName) {
        let Some(range) = self.ranges.get_mut(&name.lent) else {
            return;
        };
        let bytes = range.chunk(name.index).map_or(0, |(_, len)| len);
        let Some(chunk) = range.chunks.get_mut(&name.index) else {
            return;
        };
        if let Some(key) = chunk.key.take() {
            self.unused.push((name, key, bytes));
        }
        chunk.is_recalled = false;
        if chunk.asking.is_empty() {
            range.chunks.remove(&name.index);
        } else {
            self.wanted.push_back(name);
        }
    }

    /// Notes that a session has no grant of a chunk any more.
    fn end_hold(&mut self, session: FabricSession, name: ChunkName) {
        if let Some(held) = self.held.get_mut(&session) {
            held.remove(&name);
        }
        if let Some(chunk) = self.chunk(name)
            && chunk.holders.remove(&session)
            && chunk.holders.is_empty()
            && chunk.is_recalled
        {
            self.drop_registration(name);
        }
    }

    /// Forgets a session that has ended, of which nothing lands any more.
    pub(super) fn forget(&mut self, session: FabricSession) {
        for name in self.held.remove(&session).unwrap_or_default() {
            self.end_hold(session, name);
        }
        for range in self.ranges.values_mut() {
            for chunk in range.chunks.values_mut() {
                chunk.asking.retain(|other| *other != session);
            }
        }
    }

    /// Returns the registered bytes.
    #[cfg(test)]
    pub(super) fn registered(&self) -> u64 {
        self.registered
    }
}

impl FabricState {
    fn tell(&mut self, session: FabricSession, message: EndpointMessage<'_>) {
        if let Some(record) = self.sessions.get(&session).filter(|record| record.is_open) {
            self.outbox.tell(record.rank, message);
        }
    }

    /// Handles the question of a peer for a chunk. Returns true if the registrar has work.
    pub(super) fn ask(&mut self, session: FabricSession, name: ChunkName, writes: bool) -> bool {
        let lender = &mut self.lender;
        let range = lender.ranges.get_mut(&name.lent).filter(|it| !it.is_ending);
        let refusal = match &range {
            None => Some(ChunkRefusal::Revoked),
            Some(range) if range.chunk(name.index).is_none() => Some(ChunkRefusal::OutOfBounds),
            Some(range) if writes && range.rights == LentRights::Read => {
                Some(ChunkRefusal::NoRights)
            }
            Some(_) => None,
        };
        let Some(range) = range.filter(|_| refusal.is_none()) else {
            let why = refusal.unwrap_or(ChunkRefusal::Revoked);
            self.tell(session, EndpointMessage::Refuse(name, why));
            return false;
        };
        let is_new = !range.chunks.contains_key(&name.index);
        let chunk = range.chunks.entry(name.index).or_default();
        if chunk.key.is_some() && !chunk.is_recalled {
            self.grant(session, name);
            return false;
        }
        if !chunk.asking.contains(&session) {
            chunk.asking.push(session);
        }
        if is_new {
            lender.wanted.push_back(name);
        }
        is_new
    }

    /// Grants a registered chunk to a session.
    fn grant(&mut self, session: FabricSession, name: ChunkName) {
        let lender = &mut self.lender;
        let Some(range) = lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let writable = range.rights == LentRights::ReadWrite;
        let Some((addr, len)) = range.chunk(name.index) else {
            return;
        };
        let Some(chunk) = range.chunks.get_mut(&name.index) else {
            return;
        };
        let Some(Key(key)) = chunk.key else {
            return;
        };
        if !self.sessions.get(&session).is_some_and(|it| it.is_open) {
            return;
        }
        chunk.holders.insert(session);
        lender.held.entry(session).or_default().insert(name);
        let memory = ChunkMemory {
            key,
            addr,
            len,
            writable,
        };
        self.tell(session, EndpointMessage::Grant(name, memory));
    }

    /// Handles the return of a grant.
    pub(super) fn returned(&mut self, session: FabricSession, name: ChunkName) {
        self.lender.end_hold(session, name);
    }

    /// Recalls all grants of a chunk.
    fn recall(&mut self, name: ChunkName) {
        let Some(chunk) = self.lender.chunk(name).filter(|it| it.key.is_some()) else {
            return;
        };
        if chunk.is_recalled {
            return;
        }
        chunk.is_recalled = true;
        let holders: Vec<FabricSession> = chunk.holders.iter().copied().collect();
        if holders.is_empty() {
            return self.lender.drop_registration(name);
        }
        for session in holders {
            self.tell(session, EndpointMessage::Recall(name));
        }
    }

    /// Recalls the chunk that was registered first, unless one is being returned.
    fn make_room(&mut self) {
        let chunks = self.lender.ranges.iter().flat_map(|(lent, range)| {
            let lent = *lent;
            let name = move |index: &u64| ChunkName {
                lent,
                index: *index,
            };
            (range.chunks.iter()).map(move |(index, chunk)| (name(index), chunk))
        });
        let registered = chunks.filter(|(_, chunk)| chunk.key.is_some());
        let mut first: Option<(u64, ChunkName)> = None;
        for (name, chunk) in registered {
            if chunk.is_recalled {
                return;
            }
            if first.is_none_or(|(turn, _)| chunk.turn < turn) {
                first = Some((chunk.turn, name));
            }
        }
        if let Some((_, name)) = first {
            self.recall(name);
        }
    }
}

impl EndpointRoom {
    /// Registers chunks that peers asked for, and ends registrations, until the endpoint is dropped.
    #[allow(unsafe_code)] // registers lent memory
    pub(super) fn register_until_over(&self) {
        let mut state = self.state.lock();
        while !self.is_over.load(SeqCst) {
            let unused = std::mem::take(&mut state.lender.unused);
            if !unused.is_empty() {
                drop(state);
                for (_, key, _) in &unused {
                    // SAFETY: each holder of a grant returned it, after its accesses had ended, or its session has.
                    let ended = unsafe { self.conduit.deregister_unused(*key) };
                    if let Err(cause) = ended {
                        tracing::error!(%cause, "lent memory stays registered");
                    }
                }
                state = self.state.lock();
                for (name, _, bytes) in unused {
                    state.lender.registered -= bytes;
                    if let Some(range) = state.lender.ranges.get_mut(&name.lent) {
                        range.registrations -= 1;
                    }
                }
                self.returned.notify_all();
                continue;
            }
            let Some(name) = state.lender.wanted.front().copied() else {
                self.work.wait(&mut state);
                continue;
            };
            let Some(range) = state.lender.ranges.get(&name.lent) else {
                state.lender.wanted.pop_front();
                continue;
            };
            let (permission, memory) = (range.permission(), range.chunk(name.index));
            let is_asked = (range.chunks.get(&name.index)).is_some_and(|it| !it.asking.is_empty());
            let (Some((addr, len)), true) = (memory, is_asked && !range.is_ending) else {
                state.lender.wanted.pop_front();
                state.refuse_all(name, ChunkRefusal::Revoked);
                self.flush(&mut state);
                self.returned.notify_all();
                continue;
            };
            if state.lender.registered + len > state.lender.limit {
                state.make_room();
                self.flush(&mut state);
                if state.lender.unused.is_empty() {
                    self.work.wait(&mut state);
                }
                continue;
            }
            state.lender.wanted.pop_front();
            state.lender.registered += len;
            if let Some(range) = state.lender.ranges.get_mut(&name.lent) {
                range.registrations += 1;
            }
            drop(state);
            let pointer = std::ptr::with_exposed_provenance_mut(addr as usize);
            // SAFETY: 1. and 2. The caller of `lend` promised that for the range, until `unlend` returns, which waits
            // for this registration.
            let key = unsafe { self.conduit.register(pointer, len as usize, permission) };
            state = self.state.lock();
            state.note_registered(name, key.map_err(|cause| (cause, len)));
            self.flush(&mut state);
            self.returned.notify_all();
        }
    }
}

impl FabricState {
    /// Answers all sessions that asked for a chunk, which is not registered.
    fn refuse_all(&mut self, name: ChunkName, why: ChunkRefusal) {
        let Some(range) = self.lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let asking = match range.chunks.get_mut(&name.index) {
            Some(chunk) if chunk.key.is_none() => std::mem::take(&mut chunk.asking),
            _ => return,
        };
        range.chunks.remove(&name.index);
        for session in asking {
            self.tell(session, EndpointMessage::Refuse(name, why));
        }
    }

    /// Notes that a chunk was registered, or could not be.
    fn note_registered(
        &mut self,
        name: ChunkName,
        key: Result<Key, (hydrant_conduit::Error, u64)>,
    ) {
        let lender = &mut self.lender;
        lender.turn += 1;
        let turn = lender.turn;
        let Some(range) = lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let is_ending = range.is_ending;
        let key = match key {
            Ok(key) => key,
            Err((cause, len)) => {
                tracing::warn!(%cause, "lent memory cannot be registered");
                range.registrations -= 1;
                lender.registered -= len;
                return self.refuse_all(name, ChunkRefusal::NotRegistered);
            }
        };
        let chunk = range.chunks.entry(name.index).or_default();
        chunk.key = Some(key);
        chunk.turn = turn;
        let asking = std::mem::take(&mut chunk.asking);
        for session in asking {
            if is_ending {
                self.tell(
                    session,
                    EndpointMessage::Refuse(name, ChunkRefusal::Revoked),
                );
            } else {
                self.grant(session, name);
            }
        }
        if is_ending {
            self.recall(name);
        }
    }
}

impl FabricPeers {
    /// Lends memory to all peers that are told its name. Nothing is registered before it is used.
    ///
    /// # Safety
    /// Until [`unlend`](Self::unlend) has returned, or this endpoint was dropped:
    /// 1. The memory stays allocated and mapped.
    /// 2. It bears accesses of peers within `rights` at any time.
    #[allow(unsafe_code)] // lends memory
    pub(crate) unsafe fn lend(&self, addr: *mut u8, len: usize, rights: LentRights) -> LentName {
        let mut state = self.room.state.lock();
        let lender = &mut state.lender;
        lender.next += 1;
        let name = LentName(lender.next);
        let range = FabricRange {
            addr: addr.expose_provenance() as u64,
            len: len as u64,
            rights,
            is_ending: false,
            chunks: BTreeMap::new(),
            registrations: 0,
        };
        lender.ranges.insert(name, range);
        name
    }

    /// Takes memory back. When this returns, nobody touches it, and later uses of its name are refused. A peer that does
    /// not answer holds this up until it is lost. The room's own thread must not call this.
    pub(crate) fn unlend(&self, name: LentName) {
        let mut state = self.room.state.lock();
        let Some(range) = state.lender.ranges.get_mut(&name) else {
            return;
        };
        range.is_ending = true;
        let chunks: Vec<u64> = range.chunks.keys().copied().collect();
        for index in chunks {
            state.recall(ChunkName { lent: name, index });
        }
        self.room.flush(&mut state);
        self.room.work.notify_all();
        let is_in_use = |state: &FabricState| {
            let range = state.lender.ranges.get(&name);
            range.is_some_and(|range| range.registrations > 0 || !range.chunks.is_empty())
        };
        while is_in_use(&state) {
            self.room.returned.wait(&mut state);
        }
        state.lender.ranges.remove(&name);
    }
}
