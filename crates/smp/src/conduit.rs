//! The shared-memory conduit.

#![allow(unsafe_code)] // implements the contract's unsafe methods

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use hydrant_conduit::{
    Caps, Conduit, Door, Error, Key, Message, Posted, Rank, Remote, Sent, Sink, Sleeper, Standing,
    Window, Word32,
};

use crate::{
    bell::{self, Armed},
    extents::{self, Entry, HAZARDS, Handle},
    foreign::{Foreign, SelfCopy, Way},
    inbox::Inbox,
    latch::{self, Latch},
    layout::{HUGE, Lane, Shape, card, header},
    mapping::{MappedRing, MappedWords, Mapping},
    ring::{MAX_ARGS, MAX_PAYLOAD, Writer},
    transfer::{self, Transfers},
    watch::Watch,
};

/// Words in a card's standing.
mod standing {
    pub(super) const PRESENT: u32 = 1;
    pub(super) const LEFT: u32 = 2;
    pub(super) const LOST: u32 = 3;
}

/// The conduit between ranks of one host.
pub struct Smp {
    shared: Arc<Shared>,
    inbox: Latch<Inbox>,
    /// Extents of this rank that are free to be granted.
    free: Mutex<Free>,
    /// Last: it stops before the rest goes.
    _watch: Watch,
}

/// Indices of extents: those given back, and the first one never used.
struct Free {
    back: Vec<u32>,
    fresh: u32,
}

/// What every part of the conduit looks at.
pub(crate) struct Shared {
    pub(crate) rank: Rank,
    pub(crate) shape: Shape,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) caps: Caps,
    pub(crate) transfers: Transfers,
    pub(crate) self_copy: SelfCopy,
    windows: Vec<Window>,
    doors: Vec<Door>,
    cards: Vec<Window>,
    standings: Vec<Word32>,
    opened: MappedWords,
    changes: MappedWords,
    /// One more than the rank that was lost first.
    first_lost: MappedWords,
    outgoing: Vec<OnceLock<Latch<Writer<MappedRing>>>>,
    foreign: Foreign,
    /// The kernel would not copy: by messages from now on.
    forbidden: Vec<AtomicBool>,
    started: Instant,
}

impl Shared {
    pub(crate) fn new(
        rank: Rank,
        shape: Shape,
        mapping: Arc<Mapping>,
        foreign: Foreign,
    ) -> Result<Self, Error> {
        let ranks = shape.ranks();
        let card_len = card::OPENED + ranks.div_ceil(64) * 8;
        let cards: Vec<Window> = (0..ranks)
            .map(|rank| mapping.window(shape.card(rank), card_len))
            .collect();
        let word = |rank: usize, offset| {
            cards[rank]
                .word32(offset)
                .map_err(|_| Error::Unreachable("a card out of bounds".to_owned()))
        };
        Ok(Self {
            rank,
            shape,
            caps: Caps {
                name: "smp",
                needs_registration: false,
                any_address: true,
                max_args: MAX_ARGS,
                max_payload: (shape.payload as usize / 4).min(MAX_PAYLOAD),
                segment: shape.segment as usize,
                bytes_per_rank: shape.bytes_per_rank(),
                bytes_per_pair: shape.bytes_per_pair(),
                asymmetric_fence: false,
            },
            transfers: Transfers::default(),
            self_copy: SelfCopy::new()?,
            windows: (0..ranks)
                .map(|rank| mapping.window(shape.segment(rank), shape.segment as usize))
                .collect(),
            doors: (0..ranks)
                .map(|rank| {
                    Ok(Door {
                        bell: word(rank, card::BELL)?,
                    })
                })
                .collect::<Result<_, Error>>()?,
            standings: (0..ranks)
                .map(|rank| word(rank, card::STANDING))
                .collect::<Result<_, Error>>()?,
            cards,
            opened: mapping.kept_words(shape.card(rank.index()) + card::OPENED, ranks.div_ceil(64)),
            changes: mapping.kept_words(header::CHANGES, 1),
            first_lost: mapping.kept_words(header::FIRST_LOST, 1),
            outgoing: (0..ranks).map(|_| OnceLock::new()).collect(),
            foreign,
            forbidden: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            mapping,
            started: Instant::now(),
        })
    }

