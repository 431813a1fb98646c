//! One answer for all ranks.

use std::error::Error;

use hydrant::{Job, Op, Rank};

use crate::program::Failure;

/// The rank that reads, checks and speaks.
pub const FIRST: Rank = Rank(0);

/// Whether this rank is the one that reads, checks and speaks.
pub fn is_first(job: &Job) -> bool {
    job.rank() == FIRST
}

/// Does `body` on the first rank; whether it succeeds is then known to all. Collective.
///
/// # Errors
/// The cause on the first rank, [`Failure::Elsewhere`] on the others.
pub fn on_first<T, E: Into<Box<dyn Error + Send + Sync>>>(
    job: &Job,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    first_failure(job, is_first(job).then(body).transpose())
}

/// Whether all ranks succeeded in something; if not, the first that failed says why.
/// Collective.
///
/// # Errors
/// The cause on the first rank that has one, [`Failure::Elsewhere`] on the others.
pub fn first_failure<T, E: Into<Box<dyn Error + Send + Sync>>>(
    job: &Job,
    outcome: Result<T, E>,
) -> Result<T, Failure> {
    let none = u64::from(job.size());
    let own = u64::from(job.rank().0);
    let mut failed = [if outcome.is_err() { own } else { none }];
    job.all_reduce(&mut failed, Op::Min)?;
    let [first] = failed;
    match outcome {
        Ok(value) if first == none => Ok(value),
        Err(cause) if first == own => Err(Failure::Here(cause.into())),
        // A rank's number, for one of them gave it.
        _ => Err(Failure::Elsewhere(Rank(first as u32))),
    }
}
