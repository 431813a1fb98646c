//! What every part of the conduit looks at.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    time::Instant,
};

use hydrant_conduit::{Caps, Error, Message, Rank, Sent, Standing, WakeWord, Window, Word32};

use crate::{
    extents::{Entry, HAZARDS},
    foreign::{Foreign, SelfCopy},
    latch::{self, Latch},
    layout::{RingKind, Shape, block, header},
    mapping::{MappedRing, MappedWords, Mapping},
    notify::{self, Barrier},
    ring::{MAX_ARGS, Writer},
    transfer::Transfers,
    wake_word,
};

/// Words in a block's standing.
pub(crate) mod standing {
    pub(crate) const PRESENT: u32 = 1;
    pub(crate) const LEFT: u32 = 2;
    pub(crate) const LOST: u32 = 3;
}

/// What every part of the conduit looks at.
pub(crate) struct Shared {
    /// This rank.
    pub(crate) rank: Rank,
    /// What the layout of the shared file follows from.
    pub(crate) shape: Shape,
    /// The shared file.
    pub(crate) mapping: Arc<Mapping>,
    /// The processes, by rank; as they said when all ranks had met, whatever is stored there later.
    pids: Vec<u32>,
    /// What the conduit can do; complete once all ranks have met.
    pub(crate) caps: Caps,
    /// Accesses by message that are under way.
    pub(crate) transfers: Transfers,
    /// What copies to and from any address of this process.
    pub(crate) self_copy: SelfCopy,
    /// The segments, by rank.
    pub(crate) windows: Vec<Window>,
    /// The notify words, by rank.
    pub(crate) notify_words: Vec<WakeWord>,
    /// From which core each rank's service thread was woken by a message; by who does that, and
    /// cleared by the thread.
    woken_from: Vec<Word32>,
    /// The wake words of the conduit on top, by rank; none where there is none.
    pub(crate) wake_words: Vec<Word32>,
    /// The blocks in the shared file, by rank.
    pub(crate) blocks: Vec<Window>,
    /// Whether each rank takes part, by rank; any rank may end it, once.
    pub(crate) standings: Vec<Word32>,
    /// What each rank published, by rank; by that rank.
    pub(crate) published: Vec<MappedWords>,
    /// The rank's process is known to have ended, so that nothing of it runs any more.
    buried: Vec<AtomicBool>,
    /// A bit for each rank that sends to this one; set by that rank.
    pub(crate) opened: MappedWords,
    /// Counts the changes of standing; by who makes one.
    pub(crate) changes: MappedWords,
    /// One more than the rank that was lost first.
    pub(crate) first_lost: MappedWords,
    /// For each rank, whether its program has come to its end, as that rank itself announced.
    come_to_end: Vec<Word32>,
    /// The number of such announcements.
    pub(crate) endings: MappedWords,
    /// The request rings to peers, by rank; each is opened when it is first used.
    outgoing: Vec<OnceLock<Latch<Writer<MappedRing>>>>,
    /// How memory outside the segments is to be reached.
    foreign: Foreign,
    /// The kernel would not copy: by messages from now on.
    forbidden: Vec<AtomicBool>,
    /// Whether sleepers are woken without a fence in the waker: every rank's process can have the
    /// system fence those of the others. Known once all have met.
    pub(crate) asymmetric_fence: bool,
    /// When this rank joined: the zero of its clock.
    pub(crate) started: Instant,
}