    /// Fills in the own card, so that the others can begin.
    pub(crate) fn present(&self) {
        let mine = &self.cards[self.rank.index()];
        let write = |offset, value: u32| mine.store(offset, value).is_ok();
        let asymmetric = bell::enroll();
        let written =
            write(card::PID, std::process::id()) && write(card::ASYMMETRIC, u32::from(asymmetric));
        debug_assert!(written, "cards are as long as the layout says");
        self.standings[self.rank.index()].store(standing::PRESENT, Release);
    }

    /// Reads the others' cards, which are all filled in.
    pub(crate) fn meet(&mut self) {
        self.caps.asymmetric_fence =
            (self.cards.iter()).all(|card| card.load::<u32>(card::ASYMMETRIC) == Ok(1));
    }

    /// The process of a peer.
    pub(crate) fn pid(&self, peer: Rank) -> u32 {
        self.cards[peer.index()].load(card::PID).unwrap_or(0)
    }

    pub(crate) fn entries(&self, owner: Rank) -> &[Entry] {
        (self.mapping).entries(
            self.shape.extents(owner.index()),
            self.shape.extents as usize,
        )
    }

    pub(crate) fn hazards(&self, rank: Rank) -> &[AtomicU64] {
        self.mapping
            .words(self.shape.hazards(rank.index()), HAZARDS)
    }

    /// A bit for each rank that sends to this one.
    #[inline]
    pub(crate) fn opened(&self) -> &[AtomicU64] {
        &self.opened
    }

    fn opened_at(&self, rank: Rank) -> &[AtomicU64] {
        let ranks = self.shape.ranks();
        (self.mapping).words(
            self.shape.card(rank.index()) + card::OPENED,
            ranks.div_ceil(64),
        )
    }

    /// Tells `peer` that there are rings from here to look at.
    pub(crate) fn open(&self, peer: Rank) {
        let me = self.rank.index();
        self.opened_at(peer)[me / 64].fetch_or(1 << (me % 64), AcqRel);
    }

    pub(crate) fn standing(&self, peer: Rank) -> Standing {
        match self.standings[peer.index()].load(Acquire) {
            standing::LEFT => Standing::Left,
            standing::LOST => Standing::Lost,
            _ => Standing::Present,
        }
    }

    /// # Errors
    /// [`Error::PeerLost`] unless the peer takes part.
    #[inline]
    pub(crate) fn alive(&self, peer: Rank) -> Result<(), Error> {
        match self
            .standings
            .get(peer.index())
            .map(|word| word.load(Relaxed))
        {
            Some(standing::PRESENT) => Ok(()),
            _ => Err(Error::PeerLost(peer)),
        }
    }

    /// Ends a rank's part in the job, once.
    fn end(&self, rank: Rank, how: u32) {
        let word = &self.standings[rank.index()];
        let ended = |old| (old != standing::LEFT && old != standing::LOST).then_some(how);
        if how == standing::LOST && ended(word.load(Acquire)).is_some() {
            // Before anybody can see the loss and give up, too.
            let first = &self.first_lost[0];
            let _ = first.compare_exchange(0, u64::from(rank.0) + 1, AcqRel, Acquire);
        }
        if word.fetch_update(AcqRel, Acquire, ended).is_ok() {
            self.changes[0].fetch_add(1, AcqRel);
        }
    }

    /// A peer's process is gone.
    pub(crate) fn gone(&self, peer: Rank) {
        self.end(peer, standing::LOST);
        bell::wake(&self.doors[self.rank.index()].bell);
    }

