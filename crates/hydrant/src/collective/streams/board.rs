//! Boards: memory in which members of a flat team show data to each other.
//!
//! Each member has a board in its scratch, which all members map. It writes its data as a
//! [stream](super::set) to slots of its board, for one reader or for all others. Each reader copies the
//! slots to their destination. So a byte is copied twice, however many members read it, and nobody waits
//! for room if all data fits the board.
//!
//! Data that lies in its member's segment and is only read is not copied to the board: readers get its
//! offset. Long data in private memory may be faster to read directly. Then the reader gets its address and
//! has the system copy it, if the system can (cross-memory attach, `process_vm_readv`).
//!
//! # Caches
//!
//! Data for one reader is written through the caches if writer and reader share one, which the writer
//! [measures](StoreTimes). Otherwise it is written past them, as is data for several readers. Writing through a
//! shared cache is faster only if the slot is no longer in the reader's own cache. So the boards of the
//! team of all ranks are larger than such a cache if there are two ranks, and each stream
//! [begins](first_slot) at another slot. Other boards are written past the caches unless writer and reader
//! have the same processor.
//!
//! # Words
//!
//! Each pair of members has a line in the scratch of both, which the other member writes. It says how many
//! slots of the other's stream are shown, and how many slots of this member's stream are read. The words
//! count from a [base] that grows with each agreement and each phase of a collective. So no word is ever
//! reset, and a value of an earlier collective means nothing in a later one.
//!
//! # Why nothing is overwritten
//!
//! - Within a phase, a slot is written only after all readers have read its previous contents.
//! - The phases of a collective use separate parts of the board.
//! - A collective uses one half of the board, by the parity of its agreement. A member that shows data in
//!   agreement s took part in s - 1 with all others, who so had ended s - 2. So a stream may be shown
//!   before its agreement has ended.

use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use hydrant_conduit::{
    Line, Window,
    memory::{Fault, StoreTimes},
};

use super::slots::{PHASE, StreamSlots, count};
use crate::{
    collective::{
        layout::{BOARD, Layout},
        team::peer::TeamPeer,
    },
    progress::Progress,
};

/// In the line of a member: slots of its stream that are shown.
const SHOWN: usize = 0;
/// Slots of this member's stream that it has read.
const READ: usize = 1;
/// The location of its stream, as [`StreamLocation::word`] encodes it. Each phase and parity has its own
/// word, because another reader may still need the previous location.
const LOCATIONS: usize = 2;
/// Not 0 if it withdrew a stream that was not on its board.
const WITHDRAWN: usize = 6;
/// Not 0 if it reads private memory of this member.
const ATTACHES: usize = 7;

/// The bit that tells an address from an offset in the segment, in the word of a location.
const ADDRESS: u64 = 1 << 63;

/// The words and boards of a flat team, as one member sees them.
pub(in crate::collective) struct Board {
    /// Lines in this member's scratch, by the member that writes them.
    mine: Vec<Line>,
    /// Lines that this member writes, by the member in whose scratch they are.
    theirs: Vec<Line>,
    /// The boards, by member.
    boards: Vec<Window>,
    /// The segments, by member: readers access them without a board.
    segments: Vec<Window>,
    /// By member: whether this member has announced if it reads the other's private memory.
    attach_announced: Vec<AtomicBool>,
    me: usize,
    /// By member: the kind of store that is faster for data which that member alone reads.
    stores: Vec<StoreTimes>,
    /// By member: calls of [`prefers_board`](Self::prefers_board), for occasional trials.
    board_trials: Vec<AtomicU32>,
}

/// The members that read a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamReaders {
    /// All other members.
    All,
    /// The member of this number.
    One(usize),
}

/// Where the data of a stream lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamLocation {
    /// In slots of its member's board.
    Board,
    /// In its member's segment, from this offset.
    Segment(usize),
    /// In its member's private memory, from this address.
    Private(u64),
}

