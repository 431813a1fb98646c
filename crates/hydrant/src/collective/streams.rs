//! Streams: what a member of a flat team gives to others in one phase of a collective, and what it gets,
//! slot by slot by way of [boards](super::board).
//!
//! A member shows and reads whatever it can, one slot of each stream in turn, and waits when it can do
//! nothing. So no two members wait for each other: whoever has shown less than others have read has
//! room, and whoever has read less than others have shown has something to read.
//!
//! # Without a board
//!
//! What lies in the segment of its member is read from there, and the member waits until all have read it.
//! If it gives that up, for another member is lost, it [withdraws](Board::withdraw) the stream before
//! it lets go of the memory; whoever read looks for that afterwards, and has an error then instead of what may
//! not be the stream any more.
//!
//! What lies in private memory is read there by the system, if that lets the reader. If it does not, or not this memory
//! (a device's, say), the reader says that it has read all and that it does not [attach](Board::refuse_private); then all
//! is shown once more, on the board, by words that go on from there.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    awaited::Awaited,
    board::{Board, DataPhase, StreamLocation, StreamReaders, StreamSlots, base},
    header::CallHeader,
    piggyback::PiggybackData,
    team::{Team, TeamShared, outside},
};
use crate::{
    Error, Pod, Result,
    progress::{For, On},
};

/// From how many bytes on a reader has them sooner out of private memory than by way of a board, as measured on two
/// cores with two ranks.
const ATTACHED: usize = 32 << 10;
/// The same with more ranks than cores.
const ATTACHED_CROWDED: usize = 64 << 10;
/// Bytes that are copied between two looks at messages, and of private memory at once.
const PIECE: usize = 1 << 20;

/// A stream that this member shows.
struct OutgoingStream<'a> {
    data: &'a [u8],
    readers: StreamReaders,
    slots: StreamSlots,
    place: StreamLocation,
    /// Words count from here.
    base: u64,
    shown: usize,
}

/// A stream that this member reads.
struct IncomingStream<'a> {
    from: usize,
    into: &'a mut [u8],
    slots: StreamSlots,
    /// Words count from here.
    base: u64,
    read: usize,
}

/// The streams of this member in one phase.
pub(super) struct BoardStreams<'a> {
    board: &'a Board,
    team: &'a Team,
    base: u64,
    outgoing: Vec<OutgoingStream<'a>>,
    incoming: Vec<IncomingStream<'a>>,
    /// What only moves within this member, and where to, as far as it is not there.
    own: Option<(&'a [u8], &'a mut [u8])>,
    /// Bytes copied since this member last looked after messages.
    bytes_since_poll: usize,
}

/// The data of a collective goes out: if this is dropped before that is [over](Self::finish), others wait for what they
/// will never get. They would take anything shown in a later collective for the end of it, so that this member
/// [gives up](TeamShared::abandon).
pub(super) struct DataGuard<'a>(&'a TeamShared);

impl<'a> DataGuard<'a> {
    pub(super) fn new(team: &'a TeamShared) -> Self {
        Self(team)
    }

    /// All of it was shown, and what this member was to get is here.
    pub(super) fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for DataGuard<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Streams that are folded as they come: each slot of this member's part, from the first member to the last.
pub(super) struct StreamFold<'f, T, F> {
    fold: &'f F,
    /// This member's part of what it gives, in whose place the result goes.
    own: &'f mut [T],
    /// By member; that of the own is not used.
    slots: Vec<StreamSlots>,
    /// Elements of a slot.
    each: usize,
    /// Slots that are folded.
    folded: usize,
    /// The member whose slot is next.
    member: usize,
    /// Those before this member, folded; and the slot of one.
    so_far: Vec<T>,
    next: Vec<T>,
}

