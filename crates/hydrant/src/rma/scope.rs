//! Non-blocking operations on borrowed buffers, and buffers lent for a while.

#![allow(unsafe_code)] // the scope keeps borrowed buffers borrowed until the conduit is done

use std::{
    marker::PhantomData,
    panic::{self, AssertUnwindSafe},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use bytemuck::Pod;
use hydrant_conduit::{Key, Posted};

use super::{contiguous::place, pointed::in_elements};
use crate::{
    GlobalPtr, Job, Rank, Result,
    counters::Count,
    job::Core,
    memory::{Exposed, Symmetric},
    progress,
};

/// Where non-blocking operations on borrowed buffers live; see [`Job::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    core: Arc<Core>,
    posted: Mutex<Vec<Posted>>,
    loans: Mutex<Vec<Key>>,
    /// Invariant, as in `std::thread::Scope`.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// An operation of a scope. It may be dropped: the scope completes it.
pub struct Operation<'scope> {
    core: Arc<Core>,
    posted: Posted,
    _scope: PhantomData<&'scope ()>,
}

impl Operation<'_> {
    /// Whether the operation was complete at once.
    pub fn is_immediate(&self) -> bool {
        self.posted == Posted::Done
    }

    /// Waits for local completion: the source of a put may be reused once the scope's borrow
    /// allows it.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&self) -> Result<()> {
        progress::may_wait("wait_local")?;
        self.core.finish_local(self.posted)
    }
}

