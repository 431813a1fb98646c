//! ARMCI on Hydrant: the operations of Nieplocha and others 2002 (Table 1), and the rest of ARMCI's
//! library.
//!
//! [`Armci`] has the operations for Rust. Like ARMCI it names memory by process and address, and so
//! most of them are `unsafe`. A program in Rust alone is better served by [`hydrant`], which has
//! the same operations on typed memory. The library `libarmci` has the functions of ARMCI's headers
//! for unchanged C programs. The folder `include` holds `armci.h`, `message.h`, `gpc.h`, and
//! `armcix.h` of ARMCI-MPI.
//!
//! | ARMCI | here |
//! |---|---|
//! | memory of processes of the same host is mapped and accessed directly | [`Armci::is_mapped`] |
//! | a server thread on each host carries out requests | each process's service thread, which sleeps |
//! | requests through registered buffers, zero-copy, streams | [`hydrant::Strategy`] |
//! | a fence asks all servers that were used, all at once | each operation has a ticket, and a fence waits for the open tickets |
//! | mutexes are queues at their owner | queues through the waiters' memory, [`hydrant::Mutexes`] |
//!
//! Errors are [`Error`]s. The C functions print the reason to the standard error output and return
//! the error's [number](Error::code). A C function that returns nothing ends the job on an error.

mod allocate;
mod armci;
pub mod c;
mod error;
mod gpc;
mod group;
mod memory;
mod message;
mod mpi;
mod mutex_sets;
mod mutexes;
mod nodes;
mod notify;
mod rmw;
mod synchronize;
mod transfer;

pub use self::armci::Armci;
pub use error::{Error, Result};
pub use gpc::{Procedure, Reply, Request, Turn};
pub use group::Group;
pub use message::{Element, Reduction, Scope, Tree};
pub use mutex_sets::MutexSet;
pub use rmw::{Rmw, Word};
pub use transfer::{Handle, Scale, Strides, Vector};

/// The greatest number of stride levels.
pub const MAX_STRIDE_LEVEL: usize = 8;

/// Accumulate `int`.
pub const ACC_INT: i32 = 37;
/// Accumulate `double`.
pub const ACC_DBL: i32 = 38;
/// Accumulate `float`.
pub const ACC_FLT: i32 = 39;
/// Accumulate pairs of `float`.
pub const ACC_CPL: i32 = 40;
/// Accumulate pairs of `double`.
pub const ACC_DCP: i32 = 41;
/// Accumulate `long`.
pub const ACC_LNG: i32 = 42;