impl<'a> BoardStreams<'a> {
    /// No streams yet.
    pub(super) fn new(team: &'a Team, board: &'a Board, sequence: u64, phase: DataPhase) -> Self {
        Self {
            board,
            team,
            base: base(sequence, phase),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            own: None,
            bytes_since_poll: 0,
        }
    }

    /// Data to show, which readers reach without a board if it lies in the segment.
    pub(super) fn give(&mut self, data: &'a [u8], readers: StreamReaders, slots: StreamSlots) {
        self.give_from(self.board.locate(data), data, readers, slots);
    }

    /// Data to show on the board wherever it lies. That is for what a collective changes in place: what others
    /// have read is in their caches, too, and is slower to write to than to copy.
    pub(super) fn give_copied(
        &mut self,
        data: &'a [u8],
        readers: StreamReaders,
        slots: StreamSlots,
    ) {
        self.give_from(StreamLocation::Board, data, readers, slots);
    }

    /// Data to show to one member, which reads it wherever it lies if it can and there is enough of it. That is for
    /// where both have as much to copy: if this member would wait meanwhile, it is faster to have it do its part. So it is
    /// for the other of two that is [near](Board::prefers_board).
    pub(super) fn give_attached(&mut self, data: &'a [u8], reader: usize, slots: StreamSlots) {
        let enough = if self.team.progress.is_crowded() {
            ATTACHED_CROWDED
        } else {
            ATTACHED
        };
        let place = match self.board.locate(data) {
            StreamLocation::Board
                if data.len() >= enough
                    && self.board.is_attached(reader)
                    && !(self.team.members.len() == 2 && self.board.prefers_board(reader)) =>
            {
                StreamLocation::Private(data.as_ptr().addr() as u64)
            }
            place => place,
        };
        self.give_from(place, data, StreamReaders::One(reader), slots);
    }

    fn give_from(
        &mut self,
        place: StreamLocation,
        data: &'a [u8],
        readers: StreamReaders,
        slots: StreamSlots,
    ) {
        if !data.is_empty() {
            self.outgoing.push(OutgoingStream {
                data,
                readers,
                slots,
                place,
                base: self.base,
                shown: 0,
            });
        }
    }

    /// Room for what another member shows.
    pub(super) fn get(&mut self, from: usize, into: &'a mut [u8], slots: StreamSlots) {
        if into.is_empty() {
            return;
        }
        self.incoming.push(IncomingStream {
            from,
            into,
            slots,
            base: self.base,
            read: 0,
        });
    }

    /// What this member gives itself.
    pub(super) fn keep(&mut self, data: &'a [u8], into: &'a mut [u8]) {
        self.own = Some((data, into));
    }

    /// Shows on the board what can be shown before the others are there: where a member is soon to lose its
    /// core, all there is room for; else what they can begin with.
    fn show_early(&mut self) -> Result<()> {
        let board = self.board;
        for outgoing in &mut self.outgoing {
            if outgoing.place == StreamLocation::Board {
                while outgoing.show_one(board)? && self.team.progress.is_crowded() {}
            }
        }
        Ok(())
    }

    /// Shows and reads to the end.
    pub(super) async fn run(mut self) -> Result<()> {
        let guard = DataGuard::new(self.team);
        loop {
            let version = self.board.version();
            if !self.advance()? {
                if self.is_over() {
                    guard.finish();
                    return Ok(());
                }
                self.until_changed(version).await?;
            }
            self.poll_now_and_then().await;
        }
    }

    /// As [`run`](Self::run), and folds what comes.
    pub(super) async fn fold<T: Pod, F: Fn(&mut [T], &[T])>(
        mut self,
        mut folding: StreamFold<'_, T, F>,
    ) -> Result<()> {
        let guard = DataGuard::new(self.team);
        loop {
            let version = self.board.version();
            let folded = folding.advance(self.team, self.board, self.base)?;
            self.bytes_since_poll += if folded { folding.slot() } else { 0 };
            let moved = self.advance()? | folded;
            if !moved {
                if self.is_over() && folding.is_over() {
                    guard.finish();
                    return Ok(());
                }
                self.until_changed(version).await?;
            }
            self.poll_now_and_then().await;
        }
    }

