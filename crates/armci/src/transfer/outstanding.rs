//! Operations that are not known to be done, by the process whose memory they are about.
//!
//! ARMCI orders what one process does to another's memory: a get sees what was put before, and of two
//! puts to one place the later one stays. Networks do not. So an operation waits for those outstanding
//! that touch the same bytes.

use std::{
    ops::Range,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use hydrant::RawOperation;
use parking_lot::Mutex;

use crate::Result;

/// So many may be outstanding to a process; then the oldest is waited for.
const MOST: usize = 256;

/// The number that implicit handles have.
pub(crate) const IMPLICIT: i32 = 0;

/// What is outstanding, by process.
pub(crate) struct Outstanding(Box<[Queue]>);

#[derive(Default)]
struct Queue {
    /// As many as there are in the list, for whoever wants to know if there are any.
    count: AtomicUsize,
    list: Mutex<Vec<Operation>>,
}

/// An operation under way.
pub(crate) struct Operation {
    /// Its handle's number.
    pub(crate) handle: i32,
    /// The bytes of the process's arena that it is about.
    pub(crate) bytes: Range<usize>,
    pub(crate) raw: RawOperation,
    /// What it puts, if that is not the caller's memory.
    pub(crate) _kept: Option<Box<[u8]>>,
}

impl Outstanding {
    pub(crate) fn new(processes: usize) -> Self {
        Self((0..processes).map(|_| Queue::default()).collect())
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// What befell another, which had to be waited for.
    pub(crate) fn add(&self, proc: usize, operation: Operation) -> Result<()> {
        let queue = &self.0[proc];
        let mut list = queue.list.lock();
        let oldest = match list.len() >= MOST {
            true => list.remove(0).raw.wait(),
            false => Ok(()),
        };
        list.push(operation);
        queue.count.store(list.len(), Release);
        Ok(oldest?)
    }

    /// Waits for those about any of these bytes.
    ///
    /// # Errors
    /// What befell the first that failed.
    #[inline]
    pub(crate) fn settle(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        if self.0[proc].count.load(Acquire) == 0 {
            return Ok(());
        }
        self.end(proc, |it| {
            it.bytes.start < bytes.end && bytes.start < it.bytes.end
        })
    }

    /// Waits for all to a process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn fence(&self, proc: usize) -> Result<()> {
        if self.0[proc].count.load(Acquire) == 0 {
            return Ok(());
        }
        self.end(proc, |_| true)
    }

    /// Waits for those of a handle, to any process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn wait(&self, handle: i32) -> Result<()> {
        (0..self.0.len()).try_for_each(|proc| self.wait_at(proc, handle))
    }

    /// Waits for those of a handle to one process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn wait_at(&self, proc: usize, handle: i32) -> Result<()> {
        match self.0[proc].count.load(Acquire) {
            0 => Ok(()),
            _ => self.end(proc, |it| it.handle == handle),
        }
    }

    /// Whether none of a handle is outstanding.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn test(&self, handle: i32) -> Result<bool> {
        let mut done = true;
        for queue in &self.0 {
            if queue.count.load(Acquire) == 0 {
                continue;
            }
            let mut list = queue.list.lock();
            let mut failure = Ok(());
            list.retain_mut(|it| {
                if it.handle != handle {
                    return true;
                }
                match it.raw.test() {
                    Ok(false) => {
                        done = false;
                        true
                    }
                    Ok(true) => false,
                    Err(cause) => {
                        failure = Err(cause);
                        false
                    }
                }
            });
            queue.count.store(list.len(), Release);
            failure?;
        }
        Ok(done)
    }

    fn end(&self, proc: usize, which: impl Fn(&Operation) -> bool) -> Result<()> {
        let queue = &self.0[proc];
        let mut list = queue.list.lock();
        let mut outcome = Ok(());
        list.retain_mut(|it| {
            let wanted = which(it);
            if wanted {
                let ended = it.raw.wait();
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
            !wanted
        });
        queue.count.store(list.len(), Release);
        Ok(outcome?)
    }
}