impl Board {
    /// The board of a team, or `None` if the team is not flat.
    pub(in crate::collective) fn new(
        progress: &Progress,
        layout: &Layout,
        peers: &[TeamPeer],
        own: &Window,
        me: usize,
    ) -> Result<Option<Self>, Fault> {
        if !layout.is_flat() {
            return Ok(None);
        }
        let len = layout.board_len();
        let scratch = |peer: &TeamPeer| peer.mapped().cloned().ok_or(Fault::OutOfBounds);
        let windows = peers.iter().map(scratch).collect::<Result<Vec<_>, _>>()?;
        let part =
            |window: &Window| (window.part(layout.board(), 2 * len)).ok_or(Fault::OutOfBounds);
        let segment = |peer: &TeamPeer| {
            let window = progress.conduit().window(peer.rank);
            window.cloned().ok_or(Fault::OutOfBounds)
        };
        Ok(Some(Self {
            mine: (0..peers.len())
                .map(|member| own.line(layout.words(member)))
                .collect::<Result<_, _>>()?,
            theirs: (windows.iter())
                .map(|window| window.line(layout.words(me)))
                .collect::<Result<_, _>>()?,
            boards: windows.iter().map(part).collect::<Result<_, _>>()?,
            segments: peers.iter().map(segment).collect::<Result<_, _>>()?,
            attach_announced: peers.iter().map(|_| AtomicBool::new(false)).collect(),
            me,
            stores: (peers.iter())
                .map(|_| {
                    if len > BOARD {
                        StoreTimes::default()
                    } else {
                        StoreTimes::to_own_cache()
                    }
                })
                .collect(),
            board_trials: peers.iter().map(|_| AtomicU32::new(0)).collect(),
        }))
    }

    /// A sum over this member's words that changes whenever one of them does.
    #[inline]
    pub(in crate::collective) fn version(&self) -> u64 {
        (self.mine.iter()).fold(0, |sum, line| {
            let words = [SHOWN, READ].map(|word| line[word].load(Acquire));
            sum.wrapping_add(words[0]).wrapping_add(words[1])
        })
    }

    /// The other members among `readers`.
    pub(super) fn readers(&self, readers: StreamReaders) -> impl Iterator<Item = usize> + use<> {
        let members = match readers {
            StreamReaders::All => 0..self.mine.len(),
            StreamReaders::One(member) => member..member + 1,
        };
        let me = self.me;
        members.filter(move |member| *member != me)
    }

    /// How many of `all` slots of this member's stream all readers have read.
    pub(super) fn slots_read_by_all(&self, readers: StreamReaders, base: u64, all: usize) -> usize {
        (self.readers(readers))
            .map(|reader| count(self.mine[reader][READ].load(Acquire), base, all))
            .min()
            .unwrap_or(all)
    }

    /// How many of `all` slots of a member's stream are shown, and where they lie.
    pub(super) fn shown_by(&self, member: usize, base: u64, all: usize) -> (usize, StreamLocation) {
        let line = &self.mine[member];
        let shown = count(line[SHOWN].load(Acquire), base, all);
        (
            shown,
            StreamLocation::of(line[location_word(base)].load(Relaxed)),
        )
    }

    /// Writes a slot of this member's stream.
    fn write(&self, at: usize, data: &[u8], readers: StreamReaders) -> Result<(), Fault> {
        let (board, mut readers) = (&self.boards[self.me], self.readers(readers));
        match (readers.next(), readers.next()) {
            (Some(reader), None) => board.write_for_reader(at, data, &self.stores[reader]),
            // Some readers may share a cache with this member, others not.
            _ => board.write_past_caches(at, data),
        }
    }

    /// Returns whether slot `shown` of this member's stream can be written now.
    pub(super) fn has_room(
        &self,
        readers: StreamReaders,
        slots: StreamSlots,
        base: u64,
        (shown, all): (usize, usize),
    ) -> bool {
        let unread = || shown - self.slots_read_by_all(readers, base, all);
        shown < slots.count || unread() < slots.count
    }

    /// Writes slot `shown` of this member's stream, for which there [is room](Self::has_room), and shows
    /// it.
    pub(super) fn copy_and_show(
        &self,
        readers: StreamReaders,
        slots: StreamSlots,
        base: u64,
        shown: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        self.write(slots.place(shown), chunk, readers)?;
        for reader in self.readers(readers) {
            self.show(reader, base, shown + 1, StreamLocation::Board);
        }
        Ok(())
    }

