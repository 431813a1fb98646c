//! The state that every part of the conduit uses.

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
    extents::{ExtentEntry, HAZARDS},
    foreign::{Foreign, SelfCopy},
    latch::{self, Latch},
    layout::{FileShape, RingKind, block, header},
    mapping::{MappedRing, MappedWords, SharedMapping},
    notify::{self, Barrier},
    open_transfers::Transfers,
    ring::{MAX_ARGS, RingWriter},
    wake_word,
};

/// Values of a block's standing.
pub(crate) mod standing {
    pub(crate) const PRESENT: u32 = 1;
    pub(crate) const LEFT: u32 = 2;
    pub(crate) const LOST: u32 = 3;
}

/// The state that every part of the conduit uses.
pub(crate) struct SharedState {
    /// This rank.
    pub(crate) rank: Rank,
    /// The parameters of the layout.
    pub(crate) shape: FileShape,
    /// The shared file.
    pub(crate) mapping: Arc<SharedMapping>,
    /// The processes, by rank. They are read once, when all ranks have met, and later stores have
    /// no effect.
    pids: Vec<u32>,
    /// The conduit's capabilities. They are complete once all ranks have met.
    pub(crate) caps: Caps,
    /// Accesses by message that have not ended.
    pub(crate) transfers: Transfers,
    /// Copies to and from any address of this process.
    pub(crate) self_copy: SelfCopy,
    /// The segments, by rank.
    pub(crate) windows: Vec<Window>,
    /// The notify words, by rank.
    pub(crate) notify_words: Vec<WakeWord>,
    /// The core from which each rank's service thread was woken by a message. The waker stores it,
    /// and the thread clears it.
    woken_from: Vec<Word32>,
    /// The wake words of the conduit on top, by rank. Empty without such a conduit.
    pub(crate) wake_words: Vec<Word32>,
    /// The blocks in the shared file, by rank.
    pub(crate) blocks: Vec<Window>,
    /// The standing of each rank. Any rank may end another's part, once.
    pub(crate) standings: Vec<Word32>,
    /// The number that each rank publishes.
    pub(crate) published: Vec<MappedWords>,
    /// True for a rank whose process has ended, so that no thread of it runs any more.
    buried: Vec<AtomicBool>,
    /// A bit for each rank that sends to this rank, which that rank sets.
    pub(crate) opened: MappedWords,
    /// The number of changes of standing. The rank that makes a change counts it.
    pub(crate) changes: MappedWords,
    /// The rank that was lost first, plus one.
    pub(crate) first_lost: MappedWords,
    /// For each rank, whether its program has come to its end, as that rank announced.
    come_to_end: Vec<Word32>,
    /// The number of such announcements.
    pub(crate) endings: MappedWords,
    /// The request rings to peers, by rank. Each is opened on first use.
    outgoing: Vec<OnceLock<Latch<RingWriter<MappedRing>>>>,
    /// The route to memory outside the segments.
    foreign: Foreign,
    /// True for a peer to which the kernel refused to copy. Messages carry the data from then on.
    forbidden: Vec<AtomicBool>,
    /// True if sleepers are woken without a fence in the waker: every rank's process can have the
    /// system fence the others. Set once all ranks have met.
    pub(crate) asymmetric_fence: bool,
    /// The time at which this rank joined, the zero of its clock.
    pub(crate) started: Instant,
}

