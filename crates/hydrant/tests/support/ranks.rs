//! The ranks of a job as threads of the test, on the network of the test's root.

use hydrant::{Job, Result};

pub(crate) use crate::network::builder;

/// Runs `n` ranks; every one must succeed.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn local<R: Send>(n: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<R> {
    good(builder().run_local(n, body))
}

/// What the ranks returned, all of them in good order.
pub(crate) fn good<R>(ends: Vec<Result<R>>) -> Vec<R> {
    (ends.into_iter().enumerate())
        .map(|(rank, end)| end.unwrap_or_else(|error| panic!("rank {rank}: {error}")))
        .collect()
}
