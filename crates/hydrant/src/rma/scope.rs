//! Non-blocking operations on borrowed buffers, and loans of borrowed buffers.

#![allow(unsafe_code)] // the scope keeps buffers borrowed until the conduit is done

use std::{
    marker::PhantomData,
    panic::{self, AssertUnwindSafe, Location},
    pin::Pin,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytemuck::Pod;
use hydrant_conduit::{Key, Posted};
use parking_lot::Mutex;

use super::{
    contiguous::place,
    pending::PendingOperation,
    pointed::{check_apart, in_elements, notify_if_done, resolve_remote},
};
use crate::{
    GlobalPtr, Rank, Result,
    counters::Count,
    memory::{Exposed, Registry, Symmetric},
    transfer::{self, Transfer},
    two_sided::{ScopedMessage, Source, Tag, Transit, TwoSided},
};

/// The scope of non-blocking operations on borrowed buffers; see [`Job::scope`](crate::Job::scope).
pub struct Scope<'scope, 'env: 'scope> {
    transfer: &'scope Arc<Transfer>,
    two_sided: &'scope TwoSided,
    /// Finds memory by pointers.
    memory: &'scope Arc<Registry>,
    /// True if one of the lists has an entry. Only [`run`](Self::run) reads it, after all possible
    /// writers have ended. So a scope without pending operations takes no lock.
    has_pending: AtomicBool,
    posted: Mutex<Vec<Posted>>,
    loans: Mutex<Vec<Key>>,
    /// Sends and receives.
    messages: Mutex<Vec<ScopedMessage>>,
    /// Invariant, as in `std::thread::Scope`.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// An operation of a scope. It may be dropped: the scope completes it. Its error is returned once,
/// either here or by the scope. So the program can find out which of several operations failed.
///
/// It is a future for any executor, ready when the operation is complete.
pub struct Operation<'scope> {
    pending: PendingOperation<&'scope Transfer>,
    immediate: bool,
}

impl Operation<'_> {
    /// Returns whether the operation was complete at once.
    pub fn is_immediate(&self) -> bool {
        self.immediate
    }

    /// Polls, and returns whether the operation is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// The error of the operation.
    pub fn test(&mut self) -> Result<bool> {
        self.pending.test()
    }

    /// Waits until the operation is complete: remotely, if it is a put.
    ///
    /// # Errors
    /// The error of the operation; [`Error::OutOfTurn`](crate::Error::OutOfTurn) if that was
    /// returned before; [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait(&mut self) -> Result<()> {
        self.pending.wait()
    }

    /// Waits for local completion: the network no longer reads the source of a put. The source may
    /// be reused once the borrow of the scope allows it.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler).
    pub fn wait_local(&self) -> Result<()> {
        self.pending.wait_local()
    }
}

impl Future for Operation<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().pending.poll(context)
    }
}

