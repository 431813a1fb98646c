//! Streams of operations that are completed apart (OpenSHMEM's contexts).

use std::{collections::BTreeSet, sync::Arc};

use bytemuck::Pod;
use parking_lot::Mutex;

use super::handles::PutHandle;
use crate::{
    Error, GlobalPtr, Rank, Refused, Result, Symmetric,
    memory::Registry,
    progress::{For, On, may_wait},
    transfer::Transfer,
};

/// A put that is under way.
trait End: Send {
    /// Whether it is known to be complete. Runs nothing of the program's.
    fn known(&mut self) -> Result<bool>;
    fn wait(self: Box<Self>) -> Result<()>;
}

impl<T: Pod + Send> End for PutHandle<T> {
    fn known(&mut self) -> Result<bool> {
        PutHandle::known(self)
    }

    fn wait(self: Box<Self>) -> Result<()> {
        PutHandle::wait(*self).map(drop)
    }
}

/// Puts that a context keeps before it looks which of them are complete, at first.
const MANY: usize = 64;

/// Puts of one thread, or of one part of a program, that are completed apart from all others: its
/// [`quiet`](Self::quiet) waits for no others. Each put owns its source until then. Gets have handles
/// of their own ([`Symmetric::get_nb`]).
///
/// A context may go to another thread and be used by several, which then share it. Dropping it
/// leaves its puts under way, as dropping their handles does: [`Job::quiet`](crate::Job::quiet)
/// waits for them.
///
/// ```
/// # fn main() -> hydrant::Result<()> {
/// # hydrant::Job::builder()?.run_local(2, |job| {
/// let field = job.alloc::<u64>(200)?;
/// std::thread::scope(|threads| {
///     for half in [0, 100] {
///         let (context, field) = (job.context()?, &field);
///         threads.spawn(move || {
///             for at in half..half + 100 {
///                 context.put(field, job.right(), at, vec![at as u64])?;
///             }
///             context.quiet()
///         });
///     }
///     Ok::<_, hydrant::Error>(())
/// })?;
/// job.barrier()?;
/// assert_eq!(field.local()?.load(150)?, 150);
/// # job.barrier()
/// # }).into_iter().collect()
/// # }
/// ```
pub struct Context {
    transfer: Arc<Transfer>,
    memory: Arc<Registry>,
    open: Mutex<Open>,
}

/// What is under way.
struct Open {
    /// What is not known to be complete, in the order in which it was begun.
    puts: Vec<Box<dyn End>>,
    /// How many there may be before it is looked which are complete: twice as many as were not when
    /// that was last done.
    most: usize,
    /// What befell the first of those that were looked at and had failed.
    failed: Option<Error>,
    /// Batches of puts that a thread has taken out and waits for, by number.
    batches: BTreeSet<u64>,
    /// The last batch's number.
    last: u64,
}

impl Default for Open {
    fn default() -> Self {
        Self {
            puts: Vec::new(),
            most: MANY,
            failed: None,
            batches: BTreeSet::new(),
            last: 0,
        }
    }
}

impl Open {
    /// Forgets what is complete.
    fn sift(&mut self) {
        let failed = &mut self.failed;
        self.puts.retain_mut(|put| match put.known() {
            Ok(complete) => !complete,
            Err(cause) => {
                failed.get_or_insert(cause);
                false
            }
        });
        self.most = MANY.max(2 * self.puts.len());
    }

    /// Whether the batches before and with this one are over.
    fn is_over(&self, batch: u64) -> bool {
        self.batches.first().is_none_or(|first| *first > batch)
    }
}

/// A batch that a thread waits for: over when this is dropped.
struct Batch<'a> {
    context: &'a Context,
    number: u64,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.context.open.lock().batches.remove(&self.number);
        self.context.transfer.progress.wake_sleepers();
    }
}

impl Context {
    pub(crate) fn new(transfer: &Arc<Transfer>, memory: &Arc<Registry>) -> Self {
        Self {
            transfer: Arc::clone(transfer),
            memory: Arc::clone(memory),
            open: Mutex::default(),
        }
    }

    /// Begins to put `data` into the part of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`Symmetric::put_nb`]; [`Error::ForeignHandle`] for memory of another job.
    pub fn put<T: Pod + Send>(
        &self,
        memory: &Symmetric<T>,
        rank: Rank,
        index: usize,
        data: Vec<T>,
    ) -> Result<(), Refused<Vec<T>>> {
        if let Err(cause) = memory.block().check_job(self.transfer.progress.id) {
            return Err(Refused::buffer(data, cause));
        }
        self.keep(memory.put_nb(rank, index, data)?);
        Ok(())
    }

    /// Begins to put `data` to where `to` points.
    ///
    /// # Errors
    /// As [`Job::put_to_nb`](crate::Job::put_to_nb).
    pub fn put_to<T: Pod + Send>(
        &self,
        to: GlobalPtr<T>,
        data: Vec<T>,
    ) -> Result<(), Refused<Vec<T>>> {
        self.keep(super::handles::put_to(
            &self.transfer,
            &self.memory,
            to,
            data,
        )?);
        Ok(())
    }

    /// Waits until every put that was begun here is remotely complete, by whichever thread. Those that
    /// other threads begin meanwhile it does not wait for.
    ///
    /// # Errors
    /// What befell the first that failed, after waiting for all: each failure is told once, to the
    /// thread that waits for that put first. [`Error::InHandler`].
    pub fn quiet(&self) -> Result<()> {
        self.transfer.progress.may_wait("quiet")?;
        let mut open = self.open.lock();
        let (puts, failed) = (std::mem::take(&mut open.puts), open.failed.take());
        if !puts.is_empty() {
            open.last += 1;
            let number = open.last;
            open.batches.insert(number);
        }
        let number = open.last;
        drop(open);
        let mut outcome = failed.map_or(Ok(()), Err);
        if !puts.is_empty() {
            let _batch = Batch {
                context: self,
                number,
            };
            // Each is waited for, whatever befell those before.
            for put in puts {
                outcome = outcome.and(put.wait());
            }
        }
        // What other threads have taken out before.
        let progress = &self.transfer.progress;
        let others = || self.open.lock().is_over(number);
        outcome.and(progress.wait(On::Nobody, For::Message, others))
    }

    /// Orders the puts that were begun here: those before are seen, by each peer, no later than those
    /// after.
    ///
    /// # Errors
    /// As [`quiet`](Self::quiet): puts of one rank are not ordered by every network, so they are
    /// completed.
    pub fn fence(&self) -> Result<()> {
        self.quiet()
    }

    fn keep<T: Pod + Send>(&self, put: PutHandle<T>) {
        if put.is_complete() {
            return;
        }
        let mut open = self.open.lock();
        open.puts.push(Box::new(put));
        let are_many = open.puts.len() > open.most;
        drop(open);
        if are_many {
            // What a look runs may use this context: nothing is locked.
            if may_wait("a look").is_ok() {
                self.transfer.progress.look_round();
            }
            self.open.lock().sift();
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({} puts under way)", self.open.lock().puts.len())
    }
}