impl Job {
    /// Runs `body`, then completes every operation it began: GASNet's access region, in the
    /// shape of [`std::thread::scope`]. Buffers used within are borrowed until the end, so
    /// nothing can touch them while the network does, panics and leaks included.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let field = job.alloc::<u64>(16)?;
    /// let (row, mut halo) = ([1, 2, 3], [0; 2]);
    /// job.scope(|s| {
    ///     s.put(&field, job.right(), 0, &row)?;
    ///     s.get(&field, job.right(), 8, &mut halo)?;
    ///     Ok(())
    /// })?;
    /// job.barrier()?;
    /// assert_eq!(field.local()?.load(2)?, 3);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` returns; else what befell the first operation that failed.
    ///
    /// # Panics
    /// If `body` does, after completing what it began.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        progress::may_wait("scope")?;
        let scope = Scope {
            core: Arc::clone(self.core()),
            posted: Mutex::default(),
            loans: Mutex::default(),
            _scope: PhantomData,
            _env: PhantomData,
        };
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| body(&scope)));
        let completed = scope.core.to_the_end(|| scope.end());
        match outcome {
            Ok(result) => result.and_then(|result| completed.map(|()| result)),
            Err(cause) => panic::resume_unwind(cause),
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Begins to put `data` into the part of `rank`, from element `index` on.
    ///
    /// # Errors
    /// As [`Symmetric::put`]; [`Error::ForeignHandle`](crate::Error::ForeignHandle) for memory of
    /// another job than the scope's.
    pub fn put<T: Pod>(
        &'scope self,
        memory: &Symmetric<T>,
        rank: Rank,
        index: usize,
        data: &'scope [T],
    ) -> Result<Operation<'scope>> {
        let block = memory.block();
        self.core.check_memory(block)?;
        if block.part(rank)?.mapped.is_some() {
            memory.put(rank, index, data)?;
            return Ok(self.keep(Posted::Done));
        }
        let offset = memory.offset(index, data.len())?;
        let bytes = bytemuck::cast_slice(data);
        self.core.tally.one(Count::Puts);
        self.core.tally.add(Count::PutBytes, bytes.len() as u64);
        // SAFETY: `data` is borrowed for 'scope, which ends only after `end` completed the
        // operation.
        let posted = unsafe { self.core.begin_write(rank, place(block, offset), bytes)? };
        Ok(self.keep(posted))
    }

    /// Begins to get elements of `rank`, from element `index` on, into `data`.
    ///
    /// # Errors
    /// As [`Symmetric::get`], and as [`put`](Self::put).
    pub fn get<T: Pod>(
        &'scope self,
        memory: &Symmetric<T>,
        rank: Rank,
        index: usize,
        data: &'scope mut [T],
    ) -> Result<Operation<'scope>> {
        let block = memory.block();
        self.core.check_memory(block)?;
        if block.part(rank)?.mapped.is_some() {
            memory.get(rank, index, data)?;
            return Ok(self.keep(Posted::Done));
        }
        let offset = memory.offset(index, data.len())?;
        let bytes = bytemuck::cast_slice_mut(data);
        self.core.tally.one(Count::Gets);
        self.core.tally.add(Count::GetBytes, bytes.len() as u64);
        // SAFETY: as in `put`; the borrow is mutable.
        let posted = unsafe { self.core.begin_read(rank, place(block, offset), bytes)? };
        Ok(self.keep(posted))
    }

    /// Begins to put `data` to where `to` points.
    ///
    /// # Errors
    /// As [`Job::put_to`].
    pub fn put_to<T: Pod>(
        &'scope self,
        to: GlobalPtr<T>,
        data: &'scope [T],
    ) -> Result<Operation<'scope>> {
        let (rank, remote) = self.core.remote(&to, data.len())?;
        let bytes = bytemuck::cast_slice(data);
        self.core.check_apart(rank, remote, bytes)?;
        self.core.tally.one(Count::Puts);
        self.core.tally.add(Count::PutBytes, bytes.len() as u64);
        // SAFETY: as in `put`.
        let posted = unsafe { self.core.begin_write(rank, remote, bytes) }
            .map_err(in_elements::<T>(data.len()))?;
        self.core.touched(rank, posted);
        Ok(self.keep(posted))
    }

    /// Begins to get elements from where `from` points.
    ///
    /// # Errors
    /// As [`Job::get_from`].
    pub fn get_from<T: Pod>(
        &'scope self,
        from: GlobalPtr<T>,
        data: &'scope mut [T],
    ) -> Result<Operation<'scope>> {
        let count = data.len();
        let (rank, remote) = self.core.remote(&from, count)?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
        self.core.check_apart(rank, remote, bytes)?;
        self.core.tally.one(Count::Gets);
        self.core.tally.add(Count::GetBytes, bytes.len() as u64);
        // SAFETY: as in `get`.
        let posted = unsafe { self.core.begin_read(rank, remote, bytes) }
            .map_err(in_elements::<T>(count))?;
        Ok(self.keep(posted))
    }

    /// Exposes a borrowed buffer to all ranks until the guard is dropped, or the scope ends,
    /// whatever became of the guard. Not collective.
    ///
    /// # Errors
    /// As [`Job::expose`].
    pub fn expose<T: Pod>(&'scope self, buffer: &'scope mut [T]) -> Result<Exposed<'scope, T>> {
        // SAFETY: the buffer is borrowed mutably for 'scope, and `end` revokes before that
        // ends, even if the guard was leaked.
        let exposed = unsafe { Exposed::new(&self.core, NonNull::from(buffer))? };
        let mut loans = self.loans.lock().unwrap_or_else(PoisonError::into_inner);
        loans.push(exposed.key());
        Ok(exposed)
    }

    fn keep(&self, posted: Posted) -> Operation<'scope> {
        if posted != Posted::Done {
            let mut list = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(posted);
        }
        Operation {
            core: Arc::clone(&self.core),
            posted,
            _scope: PhantomData,
        }
    }

    /// Completes everything; the first failure is the scope's.
    fn end(&self) -> Result<()> {
        let loans = std::mem::take(&mut *self.loans.lock().unwrap_or_else(PoisonError::into_inner));
        for key in loans {
            // A scope is never in a handler, so that this can wait.
            let ended = self.core.unlend(key);
            debug_assert!(ended, "scopes end outside handlers");
        }
        let posted =
            std::mem::take(&mut *self.posted.lock().unwrap_or_else(PoisonError::into_inner));
        let mut first = Ok(());
        for posted in posted {
            let outcome = self.core.finish(posted);
            first = first.and(outcome);
        }
        first
    }
}
