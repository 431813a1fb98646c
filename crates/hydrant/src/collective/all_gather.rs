//! All-gather, by Bruck's algorithm (Bruck et al., 1997, section 3).

use super::{
    agree::Piggyback,
    channel::{Inbound, Outbound, shift},
    header::{Header, Operation},
    team::{IDLE, Team},
};
use crate::{Error, Pod, Result};

impl Team {
    /// What every member gave, by member. All give equally many elements.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`], and as for every collective of a [`Team`].
    pub fn all_gather<T: Pod>(&self, mine: &[T]) -> Result<Vec<T>> {
        let _turn = self.enter("all_gather", IDLE)?;
        self.gather_blocks(
            Header::new(Operation::AllGather).of::<T>(mine.len()),
            Ok(()),
            mine,
        )
    }

    /// What every member gave, by member, as part of a collective.
    pub(super) fn records<T: Pod>(&self, operation: Operation, mine: &T) -> Result<Vec<T>> {
        let mine = std::slice::from_ref(mine);
        self.gather_blocks(Header::new(operation).of::<T>(1), Ok(()), mine)
    }

    /// Agrees, and brings every member's block to all.
    pub(super) fn gather_blocks<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        mine: &[T],
    ) -> Result<Vec<T>> {
        let size = self.members.len();
        let all = checked
            .and_then(|()| sized::<T>())
            .and_then(|()| self.buffer(mine.len().checked_mul(size)));
        let (mut all, checked) = match all {
            Ok(all) => (all, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        if checked.is_ok() {
            all[..mine.len()].copy_from_slice(mine);
        }
        let each = bytes(mine).len();
        if self.fits(each) {
            self.agree(
                header,
                checked,
                Piggyback::Blocks {
                    all: bytes_mut(&mut all),
                    each,
                },
            )?;
        } else {
            self.agree(header, checked, Piggyback::Nothing)?;
            self.stream_blocks(bytes_mut(&mut all), each)?;
        }
        // Mine is first.
        all.rotate_right(self.me * mine.len());
        Ok(all)
    }

    /// Whether a block of so many bytes from each member can ride on the agreement.
    pub(super) fn fits(&self, each: usize) -> bool {
        Piggyback::fits(self.members.len(), each)
    }

    /// The rounds of the agreement once more, through channels.
    fn stream_blocks(&self, all: &mut [u8], each: usize) -> Result<()> {
        let (size, epoch) = (self.members.len(), self.epochs(1));
        let channels = (self.rounds.iter().enumerate())
            .map(|(channel, round)| Inbound::open(self, channel, round.from, epoch))
            .collect::<Result<Vec<_>>>()?;
        for (channel, (inbound, round)) in channels.into_iter().zip(&self.rounds).enumerate() {
            let reach = 1 << channel;
            let (have, rest) = all.split_at_mut(reach * each);
            let bytes = reach.min(size - reach) * each;
            let outbound = Outbound::new(self, channel, round.to, epoch)?;
            shift(outbound, &have[..bytes], inbound, &mut rest[..bytes])?;
        }
        Ok(())
    }

    /// Zeroed elements to receive into.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn buffer<T: Pod>(&self, count: Option<usize>) -> Result<Vec<T>> {
        let mut buffer = Vec::new();
        match count {
            Some(count) if buffer.try_reserve_exact(count).is_ok() => {
                buffer.resize(count, T::zeroed());
                Ok(buffer)
            }
            _ => Err(Error::OutOfMemory {
                rank: self.progress.rank,
                wanted: count.map_or(u64::MAX, |count| {
                    count.saturating_mul(size_of::<T>()) as u64
                }),
                available: 0,
                remedy: "the result of a collective must fit the memory of one process",
            }),
        }
    }
}

/// # Errors
/// [`Error::ZeroSized`].
pub(super) fn sized<T: Pod>() -> Result<()> {
    if size_of::<T>() > 0 {
        Ok(())
    } else {
        Err(Error::ZeroSized {
            what: std::any::type_name::<T>(),
        })
    }
}

/// The bytes of elements; none if they have no size.
pub(super) fn bytes<T: Pod>(data: &[T]) -> &[u8] {
    if size_of::<T>() == 0 {
        &[]
    } else {
        bytemuck::cast_slice(data)
    }
}

/// As [`bytes`].
pub(super) fn bytes_mut<T: Pod>(data: &mut [T]) -> &mut [u8] {
    if size_of::<T>() == 0 {
        &mut []
    } else {
        bytemuck::cast_slice_mut(data)
    }
}
