//! Sending requests.

use hydrant_conduit::{Message, Sent};

use super::{Handler, kind};
use crate::{
    Error, Job, Pod, Rank, Result, Symmetric,
    counters::Count,
    job::Core,
    progress::{self, For, On},
};

impl Job {
    /// Runs `handler` on `rank` with arguments alone. Returns when the message is on its way.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::TooManyArgs`], [`Error::ForeignHandle`],
    /// [`Error::InHandler`], [`Error::PeerLost`].
    #[inline]
    pub fn request_short(&self, rank: Rank, handler: Handler, args: &[u64]) -> Result<()> {
        self.request_medium(rank, handler, args, &[])
    }

    /// Runs `handler` on `rank` with arguments and a payload. The payload is copied before
    /// this returns.
    ///
    /// # Errors
    /// As [`request_short`](Self::request_short); [`Error::MessageTooLong`].
    #[inline]
    pub fn request_medium(
        &self,
        rank: Rank,
        handler: Handler,
        args: &[u64],
        payload: &[u8],
    ) -> Result<()> {
        let core = self.core();
        if handler.job != core.id {
            return Err(Error::ForeignHandle { what: "handler" });
        }
        core.request(
            rank,
            &Message {
                kind: kind::USER,
                tag: handler.number,
                args,
                payload,
            },
        )
    }

    /// Puts `data` into symmetric memory of `rank`, then runs `handler` there: its arguments
    /// are followed by the index of the first element put and their number.
    ///
    /// # Errors
    /// As [`request_short`](Self::request_short) and [`Symmetric::put`].
    pub fn request_long<T: Pod>(
        &self,
        rank: Rank,
        handler: Handler,
        args: &[u64],
        memory: &Symmetric<T>,
        index: usize,
        data: &[T],
    ) -> Result<()> {
        progress::may_wait("request_long")?;
        let args = long_args(args, index, data.len(), self.core())?;
        check_long(handler, memory, self.core())?;
        memory.put(rank, index, data)?;
        self.request_short(rank, handler, &args)
    }

    /// Waits until every request of this rank was handled, and its replies too.
    ///
    /// # Errors
    /// The first failure that a target reported since the last call:
    /// [`Error::UnknownHandler`], [`Error::HandlerPanicked`]. [`Error::PeerLost`].
    pub fn am_quiet(&self) -> Result<()> {
        progress::may_wait("am_quiet")?;
        let core = self.core();
        for rank in self.ranks() {
            core.wait_handled(rank)?;
        }
        // Replies were sent before their requests counted as handled.
        core.conduit.drain(&mut super::Pump { core });
        core.am.failure().map_or(Ok(()), Err)
    }

    /// Delivers the messages that have arrived; how many there were. Needed only where the
    /// service thread is off.
    pub fn poll(&self) -> usize {
        self.core().look_round()
    }
}

impl Core {
    /// Sends a request of the user's, waiting for room.
    #[inline]
    pub(super) fn request(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        progress::may_wait("a request")?;
        self.check_rank(rank)?;
        self.push(rank, message)?;
        self.tally.one(Count::Requests);
        Ok(())
    }

    /// Sends a message to a rank of the job, waiting for room. Not in a handler.
    #[inline]
    pub(crate) fn push(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        if self.conduit.send(rank, message)? != Sent::Yes {
            self.request_with_patience(rank, message)?;
        }
        Ok(())
    }

    /// Waits until `rank` has handled all that this one sent it so far.
    pub(crate) fn wait_handled(&self, rank: Rank) -> Result<()> {
        let (_, sent) = self.conduit.handled(rank);
        self.wait(On::Rank(rank), For::Room, || {
            self.conduit.handled(rank).0 >= sent
        })
    }

    #[cold]
    fn request_with_patience(&self, rank: Rank, message: &Message<'_>) -> Result<()> {
        self.tally.one(Count::Stalls);
        let mut failed = None;
        self.wait(On::Rank(rank), For::Room, || {
            match self.conduit.send(rank, message) {
                Ok(sent) => sent == Sent::Yes,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Checks that the message will go before its data does.
pub(super) fn check_long<T: Pod>(
    handler: Handler,
    memory: &Symmetric<T>,
    core: &Core,
) -> Result<()> {
    if handler.job != core.id {
        return Err(Error::ForeignHandle { what: "handler" });
    }
    core.check_memory(memory.block())
}

/// The arguments of a long message: the user's, the index and the number of elements.
pub(super) fn long_args(args: &[u64], index: usize, count: usize, core: &Core) -> Result<Vec<u64>> {
    let limit = core.conduit.caps().max_args - 2;
    if args.len() > limit {
        return Err(Error::TooManyArgs {
            count: args.len(),
            limit,
        });
    }
    Ok([args, &[index as u64, count as u64]].concat())
}
