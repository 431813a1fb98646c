//! The functions of ARMCI's headers `armci.h`, `message.h`, `gpc.h`, `parmci.h` and `armcix.h` in
//! the folder `include`. The headers are made from these files.
//!
//! After an error, a function that returns a status prints the reason to the standard error output,
//! and returns [`Error::code`](crate::Error::code). A function that returns nothing ends the job.
//! Names, types and numbers are ARMCI's.
//!
//! # Safety
//! C's caller fulfils these conditions, which the `SAFETY` comments of these files name:
//! - C1. A pointer to memory of this process is null, or leads to as many aligned elements as the
//!   other arguments say. They are readable where the function reads them, and writable where it
//!   writes them.
//! - C2. Meanwhile no other code writes to memory that the function reads, or uses memory that it
//!   writes. Only a word of ARMCI_Rmw may be used by other calls of it. An operation with a handle
//!   ends when the handle was waited for.
//! - C3. Text is null, or ends with a zero byte.
//! - C4. A registered procedure stays within the buffers that it gets, and may be called by any
//!   thread.
//! - C5. The arguments of the program are null, or those of `main`.

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
