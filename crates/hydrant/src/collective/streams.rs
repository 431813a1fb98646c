//! Streams: the data that a member of a flat team shows and reads in one phase of a collective, slot by
//! slot on [boards](super::board).
//!
//! A member moves one slot of each stream in turn, and waits when it can move none. No two members wait for
//! each other. A member that has shown less than others have read has room, and a member that has read less
//! than others have shown has a slot to read.
//!
//! # Without a board
//!
//! Data in its member's segment is read there, and the member waits until all readers have read it. If the
//! member stops because another one is lost, it [withdraws](Board::withdraw) the stream before it releases
//! the memory. Readers check for that after each read and return an error, because the bytes may be wrong.
//!
//! Data in private memory is read there by the system, if the system lets the reader. Otherwise, or if this
//! memory cannot be read (a device's, say), the reader [refuses](Board::refuse_private): it reports that it
//! has read all and does not attach. Then the member shows all data once more, on the board, with words
//! that count on from there.
//!
//! Private memory is read where both members copy equally much: in an all-to-all, and in a
//! scatter with more ranks than cores.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    board::{Board, DataPhase, StreamLocation, StreamReaders, StreamSlots, base},
    header::CallHeader,
    piggyback::PiggybackData,
    team::awaited::Awaited,
    team::{Team, TeamShared, outside},
};
use crate::{
    Error, Pod, Result,
    progress::{For, On},
};

/// From this many bytes on, a reader gets data sooner out of private memory than from a board. Measured on
/// two cores with two ranks.
const ATTACHED: usize = 32 << 10;
/// The same with more ranks than cores.
const ATTACHED_CROWDED: usize = 64 << 10;
/// Bytes that are copied between two polls for messages, and most bytes that are read from private memory
/// at once.
const PIECE: usize = 1 << 20;

/// A stream that this member shows.
struct OutgoingStream<'a> {
    data: &'a [u8],
    readers: StreamReaders,
    slots: StreamSlots,
    place: StreamLocation,
    /// The value from which its words count.
    base: u64,
    shown: usize,
}

/// A stream that this member reads.
struct IncomingStream<'a> {
    from: usize,
    into: &'a mut [u8],
    slots: StreamSlots,
    /// The value from which its words count.
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
    /// Data that this member keeps, and its destination; the rest that is not copied yet.
    own: Option<(&'a [u8], &'a mut [u8])>,
    /// Bytes copied since this member last polled.
    bytes_since_poll: usize,
}

/// Guards the data phase of a collective. If it is dropped before [`finish`](Self::finish), this member
/// leaves data unsent that others wait for. They would take data of a later collective for the end of this
/// one. So the drop [abandons](TeamShared::abandon) the collectives of the team.
pub(super) struct DataGuard<'a>(&'a TeamShared);

impl<'a> DataGuard<'a> {
    pub(super) fn new(team: &'a TeamShared) -> Self {
        Self(team)
    }

    /// All data of this member was shown, and all data for it has arrived.
    pub(super) fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for DataGuard<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Folds streams as they arrive: each slot of this member's part, from the first member to the last.
pub(super) struct StreamFold<'f, T, F> {
    fold: &'f F,
    /// This member's own part, which the result replaces.
    own: &'f mut [T],
    /// By member; this member's entry is not used.
    slots: Vec<StreamSlots>,
    /// Elements of a slot.
    each: usize,
    /// Slots folded by all members.
    folded: usize,
    /// The member whose slot is folded next.
    member: usize,
    /// The fold of the members before this one, and room for the slot of one member.
    so_far: Vec<T>,
    next: Vec<T>,
}

impl<'a> BoardStreams<'a> {
    /// Makes an empty set of streams.
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

    /// Adds data to show; readers read it in the segment if it lies there.
    pub(super) fn give(&mut self, data: &'a [u8], readers: StreamReaders, slots: StreamSlots) {
        self.give_from(self.board.locate(data), data, readers, slots);
    }

    /// Adds data to show on the board wherever it lies. This is for data that the collective changes in
    /// place: memory that others have read is in their caches, and slower to write than to copy.
    pub(super) fn give_copied(
        &mut self,
        data: &'a [u8],
        readers: StreamReaders,
        slots: StreamSlots,
    ) {
        self.give_from(StreamLocation::Board, data, readers, slots);
    }

    /// Adds data to show to one member, which reads it in private memory if that is possible and it is long
    /// enough. This fits calls in which both members copy equally much, because this member would otherwise
    /// idle. Of two members, the other gets the board if it [prefers](Board::prefers_board) that.
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

    /// Adds room for the data that another member shows.
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

    /// Adds data that this member copies to itself.
    pub(super) fn keep(&mut self, data: &'a [u8], into: &'a mut [u8]) {
        self.own = Some((data, into));
    }

