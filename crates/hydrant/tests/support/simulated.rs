//! A job on a simulated network, whose ranks take turns.

use hydrant::{ConduitKind, Job, JobBuilder};

/// A builder with a small heap.
#[allow(dead_code, reason = "each test binary uses a part")]
pub(crate) fn builder() -> JobBuilder {
    on("myrinet-gm")
}

/// A builder for the network of a profile.
pub(crate) fn on(profile: &str) -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .conduit(ConduitKind::Sim(profile.to_owned()))
}
