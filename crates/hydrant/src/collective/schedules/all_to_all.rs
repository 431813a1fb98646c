//! All-to-all, even and uneven.

use crate::{
    Error, Pod, Result,
    collective::{
        Blocks,
        agreement::{CallHeader, CollectiveKind},
        blocks::{apart, places, same_length},
        elements::{bytes, bytes_mut, sized},
        streams::DataPhase,
        team::{IDLE, Team, poll_once},
    },
};

impl Team {
    /// Sends part m of `parts` to each member m, and returns the parts from all members in their order. All
    /// parts are equally long.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`]; [`Error::LengthMismatch`] if the elements are not equally many for
    /// each member; and as for every collective of a [`Team`].
    pub fn all_to_all<T: Pod>(&self, parts: &[T]) -> Result<Vec<T>> {
        self.run_blocking("all_to_all", || async {
            let header = CallHeader::new(CollectiveKind::AllToAll).of::<T>(parts.len());
            let checked = self.one_part_each(parts.len());
            self.transpose(header, checked, parts).await
        })
    }

    /// As [`all_to_all`](Self::all_to_all), into a buffer as long as `parts`. Other members may
    /// call either.
    ///
    /// # Errors
    /// As there; and [`Error::LengthMismatch`] if the buffer is not as long.
    pub fn all_to_all_into<T: Pod>(&self, parts: &[T], into: &mut [T]) -> Result<()> {
        let room = into.len();
        let check = || {
            sized::<T>()?;
            self.one_part_each(parts.len())?;
            same_length("elements to receive against to send", room, parts.len())
        };
        let _turn = self.enter("all_to_all_into", IDLE)?;
        let header = CallHeader::new(CollectiveKind::AllToAll).of::<T>(parts.len());
        if !self.parts_fit_piggyback(bytes(parts).len()) {
            return poll_once(|| self.transpose_into(header, check(), parts, into));
        }
        let blocks = poll_once(|| self.piggyback_parts(header, check(), bytes(parts)))?;
        blocks.copy_blocks(Some(bytes(self.own_part(parts))), bytes_mut(into))
    }

    /// As [`all_to_all`](Self::all_to_all), with the result in the place of what was given. Other
    /// members may call either. It takes as much memory again for as long as it lasts.
    ///
    /// # Errors
    /// As there; and [`Error::OutOfMemory`].
    pub fn all_to_all_in_place<T: Pod>(&self, data: &mut [T]) -> Result<()> {
        self.run_blocking("all_to_all_in_place", || {
            self.all_to_all_in_place_async(data)
        })
    }

    pub(super) async fn all_to_all_in_place_async<T: Pod>(&self, data: &mut [T]) -> Result<()> {
        let header = CallHeader::new(CollectiveKind::AllToAll).of::<T>(data.len());
        let checked = self.one_part_each(data.len()).and_then(|()| sized::<T>());
        if self.parts_fit_piggyback(bytes(data).len()) {
            let parts = self.piggyback_parts(header, checked, bytes(data)).await?;
            return parts.copy_blocks(None, bytes_mut(data));
        }
        let room = checked.and_then(|()| self.buffer(Some(data.len())));
        let (mut copy, checked) = apart(room);
        if checked.is_ok() {
            copy.copy_from_slice(data);
        }
        self.exchange_parts(header, checked, &copy, data).await
    }

    /// As [`all_to_all`](Self::all_to_all), with parts of any length: `parts[m]` goes to
    /// member m, the result's element m came from member m. Nobody need know how much comes. With
    /// flat buffers, and lengths that both sides know, it is
    /// [`all_to_all_v_into`](Self::all_to_all_v_into); other members may call either.
    ///
    /// # Errors
    /// [`Error::CollectiveMismatch`] if types differ; [`Error::LengthMismatch`] if there is not
    /// one part for each member; [`Error::OutOfMemory`]; and as for every collective of a
    /// [`Team`].
    pub fn all_to_all_v<T: Pod>(&self, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        self.run_blocking("all_to_all_v", || self.all_to_all_v_async(parts))
    }

    pub(super) async fn all_to_all_v_async<T: Pod>(&self, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        let size = self.members.len();
        let header = CallHeader::new(CollectiveKind::AllToAllV).of_uneven::<T>();
        let checked =
            sized::<T>().and_then(|()| same_length("parts against members", parts.len(), size));
        let mut counts: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
        counts.resize(size, 0);
        let counts = self.transpose(header, checked, &counts).await?;
        let results = (counts.into_iter())
            .map(|count| self.buffer(usize::try_from(count).ok()))
            .collect::<Result<Vec<Vec<T>>>>();
        // Nobody sends before all members have room.
        let mut results = self.agree(header, results).await?;
        let into = results.iter_mut().map(|part| bytes_mut(part)).collect();
        self.exchange(DataPhase::Only, |member| bytes(&parts[member]), into)
            .await?;
        Ok(results)
    }

