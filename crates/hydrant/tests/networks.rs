//! What a job can do, against answers worked out without it: on each network the same, as far as that has it. Ranks are
//! threads.

#![allow(unsafe_code)] // stands between a job and its network

#[macro_use]
extern crate hydrant_testing_macros;

#[path = "support/network.rs"]
mod network;
#[path = "support/ranks.rs"]
mod support;

mod active_messages {
    mod calls;
    mod handlers;
    mod large;
    mod leaving;
    mod onward;
    mod threads;
}
mod collectives;
mod ends {
    mod noticed;
    mod resting;
    mod under_way;
}
#[macro_use]
mod errors;
#[path = "errors/exposed.rs"]
mod exposed;
mod hosts {
    mod mates;
}
mod memory {
    mod alloc;
    mod anywhere;
    mod direct;
    mod exclusive;
    mod expose;
    mod lend_again;
    mod loans;
    mod many;
    mod mapped_in_part;
    mod paging;
    mod virtual_loans;
}
mod rma {
    mod accumulate;
    mod atomics;
    mod completion;
    mod contexts;
    mod fills;
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
    mod virtual_time;
}
