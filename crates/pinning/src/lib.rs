//! What is registered, what to register, what to give up: the Firehose algorithm, the pin-down cache and their rivals, as state machines without I/O, clock, threads or unsafe.
//!
//! Nothing is built here yet; the crate holds its place in the workspace so that
//! the floors of `ARCHITECTURE.md` can be seen in the tree.

pub mod table;
