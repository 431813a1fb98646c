//! The functions of ARMCI's headers: `armci.h`, `message.h`, `gpc.h`, `parmci.h` and `armcix.h` in the folder
//! `include`, which are made from these files.
//!
//! A function that returns a number returns [`Error::code`](crate::Error::code) for an error, and says the
//! reason on the standard error output; one that returns nothing ends the job. Names, types and numbers
//! are ARMCI's.

#![allow(unsafe_code)] // pointers of C
#![allow(non_snake_case, reason = "the names are ARMCI's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "what pointers must be is C's, as the headers say"
)]

mod arguments;
mod callers;
mod communicators;
mod faults;
mod process;

pub mod armci;
pub mod armcix;
pub mod gpc;
pub mod message;
pub mod mpi;
pub mod nonblocking;
pub mod parmci;
pub mod transfer;
