//! Hydrant's own interface for C: the library `libhydrant` and the header `hydrant.h`, which is made from these
//! files.
//!
//! Each function returns a status: 0, or the negative number of a class of errors ([`status`]). Handles are
//! numbers in tables (`table.rs`), so that a wrong one is an error. No panic passes into C (`edge.rs`). The folder
//! [`job`] has the functions of jobs, [`operations`] those for all operations in flight, and [`endpoint`] those of
//! endpoints.
//!
//! # Safety
//! C's caller fulfils these conditions, which the `SAFETY` comments of these files name:
//! - C1. A pointer to memory of this process is null, or leads to as many aligned elements as the other arguments
//!   say. They are readable where the function reads them, and writable where it writes them.
//! - C2. Meanwhile no other code writes to memory that the function reads, or uses memory that it writes. An
//!   operation with a handle lasts until the handle was waited for, or a test of it was true. One without a handle
//!   lasts until `hydrant_quiet` or `hydrant_fence`.
//! - C3. A function that C passes returns, may be called by any thread, and stays within the memory that it gets.

mod edge;
pub mod endpoint;
pub mod job;
pub mod operations;
pub mod status;
mod table;
