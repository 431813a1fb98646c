//! Notifying another process after this process's puts to it, and waiting for a notification.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use hydrant::{Job, Symmetric};

use crate::{Armci, Result, memory::Memory};

/// The counts of notifications.
pub(crate) struct Notes {
    /// At each process, the number of notifications from each other process.
    arrived: Symmetric<u64>,
    /// The number of notifications from this process to each other process.
    sent: Box<[AtomicU64]>,
    /// The number of this process's waits for each other process.
    waited: Box<[AtomicU64]>,
}

impl Notes {
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let counts = || job.ranks().map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            arrived: job.alloc(job.size() as usize)?,
            sent: counts(),
            waited: counts(),
        })
    }
}

impl Armci {
    /// Completes this process's puts to `proc`, then notifies it. Returns the number of
    /// notifications to `proc` so far. ARMCI's `armci_notify`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn notify(&self, proc: i32) -> Result<i32> {
        self.fence(proc)?;
        let proc = self.memory.process(proc)?;
        let Notes { arrived, sent, .. } = &self.notes;
        arrived.fetch_add(Memory::rank(proc), self.me, 1)?;
        Ok(sent[proc].fetch_add(1, Relaxed).wrapping_add(1) as i32)
    }

    /// Waits for the next notification from `proc`. Returns the number of waits for `proc` so far.
    /// ARMCI's `armci_notify_wait`.
    ///
    /// # Errors
    /// [`Error::NoProcess`](crate::Error::NoProcess), [`Error::Hydrant`](crate::Error::Hydrant).
    pub fn notify_wait(&self, proc: i32) -> Result<i32> {
        let proc = self.memory.process(proc)?;
        let Notes {
            arrived, waited, ..
        } = &self.notes;
        let wanted = waited[proc].fetch_add(1, SeqCst).wrapping_add(1);
        let (mut present, rank) = (Ok(()), Memory::rank(proc));
        let found = (self.job).wait_until(arrived, proc, |arrived| {
            if arrived >= wanted {
                present = Ok(());
                return true;
            }
            // A notification sent just before the process ended may arrive after this look. So an
            // ended process is reported at the next look.
            let ended = present.is_err();
            present = match self.job.check_present(rank) {
                Err(cause @ hydrant::Error::PeerEnded { .. }) => Err(cause),
                _ => Ok(()),
            };
            ended
        });
        // A wait that failed does not count, so the next call waits for the same notification.
        let found = found.and(present);
        found.inspect_err(|_| _ = waited[proc].fetch_sub(1, SeqCst))?;
        Ok(wanted as i32)
    }
}
