//! The streams that each collective of a flat team consists of.

use super::{
    board::{Board, StreamReaders},
    fold::StreamFold,
    set::BoardStreams,
    slots::{DataPhase, PhaseId, StreamSlots},
};
use crate::{
    Pod, Result,
    collective::team::{Team, outside},
};
use hydrant_conduit::memory::Fault;

impl Team {
    /// A phase of the collective that is agreed on next.
    pub(in crate::collective) fn next(&self, phase: DataPhase) -> PhaseId {
        (self.last_agreement() + 1, phase)
    }

    /// A phase of the collective that was agreed on last.
    pub(in crate::collective) fn agreed_on(&self, phase: DataPhase) -> PhaseId {
        (self.last_agreement(), phase)
    }

    /// An empty set of streams.
    pub(in crate::collective) fn no_streams<'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
    ) -> BoardStreams<'a> {
        BoardStreams::new(self, board, at.0, at.1)
    }

    /// `block(m)` goes to each member m, and data from m into `into[m]`.
    pub(in crate::collective) fn exchange_streams<'a, 'b: 'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        block: impl Fn(usize) -> &'b [u8],
        into: Vec<&'a mut [u8]>,
    ) -> Result<BoardStreams<'a>> {
        let (size, me) = (self.members.len(), self.me);
        let mut streams = self.no_streams(board, at);
        for to in (1..size).map(|distance| (me + distance) % size) {
            streams.give_attached(block(to), to, self.pair(at, me, to, 1)?);
        }
        for (from, into) in into.into_iter().enumerate() {
            if from == me {
                streams.keep(block(from), into)
            } else {
                streams.get(from, into, self.pair(at, from, me, 1)?)
            }
        }
        Ok(streams)
    }

    /// `mine` goes to all, and data from each member m into `into[m]`. This member's own data goes to its
    /// place if the place is not empty.
    pub(in crate::collective) fn share_streams<'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        mine: &'a [u8],
        into: Vec<&'a mut [u8]>,
    ) -> Result<BoardStreams<'a>> {
        let (mut streams, slots) = (self.no_streams(board, at), self.whole_board(at, 1)?);
        match at.1 {
            DataPhase::Only | DataPhase::First => streams.give(mine, StreamReaders::All, slots),
            // The first phase has changed it.
            DataPhase::Second => streams.give_copied(mine, StreamReaders::All, slots),
        }
        for (from, into) in into.into_iter().enumerate() {
            match from == self.me {
                true if into.is_empty() => {}
                true => streams.keep(mine, into),
                false => streams.get(from, into, slots),
            }
        }
        Ok(streams)
    }

    /// The root's bytes go to all.
    pub(in crate::collective) fn broadcast_streams<'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        root: usize,
        data: &'a mut [u8],
    ) -> Result<BoardStreams<'a>> {
        let (mut streams, slots) = (self.no_streams(board, at), self.whole_board(at, 1)?);
        if root == self.me {
            streams.give_copied(data, StreamReaders::All, slots)
        } else {
            streams.get(root, data, slots)
        }
        Ok(streams)
    }

    /// Every member's bytes go to the root, into `into[m]`.
    pub(in crate::collective) fn gather_streams<'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        root: usize,
        mine: &'a [u8],
        into: Vec<&'a mut [u8]>,
    ) -> Result<BoardStreams<'a>> {
        let (mut streams, slots) = (self.no_streams(board, at), self.whole_board(at, 1)?);
        if root != self.me {
            streams.give(mine, StreamReaders::One(root), slots);
            return Ok(streams);
        }
        for (from, into) in into.into_iter().enumerate() {
            if from == self.me {
                streams.keep(mine, into)
            } else {
                streams.get(from, into, slots)
            }
        }
        Ok(streams)
    }

    /// `block(m)` goes from the root to every member m.
    pub(in crate::collective) fn scatter_streams<'a, 'b: 'a>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        root: usize,
        block: impl Fn(usize) -> &'b [u8],
        mine: &'a mut [u8],
    ) -> Result<BoardStreams<'a>> {
        let mut streams = self.no_streams(board, at);
        if root != self.me {
            streams.get(root, mine, self.pair(at, root, self.me, 1)?);
            return Ok(streams);
        }
        for to in board.readers(StreamReaders::All) {
            let slots = self.pair(at, root, to, 1)?;
            if self.progress.is_crowded() {
                // Other ranks need this member's core for the copy that it would make.
                streams.give_attached(block(to), to, slots)
            } else {
                streams.give(block(to), StreamReaders::One(to), slots)
            }
        }
        streams.keep(block(root), mine);
        Ok(streams)
    }

    /// The team's boards, if the team is flat and a slot has room for an element.
    pub(in crate::collective) fn board_for<T>(&self) -> Option<&Board> {
        let board = self.board.as_ref()?;
        // As in `pair`; any agreement gives the same answer.
        let size = self.members.len() - 1;
        let unit = size_of::<T>().max(1);
        self.slots((0, DataPhase::First), (0, size), unit)
            .map(|_| board)
    }

    /// Each member's slice goes to that member, which folds the slices that arrive into its own.
    pub(in crate::collective) fn fold_streams<'a, T: Pod, F: Fn(&mut [T], &[T])>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        (others, own): (impl Fn(usize) -> &'a [u8], &'a mut [T]),
        fold: &'a F,
    ) -> Result<(BoardStreams<'a>, StreamFold<'a, T, F>)> {
        let (size, me) = (self.members.len(), self.me);
        let mut streams = self.no_streams(board, at);
        let slots = |from, to| self.pair(at, from, to, size_of::<T>().max(1));
        for to in (1..size).map(|distance| (me + distance) % size) {
            streams.give_copied(others(to), StreamReaders::One(to), slots(me, to)?);
        }
        // All streams have slots of the same length, at different offsets.
        let from = |member| slots(member, if member == me { (me + 1) % size } else { me });
        let incoming = (0..size).map(from).collect::<Result<Vec<_>>>()?;
        Ok((streams, StreamFold::new(own, incoming, fold)))
    }

    /// The elements of all members go to the root, which folds them into its own.
    pub(in crate::collective) fn fold_to_root_streams<'a, T: Pod, F: Fn(&mut [T], &[T])>(
        &'a self,
        board: &'a Board,
        at: PhaseId,
        root: usize,
        (mine, own): (&'a [u8], &'a mut [T]),
        fold: &'a F,
    ) -> Result<(BoardStreams<'a>, StreamFold<'a, T, F>)> {
        let mut streams = self.no_streams(board, at);
        let slots = self.whole_board(at, size_of::<T>().max(1))?;
        if root != self.me {
            streams.give(mine, StreamReaders::One(root), slots);
        }
        let incoming = vec![slots; self.members.len()];
        Ok((streams, StreamFold::new(own, incoming, fold)))
    }

    /// The slots of a stream from one member to another, beside its streams to all others.
    fn pair(&self, at: PhaseId, from: usize, to: usize, unit: usize) -> Result<StreamSlots> {
        let size = self.members.len();
        let number = (to + size - from) % size - 1;
        let slots = self.slots(at, (number, size - 1), unit);
        slots.ok_or_else(|| outside(Fault::OutOfBounds))
    }

    /// The slots of a stream that has the whole board.
    pub(super) fn whole_board(&self, at: PhaseId, unit: usize) -> Result<StreamSlots> {
        let slots = self.slots(at, (0, 1), unit);
        slots.ok_or_else(|| outside(Fault::OutOfBounds))
    }

    /// The slots of a stream that members combine and forward; `stream` is its bytes and the number of
    /// hops.
    pub(super) fn chained(
        &self,
        at: PhaseId,
        stream: (usize, usize),
        unit: usize,
    ) -> Result<StreamSlots> {
        let slots = StreamSlots::forwarded(self.layout.board_len(), at, stream, unit);
        slots.ok_or_else(|| outside(Fault::OutOfBounds))
    }

    /// The slots of stream `stream.0` of `stream.1` on a board of this team.
    fn slots(&self, at: PhaseId, stream: (usize, usize), unit: usize) -> Option<StreamSlots> {
        StreamSlots::new(self.layout.board_len(), at, stream, unit)
    }
}
