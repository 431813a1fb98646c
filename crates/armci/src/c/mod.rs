//! The functions of ARMCI's headers `armci.h`, `message.h`, `gpc.h`, `parmci.h` and `armcix.h` in
//! the folder `include`. The headers are made from these files.
//!
//! After an error, a function that returns a status prints the reason to the standard error output,
//! and returns [`Error::code`](crate::Error::code). A function that returns nothing ends the job.
//! Names, types and numbers are ARMCI's.

#![allow(unsafe_code)] // pointers of C
#![allow(non_snake_case, reason = "the names are ARMCI's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "C's rules for pointers apply, as the headers say"
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
