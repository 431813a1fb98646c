//! An allocation, with all that a put or get to it needs.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use hydrant_conduit::{WakeWord, Word32, fork::CreatorProcess, memory::Gate};

use crate::{
    Error, Rank, Result,
    counters::{Count, Tally},
    memory::Locks,
    message::Calls,
    stripe::{InUse, StripedWeak},
    transfer::Transfer,
};

const LIVE: u8 = 0;
const FREED: u8 = 1;
const OVER: u8 = 2;
/// Live in virtual time. Mapped memory is not accessed directly then: time would stand still for a
/// program that polls its memory until it changes.
const SIMULATED: u8 = 3;

/// A symmetric allocation as one rank sees it.
///
/// It holds no reference to the job. So handles may be kept anywhere, even in handlers, and the job
/// still ends.
pub(crate) struct Block {
    /// The number of the allocation, counted from one and the same at every rank.
    pub(crate) number: u64,
    /// The offset in every segment.
    pub(crate) offset: usize,
    /// The bytes that each rank owns.
    pub(crate) len: usize,
    /// The bytes that the allocation takes of the heap.
    pub(crate) footprint: usize,
    pub(crate) rank: Rank,
    pub(crate) job: u64,
    pub(crate) tally: Arc<Tally>,
    parts: Arc<[BlockPart]>,
    /// The parts for changes of 64-bit words: mapped where a processor may change them.
    words: Arc<[BlockPart]>,
    /// The room that reaches unmapped parts, as long as the job lives.
    transfer: StripedWeak<Transfer>,
    /// Calls to owners of words that are not mapped here.
    pub(crate) calls: Arc<Calls>,
    /// The locks for accumulates.
    pub(crate) locks: Arc<Locks>,
    /// True if NICs change its 64-bit words.
    pub(crate) by_nics: bool,
    state: AtomicU8,
    /// The process that joined.
    origin: CreatorProcess,
}

/// The means by which a job reaches its memory.
pub(crate) struct Reach<'a> {
    pub(crate) transfer: &'a Arc<Transfer>,
    pub(crate) weak: StripedWeak<Transfer>,
    pub(crate) calls: &'a Arc<Calls>,
    pub(crate) locks: &'a Arc<Locks>,
    /// True if NICs change 64-bit words.
    pub(crate) by_nics: bool,
    /// True if no processor changes them.
    pub(crate) spares_processors: bool,
}

/// One rank's part of an allocation, a cache line long, so that the index of a part is a shift.
#[repr(align(64))]
pub(crate) struct BlockPart {
    /// The mapping in this process, if there is one.
    pub(crate) mapped: Option<Mapped>,
}

/// A mapped part.
#[derive(Clone)]
pub(crate) struct Mapped {
    /// The mapped bytes. The gate is shut when the allocation ends, and in virtual time.
    pub(crate) window: Gate,
    wake_bits: Word32,
}

impl Mapped {
    /// Returns whether a thread of that rank sleeps until memory changes. It loads a cache line
    /// that hardly ever changes; the fence is on the sleeper's side.
    #[inline(always)]
    pub(crate) fn is_watched(&self) -> bool {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        self.wake_bits.load(Relaxed) & WakeWord::MEMORY != 0
    }
}

