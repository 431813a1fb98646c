//! `rma.rs` once more, where NICs change words of 64 bits and no processor does.

#![allow(unsafe_code)] // stands between a job and its network

#[path = "support/native.rs"]
mod support;

#[path = "rma/atomics.rs"]
mod atomics;
#[path = "rma/completion.rs"]
mod completion;
#[path = "rma/model.rs"]
mod model;
#[path = "rma/threads.rs"]
mod threads;