    pub(crate) fn check(&self, message: &Message<'_>) -> Result<(), Error> {
        if message.args.len() > self.caps.max_args {
            return Err(Error::TooManyArgs {
                count: message.args.len(),
                limit: self.caps.max_args,
            });
        }
        if message.payload.len() > self.caps.max_payload {
            return Err(Error::MessageTooLong {
                len: message.payload.len(),
                limit: self.caps.max_payload,
            });
        }
        Ok(())
    }

    /// Sends a request of any kind; the caller checked the limits.
    #[inline]
    pub(crate) fn push(
        &self,
        peer: Rank,
        kind: u8,
        args: &[u64],
        payload: &[u8],
    ) -> Result<Sent, Error> {
        let message = Message {
            kind,
            tag: 0,
            args,
            payload,
        };
        self.push_message(peer, &message)
    }

    #[inline]
    fn push_message(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.alive(peer)?;
        let Message {
            kind,
            tag,
            args,
            payload,
        } = *message;
        if self.writer(peer).push(kind, tag, args, payload) {
            self.ring_bell(peer);
            Ok(Sent::Yes)
        } else {
            Ok(Sent::Full)
        }
    }

    #[inline]
    fn writer(&self, peer: Rank) -> latch::Guard<'_, Writer<MappedRing>> {
        let writer = self.outgoing[peer.index()].get_or_init(|| {
            self.open(peer);
            let place = (self.shape).ring(peer.index(), self.rank.index(), Lane::Request);
            Latch::new(Writer::new(MappedRing::new(
                &self.mapping,
                place,
                &self.shape,
            )))
        });
        writer.lock()
    }

    /// Called when messages were taken out of a ring of `peer`.
    #[inline]
    pub(crate) fn ring_for_room(&self, peer: Rank) {
        bell::ring_for_room(&self.doors[peer.index()].bell);
    }

    #[inline]
    pub(crate) fn ring_bell(&self, peer: Rank) {
        bell::ring(&self.doors[peer.index()].bell);
    }

    pub(crate) fn by_kernel(&self, peer: Rank) -> bool {
        self.foreign != Foreign::Messages && !self.forbidden[peer.index()].load(Relaxed)
    }

    /// The kernel would not copy to or from this peer.
    pub(crate) fn forbidden(&self, peer: Rank) -> Result<(), Error> {
        if self.foreign == Foreign::ProcessVm {
            return Err(Error::System {
                what: "copying to or from a peer's memory",
                cause: "the system forbids process_vm_readv (ptrace rules); \
                        HYDRANT_SMP_FOREIGN=auto goes by messages"
                    .to_owned(),
            });
        }
        self.forbidden[peer.index()].store(true, Relaxed);
        tracing::info!(%peer, "ptrace rules forbid direct copies: by messages from now on");
        Ok(())
    }
}