impl Block {
    pub(crate) fn new(
        reach: &Reach<'_>,
        number: u64,
        offset: usize,
        len: usize,
        footprint: usize,
    ) -> Result<Self> {
        let Reach {
            transfer, calls, ..
        } = *reach;
        let progress = &transfer.progress;
        let conduit = progress.conduit();
        let gate = |window| {
            let gate = Gate::new(window);
            if progress.virtual_time {
                gate.shut();
            }
            gate
        };
        let lost = || Error::other("the conduit's segment is shorter than the heap");
        let part = |rank| {
            let mapped = match (conduit.window(rank), conduit.wake_word(rank)) {
                (Some(window), Some(wake_word)) => Some(Mapped {
                    window: gate(window.part(offset, len).ok_or_else(lost)?),
                    wake_bits: wake_word.bits.clone(),
                }),
                _ => None,
            };
            Ok(BlockPart { mapped })
        };
        let parts: Arc<[BlockPart]> = (0..progress.size)
            .map(|rank| part(Rank(rank)))
            .collect::<Result<_>>()?;
        let words = if reach.spares_processors {
            parts.iter().map(|_| BlockPart { mapped: None }).collect()
        } else {
            Arc::clone(&parts)
        };
        Ok(Self {
            number,
            offset,
            len,
            footprint,
            rank: progress.rank,
            job: progress.id,
            tally: Arc::clone(&progress.tally),
            parts,
            words,
            transfer: reach.weak.clone(),
            calls: Arc::clone(calls),
            locks: Arc::clone(reach.locks),
            by_nics: reach.by_nics,
            state: AtomicU8::new(if progress.virtual_time {
                SIMULATED
            } else {
                LIVE
            }),
            origin: CreatorProcess::here(),
        })
    }

    /// Returns the part of `rank`, if the allocation lives, the rank exists and the part is mapped
    /// here. It does not tell a forked child from its parent: the caller [checks](Self::check)
    /// that, or needs the thread's own [cells](Tally::own).
    #[inline]
    pub(crate) fn reach(&self, rank: Rank) -> Option<&Mapped> {
        if self.state.load(Relaxed) != LIVE {
            return None;
        }
        self.parts.get(rank.index())?.mapped.as_ref()
    }

    /// Returns the part of `rank`, if the rank exists and the part is mapped here. The gate of the
    /// part is shut once the allocation ends. The caller needs the thread's own
    /// [cells](Tally::own), which no thread of a forked child has.
    #[inline(always)]
    pub(crate) fn near(&self, rank: Rank) -> Option<&Mapped> {
        self.parts.get(rank.index())?.mapped.as_ref()
    }

    /// Returns the part of `rank`.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::JobOver`], [`Error::RankOutOfRange`].
    #[inline]
    pub(crate) fn part(&self, rank: Rank) -> Result<&BlockPart> {
        self.part_in(&self.parts, rank)
    }

    /// Returns this rank's part.
    pub(super) fn own_part(&self) -> Option<&Mapped> {
        self.parts.get(self.rank.index())?.mapped.as_ref()
    }

    /// Returns the part of `rank`, mapped where a processor may change its words. `wide`: words of
    /// 64 bits. In virtual time this lets time pass, as [`poll_memory`](Self::poll_memory) does.
    /// The caller [counts](Self::count_atomic) the operation first.
    ///
    /// # Errors
    /// As [`part`](Self::part).
    #[inline]
    pub(crate) fn word_part(&self, rank: Rank, wide: bool) -> Result<&BlockPart> {
        let parts = if wide { &self.words } else { &self.parts };
        if self.state.load(Relaxed) != LIVE {
            self.check_slowly()?;
            let part = parts.get(rank.index());
            if part.is_some_and(|part| part.mapped.is_some()) {
                self.poll_memory();
            }
        }
        self.nth(parts, rank)
    }

