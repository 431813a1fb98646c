//! The network that a test runs on.

use std::cell::Cell;

use hydrant::JobBuilder;

#[path = "mixed.rs"]
pub(crate) mod mixed;
#[path = "native.rs"]
pub(crate) mod native;
#[path = "pinned.rs"]
pub(crate) mod pinned;
#[path = "shared.rs"]
pub(crate) mod shared;
#[path = "simulated.rs"]
pub(crate) mod simulated;
#[path = "veiled.rs"]
pub(crate) mod veiled;

thread_local! {
    /// Of the test that this thread runs.
    static BUILDER: Cell<fn() -> JobBuilder> = const { Cell::new(shared::builder) };
}

/// Runs a test with jobs of one network.
pub(crate) fn on(builder: fn() -> JobBuilder, test: fn()) {
    BUILDER.set(builder);
    test();
}

/// A builder with a small heap: on a test's own thread.
pub(crate) fn builder() -> JobBuilder {
    BUILDER.get()()
}
