//! Puts, gets and atomics against answers worked out without them.

#[path = "support/local.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "rma/completion.rs"]
mod completion;
#[path = "rma/model.rs"]
mod model;
#[path = "rma/threads.rs"]
mod threads;
