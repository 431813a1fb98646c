//! Own memory that is lent to peers, and the chunks of it that are registered.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use hydrant_conduit::{Conduit, Key, Permission};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    EndpointRoom, FabricPeers, FabricSession, FabricState, LentName,
    wire::{CHUNK, ChunkMemory, ChunkName, ChunkRefusal, EndpointMessage},
};

/// The most ranges that are lent to one session at a time.
pub const MOST_RANGES: usize = 1 << 16;
/// The longest sleep of a thread that waits for the end of uses.
const NAP: Duration = Duration::from_millis(5);

/// Memory that is lent, and the terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentTerms {
    /// The address. Its provenance is exposed.
    pub addr: usize,
    /// The number of bytes.
    pub len: usize,
    /// True if the peer may read.
    pub read: bool,
    /// True if the peer may write.
    pub write: bool,
    /// When the time is over.
    pub until: Option<Instant>,
}

/// All own memory that is lent.
pub(super) struct LentChunks {
    ranges: FxHashMap<LentName, SessionRange>,
    next: u64,
    /// The ranges that are lent to each session.
    of_session: FxHashMap<FabricSession, FxHashSet<LentName>>,
    /// The ends of terms, in order.
    leases: BTreeSet<(Instant, LentName)>,
    /// Chunks to be registered, in the order in which they were asked for.
    wanted: VecDeque<ChunkName>,
    /// Registered chunks that were not recalled to make room, by turn.
    order: BTreeMap<u64, ChunkName>,
    /// Recalled chunks with their turns, and when their holder is given up.
    recalls: VecDeque<(Instant, u64, ChunkName)>,
    /// Chunks that are recalled to make room, and not returned.
    evicting: usize,
    /// Registrations to be ended, with their chunks and bytes.
    unused: Vec<(ChunkName, Key, u64)>,
    /// The registered bytes, those to be ended included, and the most.
    registered: u64,
    limit: u64,
    /// The number of the last registration.
    turn: u64,
    patience: Duration,
}

struct SessionRange {
    session: FabricSession,
    terms: LentTerms,
    /// Set once it is taken back: the answer to further questions.
    ending: Option<ChunkRefusal>,
    chunks: BTreeMap<u64, LentChunk>,
    /// Registrations of the range, those to be ended included.
    registrations: usize,
}

#[derive(Default)]
struct LentChunk {
    /// The key, once it is registered.
    key: Option<Key>,
    /// True while the peer has a grant.
    is_held: bool,
    /// True if the peer asked for it and got no answer.
    is_asked: bool,
    is_recalled: bool,
    /// True if it is recalled to make room.
    is_evicted: bool,
    /// When it was registered, in turns.
    turn: u64,
}

impl SessionRange {
    /// Returns the address and the length of a chunk.
    fn chunk(&self, index: u64) -> Option<(u64, u64)> {
        let len = self.terms.len as u64;
        let offset = index.checked_mul(CHUNK).filter(|offset| *offset < len)?;
        Some((self.terms.addr as u64 + offset, CHUNK.min(len - offset)))
    }

    fn permission(&self) -> Permission {
        if self.terms.write {
            Permission::ReadWrite
        } else {
            Permission::Read
        }
    }
}

impl LentChunks {
    /// Lends memory of which at most `limit` bytes are registered, one chunk at least.
    pub(super) fn new(limit: u64, patience: Duration) -> Self {
        Self {
            ranges: FxHashMap::default(),
            next: 0,
            of_session: FxHashMap::default(),
            leases: BTreeSet::new(),
            wanted: VecDeque::new(),
            order: BTreeMap::new(),
            recalls: VecDeque::new(),
            evicting: 0,
            unused: Vec::new(),
            registered: 0,
            limit: limit.max(CHUNK),
            turn: 0,
            patience,
        }
    }

    fn chunk(&mut self, name: ChunkName) -> Option<&mut LentChunk> {
        let range = self.ranges.get_mut(&name.lent)?;
        range.chunks.get_mut(&name.index)
    }

    /// Returns the chunk of this turn, if it is still registered.
    fn of_turn(&mut self, turn: u64, name: ChunkName) -> Option<&mut LentChunk> {
        let chunk = self.chunk(name)?;
        (chunk.turn == turn && chunk.key.is_some()).then_some(chunk)
    }

