//! `rma.rs` once more, where no peer's memory is mapped.

#[path = "support/veiled.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "rma/completion.rs"]
mod completion;
#[path = "rma/model.rs"]
mod model;
#[path = "rma/threads.rs"]
mod threads;
