//! Scans of flat teams, on [boards](super::board). A member reads, slot by slot, the reduction of the
//! members before it, combines it with its own elements, and shows the next member the outcome.

use std::ops::Range;

use super::{
    board::{Board, StreamReaders},
    set::DataGuard,
    slots::{DataPhase, StreamSlots, base},
};
use crate::{
    Pod, Result,
    collective::{
        agreement::CallHeader,
        elements::{bytes, bytes_mut},
        team::{Team, awaited::Awaited, outside},
    },
};

/// A scan of many elements in progress.
pub(in crate::collective) struct BoardScan<'a, T, F> {
    team: &'a Team,
    board: &'a Board,
    base: u64,
    slots: StreamSlots,
    /// This member's elements; up to slot `done`, the result.
    data: &'a mut [T],
    /// The value for the first member, if the scan is exclusive.
    first: Option<T>,
    fold: &'a F,
    done: usize,
    /// A slot of the reduction of the members before this one; the same combined with this member's
    /// elements.
    before: Vec<T>,
    with_mine: Vec<T>,
}

impl<'a, T: Pod, F: Fn(&mut [T], &[T])> BoardScan<'a, T, F> {
    /// A scan of the next agreement. A slot [has room](Team::board_for) for an element of type `T`.
    pub(in crate::collective) fn new(
        team: &'a Team,
        board: &'a Board,
        data: &'a mut [T],
        first: Option<T>,
        fold: &'a F,
    ) -> Result<Self> {
        let at = team.next(DataPhase::Only);
        let stream = (size_of_val(data), team.members.len() - 1);
        let slots = team.chained(at, stream, size_of::<T>())?;
        Ok(Self {
            team,
            board,
            base: base(at.0, at.1),
            slots,
            data,
            first,
            fold,
            done: 0,
            before: Vec::new(),
            with_mine: Vec::new(),
        })
    }

    /// Allocates room for a slot, if there are members before this one.
    fn make_room(&mut self) -> Result<()> {
        if self.team.me > 0 {
            let room = Some(self.slots.elements(size_of::<T>()).min(self.data.len()));
            (self.before, self.with_mine) = (self.team.buffer(room)?, self.team.buffer(room)?);
        }
        Ok(())
    }

    /// Agrees, and scans.
    pub(in crate::collective) async fn run(
        mut self,
        header: CallHeader,
        checked: Result<()>,
    ) -> Result<()> {
        let checked = checked.and_then(|()| self.make_room());
        // The others wait for the first member. In an inclusive scan its elements do not change, so it may
        // show them early.
        if self.team.me == 0 && self.first.is_none() && self.team.may_show_early(&checked) {
            while self.advance()? && self.team.progress.is_crowded() {}
        }
        self.team.agree(header, checked).await?;
        let guard = DataGuard::new(self.team);
        loop {
            let version = self.board.version();
            if !self.advance()? {
                if self.done == self.all() {
                    guard.finish();
                    return Ok(());
                }
                let change = Awaited::BoardChange(version);
                self.team.until_data(change).await?;
            }
        }
    }

    fn all(&self) -> usize {
        self.slots.of(size_of_val(self.data))
    }

    fn next(&self) -> Option<usize> {
        Some(self.team.me + 1).filter(|next| *next < self.team.members.len())
    }

    /// Scans one more slot, if its predecessor is shown and there is room for the outcome. Returns whether
    /// it did.
    fn advance(&mut self) -> Result<bool> {
        let (team, board, base, all) = (self.team, self.board, self.base, self.all());
        let number = self.done;
        if number == all || !self.has_room() {
            return Ok(false);
        }
        let elements = self.slots.elements(size_of::<T>());
        let from = number * elements;
        let range = from..self.data.len().min(from + elements);
        match team.me.checked_sub(1) {
            None => {
                self.show(&self.data[range.clone()])?;
                if let Some(first) = self.first {
                    self.data[range].fill(first);
                }
            }
            Some(previous) => {
                let (shown, place) = board.shown_by(previous, base, all);
                if number >= shown {
                    return Ok(false);
                }
                let stream = (previous, self.slots, place);
                let bytes = bytes_mut(&mut self.before[..range.len()]);
                team.read_slot(board, stream, number, bytes)?;
                team.report_read(board, stream, base, (number + 1, all));
                self.combine(range)?;
            }
        }
        self.done += 1;
        Ok(true)
    }

    /// Combines a slot with the reduction before it, for this member and its successors.
    fn combine(&mut self, range: Range<usize>) -> Result<()> {
        let (fold, is_last) = (self.fold, self.next().is_none());
        let (mine, before) = (
            &mut self.data[range.clone()],
            &mut self.before[..range.len()],
        );
        if self.first.is_none() {
            self.team.run_user_function(|| fold(before, mine));
            mine.copy_from_slice(before);
            return self.show(&self.before[..range.len()]);
        }
        if !is_last {
            let with_mine = &mut self.with_mine[..range.len()];
            with_mine.copy_from_slice(before);
            self.team.run_user_function(|| fold(with_mine, mine));
        }
        mine.copy_from_slice(before);
        self.show(&self.with_mine[..range.len()])
    }

    /// Returns whether the next member, if any, has read enough for another slot.
    fn has_room(&self) -> bool {
        let room = |next| {
            let shown = (self.done, self.all());
            (self.board).has_room(StreamReaders::One(next), self.slots, self.base, shown)
        };
        self.next().is_none_or(room)
    }

    /// Shows a slot to the next member, if there is one.
    fn show(&self, slot: &[T]) -> Result<()> {
        let Some(next) = self.next() else {
            return Ok(());
        };
        let readers = StreamReaders::One(next);
        (self.board)
            .copy_and_show(readers, self.slots, self.base, self.done, bytes(slot))
            .map_err(outside)?;
        self.team.notify_after_store(next);
        Ok(())
    }
}