    /// Begins the end of a registration that nobody uses. Its chunk is registered again if the peer asked for it.
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
            self.order.remove(&chunk.turn);
        }
        if chunk.is_evicted {
            self.evicting -= 1;
        }
        let is_asked = chunk.is_asked;
        if is_asked {
            *chunk = LentChunk {
                is_asked,
                ..LentChunk::default()
            };
            self.wanted.push_back(name);
        } else {
            range.chunks.remove(&name.index);
        }
    }

    /// Notes that the peer has no grant of a chunk any more.
    fn end_hold(&mut self, name: ChunkName) {
        if let Some(chunk) = self.chunk(name)
            && chunk.is_held
        {
            chunk.is_held = false;
            if chunk.is_recalled {
                self.drop_registration(name);
            }
        }
    }

    /// Takes back what was lent to a session that has ended, of which nothing lands any more.
    pub(super) fn forget(&mut self, session: FabricSession) {
        for lent in self.of_session.remove(&session).unwrap_or_default() {
            let Some(range) = self.ranges.get_mut(&lent) else {
                continue;
            };
            range.ending.get_or_insert(ChunkRefusal::Revoked);
            for chunk in range.chunks.values_mut() {
                chunk.is_asked = false;
                chunk.is_held = false;
            }
            let indexes: Vec<u64> = range.chunks.keys().copied().collect();
            for index in indexes {
                let name = ChunkName { lent, index };
                // A chunk without a key is about to be registered, or is dropped by the registrar.
                if self.chunk(name).is_some_and(|chunk| chunk.key.is_some()) {
                    self.drop_registration(name);
                }
            }
        }
    }

    /// Returns when the registrar has something to do at the latest.
    fn next_due(&self) -> Option<Instant> {
        let lease = self.leases.first().map(|(until, _)| *until);
        let recall = self.recalls.front().map(|(until, ..)| *until);
        lease.into_iter().chain(recall).min()
    }

    /// Returns the numbers of entries of all tables.
    #[cfg(test)]
    pub(super) fn entries(&self) -> [usize; 7] {
        let of_sessions = self.of_session.values().map(FxHashSet::len).sum();
        [
            self.ranges.len(),
            of_sessions,
            self.leases.len(),
            self.wanted.len(),
            self.order.len(),
            self.evicting,
            self.unused.len(),
        ]
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

    /// Handles the question of a peer for a chunk.
    pub(super) fn ask(&mut self, session: FabricSession, name: ChunkName, writes: bool) {
        let lender = &mut self.lender;
        let range = (lender.ranges.get_mut(&name.lent)).filter(|range| range.session == session);
        let refusal = match &range {
            None => Some(ChunkRefusal::Revoked),
            Some(range) if range.ending.is_some() => range.ending,
            Some(range) if range.chunk(name.index).is_none() => Some(ChunkRefusal::OutOfBounds),
            Some(range) if writes && !range.terms.write || !writes && !range.terms.read => {
                Some(ChunkRefusal::NoRights)
            }
            Some(_) => None,
        };
        let Some(range) = range.filter(|_| refusal.is_none()) else {
            let why = refusal.unwrap_or(ChunkRefusal::Revoked);
            return self.tell(session, EndpointMessage::Refuse(name, why));
        };
        let is_new = !range.chunks.contains_key(&name.index);
        let chunk = range.chunks.entry(name.index).or_default();
        if chunk.key.is_some() && !chunk.is_recalled {
            return self.grant(name);
        }
        chunk.is_asked = true;
        if is_new {
            lender.wanted.push_back(name);
        }
    }

    /// Grants a registered chunk.
    fn grant(&mut self, name: ChunkName) {
        let Some(range) = self.lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let (session, writable) = (range.session, range.terms.write);
        let Some((addr, len)) = range.chunk(name.index) else {
            return;
        };
        let Some(chunk) = range.chunks.get_mut(&name.index) else {
            return;
        };
        let Some(Key(key)) = chunk.key else {
            return;
        };
        chunk.is_asked = false;
        chunk.is_held = true;
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
        let range = self.lender.ranges.get(&name.lent);
        if range.is_some_and(|range| range.session == session) {
            self.lender.end_hold(name);
        }
    }

    /// Recalls the grant of a chunk.
    fn recall(&mut self, name: ChunkName, evicts: bool) {
        let lender = &mut self.lender;
        let Some(range) = lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let session = range.session;
        let Some(chunk) = range.chunks.get_mut(&name.index) else {
            return;
        };
        if chunk.key.is_none() || chunk.is_recalled {
            return;
        }
        chunk.is_recalled = true;
        chunk.is_evicted = evicts;
        lender.evicting += usize::from(evicts);
        if !chunk.is_held {
            return self.lender.drop_registration(name);
        }
        let until = Instant::now() + lender.patience;
        lender.recalls.push_back((until, chunk.turn, name));
        self.tell(session, EndpointMessage::Recall(name));
    }

    /// Recalls the chunk that was registered first, unless one is being returned.
    fn make_room(&mut self) {
        while self.lender.evicting == 0
            && let Some((_, name)) = self.lender.order.pop_first()
        {
            self.recall(name, true);
            // Without a holder it is to be ended now.
            if !self.lender.unused.is_empty() {
                return;
            }
        }
    }

    /// Takes memory back: recalls all its grants.
    fn end_range(&mut self, name: LentName, why: ChunkRefusal) {
        let Some(range) = self.lender.ranges.get_mut(&name) else {
            return;
        };
        range.ending.get_or_insert(why);
        let chunks: Vec<u64> = range.chunks.keys().copied().collect();
        for index in chunks {
            let chunk = ChunkName { lent: name, index };
            // A chunk that waits for room has no key. One that is being registered counts as a registration.
            self.refuse(chunk, why);
            self.recall(chunk, false);
        }
    }

    /// Answers the question for a chunk that is not registered.
    fn refuse(&mut self, name: ChunkName, why: ChunkRefusal) {
        let Some(range) = self.lender.ranges.get_mut(&name.lent) else {
            return;
        };
        let session = range.session;
        match range.chunks.get(&name.index) {
            Some(chunk) if chunk.key.is_none() => {}
            _ => return,
        }
        if let Some(chunk) = range.chunks.remove(&name.index)
            && chunk.is_asked
        {
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
        let key = match key {
            Ok(key) => key,
            Err((cause, len)) => {
                tracing::warn!(%cause, "lent memory cannot be registered");
                range.registrations -= 1;
                lender.registered -= len;
                return self.refuse(name, ChunkRefusal::NotRegistered);
            }
        };
        let ending = range.ending;
        let session = range.session;
        let chunk = range.chunks.entry(name.index).or_default();
        chunk.key = Some(key);
        chunk.turn = turn;
        let is_asked = std::mem::take(&mut chunk.is_asked);
        lender.order.insert(turn, name);
        if let Some(why) = ending {
            if is_asked {
                self.tell(session, EndpointMessage::Refuse(name, why));
            }
            return self.recall(name, false);
        }
        if is_asked {
            self.grant(name);
        }
    }

    /// Ends the terms that are over. Returns the sessions that keep recalled grants for too long.
    fn come_due(&mut self, now: Instant) -> Vec<FabricSession> {
        while let Some((until, name)) = self.lender.leases.first().copied()
            && until <= now
        {
            self.lender.leases.pop_first();
            self.end_range(name, ChunkRefusal::Expired);
        }
        let mut late = Vec::new();
        while let Some((until, turn, name)) = self.lender.recalls.front().copied() {
            let is_held = (self.lender.of_turn(turn, name)).is_some_and(|it| it.is_held);
            if is_held && until > now {
                break;
            }
            self.lender.recalls.pop_front();
            if is_held && let Some(range) = self.lender.ranges.get(&name.lent) {
                late.push(range.session);
            }
        }
        late
    }
}

impl EndpointRoom {
    /// Registers chunks that peers asked for, and ends registrations, until the endpoint is dropped.
    #[allow(unsafe_code)] // registers lent memory
    pub(super) fn register_until_over(&self) {
        let mut state = self.state.lock();
        while !self.is_over.load(SeqCst) {
            for session in state.come_due(Instant::now()) {
                if let Some(record) = state.sessions.get(&session) {
                    self.control.abandon(record.rank);
                }
            }
            self.flush(&mut state);
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
                match state.lender.next_due() {
                    Some(due) => drop(self.work.wait_until(&mut state, due)),
                    None => self.work.wait(&mut state),
                }
                continue;
            };
            let Some(range) = state.lender.ranges.get(&name.lent) else {
                state.lender.wanted.pop_front();
                continue;
            };
            let (permission, memory) = (range.permission(), range.chunk(name.index));
            let is_asked = (range.chunks.get(&name.index)).is_some_and(|it| it.is_asked);
            let (Some((addr, len)), true, None) = (memory, is_asked, range.ending) else {
                let why = range.ending.unwrap_or(ChunkRefusal::Revoked);
                state.lender.wanted.pop_front();
                state.refuse(name, why);
                self.returned.notify_all();
                continue;
            };
            if state.lender.registered + len > state.lender.limit {
                state.make_room();
                self.flush(&mut state);
                if state.lender.unused.is_empty() {
                    self.work.wait_for(&mut state, NAP);
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
            // SAFETY: 1. and 2. The caller of `lend` promised that for the range, until it is unused, which waits for this
            // registration.
            let key = unsafe { self.conduit.register(pointer, len as usize, permission) };
            state = self.state.lock();
            state.note_registered(name, key.map_err(|cause| (cause, len)));
            self.flush(&mut state);
            self.returned.notify_all();
        }
    }
}

impl FabricPeers {
    /// Lends memory to one session, whose peer is told the name. Nothing is registered before it is used. Returns `None`
    /// if the session has ended, or has 65,536 ranges.
    ///
    /// # Safety
    /// Until [`wait_unused`](Self::wait_unused) has returned `true`, or this endpoint was dropped:
    /// 1. The memory stays allocated and mapped.
    /// 2. It bears accesses of the peer within the terms at any time.
    #[allow(unsafe_code)] // lends memory
    pub unsafe fn lend(&self, session: FabricSession, terms: LentTerms) -> Option<LentName> {
        let mut state = self.room.state.lock();
        state.open(session).ok()?;
        let lender = &mut state.lender;
        let its = lender.of_session.entry(session).or_default();
        if its.len() >= MOST_RANGES {
            return None;
        }
        lender.next += 1;
        let name = LentName(lender.next);
        its.insert(name);
        let range = SessionRange {
            session,
            terms,
            ending: None,
            chunks: BTreeMap::new(),
            registrations: 0,
        };
        lender.ranges.insert(name, range);
        if let Some(until) = terms.until {
            lender.leases.insert((until, name));
            self.room.work.notify_all();
        }
        Some(name)
    }

    /// Begins to take memory back: grants are recalled, and later questions are refused.
    pub fn end_lend(&self, name: LentName) {
        let mut state = self.room.state.lock();
        state.end_range(name, ChunkRefusal::Revoked);
        self.room.flush(&mut state);
        self.room.work.notify_all();
    }

    /// Waits until nobody uses memory whose end was [begun](Self::end_lend). Returns `false` if `goes_on` says no first. A
    /// peer that does not answer holds this up until it is lost. The room's own thread waits only if `goes_on` says no at
    /// once.
    pub fn wait_unused(&self, name: LentName, mut goes_on: impl FnMut() -> bool) -> bool {
        let is_in_use = |state: &FabricState| {
            let range = state.lender.ranges.get(&name);
            range.is_some_and(|range| range.registrations > 0 || !range.chunks.is_empty())
        };
        let mut state = self.room.state.lock();
        while is_in_use(&state) {
            if !goes_on() {
                return false;
            }
            self.room.returned.wait_for(&mut state, NAP);
        }
        true
    }

    /// Forgets memory that nobody uses any more.
    pub fn free_lent(&self, name: LentName) {
        let mut state = self.room.state.lock();
        let lender = &mut state.lender;
        let Some(range) = lender.ranges.remove(&name) else {
            return;
        };
        if let Some(until) = range.terms.until {
            lender.leases.remove(&(until, name));
        }
        if let Some(its) = lender.of_session.get_mut(&range.session) {
            its.remove(&name);
        }
    }
}
