//! A stream that a member reads, slot by slot.

use super::{
    board::{Board, StreamLocation},
    slots::StreamSlots,
};
use crate::{
    Error, Result,
    collective::team::{Team, outside},
    progress::{For, On},
};

/// Bytes that are copied between two polls for messages, and most bytes that are read from private memory
/// at once.
pub(super) const PIECE: usize = 1 << 20;

/// A stream that this member reads.
pub(super) struct IncomingStream<'a> {
    pub(super) from: usize,
    pub(super) into: &'a mut [u8],
    pub(super) slots: StreamSlots,
    /// The value from which its words count.
    pub(super) base: u64,
    pub(super) read: usize,
}

impl IncomingStream<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.read == self.slots.of(self.into.len())
    }

    /// Reads one more slot, or a piece of private memory, if it is shown. Returns the bytes read.
    pub(super) fn read_one(&mut self, team: &Team, board: &Board) -> Result<usize> {
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

impl Team {
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
