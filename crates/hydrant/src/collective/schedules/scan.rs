//! Scans: the reduction of the members up to this one, or before it.
//!
//! Few elements are piggybacked on the agreement. Of many elements, each member gets the reduction of the
//! members before it from its predecessor, chunk by chunk. In a flat team this uses
//! [boards](BoardScan), in other teams a channel.

use super::reduce::{ReductionCall, reduction_by_function, reduction_by_op};
use crate::{
    Pod, Result,
    collective::{
        Op, Reducible,
        agreement::{BlockAgreement, CollectiveKind, PiggybackedBlocks, Wanted},
        elements::{bytes, bytes_mut, sized},
        fold::fold_with,
        op::{fold_of, identity_of},
        streams::{BoardScan, DataPhase, Inbound, Outbound, in_chunk},
        team::{IDLE, Team, poll_once},
    },
};

impl Team {
    /// Reduces, index by index, the elements of the members up to and including this one.
    /// The result takes the place of what was given.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let reduction = reduction_by_op::<T>(CollectiveKind::Scan, op);
        self.scan_blocking("scan", reduction, (data, None), fold_of(op))
    }

    /// As [`scan`](Self::scan), by a function as in [`reduce_with`](Self::reduce_with).
    ///
    /// # Errors
    /// As there.
    pub fn scan_with<T: Pod>(&self, data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()> {
        let reduction = reduction_by_function(CollectiveKind::Scan);
        self.scan_blocking("scan_with", reduction, (data, None), fold_with(combine))
    }

    /// Reduces, index by index, the elements of the members before this one. The first member gets the
    /// identity of the operation: 0 for a sum, the largest value for a minimum.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn exclusive_scan<T: Reducible>(&self, data: &mut [T], op: Op) -> Result<()> {
        let reduction = reduction_by_op::<T>(CollectiveKind::ExclusiveScan, op);
        let given = (data, Some(identity_of(op)));
        self.scan_blocking("exclusive_scan", reduction, given, fold_of(op))
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
        let reduction = reduction_by_function(CollectiveKind::ExclusiveScan);
        let given = (data, Some(first));
        self.scan_blocking("exclusive_scan_with", reduction, given, fold_with(combine))
    }

    fn scan_blocking<T: Pod>(
        &self,
        what: &'static str,
        call: ReductionCall,
        (data, first): (&mut [T], Option<T>),
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let _turn = self.enter(what, IDLE)?;
        if !self.fits_piggyback(bytes(data).len()) {
            return poll_once(|| self.scan_async(call, data, first, fold));
        }
        let blocks = poll_once(|| self.scan_short(call, data))?;
        self.fold_scan(&blocks, data, first, fold)
    }

    /// Agrees with the elements piggybacked, which the later members want.
    #[inline]
    fn scan_short<'d, T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &'d [T],
    ) -> BlockAgreement<'_, 'd> {
        let header = header.of::<T>(data.len());
        let checked = checked.and_then(|()| sized::<T>());
        self.piggyback_blocks(header, checked, bytes(data), Wanted::Behind)
    }

    /// A scan; an exclusive one if `first` is given.
    pub(super) async fn scan_async<T: Pod>(
        &self,
        (header, checked): ReductionCall,
        data: &mut [T],
        first: Option<T>,
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        if self.fits_piggyback(bytes(data).len()) {
            let blocks = self.scan_short((header, checked), data).await?;
            return self.fold_scan(&blocks, data, first, fold);
        }
        let (len, header) = (data.len(), header.of::<T>(data.len()));
        let checked = checked.and_then(|()| sized::<T>());
        if let Some(board) = self.board_for::<T>() {
            let scanning = BoardScan::new(self, board, data, first, &fold)?;
            return scanning.run(header, checked).await;
        }
        if self.board.is_none() {
            let chunks = if self.me == 0 { 0 } else { 2 };
            let room = Some(chunks * in_chunk::<T>().min(len));
            let room = checked.and_then(|()| self.buffer(room));
            let room = self.agree(header, room).await?;
            return self.scan_by_channel(data, room, first, &fold).await;
        }
        // An element is longer than a slot of the board, and a flat team has no channels. So each member
        // scans a slice for all.
        let each = self.slice_range(len, self.me).len();
        let checked = checked.and_then(|()| {
            let room = (self.buffer(Some(each))?, self.buffer(Some(each))?);
            Ok((self.slices_to_fold::<T>(len)?, room))
        });
        let (mut slices, room) = self.agree(header, checked).await?;
        self.exchange_slices(data, &mut slices).await?;
        self.run_user_function(|| scan_blocks(&mut slices, room, first, &fold));
        let block = |member: usize| bytes(&slices[member * each..][..each]);
        self.exchange(DataPhase::Second, block, self.byte_slices_mut(data))
            .await
    }

    /// Scans piggybacked blocks; this member's is in `data`.
    fn fold_scan<T: Pod>(
        &self,
        blocks: &PiggybackedBlocks<'_>,
        data: &mut [T],
        first: Option<T>,
        fold: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        match first {
            None => blocks.fold_prefix(self.me + 1, data, &fold),
            Some(first) if self.me == 0 => {
                data.fill(first);
                Ok(())
            }
            Some(_) => blocks.fold_prefix(self.me, data, &fold),
        }
    }

    /// Receives the reduction of the members before this one from the predecessor, and sends it on with
    /// this member's elements, chunk by chunk. All members but the first have room for two chunks.
    async fn scan_by_channel<T: Pod>(
        &self,
        data: &mut [T],
        mut room: Vec<T>,
        first: Option<T>,
        fold: &impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        const CHANNEL: usize = 0;
        let epoch = self.epochs(1);
        let mut previous = (self.me.checked_sub(1))
            .map(|previous| Inbound::open(self, CHANNEL, previous, epoch))
            .transpose()?;
        let mut next = (self.me + 1 < self.members.len())
            .then(|| Outbound::new(self, CHANNEL, self.me + 1, epoch));
        let half = room.len() / 2;
        let (so_far, before) = room.split_at_mut(half);
        for mine in data.chunks_mut(in_chunk::<T>()) {
            let Some(previous) = &mut previous else {
                if let Some(next) = &mut next {
                    next.send(bytes(mine)).await?;
                }
                if let Some(first) = first {
                    mine.fill(first);
                }
                continue;
            };
            let (so_far, before) = (&mut so_far[..mine.len()], &mut before[..mine.len()]);
            previous.receive(bytes_mut(so_far)).await?;
            match (first, &mut next) {
                (Some(_), None) => mine.copy_from_slice(so_far),
                (exclusive, next) => {
                    if exclusive.is_some() {
                        before.copy_from_slice(so_far);
                    }
                    self.run_user_function(|| fold(so_far, mine));
                    mine.copy_from_slice(if exclusive.is_some() { before } else { so_far });
                    if let Some(next) = next {
                        next.send(bytes(so_far)).await?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Replaces each block by the reduction of the blocks up to it, or before it. The vectors are room for two
/// blocks.
fn scan_blocks<T: Pod>(
    blocks: &mut [T],
    (mut so_far, mut before): (Vec<T>, Vec<T>),
    first: Option<T>,
    fold: &impl Fn(&mut [T], &[T]),
) {
    for (index, block) in blocks.chunks_mut(so_far.len().max(1)).enumerate() {
        before.copy_from_slice(&so_far);
        match index {
            0 => so_far.copy_from_slice(block),
            _ => fold(&mut so_far, block),
        }
        match first {
            None => block.copy_from_slice(&so_far),
            Some(first) if index == 0 => block.fill(first),
            Some(_) => block.copy_from_slice(&before),
        }
    }
}
