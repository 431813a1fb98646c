//! Streams of puts that are completed separately (OpenSHMEM's contexts).

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

/// A put in flight, of any type of element.
trait PendingPut: Send {
    /// Returns whether the put is known to be complete, without a poll. Runs no user code.
    fn check(&mut self) -> Result<bool>;
    fn wait(self: Box<Self>) -> Result<()>;
}

impl<T: Pod + Send> PendingPut for PutHandle<T> {
    fn check(&mut self) -> Result<bool> {
        PutHandle::check(self)
    }

    fn wait(self: Box<Self>) -> Result<()> {
        PutHandle::wait(*self).map(drop)
    }
}

/// The number of puts that a context keeps at first before it drops those that are complete.
const MANY: usize = 64;

/// Puts of one thread, or of one part of a program, that are completed separately from all others:
/// [`quiet`](Self::quiet) waits for no others. Each put owns its source until then. Gets have
/// handles of their own ([`Symmetric::get_nb`]).
///
/// A context may move to another thread, and several threads may share one. If it is dropped its
/// puts go on, as if their handles were dropped: [`Job::quiet`](crate::Job::quiet) waits for them.
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
    open: Mutex<OpenPuts>,
}

/// The puts in flight.
struct OpenPuts {
    /// The puts that are not known to be complete, in the order in which they began.
    puts: Vec<Box<dyn PendingPut>>,
    /// The length of `puts` at which complete puts are dropped: twice the number that was left the
    /// last time.
    most: usize,
    /// The error of the first put that was found to have failed.
    failed: Option<Error>,
    /// The numbers of batches that threads have taken out and wait for.
    batches: BTreeSet<u64>,
    /// The number of the last batch.
    last: u64,
}

impl Default for OpenPuts {
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

impl OpenPuts {
    /// Drops the puts that are complete.
    fn drop_complete(&mut self) {
        let failed = &mut self.failed;
        self.puts.retain_mut(|put| match put.check() {
            Ok(complete) => !complete,
            Err(cause) => {
                failed.get_or_insert(cause);
                false
            }
        });
        self.most = MANY.max(2 * self.puts.len());
    }

    /// Returns whether this batch and those before it are complete.
    fn is_batch_complete(&self, batch: u64) -> bool {
        self.batches.first().is_none_or(|first| *first > batch)
    }
}

/// A batch of puts that a thread waits for. It counts as complete when this is dropped.
struct ContextBatch<'a> {
    context: &'a Context,
    number: u64,
}

impl Drop for ContextBatch<'_> {
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

    /// Begins to put `data` to the memory that `to` points to.
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

    /// Waits until every put that any thread began here is remotely complete. Puts that other
    /// threads begin meanwhile are not waited for.
    ///
    /// # Errors
    /// The error of the first put that failed, after all have ended. Each failure is returned once,
    /// to the thread that waits for that put first. [`Error::InHandler`].
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
            let _batch = ContextBatch {
                context: self,
                number,
            };
            // Each put is waited for, even after a failure.
            for put in puts {
                outcome = outcome.and(put.wait());
            }
        }
        // Batches that other threads have taken out before.
        let progress = &self.transfer.progress;
        let others = || self.open.lock().is_batch_complete(number);
        outcome.and(progress.wait(On::Nobody, For::Message, others))
    }

    /// Orders the puts of this context: each peer sees those before the fence no later than those
    /// after it.
    ///
    /// # Errors
    /// As [`quiet`](Self::quiet). Not every network orders the puts of a rank, so this completes
    /// them.
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
            // The poll may run code that uses this context, so no lock is held.
            if may_wait("a look").is_ok() {
                self.transfer.progress.make_progress();
            }
            self.open.lock().drop_complete();
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({} puts in flight)", self.open.lock().puts.len())
    }
}
