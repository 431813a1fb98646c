//! All-gather, by Bruck's algorithm (Bruck et al., 1997, section 3).

use std::{ops::Range, pin::Pin};

use crate::{
    Error, Pod, Result,
    collective::{
        agreement::{CallHeader, CollectiveKind, Wanted},
        blocks::{Blocks, apart, places, same_length},
        elements::{bytes, bytes_mut, sized},
        streams::{DataPhase, Inbound, Outbound, shift},
        team::{IDLE, Team, poll_once},
    },
};

impl Team {
    /// Gathers the elements of every member, in the order of members, on all. All members give equally
    /// many.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], and as for every collective of a [`Team`].
    pub fn all_gather<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        let (mut all, checked) = self.room_for_blocks(Ok(()), mine);
        self.all_gather_blocking("all_gather", || checked, mine, &mut all)?;
        Ok(all)
    }

    pub(super) async fn all_gather_async<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        let header = CallHeader::new(CollectiveKind::AllGather).of::<T>(mine.len());
        self.agree_and_all_gather(header, Ok(()), mine).await
    }

    /// As [`all_gather`](Self::all_gather), into a buffer with room for the elements of every
    /// member. Other members may call either.
    ///
    /// # Errors
    /// As there; and [`Error::LengthMismatch`] if the buffer is longer or shorter.
    pub fn all_gather_into<T: Pod>(&self, mine: &[T], into: &mut [T]) -> Result<()> {
        let room = into.len();
        let check = || sized::<T>().and_then(|()| self.room_for_all(mine.len(), room));
        self.all_gather_blocking("all_gather_into", check, mine, into)
    }

    fn all_gather_blocking<T: Pod>(
        &self,
        what: &'static str,
        check: impl FnOnce() -> Result<()>,
        mine: &[T],
        into: &mut [T],
    ) -> Result<()> {
        let _turn = self.enter(what, IDLE)?;
        let header = CallHeader::new(CollectiveKind::AllGather).of::<T>(mine.len());
        if !self.fits_piggyback(bytes(mine).len()) {
            return poll_once(|| self.all_gather_checked(header, check(), mine, into));
        }
        let wanted = Wanted::ByAll;
        let blocks = poll_once(|| self.piggyback_blocks(header, check(), bytes(mine), wanted))?;
        blocks.copy_blocks(Some(bytes(mine)), bytes_mut(into))
    }

    /// Agrees, and brings every member's block to all, into a buffer that has room for them if `checked` is
    /// well.
    async fn all_gather_checked<T: Pod>(
        &self,
        header: CallHeader,
        checked: Result<()>,
        mine: &[T],
        into: &mut [T],
    ) -> Result<()> {
        let each = bytes(mine).len();
        if self.fits_piggyback(each) {
            let blocks = self.piggyback_blocks(header, checked, bytes(mine), Wanted::ByAll);
            return (blocks.await?).copy_blocks(Some(bytes(mine)), bytes_mut(into));
        }
        if let Some(board) = &self.board {
            let at = self.next(DataPhase::Only);
            let streams = match &checked {
                Ok(()) => {
                    let blocks = bytes_mut(into).chunks_mut(each).collect();
                    self.share_streams(board, at, bytes(mine), blocks)?
                }
                Err(_) => self.no_streams(board, at),
            };
            return streams.agree_and_run(header, checked).await;
        }
        self.agree(header, checked).await?;
        into[self.me * mine.len()..][..mine.len()].copy_from_slice(mine);
        self.all_gather_long(bytes_mut(into), each).await
    }

    /// As [`all_gather`](Self::all_gather), in the buffer that gets the elements of every member. This
    /// member's elements are in their place when the call begins. Other members may call either.
    ///
    /// # Errors
    /// As there; and [`Error::LengthMismatch`] if the elements are not equally many for each member.
    pub fn all_gather_in_place<T: Pod>(&self, data: &mut [T]) -> Result<()> {
        self.run_blocking("all_gather_in_place", || {
            self.all_gather_in_place_async(data)
        })
    }

    pub(super) async fn all_gather_in_place_async<T: Pod>(&self, data: &mut [T]) -> Result<()> {
        let part = data.len() / self.members.len();
        let header = CallHeader::new(CollectiveKind::AllGather).of::<T>(part);
        let checked = sized::<T>().and_then(|()| self.one_part_each(data.len()));
        let mine = self.me * part..(self.me + 1) * part;
        let each = bytes(&data[mine.clone()]).len();
        if self.fits_piggyback(each) {
            let mine = bytes(&data[mine]);
            let all = self
                .piggyback_blocks(header, checked, mine, Wanted::ByAll)
                .await?;
            return all.copy_blocks(None, bytes_mut(data));
        }
        self.agree(header, checked).await?;
        self.all_gather_long(bytes_mut(data), each).await
    }

    /// As [`all_gather_into`](Self::all_gather_into), with blocks of any length, as MPI's
    /// `Allgatherv`: what member m gives is block m of `into`. Elements outside the blocks stay as they
    /// are.
    ///
    /// # Errors
    /// - [`Error::CollectiveMismatch`] if types differ, or another member gets one of the following.
    /// - [`Error::LengthMismatch`] if there is not one block for each member.
    /// - [`Error::BlockOutOfBounds`] if a block is not within the buffer.
    /// - [`Error::BlocksOverlap`] if blocks do.
    /// - [`Error::CountMismatch`] if a member gives another number of elements than its block has.
    /// - As for every collective of a [`Team`].
    pub fn all_gather_v_into<T: Pod>(
        &self,
        mine: &[T],
        into: &mut [T],
        blocks: Blocks<'_>,
    ) -> Result<()> {
        self.run_blocking("all_gather_v_into", || {
            self.all_gather_v_into_async(mine, into, blocks)
        })
    }

    /// As [`all_gather_v_into`](Self::all_gather_v_into), in the buffer that gets the blocks of every
    /// member: this one's is in its place when it is called. Other members may call either.
    ///
    /// # Errors
    /// As there; a member's own block has as many elements as it gives.
    pub fn all_gather_v_in_place<T: Pod>(&self, data: &mut [T], blocks: Blocks<'_>) -> Result<()> {
        self.run_blocking("all_gather_v_in_place", || {
            self.all_gather_v_in_place_async(data, blocks)
        })
    }

    pub(super) async fn all_gather_v_into_async<T: Pod>(
        &self,
        mine: &[T],
        into: &mut [T],
        blocks: Blocks<'_>,
    ) -> Result<()> {
        let header = CallHeader::new(CollectiveKind::AllGatherV).of_uneven::<T>();
        let ranges =
            sized::<T>().and_then(|()| blocks.ranges_apart(self.members.len(), into.len()));
        let (ranges, checked) = apart(ranges);
        let counts = self
            .agree_and_all_gather(header, checked, &[mine.len() as u64])
            .await?;
        let checked =
            (counts.iter().zip(&ranges).enumerate()).try_for_each(|(m, (sent, range))| {
                self.same_count(m, self.me, *sent, range.len() as u64)
            });
        self.agree(header, checked).await?;
        self.share(DataPhase::Only, bytes(mine), places(into, &ranges))
            .await
    }

    pub(super) async fn all_gather_v_in_place_async<T: Pod>(
        &self,
        data: &mut [T],
        blocks: Blocks<'_>,
    ) -> Result<()> {
        // If the blocks do not fit, the agreement on them reports it.
        let own = (blocks.ranges_apart(self.members.len(), data.len()))
            .map_or(0..0, |ranges| ranges[self.me].clone());
        let mine = data[own].to_vec();
        self.all_gather_v_into_async(&mine, data, blocks).await
    }

    /// Checks that a buffer has room for exactly `each` elements of every member.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    pub(super) fn room_for_all(&self, each: usize, room: usize) -> Result<()> {
        same_length(
            "room against the elements of all members",
            room,
            each.saturating_mul(self.members.len()),
        )
    }

    /// Gathers one value of each member, in the order of members, as a step of a collective.
    pub(super) async fn all_gather_one<T: Pod>(
        &self,
        operation: CollectiveKind,
        mine: &T,
    ) -> Result<Vec<T>> {
        let mine = std::slice::from_ref(mine);
        self.agree_and_all_gather(CallHeader::new(operation).of::<T>(1), Ok(()), mine)
            .await
    }

    /// Agrees, and brings every member's block to all.
    pub(super) async fn agree_and_all_gather<T: Pod>(
        &self,
        header: CallHeader,
        checked: Result<()>,
        mine: &[T],
    ) -> Result<Vec<T>> {
        let (mut all, checked) = self.room_for_blocks(checked, mine);
        self.all_gather_checked(header, checked, mine, &mut all)
            .await?;
        Ok(all)
    }

    /// Room for a block of every member, unless an earlier check failed.
    #[inline]
    fn room_for_blocks<T: Pod>(&self, checked: Result<()>, mine: &[T]) -> (Vec<T>, Result<()>) {
        let all = checked
            .and_then(|()| sized::<T>())
            .and_then(|()| self.buffer(mine.len().checked_mul(self.members.len())));
        apart(all)
    }

    /// Brings the blocks of all members, `each` bytes long, to their places; this member's is in its place.
    /// A flat team uses boards, other teams the rounds of the agreement once more, over channels.
    fn all_gather_long(
        &self,
        all: &mut [u8],
        each: usize,
    ) -> Pin<Box<impl Future<Output = Result<()>>>> {
        Box::pin(async move {
            if let Some(board) = &self.board {
                let mut blocks: Vec<_> = all.chunks_mut(each).collect();
                let mine = std::mem::take(&mut blocks[self.me]);
                let at = self.agreed_on(DataPhase::Only);
                return self.share_streams(board, at, mine, blocks)?.run().await;
            }
            let (size, epoch) = (self.members.len(), self.epochs(1));
            let channels = (self.rounds.iter().enumerate())
                .map(|(channel, round)| Inbound::open(self, channel, round.from, epoch))
                .collect::<Result<Vec<_>>>()?;
            for (channel, (inbound, round)) in channels.into_iter().zip(&self.rounds).enumerate() {
                let reach = 1 << channel;
                let blocks = reach.min(size - reach);
                let outbound = Outbound::new(self, channel, round.to, epoch);
                // From this member on and around the end. Sender and receiver cut the blocks at the same
                // places.
                let have = around(all.len(), self.me * each, blocks * each);
                let come = around(all.len(), (self.me + reach) % size * each, blocks * each);
                let [have, come] = both(all, have, come)?;
                let have = have.map(|piece| &*piece);
                shift(outbound, &have, inbound, come).await?;
            }
            Ok(())
        })
    }
}

/// The two pieces of `bytes` bytes at `from` in a ring of `len`: before and after its end.
fn around(len: usize, from: usize, bytes: usize) -> [Range<usize>; 2] {
    let before = bytes.min(len - from);
    [from..from + before, 0..bytes - before]
}

/// Borrows two pairs of disjoint pieces of a buffer.
fn both(
    buffer: &mut [u8],
    [a, b]: [Range<usize>; 2],
    [c, d]: [Range<usize>; 2],
) -> Result<[[&mut [u8]; 2]; 2]> {
    let pieces = buffer.get_disjoint_mut([a, b, c, d]);
    let [a, b, c, d] = pieces.map_err(|cause| Error::other(format!("blocks overlap: {cause}")))?;
    Ok([[a, b], [c, d]])
}