    /// Reads slot `number` of a member's stream, which is not in private memory.
    pub(super) fn read(
        &self,
        from: usize,
        slots: StreamSlots,
        place: StreamLocation,
        number: usize,
        into: &mut [u8],
    ) -> Result<(), Fault> {
        match place {
            StreamLocation::Board => self.boards[from].read(slots.place(number), into),
            StreamLocation::Segment(start) => {
                let at = start.saturating_add(slots.start(number));
                self.segments[from].read(at, into)
            }
            StreamLocation::Private(_) => Err(Fault::OutOfBounds),
        }
    }

    /// Tells a reader that `shown` slots are readable at `place`.
    pub(super) fn show(&self, reader: usize, base: u64, shown: usize, place: StreamLocation) {
        let line = &self.theirs[reader];
        line[location_word(base)].store(place.word(), Relaxed);
        line[SHOWN].store(base.wrapping_add(shown as u64), Release);
    }

    /// Tells a member that this one has read `read` slots of its stream.
    pub(super) fn report_read(&self, from: usize, base: u64, read: usize) {
        self.theirs[from][READ].store(base.wrapping_add(read as u64), Release);
    }

    /// Tells the readers that data shown without a board may change from now on. This is final: the team
    /// has lost a member.
    pub(super) fn withdraw(&self, readers: StreamReaders) {
        for reader in self.readers(readers) {
            self.theirs[reader][WITHDRAWN].store(1, Release);
        }
        // Before any change of memory that another member may be reading.
        fence(SeqCst);
    }

    /// Returns whether a member has withdrawn its data: bytes read from it earlier may be wrong.
    pub(super) fn is_withdrawn(&self, from: usize) -> bool {
        // After the reads that this call checks.
        fence(Acquire);
        self.mine[from][WITHDRAWN].load(Acquire) != 0
    }

    /// Locates bytes in this member's segment; bytes elsewhere go on the board.
    pub(super) fn locate(&self, data: &[u8]) -> StreamLocation {
        let segment = &self.segments[self.me];
        let start = data.as_ptr().addr().wrapping_sub(segment.addr());
        match start.checked_add(data.len()) {
            Some(end) if end <= segment.len() => StreamLocation::Segment(start),
            _ => StreamLocation::Board,
        }
    }

    /// Returns whether a reader probably gets data sooner from the board, out of a shared cache, than by a
    /// copy of the system. Returns true on every 64th call for a reader, so that the measurement stays
    /// fresh.
    pub(super) fn prefers_board(&self, reader: usize) -> bool {
        const TRIAL: u32 = 64;
        let attach_announced = self.board_trials[reader].fetch_add(1, Relaxed);
        self.stores[reader].are_cached() || attach_announced % TRIAL == TRIAL - 1
    }

    /// Returns whether a member reads private memory of this one.
    pub(super) fn is_attached(&self, reader: usize) -> bool {
        // Read after the member's count of slots read, which a refusal sets, too.
        self.mine[reader][ATTACHES].load(Relaxed) != 0
    }

    /// On the first call for a member, tells it whether this one reads its private memory.
    pub(super) fn announce_attach(&self, from: usize, attaches: impl FnOnce() -> bool) {
        if !self.attach_announced[from].load(Relaxed)
            && !self.attach_announced[from].swap(true, Relaxed)
            && attaches()
        {
            self.theirs[from][ATTACHES].store(1, Relaxed);
        }
    }

    /// Asks a member to show its stream again on the board, counted from `base + all`: the system does not
    /// let this member read the other's memory.
    pub(super) fn refuse_private(&self, from: usize, base: u64, all: usize) {
        self.theirs[from][ATTACHES].store(0, Relaxed);
        self.report_read(from, base, all);
    }
}

impl StreamLocation {
    fn of(word: u64) -> Self {
        match word {
            0 => Self::Board,
            word if word & ADDRESS != 0 => Self::Private(word & !ADDRESS),
            word => Self::Segment((word - 1) as usize),
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Board => 0,
            Self::Segment(start) => start as u64 + 1,
            Self::Private(addr) => addr | ADDRESS,
        }
    }
}

fn location_word(base: u64) -> usize {
    LOCATIONS + (base >> PHASE & 3) as usize
}