    /// As [`all_to_all`](Self::all_to_all), with blocks of any length in flat buffers, as MPI's
    /// `Alltoallv`: block m of `from` goes to member m, block m of `into` comes from member m. Elements
    /// of `into` outside its blocks stay as they are. The blocks of `from` may overlap.
    ///
    /// ```
    /// use hydrant::Blocks;
    ///
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// // Rank 0 keeps one element and sends two; rank 1 sends nothing and keeps one.
    /// let (send, receive) = match job.rank().0 {
    ///     0 => ([1, 2], [1, 0]),
    ///     _ => ([0, 1], [2, 1]),
    /// };
    /// let mut into = [0; 3];
    /// job.all_to_all_v_into(
    ///     &[7, 8, 9],
    ///     Blocks::packed(&send),
    ///     &mut into,
    ///     Blocks::packed(&receive),
    /// )?;
    /// assert_eq!(into, [[7, 0, 0], [8, 9, 7]][job.rank().index()]);
    /// # Ok(()) }).into_iter().collect::<hydrant::Result<()>>()?;
    /// # Ok::<(), hydrant::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::CollectiveMismatch`] if types differ, or another member gets one of the following.
    /// - [`Error::LengthMismatch`] if there is not one block for each member.
    /// - [`Error::BlockOutOfBounds`] if a block is not within its buffer.
    /// - [`Error::BlocksOverlap`] if blocks of `into` do.
    /// - [`Error::CountMismatch`] if a member sends this one another number of elements than its
    ///   block has.
    /// - [`Error::OutOfMemory`], and as for every collective of a [`Team`].
    pub fn all_to_all_v_into<T: Pod>(
        &self,
        from: &[T],
        from_blocks: Blocks<'_>,
        into: &mut [T],
        into_blocks: Blocks<'_>,
    ) -> Result<()> {
        self.run_blocking("all_to_all_v_into", || {
            self.all_to_all_v_into_async(from, from_blocks, into, into_blocks)
        })
    }

    pub(super) async fn all_to_all_v_into_async<T: Pod>(
        &self,
        from: &[T],
        from_blocks: Blocks<'_>,
        into: &mut [T],
        into_blocks: Blocks<'_>,
    ) -> Result<()> {
        let size = self.members.len();
        let header = CallHeader::new(CollectiveKind::AllToAllV).of_uneven::<T>();
        let ranges = sized::<T>().and_then(|()| {
            Ok((
                from_blocks.ranges(size, from.len())?,
                into_blocks.ranges_apart(size, into.len())?,
            ))
        });
        let (from_ranges, into_ranges) = match ranges {
            Ok(ranges) => ranges,
            Err(error) => {
                let none = vec![0_u64; size];
                return self.transpose(header, Err(error), &none).await.map(drop);
            }
        };
        let counts: Vec<u64> = from_ranges.iter().map(|range| range.len() as u64).collect();
        let counts = self.transpose(header, Ok(()), &counts).await?;
        let checked =
            (counts.iter().zip(&into_ranges).enumerate()).try_for_each(|(m, (sent, range))| {
                self.same_count(m, self.me, *sent, range.len() as u64)
            });
        self.agree(header, checked).await?;
        self.exchange(
            DataPhase::Only,
            |member| bytes(&from[from_ranges[member].clone()]),
            places(into, &into_ranges),
        )
        .await
    }

    /// Checks that the elements are equally many for each member.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[inline]
    pub(super) fn one_part_each(&self, len: usize) -> Result<()> {
        let size = self.members.len();
        if len.is_multiple_of(size) {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            what: "elements against as many for each member",
            left: len,
            right: len.next_multiple_of(size),
        })
    }

    /// Agrees, and does an all-to-all.
    pub(super) async fn transpose<T: Pod>(
        &self,
        header: CallHeader,
        checked: Result<()>,
        parts: &[T],
    ) -> Result<Vec<T>> {
        let room = checked
            .and_then(|()| sized::<T>())
            .and_then(|()| self.buffer(Some(parts.len())));
        let (mut result, checked) = apart(room);
        self.transpose_into(header, checked, parts, &mut result)
            .await?;
        Ok(result)
    }

    /// As [`transpose`](Self::transpose), into a buffer of the same length if `checked` is well.
    async fn transpose_into<T: Pod>(
        &self,
        header: CallHeader,
        checked: Result<()>,
        parts: &[T],
        into: &mut [T],
    ) -> Result<()> {
        let checked = checked.and_then(|()| sized::<T>());
        if self.parts_fit_piggyback(bytes(parts).len()) {
            let came = self.piggyback_parts(header, checked, bytes(parts)).await?;
            let own = self.own_part(parts);
            return came.copy_blocks(Some(bytes(own)), bytes_mut(into));
        }
        self.exchange_parts(header, checked, parts, into).await
    }

    /// Agrees, and exchanges parts that are not piggybacked.
    async fn exchange_parts<T: Pod>(
        &self,
        header: CallHeader,
        checked: Result<()>,
        parts: &[T],
        into: &mut [T],
    ) -> Result<()> {
        let size = self.members.len();
        let part = parts.len() / size;
        // Cut by the length of `into`: a refused call has no parts, and a place for each element would take
        // too much memory.
        let places = into
            .chunks_mut((into.len() / size).max(1))
            .map(bytes_mut)
            .collect();
        if let Some(board) = &self.board {
            let at = self.next(DataPhase::Only);
            let streams = match &checked {
                Ok(()) => {
                    let block = |member: usize| bytes(&parts[member * part..][..part]);
                    self.exchange_streams(board, at, block, places)?
                }
                Err(_) => self.no_streams(board, at),
            };
            return streams.agree_and_run(header, checked).await;
        }
        self.agree(header, checked).await?;
        let block = |member: usize| bytes(&parts[member * part..][..part]);
        self.exchange(DataPhase::Only, block, places).await
    }
}
