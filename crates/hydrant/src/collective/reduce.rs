//! Reduce and all-reduce.
//!
//! Few elements: everybody gets all blocks with the agreement and folds them. Many: each
//! member folds a slice of the elements for all (by exchange), and the slices are gathered.
//! Either way blocks are folded by rank from the left, so the result is the serial one.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{
    Op, Reducible,
    agree::Piggyback,
    all_gather::{bytes, bytes_mut, sized},
    header::{Header, Operation},
    op::{fold_of, kind_of},
    team::{IDLE, Team},
};
use crate::{Pod, Rank, Result};

/// Combines the second slice into the first, element by element, the first on the left.
pub(super) type Fold<'a, T> = dyn Fn(&mut [T], &[T]) + 'a;

impl Team {
    /// Reduces the members' elements, index by index, to `root`; `None` elsewhere.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch),
    /// [`Error::UnsuitableOp`](crate::Error::UnsuitableOp) for bits of floats,
    /// [`Error::RankOutOfRange`](crate::Error::RankOutOfRange) for the root, and as for every
    /// collective of a [`Team`].
    pub fn reduce<T: Reducible>(&self, root: Rank, mine: &[T], op: Op) -> Result<Option<Vec<T>>> {
        let header = Header::new(Operation::Reduce).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.reduce_to(root, header, Ok(()), mine, &fold),
            Err(error) => self.reduce_to(root, header, Err(error), mine, &|_, _| {}),
        }
    }

    /// As [`reduce`](Self::reduce), by a function of the left and the right element. It must
    /// be associative; it need not be commutative, for members are combined by rank.
    ///
    /// A rank whose function panics has left the job for the others, who may wait for its
    /// result: they get [`PeerLost`](crate::Error::PeerLost).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_with<T: Pod>(
        &self,
        root: Rank,
        mine: &[T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<Option<Vec<T>>> {
        let header = Header::new(Operation::Reduce).reduction(None, 0);
        self.reduce_to(root, header, Ok(()), mine, &by(combine))
    }

    /// As [`reduce`](Self::reduce), with the result in the place of what the root gave; what other
    /// members gave stays as it is. Other members may call either.
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place<T: Reducible>(&self, root: Rank, data: &mut [T], op: Op) -> Result<()> {
        let header = Header::new(Operation::Reduce).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.reduce_here(root, header, Ok(()), data, &fold),
            Err(error) => self.reduce_here(root, header, Err(error), data, &|_, _| {}),
        }
    }

    /// As [`reduce_in_place`](Self::reduce_in_place), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_in_place_with<T: Pod>(
        &self,
        root: Rank,
        data: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let header = Header::new(Operation::Reduce).reduction(None, 0);
        self.reduce_here(root, header, Ok(()), data, &by(combine))
    }

    /// Reduces the members' elements, index by index, on every member. The result takes the
    /// place of what was given; it is the same on all, bit for bit.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn all_reduce<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let header = Header::new(Operation::AllReduce).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.reduce_all(header, Ok(()), data, &fold),
            Err(error) => self.reduce_all(header, Err(error), data, &|_, _| {}),
        }
    }

    /// As [`all_reduce`](Self::all_reduce), by a function as in
    /// [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_with<T: Pod>(
        &self,
        data: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let header = Header::new(Operation::AllReduce).reduction(None, 0);
        self.reduce_all(header, Ok(()), data, &by(combine))
    }

    fn reduce_to<T: Pod>(
        &self,
        root: Rank,
        header: Header,
        checked: Result<()>,
        mine: &[T],
        fold: &Fold<'_, T>,
    ) -> Result<Option<Vec<T>>> {
        let _turn = self.enter("reduce", IDLE)?;
        let at_root = root == self.rank();
        let room = || self.buffer(Some(if at_root { mine.len() } else { 0 }));
        let folded = self.fold_for(root, header.of::<T>(mine.len()), checked, mine, room, fold)?;
        match folded {
            Folded::All(all) => Ok(at_root.then_some(all)),
            Folded::Slice(slice, mut result) => {
                self.bring_slices(root, &slice, mine.len(), &mut result)?;
                Ok(at_root.then_some(result))
            }
        }
    }

    fn reduce_here<T: Pod>(
        &self,
        root: Rank,
        header: Header,
        checked: Result<()>,
        data: &mut [T],
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        let _turn = self.enter("reduce_in_place", IDLE)?;
        let (len, header) = (data.len(), header.of::<T>(data.len()));
        let folded = self.fold_for(root, header, checked, data, || Ok(()), fold)?;
        let result = if root == self.rank() { data } else { &mut [] };
        match folded {
            Folded::All(all) => {
                result.copy_from_slice(&all);
                Ok(())
            }
            Folded::Slice(slice, ()) => self.bring_slices(root, &slice, len, result),
        }
    }

    /// Agrees, after having made room for the result of many elements, and folds what is this
    /// member's to fold: at the root all of few, nothing elsewhere, and a slice of many.
    fn fold_for<T: Pod, R>(
        &self,
        root: Rank,
        header: Header,
        checked: Result<()>,
        mine: &[T],
        room: impl FnOnce() -> Result<R>,
        fold: &Fold<'_, T>,
    ) -> Result<Folded<T, R>> {
        let header = header.root(root);
        let checked = (checked.and_then(|()| sized::<T>())).and_then(|()| self.check_member(root));
        if self.fits(bytes(mine).len()) {
            let all = self.gather_blocks(header, checked.map(drop), mine)?;
            return Ok(Folded::All(if root == self.rank() {
                fold_blocks(&all, mine.len(), fold)
            } else {
                Vec::new()
            }));
        }
        let checked = checked.and_then(|_| Ok((room()?, self.slices_to_fold::<T>(mine.len())?)));
        let (room, slices) = self.agree(header, checked, Piggyback::Nothing)?;
        Ok(Folded::Slice(self.fold_slice(mine, slices, fold)?, room))
    }

    /// Brings the members' slices, of `len` elements in all, to the root.
    fn bring_slices<T: Pod>(
        &self,
        root: Rank,
        slice: &[T],
        len: usize,
        result: &mut [T],
    ) -> Result<()> {
        let bytes_of = |member| self.slice(len, member).len() * size_of::<T>();
        // Places without room, where this is not the root, are not looked at.
        self.stream_up(root.index(), bytes(slice), bytes_of, &mut self.cut(result))
    }

    fn reduce_all<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        data: &mut [T],
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        let _turn = self.enter("all_reduce", IDLE)?;
        let header = header.of::<T>(data.len());
        if self.fits(bytes(data).len()) {
            let all = self.gather_blocks(header, checked, data)?;
            data.copy_from_slice(&fold_blocks(&all, data.len(), fold));
            return Ok(());
        }
        let checked = (checked.and_then(|()| sized::<T>()))
            .and_then(|()| self.slices_to_fold::<T>(data.len()));
        let slices = self.agree(header, checked, Piggyback::Nothing)?;
        let slice = self.fold_slice(data, slices, fold)?;
        self.exchange(|_| bytes(&slice), &mut self.cut(data))
    }

    /// The elements that a member folds, of `len`.
    pub(super) fn slice(&self, len: usize, member: usize) -> Range<usize> {
        let each = len.div_ceil(self.members.len());
        let from = len.min(member * each);
        from..len.min(from + each)
    }

    /// The places of the members' slices.
    pub(super) fn cut<'a, T: Pod>(&self, mut data: &'a mut [T]) -> Vec<&'a mut [u8]> {
        let len = data.len();
        (0..self.members.len())
            .map(|member| {
                let (slice, rest) =
                    std::mem::take(&mut data).split_at_mut(self.slice(len, member).len());
                data = rest;
                bytes_mut(slice)
            })
            .collect()
    }

    /// Room for my slice from every member.
    pub(super) fn slices_to_fold<T: Pod>(&self, len: usize) -> Result<Vec<T>> {
        self.buffer(
            self.slice(len, self.me)
                .len()
                .checked_mul(self.members.len()),
        )
    }

    /// My slice from every member, by member.
    pub(super) fn exchange_slices<T: Pod>(&self, data: &[T], slices: &mut [T]) -> Result<()> {
        self.exchange(
            |member| bytes(&data[self.slice(data.len(), member)]),
            &mut self.even(slices),
        )
    }

    /// The places of one part for each member, all equally long.
    pub(super) fn even<'a, T: Pod>(&self, mut data: &'a mut [T]) -> Vec<&'a mut [u8]> {
        let each = data.len() / self.members.len();
        (self.members.iter())
            .map(|_| {
                let (part, rest) = std::mem::take(&mut data).split_at_mut(each);
                data = rest;
                bytes_mut(part)
            })
            .collect()
    }

    /// My slice, folded for all.
    fn fold_slice<T: Pod>(
        &self,
        data: &[T],
        mut slices: Vec<T>,
        fold: &Fold<'_, T>,
    ) -> Result<Vec<T>> {
        self.exchange_slices(data, &mut slices)?;
        let each = self.slice(data.len(), self.me).len();
        Ok(self.or_leave(|| fold_blocks(&slices, each, fold)))
    }

    /// Runs a user's function on which the others wait. If it panics they cannot be
    /// told but by this rank's end.
    pub(super) fn or_leave<R>(&self, run: impl FnOnce() -> R) -> R {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
            self.progress.conduit().leave(false);
            resume_unwind(cause)
        })
    }
}

/// What a member has folded for a root.
enum Folded<T, R> {
    /// Everything, at the root.
    All(Vec<T>),
    /// A slice; and the room for the result.
    Slice(Vec<T>, R),
}

/// A fold by a function of two elements.
pub(super) fn by<T: Pod>(combine: impl Fn(T, T) -> T) -> impl Fn(&mut [T], &[T]) {
    move |into, with| {
        for (into, with) in into.iter_mut().zip(with) {
            *into = combine(*into, *with);
        }
    }
}

/// All blocks of `len` elements in one, from the left.
pub(super) fn fold_blocks<T: Pod>(blocks: &[T], len: usize, fold: &Fold<'_, T>) -> Vec<T> {
    let (first, rest) = blocks.split_at(len);
    let mut folded = first.to_vec();
    for block in rest.chunks(len.max(1)) {
        fold(&mut folded, block);
    }
    folded
}
