//! A job whose ranks are threads of the test.

use hydrant::{Job, JobBuilder};

/// A builder with a small heap.
pub(crate) fn builder() -> JobBuilder {
    Job::builder()
        .expect("the settings are valid")
        .heap(64 << 20)
}