    /// Counts an atomic operation, or fails in a forked child. No thread of a child [counts by
    /// itself](Tally::try_one), so only the slow path checks for a child.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn count_atomic(&self) -> Result<()> {
        if self.tally.try_one(Count::Atomics) {
            return Ok(());
        }
        self.count_atomic_slowly()
    }

    #[cold]
    #[inline(never)]
    fn count_atomic_slowly(&self) -> Result<()> {
        self.check_origin()?;
        self.tally.one(Count::Atomics);
        Ok(())
    }

    #[inline]
    fn part_in<'a>(&self, parts: &'a [BlockPart], rank: Rank) -> Result<&'a BlockPart> {
        if !self.is_plainly_alive() {
            self.check_slowly()?;
        }
        self.nth(parts, rank)
    }

    #[inline]
    fn nth<'a>(&self, parts: &'a [BlockPart], rank: Rank) -> Result<&'a BlockPart> {
        match parts.get(rank.index()) {
            Some(part) => Ok(part),
            None => Err(self.no_rank(rank)),
        }
    }

    /// # Errors
    /// [`Error::ForeignHandle`] for memory of another job.
    pub(crate) fn check_job(&self, job: u64) -> Result<()> {
        if self.job == job {
            Ok(())
        } else {
            Err(Error::ForeignHandle { what: "memory" })
        }
    }

    /// # Errors
    /// [`Error::Freed`], [`Error::JobOver`], [`Error::Forked`].
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_plainly_alive() {
            Ok(())
        } else {
            self.check_slowly()
        }
    }

    /// Returns whether the allocation is live, in the process that joined and in real time.
    #[inline]
    fn is_plainly_alive(&self) -> bool {
        self.state.load(Relaxed) == LIVE && self.origin.is_here()
    }

    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub(crate) fn check_origin(&self) -> Result<()> {
        if self.is_forked() {
            Err(self.ended())
        } else {
            Ok(())
        }
    }

    /// Returns whether this process was forked from the rank.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    #[cold]
    fn check_slowly(&self) -> Result<()> {
        match self.state.load(Relaxed) {
            _ if self.is_forked() => Err(Error::Forked { rank: self.rank }),
            LIVE | SIMULATED => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// Called before own memory is read; see
    /// [`Progress::poll_memory`](crate::progress::Progress::poll_memory).
    pub(crate) fn poll_memory(&self) {
        if self.is_simulated()
            && let Some(transfer) = self.transfer.upgrade()
        {
            transfer.progress.poll_memory();
        }
    }

    /// Returns whether a read of the memory lets time pass.
    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.state.load(Relaxed) == SIMULATED
    }

    /// Returns the room that reaches unmapped parts.
    ///
    /// # Errors
    /// [`Error::JobOver`].
    #[inline]
    pub(crate) fn transfer(&self) -> Result<InUse<Transfer>> {
        // Not `ok_or`, which would make and drop the error at every access.
        self.transfer.upgrade().ok_or_else(|| Error::JobOver)
    }

    /// Called after a store to memory of `rank`: wakes the threads that wait for memory there.
    #[inline]
    pub(crate) fn wake_watchers(&self, rank: Rank) {
        if let Some(BlockPart {
            mapped: Some(mapped),
        }) = self.parts.get(rank.index())
            && mapped.is_watched()
        {
            self.wake(rank);
        }
    }

    /// Wakes the threads that sleep until memory of `rank` changes.
    #[cold]
    pub(crate) fn wake(&self, rank: Rank) {
        if let Some(transfer) = self.transfer.upgrade() {
            transfer.progress.conduit().notify(rank);
        }
    }

    #[cold]
    fn ended(&self) -> Error {
        match self.state.load(Relaxed) {
            _ if self.is_forked() => Error::Forked { rank: self.rank },
            FREED => Error::Freed,
            _ => Error::JobOver,
        }
    }

    #[cold]
    fn no_rank(&self, rank: Rank) -> Error {
        Error::RankOutOfRange {
            rank,
            size: self.parts.len() as u32,
        }
    }

    /// Marks the allocation as freed.
    ///
    /// # Errors
    /// [`Error::Freed`] if it is freed already, [`Error::JobOver`].
    pub(crate) fn free(&self) -> Result<()> {
        self.end_as(FREED).map_err(|()| self.ended())
    }

    pub(super) fn close(&self) {
        let _ = self.end_as(OVER);
    }

    fn end_as(&self, state: u8) -> std::result::Result<(), ()> {
        let from = |alive| (self.state).compare_exchange(alive, state, Relaxed, Relaxed);
        from(LIVE).or_else(|_| from(SIMULATED)).map_err(drop)?;
        for mapped in self.parts.iter().filter_map(|part| part.mapped.as_ref()) {
            mapped.window.shut();
        }
        Ok(())
    }
}