impl SharedState {
    pub(crate) fn new(
        rank: Rank,
        shape: FileShape,
        mapping: Arc<SharedMapping>,
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
                // Processors do them, on mapped memory.
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

    /// Fills in this rank's block, so that the others can begin.
    pub(crate) fn present(&self) {
        let mine = &self.blocks[self.rank.index()];
        let write = |offset, value: u32| mine.store(offset, value).is_ok();
        let asymmetric = notify::enroll();
        let written = write(block::PID, std::process::id())
            && write(block::ASYMMETRIC, u32::from(asymmetric));
        debug_assert!(written, "blocks are as long as the layout says");
        self.standings[self.rank.index()].store(standing::PRESENT, Release);
    }

    /// Reads the blocks of all ranks, which are filled in by now. Called before any other question
    /// about peers.
    pub(crate) fn meet(&mut self) {
        self.asymmetric_fence =
            (self.blocks.iter()).all(|block| block.load::<u32>(block::ASYMMETRIC) == Ok(1));
        let pids = (self.blocks.iter()).map(|block| block.load(block::PID).unwrap_or(0));
        self.pids = pids.collect();
    }

    /// Returns the process id of a peer.
    pub(crate) fn pid(&self, peer: Rank) -> u32 {
        self.pids[peer.index()]
    }

    pub(crate) fn entries(&self, owner: Rank) -> &[ExtentEntry] {
        (self.mapping).entries(
            self.shape.extents(owner.index()),
            self.shape.extents as usize,
        )
    }

    pub(crate) fn hazards(&self, rank: Rank) -> &[AtomicU64] {
        self.mapping
            .words(self.shape.hazards(rank.index()), HAZARDS)
    }

    /// Returns a bit for each rank that sends to this rank.
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

    /// Announces to `peer` that there are rings from this rank.
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
    /// [`Error::PeerLost`] unless the peer is present.
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
    /// [`Error::PeerLost`] unless the peer and this rank are present. A rank that left or was
    /// [expelled](Self::expel) gets no answers.
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
            // The first loss is stored before any rank can see it and give up in consequence.
            let first = &self.first_lost[0];
            let _ = first.compare_exchange(0, u64::from(rank.0) + 1, AcqRel, Acquire);
        }
        if word.fetch_update(AcqRel, Acquire, ended).is_ok() {
            self.changes[0].fetch_add(1, AcqRel);
        }
    }

    /// Announces that this rank's program has come to its end, or continues after all. Wakes ranks
    /// whose own program has not come to its end.
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

    /// Returns true if a rank's program has come to its end.
    pub(crate) fn has_come_to_end(&self, rank: Rank) -> bool {
        (self.come_to_end.get(rank.index())).is_some_and(|word| word.load(Acquire) == 1)
    }

    /// Returns true if a peer's process has ended. The standing does not tell that: a rank that
    /// left or was lost may have threads that still run. A rank that is a thread of this process is
    /// never buried.
    pub(crate) fn is_buried(&self, peer: Rank) -> bool {
        self.buried[peer.index()].load(Acquire)
    }

    /// Marks a peer whose process has ended.
    pub(crate) fn mark_gone(&self, peer: Rank) {
        self.buried[peer.index()].store(true, Release);
        self.end(peer, standing::LOST);
        notify::wake(&self.notify_words[self.rank.index()].bits);
        self.wake_upon(self.rank);
    }

    /// Wakes a rank's thread of the conduit on top, if it sleeps. Called after the stores that the
    /// thread is to see.
    fn wake_upon(&self, rank: Rank) {
        if let Some(word) = self.wake_words.get(rank.index()) {
            wake_word::wake(word);
        }
    }

    /// Expels a peer that broke a rule, because its messages cannot be trusted. It is lost to all
    /// ranks, and to itself. All ranks are woken: some wait for the peer, and the peer may wait for
    /// an answer that will never come.
    #[cold]
    pub(crate) fn expel(&self, peer: Rank) {
        // A lost rank must not expel others.
        if self.alive(self.rank).is_err() {
            return;
        }
        self.end(peer, standing::LOST);
        self.wake_all();
    }

    /// Wakes every sleeper of every rank, including those of a conduit on top, because the standing
    /// of some rank has changed.
    pub(crate) fn wake_all(&self) {
        for (rank, notify_word) in self.notify_words.iter().enumerate() {
            notify::wake(&notify_word.bits);
            self.wake_upon(Rank(rank as u32));
        }
    }

    /// Sends a request of any kind. The caller has checked the limits.
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
    pub(crate) fn writer(&self, peer: Rank) -> latch::LatchGuard<'_, RingWriter<MappedRing>> {
        let writer = self.outgoing[peer.index()].get_or_init(|| {
            self.open(peer);
            let place = (self.shape).ring(peer.index(), self.rank.index(), RingKind::Request);
            Latch::new(RingWriter::new(MappedRing::new(
                &self.mapping,
                place,
                &self.shape,
            )))
        });
        writer.lock()
    }

    /// Notifies `peer` after messages were taken out of one of its rings.
    #[inline]
    pub(crate) fn notify_room(&self, peer: Rank) {
        notify::room(&self.notify_words[peer.index()].bits);
    }

    /// Returns the barrier with which a sleeper loses no notification. `service` is true for this
    /// rank's service thread that waits for messages.
    pub(crate) fn barrier(&self, service: bool) -> Barrier {
        if !self.asymmetric_fence {
            Barrier::Never
        } else if service && notify::woken_here(&self.woken_from[self.rank.index()]) {
            Barrier::Later
        } else {
            Barrier::Now
        }
    }

    /// Notifies `peer` after a message was published.
    #[inline]
    pub(crate) fn notify(&self, peer: Rank) {
        notify::message(&self.notify_words[peer.index()].bits, || {
            &self.woken_from[peer.index()]
        });
    }

    pub(crate) fn by_kernel(&self, peer: Rank) -> bool {
        self.foreign != Foreign::Messages && !self.forbidden[peer.index()].load(Relaxed)
    }

    /// Notes that the kernel refused to copy to or from this peer.
    pub(crate) fn forbidden(&self, peer: Rank) -> Result<(), Error> {
        if self.foreign == Foreign::ProcessVm {
            return Err(forbids());
        }
        self.forbidden[peer.index()].store(true, Relaxed);
        tracing::info!(%peer, "ptrace rules forbid direct copies: by messages from now on");
        Ok(())
    }
}

/// Makes the error for a system that refuses the copies which the settings demand.
pub(crate) fn forbids() -> Error {
    Error::System {
        what: "copying to or from a peer's memory",
        cause: "the system forbids process_vm_readv (ptrace rules); \
                HYDRANT_SMP_FOREIGN=messages does without"
            .to_owned(),
    }
}
