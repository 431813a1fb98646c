//! ARMCI on Hydrant: the operations of Nieplocha and others 2002 (Table 1), and what its library has
//! besides.
//!
//! [`Armci`] has them for Rust, on memory that is named by process and address, as ARMCI names it; most
//! are `unsafe` for that. Who writes Rust alone is better served by [`hydrant`], which has the same
//! operations on typed memory. The library `libarmci` has the functions of ARMCI's headers, for C
//! programs as they are: `armci.h`, `message.h` and `gpc.h` in the folder `include`, and for ARMCI-MPI's `armcix.h`.
//!
//! | ARMCI | here |
//! |---|---|
//! | memory of processes of the same host is mapped, and accessed directly | [`Armci::is_mapped`] |
//! | a server thread a host does what others ask for | each process's service thread, which sleeps |
//! | requests through registered buffers, zero-copy, streams | [`hydrant::Strategy`] |
//! | fences ask the servers spoken to, all at once | operations have tickets: fences wait for those open |
//! | mutexes are queues at their owner | queues through the waiters' memory, [`hydrant::Mutexes`] |
//!
//! Errors are [`Error`]s; the C functions return [their numbers](Error::code), or end the job where they
//! return nothing, and say the reason on the standard error output.

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

/// Most stride levels.
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
