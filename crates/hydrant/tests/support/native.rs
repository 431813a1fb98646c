//! A job whose ranks are threads of the test and whose NICs change words, with little that may
//! be registered.

use hydrant::{AtomicsKind, ConduitKind, Job, JobBuilder};

#[path = "nic_words.rs"]
mod nic_words;

/// A builder with a small heap, and less to register than that.
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
