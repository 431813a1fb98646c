//! `rma` of `local.rs` once more, where NICs change words of 64 bits and no processor does.

#![allow(unsafe_code)] // stands between a job and its network

#[path = "support/native.rs"]
mod network;
#[path = "support/ranks.rs"]
mod support;

mod rma {
    mod accumulate;
    mod atomics;
    mod completion;
    mod model;
    mod mutexes;
    mod non_blocking;
    mod raw;
    mod sections;
    mod threads;
}
