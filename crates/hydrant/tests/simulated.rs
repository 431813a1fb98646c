//! Jobs in virtual time.

#[path = "support/simulated.rs"]
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
mod memory {
    mod exclusive;
    mod lend_again;
    mod mapped_in_part;
    mod paging;
    mod virtual_loans;
}
mod rma {
    mod accumulate;
    mod atomics;
    mod contexts;
    mod futures;
    mod mutexes;
    mod non_blocking;
    mod pointed_atomics;
    mod published;
    mod races;
    mod raw;
    mod sections;
    mod signals;
    mod vectors;
    mod virtual_time;
}