impl Smp {
    pub(crate) fn new(shared: Shared) -> Result<Self, Error> {
        let shared = Arc::new(shared);
        let own = std::process::id();
        let peers = (0..shared.shape.ranks() as u32)
            .map(|rank| (Rank(rank), shared.pid(Rank(rank))))
            .filter(|(_, pid)| *pid != own)
            .collect();
        let watch = Watch::start(peers, {
            let shared = Arc::clone(&shared);
            move |peer| shared.gone(peer)
        })?;
        Ok(Self {
            inbox: Latch::new(Inbox::new(shared.shape.ranks())),
            free: Mutex::new(Free {
                back: Vec::new(),
                fresh: 0,
            }),
            shared,
            _watch: watch,
        })
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn segment_part(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let segment = self.shared.caps.segment;
        if len > segment || offset > segment - len {
            return Err(Error::OutOfExtent {
                peer: self.shared.rank,
                offset: offset as u64,
                len: len as u64,
                extent: segment as u64,
            });
        }
        Ok(self.shared.shape.segment(self.shared.rank.index()) + offset)
    }

    /// One access to a segment or to foreign memory.
    ///
    /// # Safety
    /// As [`Conduit::write`] and [`Conduit::read`].
    unsafe fn access(
        &self,
        peer: Rank,
        way: Way,
        local: *mut u8,
        remote: Remote,
        len: usize,
    ) -> Result<Posted, Error> {
        self.shared.alive(peer)?;
        if remote.key != Key::SEGMENT {
            // SAFETY: handed on.
            return unsafe { transfer::access(&self.shared, peer, way, local, remote, len) };
        }
        let window = &self.shared.windows[peer.index()];
        let offset = usize::try_from(remote.offset).unwrap_or(usize::MAX);
        let copied = match way {
            // SAFETY: readable for `len` bytes, says the caller.
            Way::Out => window.write(offset, unsafe { std::slice::from_raw_parts(local, len) }),
            Way::In => {
                // SAFETY: writable for `len` bytes by nobody else, says the caller.
                let to = unsafe { std::slice::from_raw_parts_mut(local, len) };
                window.read(offset, to)
            }
        };
        copied.map_err(|_| Error::OutOfExtent {
            peer,
            offset: remote.offset,
            len: len as u64,
            extent: window.len() as u64,
        })?;
        Ok(Posted::Done)
    }
}

impl Conduit for Smp {
    fn rank(&self) -> Rank {
        self.shared.rank
    }

    fn size(&self) -> u32 {
        self.shared.shape.ranks as u32
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn window(&self, peer: Rank) -> Option<&Window> {
        self.shared.windows.get(peer.index())
    }

    fn door(&self, peer: Rank) -> Option<&Door> {
        self.shared.doors.get(peer.index())
    }

    fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        let at = self.segment_part(offset, len)?;
        self.shared.mapping.commit(at, len)
    }

    fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let at = self.segment_part(offset, len)?;
        if !at.is_multiple_of(HUGE) || !len.is_multiple_of(HUGE) {
            self.shared.mapping.commit(at, len)?;
            return Ok(0);
        }
        let huge = self.shared.mapping.commit_huge(at, len)?;
        if huge == 0 {
            self.shared.mapping.commit(at, len)?;
        }
        Ok(huge)
    }

    fn decommit(&self, offset: usize, len: usize) {
        if let Ok(at) = self.segment_part(offset, len) {
            self.shared.mapping.decommit(at, len);
        }
    }

    unsafe fn register(&self, addr: *mut u8, len: usize) -> Result<Key, Error> {
        let limit = self.shared.shape.extents;
        let index = {
            let mut free = self.free();
            match free.back.pop() {
                Some(index) => index,
                None if u64::from(free.fresh) < limit => {
                    free.fresh += 1;
                    free.fresh - 1
                }
                None => {
                    return Err(Error::Exhausted {
                        what: "extents registered at once",
                        limit,
                        remedy: "raise HYDRANT_EXTENTS",
                    });
                }
            }
        };
        let entry = &self.shared.entries(self.shared.rank)[index as usize];
        Ok(Key(entry.grant(index, addr as u64, len as u64).word()))
    }

