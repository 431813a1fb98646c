//! Scans: what the members up to this one, or before it, reduce to.
//!
//! As reductions go: few elements ride on the agreement; of many, each member scans a slice
//! for all, and the slices go back where they came from.

use super::{
    Op, Reducible,
    agree::Piggyback,
    all_gather::{bytes, sized},
    header::{Header, Operation},
    op::{fold_of, identity_of, kind_of},
    reduce::{Fold, by},
    team::{IDLE, Team},
};
use crate::{Pod, Result};

impl Team {
    /// Reduces, index by index, the elements of the members up to and including this one.
    /// The result takes the place of what was given.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let header = Header::new(Operation::Scan).reduction(Some(op), kind_of::<T>());
        match fold_of::<T>(op) {
            Ok(fold) => self.scan_by(header, Ok(()), data, None, &fold),
            Err(error) => self.scan_by(header, Err(error), data, None, &|_, _| {}),
        }
    }

    /// As [`scan`](Self::scan), by a function as in [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn scan_with<T: Pod>(&self, data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()> {
        let header = Header::new(Operation::Scan).reduction(None, 0);
        self.scan_by(header, Ok(()), data, None, &by(combine))
    }

    /// Reduces, index by index, the elements of the members before this one. The first
    /// member gets what changes nothing: 0 for a sum, the largest value for a minimum.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn exclusive_scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let header = Header::new(Operation::ExclusiveScan).reduction(Some(op), kind_of::<T>());
        let first = Some(identity_of(op));
        match fold_of::<T>(op) {
            Ok(fold) => self.scan_by(header, Ok(()), data, first, &fold),
            Err(error) => self.scan_by(header, Err(error), data, first, &|_, _| {}),
        }
    }

    /// As [`exclusive_scan`](Self::exclusive_scan), by a function as in
    /// [`reduce_with`](Self::reduce_with); the first member gets `first`.
    ///
    /// # Errors
    /// As there.
    pub fn exclusive_scan_with<T: Pod>(
        &self,
        data: &mut [T],
        first: T,
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        let header = Header::new(Operation::ExclusiveScan).reduction(None, 0);
        self.scan_by(header, Ok(()), data, Some(first), &by(combine))
    }

    /// With `first`, the scan is exclusive.
    fn scan_by<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        data: &mut [T],
        first: Option<T>,
        fold: &Fold<'_, T>,
    ) -> Result<()> {
        let _turn = self.enter(header.name(), IDLE)?;
        let (len, header) = (data.len(), header.of::<T>(data.len()));
        if self.fits(bytes(data).len()) {
            let mut all = self.gather_blocks(header, checked, data)?;
            scan_blocks(&mut all, len, first, fold);
            data.copy_from_slice(&all[self.me * len..][..len]);
            return Ok(());
        }
        let checked =
            (checked.and_then(|()| sized::<T>())).and_then(|()| self.slices_to_fold::<T>(len));
        let mut slices = self.agree(header, checked, Piggyback::Nothing)?;
        self.exchange_slices(data, &mut slices)?;
        let each = self.slice(len, self.me).len();
        self.or_leave(|| scan_blocks(&mut slices, each, first, fold));
        self.exchange(
            |member| bytes(&slices[member * each..][..each]),
            &mut self.cut(data),
        )
    }
}

/// Replaces each block of `len` elements by what those up to it, or before it, reduce to.
fn scan_blocks<T: Pod>(blocks: &mut [T], len: usize, first: Option<T>, fold: &Fold<'_, T>) {
    let mut so_far: Vec<T> = Vec::with_capacity(len);
    for block in blocks.chunks_mut(len.max(1)) {
        let before = so_far.clone();
        if before.is_empty() {
            so_far.extend_from_slice(block);
        } else {
            fold(&mut so_far, block);
        }
        match first {
            None => block.copy_from_slice(&so_far),
            Some(first) if before.is_empty() => block.fill(first),
            Some(_) => block.copy_from_slice(&before),
        }
    }
}