    /// Waits until something was shown or read since the board had this version.
    async fn until_changed(&mut self, version: u64) -> Result<()> {
        self.bytes_since_poll = 0;
        let change = Awaited::BoardChange(version);
        self.team.until_data(change).await
    }

    /// Who has much to copy and need not wait for it looks after messages meanwhile.
    async fn poll_now_and_then(&mut self) {
        if self.bytes_since_poll >= PIECE {
            self.bytes_since_poll = 0;
            self.team.poll_between_copies().await;
        }
    }

    fn is_over(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    /// Moves a slot of each stream, if it can: whether anything was done.
    fn advance(&mut self) -> Result<bool> {
        let (team, board) = (self.team, self.board);
        let mut moved = false;
        for outgoing in &mut self.outgoing {
            if outgoing.show_one(board)? {
                board
                    .readers(outgoing.readers)
                    .for_each(|m| team.notify_after_store(m));
                moved = true;
            }
        }
        for incoming in &mut self.incoming {
            let read = incoming.read_one(team, board)?;
            self.bytes_since_poll += read;
            moved |= read > 0;
        }
        if let Some((data, into)) = self.own.take() {
            let (data, later) = data.split_at(data.len().min(PIECE));
            let (into, room) = into.split_at_mut(data.len());
            into.copy_from_slice(data);
            self.bytes_since_poll += data.len();
            self.own = (!later.is_empty()).then_some((later, room));
            moved = true;
        }
        self.outgoing.retain(|outgoing| !outgoing.is_over(board));
        self.incoming.retain(|incoming| !incoming.is_over());
        Ok(moved)
    }
}

impl Drop for BoardStreams<'_> {
    fn drop(&mut self) {
        for outgoing in &self.outgoing {
            if outgoing.place != StreamLocation::Board && outgoing.shown > 0 {
                self.board.withdraw(outgoing.readers);
            }
        }
    }
}

impl OutgoingStream<'_> {
    fn all(&self) -> usize {
        self.slots.of(self.data.len())
    }

    /// Whether this member needs the data no more.
    fn is_over(&self, board: &Board) -> bool {
        let all = self.all();
        self.shown == all
            && (self.place == StreamLocation::Board
                || board.slots_read_by_all(self.readers, self.base, all) == all
                    && !self.is_refused(board))
    }

    /// Of a stream that its readers are through with: whether one of them is because it could not read private memory.
    fn is_refused(&self, board: &Board) -> bool {
        matches!(self.place, StreamLocation::Private(_))
            && !(board.readers(self.readers)).all(|reader| board.is_attached(reader))
    }

    /// Shows one more slot, or all that need not be copied, if there is room: whether that was done.
    fn show_one(&mut self, board: &Board) -> Result<bool> {
        let all = self.all();
        if self.shown == all {
            let is_through = board.slots_read_by_all(self.readers, self.base, all) == all;
            if !is_through || !self.is_refused(board) {
                return Ok(false);
            }
            (self.place, self.base, self.shown) =
                (StreamLocation::Board, self.base + all as u64, 0);
        }
        let base = self.base;
        match self.place {
            StreamLocation::Segment(_) | StreamLocation::Private(_) => {
                self.shown = all;
                for reader in board.readers(self.readers) {
                    board.show(reader, base, all, self.place);
                }
            }
            StreamLocation::Board => {
                let (readers, slots, shown) = (self.readers, self.slots, self.shown);
                if !board.has_room(readers, slots, base, (shown, all)) {
                    return Ok(false);
                }
                let chunk = &self.data[slots.range(shown, self.data.len())];
                (board.copy_and_show(readers, slots, base, shown, chunk)).map_err(outside)?;
                self.shown += 1;
            }
        }
        Ok(true)
    }
}

