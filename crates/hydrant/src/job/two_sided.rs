//! Two-sided messages, on the job.

use std::panic::Location;

use super::Job;
use crate::{
    MatchedMessage, PersistentReceive, PersistentSend, Pod, Rank, ReceiveHandle, Refused, Result,
    SendHandle, Source, Status, Tag,
};

impl Job {
    /// Sends `data` to `rank` under a tag. On return `data` may be used again, but the message may
    /// not have been received yet. A long message was received when this returns. Messages of one
    /// rank to another that fit the same receives are received in the order sent.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// use hydrant::AnySource;
    /// let mut got = [0_u32; 8];
    /// job.send(job.right(), 7, &[1_u32, 2, 3])?;
    /// let status = job.receive(AnySource, 7, &mut got)?;
    /// assert_eq!((status.source(), status.count::<u32>()), (job.left(), Some(3)));
    /// assert_eq!(got[..3], [1, 2, 3]);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::RankOutOfRange`](crate::Error::RankOutOfRange),
    ///   [`Error::PeerLost`](crate::Error::PeerLost), [`Error::JobOver`](crate::Error::JobOver),
    ///   [`Error::InHandler`](crate::Error::InHandler).
    /// - [`Error::ReservedTag`](crate::Error::ReservedTag) beyond [`MAX_TAG`](crate::MAX_TAG).
    /// - [`Error::PeerEnded`](crate::Error::PeerEnded) if the message is long, and the program of
    ///   `rank` came to the end of the job and did not receive it. A short message is lost then.
    #[track_caller]
    pub fn send<T: Pod>(&self, rank: Rank, tag: u64, data: &[T]) -> Result<()> {
        let site = Location::caller();
        (self.core().two_sided).send(rank, tag, bytemuck::cast_slice(data), site)
    }

