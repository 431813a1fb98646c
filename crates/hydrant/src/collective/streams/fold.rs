//! Folds streams as they arrive.

use super::{board::Board, slots::StreamSlots};
use crate::{Pod, Result, collective::team::Team};

/// Folds streams as they arrive: each slot of this member's part, from the first member to the last.
pub(in crate::collective) struct StreamFold<'f, T, F> {
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
    pub(super) fn slot(&self) -> usize {
        self.each * size_of::<T>() * self.slots.len()
    }

    pub(super) fn is_over(&self) -> bool {
        self.folded == self.all()
    }

    /// Folds one slot of the part, as far as the members have shown theirs. Returns whether anything was
    /// folded.
    pub(super) fn advance(&mut self, team: &Team, board: &Board, base: u64) -> Result<bool> {
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
