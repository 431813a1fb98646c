//! Sending requests.

use hydrant_conduit::Message;

use super::Handler;
use crate::{
    Error, Rank, Result,
    counters::Count,
    progress::{self, Progress},
};

/// Sends a request of the user and waits for room. In a handler the request is kept until there is
/// room.
///
/// # Errors
/// [`Error::JobOver`], [`Error::RankOutOfRange`], [`Error::PeerLost`]; in a handler
/// [`Error::OnwardFull`].
#[inline]
pub(crate) fn send(progress: &Progress, rank: Rank, message: &Message<'_>) -> Result<()> {
    progress.check_running()?;
    progress.check_rank(rank)?;
    match progress::may_wait("a request") {
        Ok(()) => progress.send(rank, message)?,
        Err(_) => progress.send_onward(rank, message)?,
    }
    progress.tally.one(Count::Requests);
    Ok(())
}

/// Checks that a handler is one of this job.
///
/// # Errors
/// [`Error::ForeignHandle`].
#[inline]
pub(crate) fn check_handler(handler: Handler, progress: &Progress) -> Result<()> {
    if handler.job == progress.id {
        Ok(())
    } else {
        Err(Error::ForeignHandle { what: "handler" })
    }
}

/// Returns the arguments of a long message: the user's, the index and the number of elements.
///
/// # Errors
/// [`Error::TooManyArgs`].
pub(crate) fn long_args(
    args: &[u64],
    index: usize,
    count: usize,
    progress: &Progress,
) -> Result<Vec<u64>> {
    let limit = progress.conduit().caps().max_args - 2;
    if args.len() > limit {
        return Err(Error::TooManyArgs {
            count: args.len(),
            limit,
        });
    }
    Ok([args, &[index as u64, count as u64]].concat())
}