impl Shared {
    pub(crate) fn new(
        rank: Rank,
        shape: Shape,
        mapping: Arc<Mapping>,
        foreign: Foreign,
    ) -> Result<Self, Error> {
        let ranks = shape.ranks();
        let block_len = block::OPENED + ranks.div_ceil(64) * 8;
        let blocks: Vec<Window> = (0..ranks)
            .map(|rank| mapping.window(shape.block(rank), block_len))
            .collect();
        let word = |rank: usize, offset| {
            blocks[rank]
                .word32(offset)
                .map_err(|_| Error::Unreachable("a block out of bounds".to_owned()))
        };
        Ok(Self {
            rank,
            shape,
            caps: Caps {
                name: "smp",
                registration: None,
                reads: true,
                any_address: true,
                host_ranks: shape.ranks as u32,
                stores_wake: true,
                // Processors do them, on memory that is mapped.
                atomics: None,
                max_args: MAX_ARGS,
                max_payload: shape.message as usize,
                segment: shape.segment as usize,
            },
            transfers: Transfers::default(),
            self_copy: SelfCopy::new()?,
            windows: (0..ranks)
                .map(|rank| mapping.window(shape.segment(rank), shape.segment as usize))
                .collect(),
            notify_words: (0..ranks)
                .map(|rank| {
                    Ok(WakeWord {
                        bits: word(rank, block::NOTIFY)?,
                    })
                })
                .collect::<Result<_, Error>>()?,
            woken_from: (0..ranks)
                .map(|rank| word(rank, block::WOKEN_FROM))
                .collect::<Result<_, Error>>()?,
            wake_words: (0..ranks)
                .filter(|_| shape.extra.rank_bytes != 0)
                .map(|rank| {
                    let area = mapping.window(shape.area(rank), shape.extra.rank_bytes as usize);
                    let short = |_| Error::Unreachable("an area without a wake word".to_owned());
                    area.word32(0).map_err(short)
                })
                .collect::<Result<_, Error>>()?,
            standings: (0..ranks)
                .map(|rank| word(rank, block::STANDING))
                .collect::<Result<_, Error>>()?,
            come_to_end: (0..ranks)
                .map(|rank| word(rank, block::COME_TO_END))
                .collect::<Result<_, Error>>()?,
            published: (0..ranks)
                .map(|rank| mapping.kept_words(shape.block(rank) + block::PUBLISHED, 1))
                .collect(),
            buried: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            blocks,
            opened: mapping.kept_words(
                shape.block(rank.index()) + block::OPENED,
                ranks.div_ceil(64),
            ),
            changes: mapping.kept_words(header::CHANGES, 1),
            first_lost: mapping.kept_words(header::FIRST_LOST, 1),
            endings: mapping.kept_words(header::ENDINGS, 1),
            outgoing: (0..ranks).map(|_| OnceLock::new()).collect(),
            foreign,
            forbidden: (0..ranks).map(|_| AtomicBool::new(false)).collect(),
            mapping,
            pids: Vec::new(),
            asymmetric_fence: false,
            started: Instant::now(),
        })
    }

    /// Fills in the own block, so that the others can begin.
    pub(crate) fn present(&self) {
        let mine = &self.blocks[self.rank.index()];
        let write = |offset, value: u32| mine.store(offset, value).is_ok();
        let asymmetric = notify::enroll();
        let written = write(block::PID, std::process::id())
            && write(block::ASYMMETRIC, u32::from(asymmetric));
        debug_assert!(written, "blocks are as long as the layout says");
        self.standings[self.rank.index()].store(standing::PRESENT, Release);
    }

    /// Reads the others' blocks, which are all filled in. Called before anything else asks about peers.
    pub(crate) fn meet(&mut self) {
        self.asymmetric_fence =
            (self.blocks.iter()).all(|block| block.load::<u32>(block::ASYMMETRIC) == Ok(1));
        let pids = (self.blocks.iter()).map(|block| block.load(block::PID).unwrap_or(0));
        self.pids = pids.collect();
    }

