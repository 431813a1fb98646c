//! `local.rs` once more, where memory is reached only where it is pinned.

#[path = "support/pinned.rs"]
mod network;
#[path = "support/ranks.rs"]
mod support;

mod active_messages {
    mod calls;
    mod handlers;
    mod large;
    mod leaving;
    mod onward;
}
mod collectives;
mod errors;
mod memory {
    mod alloc;
    mod anywhere;
    mod exclusive;
    mod expose;
    mod lend_again;
    mod loans;
    mod many;
}
mod rma {
    mod accumulate;
    mod atomics;
    mod completion;
    mod contexts;
    mod futures;
    mod model;
    mod mutexes;
    mod non_blocking;
    mod pointed_atomics;
    mod published;
    mod races;
    mod raw;
    mod sections;
    mod signals;
    mod threads;
    mod vectors;
}
