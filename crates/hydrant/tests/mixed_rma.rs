//! `rma.rs` once more, between two hosts that are pretended.

#[path = "support/mixed.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "rma/model.rs"]
mod model;
#[path = "rma/threads.rs"]
mod threads;