impl IncomingStream<'_> {
    fn is_over(&self) -> bool {
        self.read == self.slots.of(self.into.len())
    }

    /// Reads one more slot, or a piece of private memory, if it is there: how many bytes that were.
    fn read_one(&mut self, team: &Team, board: &Board) -> Result<usize> {
        let (len, all, base) = (self.into.len(), self.slots.of(self.into.len()), self.base);
        let (shown, place) = board.shown_by(self.from, base, all);
        if self.read >= shown {
            return Ok(0);
        }
        board.announce_attach(self.from, || {
            (team.progress.conduit()).attaches(team.members[self.from])
        });
        if let StreamLocation::Private(addr) = place {
            return self.read_private(team, board, addr);
        }
        let chunk = &mut self.into[self.slots.range(self.read, len)];
        let bytes = chunk.len();
        team.read_slot(board, (self.from, self.slots, place), self.read, chunk)?;
        self.read += 1;
        team.report_read(
            board,
            (self.from, self.slots, place),
            base,
            (self.read, all),
        );
        Ok(bytes)
    }
}

impl IncomingStream<'_> {
    /// Has the system read a piece of all that another member shows at an address of its own.
    fn read_private(&mut self, team: &Team, board: &Board, addr: u64) -> Result<usize> {
        let (from, slots, len) = (self.from, self.slots, self.into.len());
        let (start, all) = (slots.start(self.read), slots.of(len));
        let read = all.min(self.read + slots.within(PIECE));
        let chunk = &mut self.into[start..len.min(slots.start(read))];
        let bytes = chunk.len();
        let at = addr.wrapping_add(start as u64);
        let copied = (team.progress.conduit()).read_attached(team.members[from], at, chunk);
        team.check_not_withdrawn(board, from)?;
        // Also if the other seems to be gone: if it is, nothing comes any more, and that is noticed.
        if copied.is_err() {
            board.refuse_private(from, self.base, all);
            team.notify_after_store(from);
            (self.base, self.read) = (self.base + all as u64, 0);
            return Ok(bytes);
        }
        self.read = read;
        team.report_read(
            board,
            (from, slots, StreamLocation::Private(addr)),
            self.base,
            (read, all),
        );
        Ok(bytes)
    }
}

impl<'f, T: Pod, F: Fn(&mut [T], &[T])> StreamFold<'f, T, F> {
    /// Folds a slot of each member into `own`, which is this member's, by slots of so many elements.
    pub(super) fn new(own: &'f mut [T], slots: Vec<StreamSlots>, fold: &'f F) -> Self {
        let each = slots
            .first()
            .map_or(1, |slots| slots.elements(size_of::<T>()));
        Self {
            fold,
            own,
            slots,
            each,
            folded: 0,
            member: 0,
            so_far: Vec::new(),
            next: Vec::new(),
        }
    }

