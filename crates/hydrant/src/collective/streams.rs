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

use std::sync::atomic::Ordering::Relaxed;

use super::{
    agree::Piggyback,
    board::{Board, Phase, Place, Readers, Slots, base},
    header::Header,
    sought::Sought,
    team::{Shared, Team, outside},
};
use crate::{
    Error, Pod, Result,
    progress::{For, On},
};

/// A stream that this member shows.
struct Outgoing<'a> {
    data: &'a [u8],
    readers: Readers,
    slots: Slots,
    place: Place,
    shown: usize,
}

/// A stream that this member reads.
struct Incoming<'a> {
    from: usize,
    into: &'a mut [u8],
    slots: Slots,
    read: usize,
}

/// The streams of this member in one phase.
pub(super) struct Streams<'a> {
    board: &'a Board,
    team: &'a Team,
    base: u64,
    outgoing: Vec<Outgoing<'a>>,
    incoming: Vec<Incoming<'a>>,
    /// What only moves within this member, and where to.
    own: Option<(&'a [u8], &'a mut [u8])>,
}

/// The data of a collective goes out: if this is dropped before that is [over](Self::over), others wait for what they
/// will never get. They would take anything shown in a later collective for the end of it, so that nothing is
/// shown [ahead](Team::may_show_ahead) any more.
pub(super) struct GoesOut<'a>(&'a Shared);

impl<'a> GoesOut<'a> {
    pub(super) fn new(team: &'a Shared) -> Self {
        Self(team)
    }

    /// All of it was shown, and what this member was to get is here.
    pub(super) fn over(self) {
        std::mem::forget(self);
    }
}

impl Drop for GoesOut<'_> {
    fn drop(&mut self) {
        self.0.gave_up.store(true, Relaxed);
    }
}

/// Streams that are folded as they come: each slot of this member's part, from the first member to the last.
pub(super) struct Folding<'f, T, F> {
    fold: &'f F,
    /// This member's part of what it gives, in whose place the result goes.
    own: &'f mut [T],
    /// By member; that of the own is not used.
    slots: Vec<Slots>,
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

impl<'a> Streams<'a> {
    /// No streams yet.
    pub(super) fn new(team: &'a Team, board: &'a Board, sequence: u64, phase: Phase) -> Self {
        Self {
            board,
            team,
            base: base(sequence, phase),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            own: None,
        }
    }

    /// Data to show, which readers reach without a board if it lies in the segment.
    pub(super) fn give(&mut self, data: &'a [u8], readers: Readers, slots: Slots) {
        self.give_from(self.board.place_of(data), data, readers, slots);
    }

    /// Data to show on the board wherever it lies. That is for what a collective changes in place: what others
    /// have read is in their caches, too, and is slower to write to than to copy.
    pub(super) fn give_copied(&mut self, data: &'a [u8], readers: Readers, slots: Slots) {
        self.give_from(Place::Board, data, readers, slots);
    }

    fn give_from(&mut self, place: Place, data: &'a [u8], readers: Readers, slots: Slots) {
        if !data.is_empty() {
            self.outgoing.push(Outgoing {
                data,
                readers,
                slots,
                place,
                shown: 0,
            });
        }
    }

    /// Room for what another member shows.
    pub(super) fn get(&mut self, from: usize, into: &'a mut [u8], slots: Slots) {
        if into.is_empty() {
            return;
        }
        self.incoming.push(Incoming {
            from,
            into,
            slots,
            read: 0,
        });
    }

    /// What this member gives itself.
    pub(super) fn keep(&mut self, data: &'a [u8], into: &'a mut [u8]) {
        self.own = Some((data, into));
    }

    /// Shows on the board what can be shown before the others are there: where a member is soon to lose its
    /// core, all there is room for; else what they can begin with.
    fn show_ahead(&mut self) -> Result<()> {
        let (board, base) = (self.board, self.base);
        for outgoing in &mut self.outgoing {
            if outgoing.place == Place::Board {
                while outgoing.show_one(board, base)? && self.team.progress.is_crowded() {}
            }
        }
        Ok(())
    }

    /// Shows and reads to the end.
    pub(super) async fn run(mut self) -> Result<()> {
        let goes_out = GoesOut::new(self.team);
        loop {
            let stood = self.board.stand();
            if !self.advance()? {
                if self.is_over() {
                    goes_out.over();
                    return Ok(());
                }
                let change = Sought::Change(stood);
                self.team.until(&self.team.members, change).await?;
            }
        }
    }