    /// Shows data on the board before the others have agreed. If this member is about to lose its core, it
    /// fills the board; otherwise it shows one slot of each stream.
    fn show_early(&mut self) -> Result<()> {
        let board = self.board;
        for outgoing in &mut self.outgoing {
            if outgoing.place == StreamLocation::Board {
                while outgoing.show_one(board)? && self.team.progress.is_crowded() {}
            }
        }
        Ok(())
    }

    /// Shows and reads until all streams have ended.
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

    /// As [`run`](Self::run), and folds the slots that arrive.
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

    /// Waits until a slot was shown or read since the board had this version.
    async fn until_changed(&mut self, version: u64) -> Result<()> {
        self.bytes_since_poll = 0;
        let change = Awaited::BoardChange(version);
        self.team.until_data(change).await
    }

    /// Polls for messages after long copies without a wait.
    async fn poll_now_and_then(&mut self) {
        if self.bytes_since_poll >= PIECE {
            self.bytes_since_poll = 0;
            self.team.poll_between_copies().await;
        }
    }

    fn is_over(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    /// Moves a slot of each stream that can move. Returns whether any did.
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

    /// Returns whether this member no longer needs the data.
    fn is_over(&self, board: &Board) -> bool {
        let all = self.all();
        self.shown == all
            && (self.place == StreamLocation::Board
                || board.slots_read_by_all(self.readers, self.base, all) == all
                    && !self.is_refused(board))
    }

    /// Returns whether a reader refused private memory, of a stream whose readers have all reported its
    /// end.
    fn is_refused(&self, board: &Board) -> bool {
        matches!(self.place, StreamLocation::Private(_))
            && !(board.readers(self.readers)).all(|reader| board.is_attached(reader))
    }

    /// Shows one more slot if there is room, or all data if it need not be copied. Returns whether anything
    /// was shown.
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

    /// Reads one more slot, or a piece of private memory, if it is shown. Returns the bytes read.
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
    /// Has the system read a piece of data at an address of another member.
    fn read_private(&mut self, team: &Team, board: &Board, addr: u64) -> Result<usize> {
        let (from, slots, len) = (self.from, self.slots, self.into.len());
        let (start, all) = (slots.start(self.read), slots.of(len));
        let read = all.min(self.read + slots.within(PIECE));
        let chunk = &mut self.into[start..len.min(slots.start(read))];
        let bytes = chunk.len();
        let at = addr.wrapping_add(start as u64);
        let copied = (team.progress.conduit()).read_attached(team.members[from], at, chunk);
        team.check_not_withdrawn(board, from)?;
        // This holds also if the other member seems to have ended: then nothing arrives any more, and the
        // wait finds that.
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
    /// Folds a slot of each member at a time into `own`, this member's part.
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

    /// Allocates room for the fold, before the first slot.
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

    /// Bytes of all members that are folded at once.
    fn slot(&self) -> usize {
        self.each * size_of::<T>() * self.slots.len()
    }

    fn is_over(&self) -> bool {
        self.folded == self.all()
    }

    /// Folds one slot of the part, as far as the members have shown theirs. Returns whether anything was
    /// folded.
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
                // The other members are folded into the first one's slot.
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
    /// Agrees on a collective. Its streams, which belong to the next agreement, begin early if `checked` is
    /// well.
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

    /// Returns whether this member may show data before it has agreed.
    pub(super) fn may_show_early(&self, checked: &Result<()>) -> bool {
        // Otherwise an earlier collective did not end, and another member may still be in it.
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

    /// Checks that a member still vouches for data that was read without a board.
    ///
    /// # Errors
    /// [`Error::PeerLost`] if the member has withdrawn the data.
    fn check_not_withdrawn(&self, board: &Board, from: usize) -> Result<()> {
        // The read may have ended before the withdrawal or not.
        if !board.is_withdrawn(from) {
            return Ok(());
        }
        let why = self
            .progress
            .wait_failure(On::Ranks(&self.members), For::Flag);
        Err(why.unwrap_or(Error::PeerLost(self.members[from])))
    }

    /// Reports slots of another member's stream as read, if that member waits for the report.
    pub(super) fn report_read(
        &self,
        board: &Board,
        (from, slots, place): (usize, StreamSlots, StreamLocation),
        base: u64,
        (read, all): (usize, usize),
    ) {
        // Nobody needs the room of the last slots.
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
    /// Marks that a collective ended here before all of its data arrived. This is final, because a member
    /// is lost: this member shows nothing [early](Team::may_show_early) any more, and takes part in no
    /// agreement.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
    }

    /// The number of the last agreement.
    pub(super) fn last_agreement(&self) -> u64 {
        self.sequence.load(Relaxed)
    }
}
