//! A job whose ranks are threads of the test and reach each other's memory only where it is
//! pinned, with little that may be.

use hydrant::{ConduitKind, Job, JobBuilder};

/// A builder with a small heap, and less to register than that.
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .conduit(ConduitKind::Pinned)
        .m(1 << 20)
        .maxvictim(128 << 10)
}
