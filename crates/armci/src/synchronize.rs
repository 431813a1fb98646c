//! Fences and barriers.
//!
//! The paper's server answers a fence once all is done that the process asked for; a process asks all
//! servers it has spoken to since the last fence, in a random order (Nieplocha and others 2002, §3,
//! "Fence"). Here each operation through the network has a ticket that says when it is done, so that
//! nobody need be asked: a fence waits for the tickets that are open, all of which are under way at once.

use std::sync::atomic::{Ordering::SeqCst, fence};

use crate::{Armci, Result};

impl Armci {
    /// Waits until all that this process did to a process's memory is done there. ARMCI's `Fence`.
    ///
    /// # Errors
    /// [`Error::NoProcess`](crate::Error::NoProcess), and what befell an operation.
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
    /// What befell an operation.
    pub fn all_fence(&self) -> Result<()> {
        fence(SeqCst);
        let sent = self.send_all_gathered(None);
        sent.and(self.outstanding.fence_all())
    }

    /// Waits until all processes have come, and all that they did to each other's memory is done.
    /// Collective. ARMCI's `Barrier`.
    ///
    /// # Errors
    /// As [`all_fence`](Self::all_fence), and [`Error::Hydrant`](crate::Error::Hydrant).
    pub fn barrier(&self) -> Result<()> {
        // Others come, and would wait for who stays away for what befell an operation of its own.
        let fenced = self.all_fence();
        let met = self.job.barrier();
        fenced?;
        Ok(met?)
    }
}
