//! One answer for all ranks.

use std::error::Error;

use hydrant::{Job, Op, Rank};

use crate::program::Failure;

/// The rank that reads, checks and prints.
pub const FIRST: Rank = Rank(0);

/// True on the rank that reads, checks and prints.
pub fn is_first(job: &Job) -> bool {
    job.rank() == FIRST
}

/// Runs `body` on the first rank, and tells all ranks whether it succeeded. Collective.
///
/// # Errors
/// The cause on the first rank, [`Failure::Elsewhere`] on the others.
pub fn on_first<T, E: Into<Box<dyn Error + Send + Sync>>>(
    job: &Job,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    first_failure(job, is_first(job).then(body).transpose())
}

/// Returns whether all ranks succeeded; if not, the first that failed reports the cause.
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
        // The number is a rank's, because one of the ranks sent it.
        _ => Err(Failure::Elsewhere(Rank(first as u32))),
    }
}