impl<'env> Scope<'_, 'env> {
    /// Runs `body` in a scope, then completes every operation that it began.
    ///
    /// # Errors
    /// As [`Job::scope`](crate::Job::scope).
    ///
    /// # Panics
    /// If `body` panics, after its operations are complete.
    pub(crate) fn run<R>(
        (transfer, two_sided, memory): (&Arc<Transfer>, &Arc<TwoSided>, &Arc<Registry>),
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let scope = Scope {
            transfer,
            two_sided,
            messages: Mutex::default(),
            memory,
            has_pending: AtomicBool::new(false),
            posted: Mutex::default(),
            loans: Mutex::default(),
            _scope: PhantomData,
            _env: PhantomData,
        };
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| body(&scope)));
        let outcome = match outcome {
            // The rest of this function is slow: returning a `Result` through it takes longer than
            // a get of a word.
            Ok(Ok(result))
                if !scope.has_pending.load(Relaxed) && !transfer.progress.is_forked() =>
            {
                return Ok(result);
            }
            outcome => outcome,
        };
        let completed = transfer.progress.abort_on_unwind(|| {
            let failed = !matches!(outcome, Ok(Ok(_)));
            scope.end(failed)
        });
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
    #[track_caller]
    pub fn put<T: Pod>(
        &'scope self,
        memory: &Symmetric<T>,
        rank: Rank,
        index: usize,
        data: &'scope [T],
    ) -> Result<Operation<'scope>> {
        let block = memory.block();
        block.check_job(self.transfer.progress.id)?;
        if memory.put_at_once(rank, index, data) {
            return Ok(self.done());
        }
        if block.part(rank)?.mapped.is_some() {
            memory.put(rank, index, data)?;
            return Ok(self.done());
        }
        let offset = memory.offset(index, data.len())?;
        let bytes = bytemuck::cast_slice(data);
        (self.transfer.progress.tally)
            .add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        // SAFETY: 1. `data` is borrowed for 'scope, which ends only after `end` has completed the
        // operation. 2. The memory is not resolve_remote by its address.
        let posted = unsafe { self.begin(transfer::put(rank, place(block, offset), bytes))? };
        Ok(self.keep(posted))
    }

    /// Begins to get elements of `rank`, from element `index` on, into `data`.
    ///
    /// # Errors
    /// As [`Symmetric::get`], and as [`put`](Self::put).
    #[track_caller]
    pub fn get<T: Pod>(
        &'scope self,
        memory: &Symmetric<T>,
        rank: Rank,
        index: usize,
        data: &'scope mut [T],
    ) -> Result<Operation<'scope>> {
        let block = memory.block();
        block.check_job(self.transfer.progress.id)?;
        if memory.get_at_once(rank, index, data) {
            return Ok(self.done());
        }
        if block.part(rank)?.mapped.is_some() {
            memory.get(rank, index, data)?;
            return Ok(self.done());
        }
        let offset = memory.offset(index, data.len())?;
        let bytes = bytemuck::cast_slice_mut(data);
        (self.transfer.progress.tally)
            .add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        // SAFETY: 1. As in `put`; the borrow is mutable. 2. As in `put`.
        let posted = unsafe { self.begin(transfer::get(rank, place(block, offset), bytes))? };
        Ok(self.keep(posted))
    }

    /// Begins to put `data` to the memory that `to` points to.
    ///
    /// # Errors
    /// As [`Job::put_to`](crate::Job::put_to).
    #[track_caller]
    pub fn put_to<T: Pod>(
        &'scope self,
        to: GlobalPtr<T>,
        data: &'scope [T],
    ) -> Result<Operation<'scope>> {
        let to = resolve_remote(self.transfer, self.memory, &to, data.len())?;
        let (rank, remote) = (to.rank, to.remote);
        let bytes = bytemuck::cast_slice(data);
        check_apart(self.transfer, rank, remote, bytes)?;
        (self.transfer.progress.tally)
            .add_each([(Count::Puts, 1), (Count::PutBytes, bytes.len() as u64)]);
        // SAFETY: 1. As in `put`. 2. Pointers never name memory by its address.
        let posted = unsafe { self.begin(transfer::put(rank, remote, bytes)) }
            .map_err(in_elements::<T>(data.len()))?;
        notify_if_done(self.transfer, rank, posted);
        Ok(self.keep(posted))
    }

    /// Begins to get elements from the memory that `from` points to.
    ///
    /// # Errors
    /// As [`Job::get_from`](crate::Job::get_from).
    #[track_caller]
    pub fn get_from<T: Pod>(
        &'scope self,
        from: GlobalPtr<T>,
        data: &'scope mut [T],
    ) -> Result<Operation<'scope>> {
        let count = data.len();
        let from = resolve_remote(self.transfer, self.memory, &from, count)?;
        let (rank, remote) = (from.rank, from.remote);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
        check_apart(self.transfer, rank, remote, bytes)?;
        (self.transfer.progress.tally)
            .add_each([(Count::Gets, 1), (Count::GetBytes, bytes.len() as u64)]);
        // SAFETY: 1. As in `get`. 2. Pointers never name memory by its address.
        let posted = unsafe { self.begin(transfer::get(rank, remote, bytes)) }
            .map_err(in_elements::<T>(count))?;
        Ok(self.keep(posted))
    }

    /// Begins to send `data` to `rank` under a tag, as `MPI_Isend` does. The send is complete when
    /// `data` may be used again, which does not tell whether the message was received. The body may
    /// fail before the receiver asks for the message, or while there is no credit. Then a copy is
    /// sent, and the scope does not wait for it.
    ///
    /// # Errors
    /// As [`Job::send_nb`](crate::Job::send_nb).
    #[track_caller]
    pub fn send<T: Pod>(
        &'scope self,
        rank: Rank,
        tag: u64,
        data: &'scope [T],
    ) -> Result<Transit<'scope>> {
        self.begin_send(rank, tag, data, false, Location::caller())
    }

    /// As [`send`](Self::send), like `MPI_Issend`: the send is complete when the message was
    /// received, and the scope waits for that.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[track_caller]
    pub fn send_synchronous<T: Pod>(
        &'scope self,
        rank: Rank,
        tag: u64,
        data: &'scope [T],
    ) -> Result<Transit<'scope>> {
        self.begin_send(rank, tag, data, true, Location::caller())
    }

    fn begin_send<T: Pod>(
        &'scope self,
        rank: Rank,
        tag: u64,
        data: &'scope [T],
        synchronous: bool,
        site: &'static Location<'static>,
    ) -> Result<Transit<'scope>> {
        let bytes = bytemuck::cast_slice(data);
        // SAFETY: 1. and 2. `data` is borrowed for 'scope, which ends only after `end` has completed
        // the send.
        let (transit, lent) =
            unsafe { (self.two_sided).send_lent(rank, tag, bytes, synchronous, site)? };
        self.keep_message(lent);
        Ok(transit)
    }

    /// Begins to receive the first message that fits into `data`. The scope waits for one. If its
    /// body fails before a message was matched, the receive is cancelled.
    ///
    /// # Errors
    /// As [`Job::receive_nb`](crate::Job::receive_nb).
    #[track_caller]
    pub fn receive<T: Pod>(
        &'scope self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        data: &'scope mut [T],
    ) -> Result<Transit<'scope>> {
        let (bytes, site) = (bytemuck::cast_slice_mut(data), Location::caller());
        let fits = (source.into(), tag.into());
        // SAFETY: 1. and 2. as in `begin_send`; the borrow is mutable.
        let (transit, lent) = unsafe { self.two_sided.receive_lent(fits, bytes, site)? };
        self.keep_message(lent);
        Ok(transit)
    }

    /// Exposes a borrowed buffer to all ranks until the guard is dropped or the scope ends, even if
    /// the guard was leaked. Not collective.
    ///
    /// # Errors
    /// As [`Job::expose`](crate::Job::expose).
    pub fn expose<T: Pod>(&'scope self, buffer: &'scope mut [T]) -> Result<Exposed<'scope, T>> {
        // SAFETY: 1. and 2. the buffer is borrowed mutably for 'scope. `end` ends the loan before
        // that, even if the guard was leaked.
        let exposed = unsafe { Exposed::new(self.transfer, self.memory, NonNull::from(buffer))? };
        self.has_pending.store(true, Relaxed);
        let mut loans = self.loans.lock();
        loans.push(exposed.key());
        Ok(exposed)
    }

    /// # Safety
    /// 1. and 2. as [`Transfer::begin`], until the scope has [ended](Self::end).
    unsafe fn begin(&self, access: hydrant_conduit::Access) -> Result<Posted> {
        // SAFETY: the caller's conditions 1 and 2.
        unsafe { self.transfer.begin(&access) }
    }

    fn keep_message(&self, lent: Option<ScopedMessage>) {
        if let Some(lent) = lent {
            self.has_pending.store(true, Relaxed);
            self.messages.lock().push(lent);
        }
    }

    /// Returns an operation that was complete at once.
    #[inline(always)]
    fn done(&self) -> Operation<'scope> {
        Operation {
            pending: PendingOperation::DONE,
            immediate: true,
        }
    }

    fn keep(&self, posted: Posted) -> Operation<'scope> {
        if posted == Posted::Done {
            return self.done();
        }
        self.has_pending.store(true, Relaxed);
        self.posted.lock().push(posted);
        Operation {
            pending: PendingOperation::new(self.transfer, posted),
            immediate: false,
        }
    }

    /// Completes everything. Returns the first failure.
    fn end(&self, failed: bool) -> Result<()> {
        // The network uses the parent's memory, not the copy of a child that the body forked.
        self.transfer.progress.check_origin()?;
        let mut first = Ok(());
        let messages = std::mem::take(&mut *self.messages.lock());
        for lent in messages {
            let outcome = self.two_sided.complete(&lent, failed);
            first = first.and(outcome);
        }
        let loans = std::mem::take(&mut *self.loans.lock());
        for key in loans {
            // A scope never ends in a handler, so this can wait.
            self.memory.withdraw(key.0);
            let ended = self.transfer.unlend(key);
            debug_assert!(ended, "scopes end outside handlers");
        }
        let posted = std::mem::take(&mut *self.posted.lock());
        for posted in posted {
            let outcome = self.transfer.finish(posted);
            first = first.and(outcome);
        }
        first
    }
}