    fn deregister(&self, key: Key) -> Result<(), Error> {
        let shared = &self.shared;
        let handle = Handle::from_word(key.0);
        let revoked = (shared.entries(shared.rank).get(handle.index as usize))
            .is_some_and(|entry| entry.revoke(handle));
        if !revoked {
            return Err(Error::Revoked {
                peer: shared.rank,
                key: key.0,
            });
        }
        for rank in (0..shared.shape.ranks() as u32).map(Rank) {
            // A dead peer's hazards stay as they were; it touches nothing.
            let mut tries = 0_u32;
            while shared.standing(rank) == Standing::Present
                && !extents::settled(shared.hazards(rank), shared.rank.0, handle)
            {
                tries += 1;
                if tries < 100 {
                    thread::yield_now();
                } else {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }
        self.free().back.push(handle.index);
        Ok(())
    }

    unsafe fn write(
        &self,
        peer: Rank,
        to: Remote,
        from: *const u8,
        len: usize,
    ) -> Result<Posted, Error> {
        // SAFETY: the same contract; `Way::Out` only reads `local`.
        unsafe { self.access(peer, Way::Out, from.cast_mut(), to, len) }
    }

    unsafe fn read(
        &self,
        peer: Rank,
        from: Remote,
        to: *mut u8,
        len: usize,
    ) -> Result<Posted, Error> {
        // SAFETY: the same contract.
        unsafe { self.access(peer, Way::In, to, from, len) }
    }

    #[inline]
    fn send(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.shared.check(message)?;
        self.shared.push_message(peer, message)
    }

    fn handled(&self, peer: Rank) -> (u64, u64) {
        self.shared.writer(peer).progress()
    }

    fn drain(&self, sink: &mut dyn Sink) -> usize {
        let mut inbox = self.inbox.lock();
        let mut count = 0;
        // Each poll takes at least one of what had arrived, and a ring holds no more than
        // that; what arrives meanwhile may wait.
        for _ in 0..=self.shared.shape.slots {
            let more = inbox.poll(&self.shared, sink);
            count += more;
            if more == 0 {
                break;
            }
        }
        drop(inbox);
        count + transfer::advance(&self.shared, Some(sink))
    }

    fn poll(&self, sink: &mut dyn Sink) -> usize {
        let mut count = 0;
        if let Some(mut inbox) = self.inbox.try_lock() {
            count = inbox.poll(&self.shared, sink);
        }
        if self.shared.transfers.any() {
            count += transfer::advance(&self.shared, Some(sink));
        }
        count
    }

    fn wait(&self, sleeper: Sleeper, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let shared = &self.shared;
        let armed = match sleeper {
            Sleeper::Service => Armed::Service,
            Sleeper::Application | Sleeper::Room => Armed::Application,
            Sleeper::Memory => Armed::Memory,
            Sleeper::Nap => Armed::Nothing,
        };
        let room = match sleeper {
            Sleeper::Room => true,
            Sleeper::Nap => false,
            Sleeper::Service | Sleeper::Application | Sleeper::Memory => {
                self.inbox.lock().is_stuck()
            }
        };
        // Transfers by message may wait for room, of which no bell tells.
        let timeout = if shared.transfers.any() {
            Some(timeout.map_or(TRANSFER_TICK, |timeout| timeout.min(TRANSFER_TICK)))
        } else {
            timeout
        };
        bell::sleep(
            &shared.doors[shared.rank.index()].bell,
            armed,
            timeout,
            room,
            shared.caps.asymmetric_fence,
            &mut || ready() || sleeper != Sleeper::Nap && self.inbox.lock().waiting(shared),
        );
    }

    fn ring(&self, peer: Rank) {
        bell::ring_for_memory(&self.shared.doors[peer.index()].bell);
    }

    fn wake(&self, peer: Rank) {
        bell::wake(&self.shared.doors[peer.index()].bell);
    }

    fn standing(&self, peer: Rank) -> Standing {
        self.shared.standing(peer)
    }

    fn first_lost(&self) -> Option<Rank> {
        let rank = self.shared.first_lost[0].load(Acquire).checked_sub(1)?;
        u32::try_from(rank).ok().map(Rank)
    }

    fn changes(&self) -> u64 {
        self.shared.changes[0].load(Acquire)
    }

    fn leave(&self, orderly: bool) {
        let how = if orderly {
            standing::LEFT
        } else {
            standing::LOST
        };
        self.shared.end(self.shared.rank, how);
        for door in &self.shared.doors {
            bell::wake(&door.bell);
        }
    }

    fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }
}

/// How often transfers by message look for room.
const TRANSFER_TICK: Duration = Duration::from_millis(1);

impl Drop for Smp {
    fn drop(&mut self) {
        // A rank that never said goodbye is lost to the others.
        if self.shared.standing(self.shared.rank) == Standing::Present {
            self.leave(false);
        }
    }
}
