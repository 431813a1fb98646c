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

pub use error::{Error, Result};
pub use gpc::{Procedure, Reply, Request, Turn};
pub use group::Group;
pub use message::{Element, MessageScope, Reduction, Tree};
pub use mutex_sets::MutexSet;
pub use rmw::{Rmw, Word};
pub use transfer::{Handle, Strides, Vector};

use std::sync::Arc;

use hydrant::{Job, Mutexes};
use parking_lot::{Mutex, RwLock};

use gpc::Gpc;
use group::Groups;
use memory::Memory;
use message::MessagePassing;
use nodes::Nodes;
use notify::Notes;
use transfer::{HandleTable, Outstanding};

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

/// ARMCI, as one of its processes sees it. Any number of threads may use it at once.
pub struct Armci {
    pub(crate) job: Job,
    pub(crate) me: usize,
    pub(crate) memory: Memory,
    pub(crate) outstanding: Outstanding,
    pub(crate) handles: HandleTable,
    pub(crate) nodes: Nodes,
    pub(crate) notes: Notes,
    pub(crate) mutexes: RwLock<Option<Arc<Mutexes>>>,
    pub(crate) groups: Mutex<Groups>,
    pub(crate) messages: Arc<MessagePassing>,
    pub(crate) gpc: Gpc,
    /// True if the program's uses of memory are predicted for each kind of caller.
    pub(crate) is_foreseen: bool,
}

impl Armci {
    /// Sets up ARMCI in a job. Collective. ARMCI's `Init`. The caller still finalizes the job.
    ///
    /// `limit` is the largest number of bytes that a process may allocate. Without a limit,
    /// Hydrant's heap (`HYDRANT_HEAP`) sets it.
    ///
    /// # Errors
    /// [`Error::Hydrant`].
    pub fn new(job: &Job, limit: Option<usize>) -> Result<Self> {
        let nodes = Nodes::new(job)?;
        Ok(Self {
            me: job.rank().index(),
            memory: Memory::new(job, limit)?,
            outstanding: Outstanding::new(job.size() as usize),
            handles: HandleTable::new(),
            notes: Notes::new(job)?,
            mutexes: RwLock::new(None),
            groups: Mutex::new(Groups::new(job.size() as usize)),
            messages: MessagePassing::new(job)?,
            gpc: Gpc::new(job)?,
            is_foreseen: job.foresight().is_some(),
            nodes,
            job: job.clone(),
        })
    }

    /// The job of this ARMCI.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// This process's number.
    pub fn me(&self) -> i32 {
        self.me as i32
    }

    /// The number of processes.
    pub fn processes(&self) -> i32 {
        self.job.size() as i32
    }

    /// Returns true if this process loads and stores directly in the memory of `proc`, as on its
    /// own node.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn is_mapped(&self, proc: i32) -> Result<bool> {
        let proc = self.memory.process(proc)?;
        Ok(self.memory.is_mapped(proc))
    }
}

impl std::fmt::Debug for Armci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Armci(process {} of {})", self.me, self.job.size())
    }
}
