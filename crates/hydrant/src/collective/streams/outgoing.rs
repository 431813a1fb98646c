//! A stream that a member shows, slot by slot.

use super::{
    board::{Board, StreamLocation, StreamReaders},
    slots::StreamSlots,
};
use crate::{Result, collective::team::outside};

/// A stream that this member shows.
pub(super) struct OutgoingStream<'a> {
    pub(super) data: &'a [u8],
    pub(super) readers: StreamReaders,
    pub(super) slots: StreamSlots,
    pub(super) place: StreamLocation,
    /// The value from which its words count.
    pub(super) base: u64,
    pub(super) shown: usize,
}

impl OutgoingStream<'_> {
    fn all(&self) -> usize {
        self.slots.of(self.data.len())
    }

    /// Returns whether this member no longer needs the data.
    pub(super) fn is_over(&self, board: &Board) -> bool {
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
    pub(super) fn show_one(&mut self, board: &Board) -> Result<bool> {
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