    /// As [`run`](Self::run), and folds what comes.
    pub(super) async fn fold<T: Pod, F: Fn(&mut [T], &[T])>(
        mut self,
        mut folding: Folding<'_, T, F>,
    ) -> Result<()> {
        let goes_out = GoesOut::new(self.team);
        loop {
            let stood = self.board.stand();
            let moved = self.advance()? | folding.advance(self.team, self.board, self.base)?;
            if !moved {
                if self.is_over() && folding.is_over() {
                    goes_out.over();
                    return Ok(());
                }
                let change = Sought::Change(stood);
                self.team.until(&self.team.members, change).await?;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }

    /// Moves a slot of each stream, if it can: whether anything was done.
    fn advance(&mut self) -> Result<bool> {
        let (team, board, base) = (self.team, self.board, self.base);
        let mut moved = false;
        for outgoing in &mut self.outgoing {
            if outgoing.show_one(board, base)? {
                board
                    .readers(outgoing.readers)
                    .for_each(|m| team.touched(m));
                moved = true;
            }
        }
        for incoming in &mut self.incoming {
            moved |= incoming.read_one(team, board, base)?;
        }
        if let Some((data, into)) = self.own.take() {
            into.copy_from_slice(data);
            moved = true;
        }
        self.outgoing
            .retain(|outgoing| !outgoing.is_over(board, base));
        self.incoming.retain(|incoming| !incoming.is_over());
        Ok(moved)
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        for outgoing in &self.outgoing {
            if outgoing.place != Place::Board && outgoing.shown > 0 {
                self.board.withdraw(outgoing.readers);
            }
        }
    }
}

impl Outgoing<'_> {
    fn all(&self) -> usize {
        self.slots.of(self.data.len())
    }

    /// Whether this member needs the data no more.
    fn is_over(&self, board: &Board, base: u64) -> bool {
        let all = self.all();
        self.shown == all
            && (self.place == Place::Board || board.read_by_all(self.readers, base, all) == all)
    }

    /// Shows one more slot, or all that need not be copied, if there is room: whether that was done.
    fn show_one(&mut self, board: &Board, base: u64) -> Result<bool> {
        let all = self.all();
        if self.shown == all {
            return Ok(false);
        }
        match self.place {
            Place::Segment(_) => {
                self.shown = all;
                for reader in board.readers(self.readers) {
                    board.show(reader, base, all, self.place);
                }
            }
            Place::Board => {
                let (readers, slots, shown) = (self.readers, self.slots, self.shown);
                if !board.has_room(readers, slots, base, (shown, all)) {
                    return Ok(false);
                }
                let chunk = &self.data[slots.range(shown, self.data.len())];
                (board.show_copied(readers, slots, base, shown, chunk)).map_err(outside)?;
                self.shown += 1;
            }
        }
        Ok(true)
    }
}

impl Incoming<'_> {
    fn is_over(&self) -> bool {
        self.read == self.slots.of(self.into.len())
    }

    /// Reads one more slot, if it is there: whether that was done.
    fn read_one(&mut self, team: &Team, board: &Board, base: u64) -> Result<bool> {
        let (len, all) = (self.into.len(), self.slots.of(self.into.len()));
        let (shown, place) = board.shown_by(self.from, base, all);
        if self.read >= shown {
            return Ok(false);
        }
        let chunk = &mut self.into[self.slots.range(self.read, len)];
        team.read_slot(board, (self.from, self.slots, place), self.read, chunk)?;
        self.read += 1;
        team.say_read(
            board,
            (self.from, self.slots, place),
            base,
            (self.read, all),
        );
        Ok(true)
    }
}

impl<'f, T: Pod, F: Fn(&mut [T], &[T])> Folding<'f, T, F> {
    /// Folds a slot of each member into `own`, which is this member's, by slots of so many elements.
    pub(super) fn new(own: &'f mut [T], slots: Vec<Slots>, fold: &'f F) -> Self {
        let each = slots
            .first()
            .map_or(1, |slots| slots.elements(size_of::<T>()));
        let room = vec![T::zeroed(); each.min(own.len())];
        Self {
            fold,
            own,
            slots,
            each,
            folded: 0,
            member: 0,
            so_far: room.clone(),
            next: room,
        }
    }

    fn all(&self) -> usize {
        self.own.len().div_ceil(self.each)
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
                    team.or_leave(|| (self.fold)(so_far, own));
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
                team.say_read(board, stream, base, (self.folded + 1, all));
                if member > 0 {
                    let into = if me == 0 { &mut *own } else { &mut *so_far };
                    team.or_leave(|| (self.fold)(into, next));
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
        header: Header,
        checked: Result<()>,
        streams: &mut Streams<'_>,
    ) -> Result<()> {
        if self.may_show_ahead(&checked) {
            streams.show_ahead()?;
        }
        self.agree(header, checked, Piggyback::Nothing).await
    }

    /// Whether this member may show something before it has agreed on it.
    pub(super) fn may_show_ahead(&self, checked: &Result<()>) -> bool {
        // Else an earlier collective did not end, and somebody may be in it still: reading what it showed, or
        // waiting for more.
        let all_ended = !self.gave_up.load(Relaxed) && self.has_ended(self.last_agreement());
        checked.is_ok() && all_ended
    }

    /// Reads a slot of another member's stream.
    pub(super) fn read_slot(
        &self,
        board: &Board,
        (from, slots, place): (usize, Slots, Place),
        number: usize,
        into: &mut [u8],
    ) -> Result<()> {
        (board.read(from, slots, place, number, into)).map_err(outside)?;
        if place != Place::Board && board.is_withdrawn(from) {
            // It was read to the end, or not: that cannot be told.
            let why = self.progress.in_vain(On::Ranks(&self.members), For::Flag);
            return Err(why.unwrap_or(Error::PeerLost(self.members[from])));
        }
        Ok(())
    }

    /// Says that so many of all slots of another member's stream were read, if it waits for that.
    pub(super) fn say_read(
        &self,
        board: &Board,
        (from, slots, place): (usize, Slots, Place),
        base: u64,
        (read, all): (usize, usize),
    ) {
        // Of the last slots nobody needs the room.
        let is_needed = match place {
            Place::Board => read + slots.count <= all,
            Place::Segment(_) => read == all,
        };
        if is_needed {
            board.say_read(from, base, read);
            self.touched(from);
        }
    }
}

impl Shared {
    /// The number of the last agreement.
    pub(super) fn last_agreement(&self) -> u64 {
        self.sequence.load(Relaxed)
    }
}