    /// Receives the first message that fits into `buffer`, which may be longer than the message.
    /// `source` is a rank or [`AnySource`](crate::AnySource), `tag` a number or
    /// [`AnyTag`](crate::AnyTag).
    ///
    /// # Errors
    /// - [`Error::ReceiveTooShort`](crate::Error::ReceiveTooShort) for a longer message, which
    ///   stays for the next receive that fits.
    /// - [`Error::PeerLost`](crate::Error::PeerLost) if the source is lost, or if any rank is lost
    ///   and the source may be any.
    /// - [`Error::PeerEnded`](crate::Error::PeerEnded) if the program of the source came to the end
    ///   of the job, and no message of it is left that fits.
    /// - [`Error::OthersEnded`](crate::Error::OthersEnded) if the source may be any rank, and the
    ///   programs of all others have ended. Another living thread of this rank that has waited in
    ///   the job, or polled it, may still send to its own rank; then the receive waits.
    /// - As [`send`](Self::send).
    #[track_caller]
    pub fn receive<T: Pod>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [T],
    ) -> Result<Status> {
        let (site, fits) = (Location::caller(), (source.into(), tag.into()));
        (self.core().two_sided).receive(fits, bytemuck::cast_slice_mut(buffer), site)
    }

    /// Sends one message and receives another. Neither waits for the other, so all ranks of a ring
    /// may call this at once.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive`](Self::receive), once the send has ended. If the
    /// received message is too long for `buffer`, the other is still sent. If the send fails, no
    /// message is received.
    #[track_caller]
    pub fn send_receive<T: Pod, U: Pod>(
        &self,
        (to, tag, data): (Rank, u64, &[T]),
        (source, of, buffer): (impl Into<Source>, impl Into<Tag>, &mut [U]),
    ) -> Result<Status> {
        let site = Location::caller();
        self.core().two_sided.send_receive(
            (to, tag, bytemuck::cast_slice(data)),
            (source.into(), of.into(), bytemuck::cast_slice_mut(buffer)),
            site,
        )
    }

    /// Begins to send `data`. The handle tells when the data may be used again, and when the
    /// message was received. If the program of `rank` came to the end of the job before, it returns
    /// [`Error::PeerEnded`](crate::Error::PeerEnded). For borrowed buffers, see
    /// [`Scope::send_synchronous`](crate::Scope::send_synchronous).
    ///
    /// # Errors
    /// As [`send`](Self::send), for errors found at once. The error gives the buffer back. The
    /// handle reports the others.
    #[track_caller]
    pub fn send_nb<T: Pod>(
        &self,
        rank: Rank,
        tag: u64,
        data: Vec<T>,
    ) -> Result<SendHandle<T>, Refused<Vec<T>>> {
        let site = Location::caller();
        self.core().two_sided.send_owned(rank, tag, data, site)
    }

    /// Begins to receive the first message that fits into `buffer`. For borrowed buffers, see
    /// [`Scope::receive`](crate::Scope::receive).
    ///
    /// # Errors
    /// As [`receive`](Self::receive), for errors found at once. The error gives the buffer back.
    /// The handle reports the others.
    #[track_caller]
    pub fn receive_nb<T: Pod>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: Vec<T>,
    ) -> Result<ReceiveHandle<T>, Refused<Vec<T>>> {
        let (site, fits) = (Location::caller(), (source.into(), tag.into()));
        self.core().two_sided.receive_owned(fits, buffer, site)
    }

    /// Makes a message that can be sent repeatedly from `buffer`.
    ///
    /// # Errors
    /// [`Error::JobOver`](crate::Error::JobOver). Other errors are found when it is started.
    pub fn persistent_send<T: Pod>(
        &self,
        rank: Rank,
        tag: u64,
        buffer: Vec<T>,
    ) -> Result<PersistentSend<T>> {
        let two_sided = &self.active()?.two_sided;
        Ok(PersistentSend::new(two_sided, rank, tag, buffer))
    }

    /// Makes a receive that can be started repeatedly, into `buffer`.
    ///
    /// # Errors
    /// As [`persistent_send`](Self::persistent_send).
    pub fn persistent_receive<T: Pod>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: Vec<T>,
    ) -> Result<PersistentReceive<T>> {
        let two_sided = &self.active()?.two_sided;
        let fits = (source.into(), tag.into());
        Ok(PersistentReceive::new(two_sided, fits, buffer))
    }

    /// Waits for a message that fits, and returns its status. Another thread may receive the
    /// message first: see [`probe_matched`](Self::probe_matched).
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        self.core().two_sided.probe(source.into(), tag.into())
    }

    /// Returns the status of the first message that fits, if one has arrived.
    ///
    /// # Errors
    /// - [`Error::RankOutOfRange`](crate::Error::RankOutOfRange),
    ///   [`Error::ReservedTag`](crate::Error::ReservedTag),
    ///   [`Error::JobOver`](crate::Error::JobOver).
    /// - Outside handlers, [`Error::PeerLost`](crate::Error::PeerLost),
    ///   [`Error::PeerEnded`](crate::Error::PeerEnded) and
    ///   [`Error::OthersEnded`](crate::Error::OthersEnded) if none has arrived and none can arrive
    ///   any more, as [`receive`](Self::receive).
    pub fn try_probe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>> {
        self.core().two_sided.try_probe(source.into(), tag.into())
    }

    /// Waits for a message that fits and takes it out of the queue. Only the returned value can
    /// receive it.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn probe_matched(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<MatchedMessage> {
        let two_sided = &self.core().two_sided;
        two_sided.probe_matched(source.into(), tag.into())
    }

    /// Takes the first message that fits out of the queue, if one has arrived.
    ///
    /// # Errors
    /// As [`try_probe`](Self::try_probe).
    pub fn try_probe_matched(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<MatchedMessage>> {
        let two_sided = &self.core().two_sided;
        two_sided.try_probe_matched(source.into(), tag.into())
    }
}
