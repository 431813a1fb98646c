//! `rma.rs` once more, where memory is reached only where it is pinned.

#[path = "support/pinned.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "rma/completion.rs"]
mod completion;
#[path = "rma/model.rs"]
mod model;
#[path = "rma/threads.rs"]
mod threads;
