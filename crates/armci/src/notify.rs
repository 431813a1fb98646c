//! Notifying another process, after all that was put to it, and waiting for that.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use hydrant::{Job, Symmetric};

use crate::{Armci, Result, memory::Memory};

/// How often processes notified each other.
pub(crate) struct Notes {
    /// At each process, how often each other one notified it.
    arrived: Symmetric<u64>,
    /// How often this one notified each.
    sent: Box<[AtomicU64]>,
    /// How often it waited for each.
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
    /// Notifies a process, after all that this one put there: how often it did. ARMCI's `armci_notify`.
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

    /// Waits for the next notification of a process: how many this one has waited for. ARMCI's
    /// `armci_notify_wait`.
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
            // Whatever the process did before its end is seen by the look after this one.
            let ended = present.is_err();
            present = match self.job.check_present(rank) {
                Err(cause @ hydrant::Error::PeerEnded { .. }) => Err(cause),
                _ => Ok(()),
            };
            ended
        });
        // Who could not wait has not: the next call waits for the same one.
        let found = found.and(present);
        found.inspect_err(|_| _ = waited[proc].fetch_sub(1, SeqCst))?;
        Ok(wanted as i32)
    }
}