    /// The process of a peer.
    pub(crate) fn pid(&self, peer: Rank) -> u32 {
        self.pids[peer.index()]
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
            self.shape.block(rank.index()) + block::OPENED,
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

    /// # Errors
    /// [`Error::PeerLost`] unless the peer takes part, and this rank, too: who does not take part
    /// any more gets no answers, be it that it left or that it was [expelled](Self::expel).
    #[inline]
    pub(crate) fn both_alive(&self, peer: Rank) -> Result<(), Error> {
        self.alive(peer)?;
        self.alive(self.rank)
    }

    /// Ends a rank's part in the job, once.
    pub(crate) fn end(&self, rank: Rank, how: u32) {
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

    /// Announces that this rank's program has come to its end, or goes on after all. Ranks whose own program has not
    /// are woken.
    pub(crate) fn come_to_end(&self, come: bool) {
        let word = &self.come_to_end[self.rank.index()];
        if word
            .fetch_update(AcqRel, Acquire, |old| {
                (old != u32::from(come)).then_some(come.into())
            })
            .is_err()
        {
            return;
        }
        self.endings[0].fetch_add(1, AcqRel);
        self.changes[0].fetch_add(1, AcqRel);
        for (rank, notify_word) in self.notify_words.iter().enumerate() {
            if !self.has_come_to_end(Rank(rank as u32)) {
                notify::wake(&notify_word.bits);
            }
        }
    }

    /// Returns whether a rank's program has come to its end.
    pub(crate) fn has_come_to_end(&self, rank: Rank) -> bool {
        (self.come_to_end.get(rank.index())).is_some_and(|word| word.load(Acquire) == 1)
    }

    /// Whether a peer's process has ended, whatever its standing says: a rank that left or was
    /// lost may have threads that are still at work. One that is a thread of this process is
    /// never buried.
    pub(crate) fn is_buried(&self, peer: Rank) -> bool {
        self.buried[peer.index()].load(Acquire)
    }

    /// A peer's process is gone.
    pub(crate) fn gone(&self, peer: Rank) {
        self.buried[peer.index()].store(true, Release);
        self.end(peer, standing::LOST);
        notify::wake(&self.notify_words[self.rank.index()].bits);
        self.wake_upon(self.rank);
    }

    /// Wakes a rank's thread of the conduit on top, if there is one and it sleeps. Called after
    /// what it is to see was stored.
    fn wake_upon(&self, rank: Rank) {
        if let Some(word) = self.wake_words.get(rank.index()) {
            wake_word::wake(word);
        }
    }

    /// A peer broke a rule, so that nothing it says can be relied upon: it is lost, to all and to
    /// itself. All are woken, for some wait for it, and it may wait for an answer to what nobody
    /// will read.
    #[cold]
    pub(crate) fn expel(&self, peer: Rank) {
        // Whoever is lost itself has no say in who takes part.
        if self.alive(self.rank).is_err() {
            return;
        }
        self.end(peer, standing::LOST);
        self.wake_all();
    }

    /// Wakes every sleeper of every rank, those of a conduit on top, too: some rank's standing has changed.
    pub(crate) fn wake_all(&self) {
        for (rank, notify_word) in self.notify_words.iter().enumerate() {
            notify::wake(&notify_word.bits);
            self.wake_upon(Rank(rank as u32));
        }
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
    pub(crate) fn push_message(&self, peer: Rank, message: &Message<'_>) -> Result<Sent, Error> {
        self.alive(peer)?;
        let Message {
            kind,
            tag,
            args,
            payload,
        } = *message;
        if self.writer(peer).push(kind, tag, args, payload) {
            self.notify(peer);
            Ok(Sent::Yes)
        } else {
            Ok(Sent::Full)
        }
    }

    #[inline]
    pub(crate) fn writer(&self, peer: Rank) -> latch::Guard<'_, Writer<MappedRing>> {
        let writer = self.outgoing[peer.index()].get_or_init(|| {
            self.open(peer);
            let place = (self.shape).ring(peer.index(), self.rank.index(), RingKind::Request);
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
    pub(crate) fn notify_room(&self, peer: Rank) {
        notify::room(&self.notify_words[peer.index()].bits);
    }

    /// How a sleeper makes sure that no notification is lost. `service`: it is this rank's service
    /// thread, which waits for messages.
    pub(crate) fn barrier(&self, service: bool) -> Barrier {
        match self.asymmetric_fence {
            false => Barrier::Never,
            true if service && notify::woken_here(&self.woken_from[self.rank.index()]) => {
                Barrier::Later
            }
            true => Barrier::Now,
        }
    }

    /// Called after a message was published.
    #[inline]
    pub(crate) fn notify(&self, peer: Rank) {
        notify::message(&self.notify_words[peer.index()].bits, || {
            &self.woken_from[peer.index()]
        });
    }

    pub(crate) fn by_kernel(&self, peer: Rank) -> bool {
        self.foreign != Foreign::Messages && !self.forbidden[peer.index()].load(Relaxed)
    }

    /// The kernel would not copy to or from this peer.
    pub(crate) fn forbidden(&self, peer: Rank) -> Result<(), Error> {
        if self.foreign == Foreign::ProcessVm {
            return Err(forbids());
        }
        self.forbidden[peer.index()].store(true, Relaxed);
        tracing::info!(%peer, "ptrace rules forbid direct copies: by messages from now on");
        Ok(())
    }
}

/// The system does not copy, and is to.
pub(crate) fn forbids() -> Error {
    Error::System {
        what: "copying to or from a peer's memory",
        cause: "the system forbids process_vm_readv (ptrace rules); \
                HYDRANT_SMP_FOREIGN=messages does without"
            .to_owned(),
    }
}
