//! A job whose ranks are threads of the test and pretend to be on two hosts: those of one share
//! memory, the others reach each other's only where it is pinned, with little that may be.

use hydrant::{InterNodeKind, Job, JobBuilder};

/// A builder with a small heap, and less to register than that.
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
        .inter_node(InterNodeKind::Pinned)
        .pretend_hosts(2)
        .m(1 << 20)
        .maxvictim(128 << 10)
}