    /// Makes room for what is folded, which is needed before the first slot is.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn make_room(&mut self, team: &Team) -> Result<()> {
        let room = Some(self.each.min(self.own.len()));
        (self.so_far, self.next) = (team.buffer(room)?, team.buffer(room)?);
        Ok(())
    }

    fn all(&self) -> usize {
        self.own.len().div_ceil(self.each)
    }

    /// Bytes that are folded at once, of all members.
    fn slot(&self) -> usize {
        self.each * size_of::<T>() * self.slots.len()
    }

    fn is_over(&self) -> bool {
        self.folded == self.all()
    }

    /// Folds one slot of the part, as far as those of the members are there: whether anything was done.
    fn advance(&mut self, team: &Team, board: &Board, base: u64) -> Result<bool> {
        let (all, me, members) = (self.all(), team.me, self.slots.len());
        if self.is_over() {
            return Ok(false);
        }
        let from = self.folded * self.each;
        let len = self.each.min(self.own.len() - from);
        let own = &mut self.own[from..from + len];
        let (so_far, next) = (&mut self.so_far[..len], &mut self.next[..len]);
        let mut moved = false;
        while self.member < members {
            let member = self.member;
            if member == me {
                if me > 0 {
                    team.run_user_function(|| (self.fold)(so_far, own));
                }
            } else {
                let (shown, place) = board.shown_by(member, base, all);
                if self.folded >= shown {
                    return Ok(moved);
                }
                // The first of all is what the others are folded into.
                let into = if member == 0 {
                    &mut *so_far
                } else {
                    &mut *next
                };
                let stream = (member, self.slots[member], place);
                let bytes = bytemuck::cast_slice_mut(into);
                team.read_slot(board, stream, self.folded, bytes)?;
                team.report_read(board, stream, base, (self.folded + 1, all));
                if member > 0 {
                    let into = if me == 0 { &mut *own } else { &mut *so_far };
                    team.run_user_function(|| (self.fold)(into, next));
                }
            }
            moved = true;
            self.member += 1;
        }
        if me > 0 {
            own.copy_from_slice(so_far);
        }
        self.member = 0;
        self.folded += 1;
        Ok(true)
    }
}

impl Team {
    /// Agrees on a collective whose streams, of the next agreement, begin if `checked` says that all is
    /// well so far.
    pub(super) async fn agree_on(
        &self,
        header: CallHeader,
        checked: Result<()>,
        streams: &mut BoardStreams<'_>,
    ) -> Result<()> {
        if self.may_show_early(&checked) {
            streams.show_early()?;
        }
        self.agree(header, checked, PiggybackData::Nothing).await
    }

    /// Whether this member may show something before it has agreed on it.
    pub(super) fn may_show_early(&self, checked: &Result<()>) -> bool {
        // Else an earlier collective did not end, and somebody may be in it still: reading what it showed, or
        // waiting for more.
        let all_ended = !self.is_abandoned.load(Relaxed) && self.has_agreed(self.last_agreement());
        checked.is_ok() && all_ended
    }

    /// Reads a slot of another member's stream.
    pub(super) fn read_slot(
        &self,
        board: &Board,
        (from, slots, place): (usize, StreamSlots, StreamLocation),
        number: usize,
        into: &mut [u8],
    ) -> Result<()> {
        (board.read(from, slots, place, number, into)).map_err(outside)?;
        match place {
            StreamLocation::Board => Ok(()),
            _ => self.check_not_withdrawn(board, from),
        }
    }

    /// # Errors
    /// What was read of another member's stream without a board may be anything: it gave up.
    fn check_not_withdrawn(&self, board: &Board, from: usize) -> Result<()> {
        // It was read to the end, or not: that cannot be told.
        if !board.is_withdrawn(from) {
            return Ok(());
        }
        let why = self.progress.in_vain(On::Ranks(&self.members), For::Flag);
        Err(why.unwrap_or(Error::PeerLost(self.members[from])))
    }

    /// Says that so many of all slots of another member's stream were read, if it waits for that.
    pub(super) fn report_read(
        &self,
        board: &Board,
        (from, slots, place): (usize, StreamSlots, StreamLocation),
        base: u64,
        (read, all): (usize, usize),
    ) {
        // Of the last slots nobody needs the room.
        let is_needed = match place {
            StreamLocation::Board => read + slots.count <= all,
            StreamLocation::Segment(_) | StreamLocation::Private(_) => read == all,
        };
        if is_needed {
            board.report_read(from, base, read);
            self.notify_after_store(from);
        }
    }
}

impl TeamShared {
    /// Ends a collective here before all of its data is where it belongs. That is for good, for a member is lost: nothing is
    /// shown [ahead](Team::may_show_early) any more, and nothing told.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// The number of the last agreement.
    pub(super) fn last_agreement(&self) -> u64 {
        self.sequence.load(Relaxed)
    }
}
