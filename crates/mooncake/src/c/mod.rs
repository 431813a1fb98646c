//! The functions of `transfer_engine_c.h`, with the names that its users write, and those that Hydrant adds.

#![allow(
    non_snake_case, // names of C
    clippy::missing_safety_doc, // the conditions are in lib.rs
)]

pub mod engine;
pub mod memory;
pub mod more;
pub mod notifications;
pub mod segments;
pub mod transfers;
