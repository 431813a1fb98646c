//! Fences and barriers.
//!
//! The server in the paper answers a fence when all the process's requests are done. A process asks
//! every server that it has used since the last fence, in random order (Nieplocha and others 2002,
//! §3, "Fence"). Here each operation through the network has a ticket that says when it is done. A
//! fence waits for the open tickets, all in flight at once, and asks no process.

use std::sync::atomic::{Ordering::SeqCst, fence};

use crate::{Armci, Result};

impl Armci {
    /// Waits until all operations of this process on the memory of `proc` are done there. ARMCI's
    /// `Fence`.
    ///
    /// # Errors
    /// [`Error::NoProcess`](crate::Error::NoProcess), and the error of an operation that failed.
    pub fn fence(&self, proc: i32) -> Result<()> {
        let proc = self.memory.process(proc)?;
        if self.memory.is_mapped(proc) {
            fence(SeqCst);
            return Ok(());
        }
        let sent = self.send_all_gathered(Some(proc));
        sent.and(self.outstanding.fence(proc))
    }

    /// As [`fence`](Self::fence), to all processes. ARMCI's `AllFence`.
    ///
    /// # Errors
    /// The error of an operation that failed.
    pub fn all_fence(&self) -> Result<()> {
        fence(SeqCst);
        let sent = self.send_all_gathered(None);
        sent.and(self.outstanding.fence_all())
    }

    /// Waits until all processes have arrived and all their operations on each other's memory are
    /// done. Collective. ARMCI's `Barrier`.
    ///
    /// # Errors
    /// As [`all_fence`](Self::all_fence), and [`Error::Hydrant`](crate::Error::Hydrant).
    pub fn barrier(&self) -> Result<()> {
        // This process enters the barrier even if its own operation failed, because the others wait
        // for it.
        let fenced = self.all_fence();
        let met = self.job.barrier();
        fenced?;
        Ok(met?)
    }
}
