//! All-to-all, even and uneven.

use super::{
    agree::Piggyback,
    all_gather::{bytes, bytes_mut, sized},
    header::{Header, Operation},
    team::{IDLE, Team},
};
use crate::{Error, Pod, Result};

impl Team {
    /// Gives each member its part of what this one has, and gets from each: part m of `parts`
    /// goes to member m, part m of the result came from member m. All parts are equally long.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`]; [`Error::LengthMismatch`] if the elements are not equally
    /// many for each member; and as for every collective of a [`Team`].
    pub fn all_to_all<T: Pod>(&self, parts: &[T]) -> Result<Vec<T>> {
        let _turn = self.enter("all_to_all", IDLE)?;
        let size = self.members.len();
        let checked = if parts.len().is_multiple_of(size) {
            Ok(())
        } else {
            Err(Error::LengthMismatch {
                what: "elements against as many for each member",
                left: parts.len(),
                right: parts.len().next_multiple_of(size),
            })
        };
        self.transpose(
            Header::new(Operation::AllToAll).of::<T>(parts.len()),
            checked,
            parts,
        )
    }

    /// As [`all_to_all`](Self::all_to_all), with parts of any length: `parts[m]` goes to
    /// member m, the result's element m came from member m.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] if types differ; [`Error::LengthMismatch`] if there is not
    /// one part for each member; [`Error::OutOfMemory`]; and as for every collective of a
    /// [`Team`].
    pub fn all_to_all_v<T: Pod>(&self, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        let _turn = self.enter("all_to_all_v", IDLE)?;
        let size = self.members.len();
        let header = Header::new(Operation::AllToAllV).of::<T>(size);
        let checked = sized::<T>().and_then(|()| {
            if parts.len() == size {
                return Ok(());
            }
            Err(Error::LengthMismatch {
                what: "parts against members",
                left: parts.len(),
                right: size,
            })
        });
        let mut counts: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
        counts.resize(size, 0);
        let counts = self.transpose(header, checked, &counts)?;
        let results = (counts.into_iter())
            .map(|count| self.buffer(usize::try_from(count).ok()))
            .collect::<Result<Vec<Vec<T>>>>();
        // Nobody sends before all have room.
        let mut results = self.agree(header, results, Piggyback::Nothing)?;
        let mut into: Vec<_> = results.iter_mut().map(|part| bytes_mut(part)).collect();
        self.exchange(|member| bytes(&parts[member]), &mut into)?;
        Ok(results)
    }

    /// Agrees, and does an all-to-all.
    fn transpose<T: Pod>(
        &self,
        header: Header,
        checked: Result<()>,
        parts: &[T],
    ) -> Result<Vec<T>> {
        let (size, part) = (self.members.len(), parts.len() / self.members.len());
        if self.fits(bytes(parts).len()) {
            // Everybody's parts ride along to everybody.
            let all = self.gather_blocks(header, checked, parts)?;
            let mine = all
                .chunks(parts.len().max(1))
                .flat_map(|of| &of[self.me * part..][..part]);
            return Ok(mine.copied().collect());
        }
        let checked =
            (checked.and_then(|()| sized::<T>())).and_then(|()| self.buffer(Some(parts.len())));
        let mut result = self.agree(header, checked, Piggyback::Nothing)?;
        let mut into: Vec<_> = result.chunks_mut(part).map(bytes_mut).collect();
        self.exchange(|member| bytes(&parts[member * part..][..part]), &mut into)?;
        debug_assert_eq!(into.len(), size);
        Ok(result)
    }
}
