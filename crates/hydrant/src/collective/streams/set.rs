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
    board::{Board, StreamLocation, StreamReaders},
    fold::StreamFold,
    incoming::{IncomingStream, PIECE},
    outgoing::OutgoingStream,
    slots::{DataPhase, StreamSlots, base},
};
use crate::{
    Pod, Result,
    collective::{
        agreement::CallHeader,
        team::{Team, TeamShared, awaited::Awaited},
    },
};

/// From this many bytes on, a reader gets data sooner out of private memory than from a board. Measured on
/// two cores with two ranks.
const ATTACHED: usize = 32 << 10;
/// The same with more ranks than cores.
const ATTACHED_CROWDED: usize = 64 << 10;

/// The streams of this member in one phase.
pub(in crate::collective) struct BoardStreams<'a> {
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

    /// Agrees on a collective, and runs its streams, which belong to the next agreement. They begin early if
    /// `checked` is well.
    pub(in crate::collective) async fn agree_and_run(
        mut self,
        header: CallHeader,
        checked: Result<()>,
    ) -> Result<()> {
        self.agree(header, checked).await?;
        self.run().await
    }

    /// As [`agree_and_run`](Self::agree_and_run), and folds the slots that arrive.
    pub(in crate::collective) async fn agree_and_fold<T: Pod, F: Fn(&mut [T], &[T])>(
        mut self,
        header: CallHeader,
        checked: Result<()>,
        mut folding: StreamFold<'_, T, F>,
    ) -> Result<()> {
        let checked = checked.and_then(|()| folding.make_room(self.team));
        self.agree(header, checked).await?;
        self.fold(folding).await
    }

    async fn agree(&mut self, header: CallHeader, checked: Result<()>) -> Result<()> {
        if self.team.may_show_early(&checked) {
            self.show_early()?;
        }
        self.team.agree(header, checked).await
    }

    /// Shows and reads until all streams have ended.
    pub(in crate::collective) async fn run(mut self) -> Result<()> {
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

    async fn fold<T: Pod, F: Fn(&mut [T], &[T])>(
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

impl Team {
    /// Returns whether this member may show data before it has agreed.
    pub(super) fn may_show_early(&self, checked: &Result<()>) -> bool {
        // Otherwise an earlier collective did not end, and another member may still be in it.
        let all_ended = !self.is_abandoned.load(Relaxed) && self.has_agreed(self.last_agreement());
        checked.is_ok() && all_ended
    }
}
