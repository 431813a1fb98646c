//! A job whose ranks are threads of the test and whose NICs change words, with little that may
//! be registered.

use hydrant::{AtomicsKind, ConduitKind, Job, JobBuilder, Result};

#[path = "nic_words.rs"]
mod nic_words;

/// A builder with a small heap, and less to register than that.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .conduit(ConduitKind::Pinned)
        .through(nic_words::Nics::default().layer())
        .atomics(AtomicsKind::Native)
        .m(1 << 20)
        .maxvictim(128 << 10)
}

/// Runs `n` ranks; every one must succeed.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn local<R: Send>(n: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<R> {
    good(builder().run_local(n, body))
}

/// What the ranks returned, all of them in good order.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn good<R>(ends: Vec<Result<R>>) -> Vec<R> {
    (ends.into_iter().enumerate())
        .map(|(rank, end)| end.unwrap_or_else(|error| panic!("rank {rank}: {error}")))
        .collect()
}
