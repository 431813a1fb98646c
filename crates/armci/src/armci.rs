//! One process's ARMCI.

use hydrant::{Job, Mutexes};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

use crate::{
    Result,
    gpc::Gpc,
    group::Groups,
    memory::Memory,
    message::Messages,
    nodes::Nodes,
    notify::Notes,
    transfer::{HandleTable, Outstanding},
};

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
    pub(crate) messages: Arc<Messages>,
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
    /// [`Error::Hydrant`](crate::Error::Hydrant).
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
            messages: Messages::new(job)?,
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
    /// [`Error::NoProcess`](crate::Error::NoProcess).
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
