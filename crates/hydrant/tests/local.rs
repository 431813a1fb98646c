//! What a job can do, between ranks of one process that share memory: against answers worked
//! out without it.

#[path = "support/shared.rs"]
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
#[macro_use]
mod errors;
#[path = "errors/exposed.rs"]
mod exposed;
mod memory {
    mod alloc;
    mod anywhere;
    mod direct;
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
