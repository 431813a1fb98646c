//! The outstanding operations of each process.
//!
//! ARMCI orders the operations of one process on another's memory. A get sees the earlier puts, and
//! of two puts to the same bytes the later one stays. Networks do not order them. So an operation
//! waits for the outstanding ones that touch the same bytes. If a network delivers messages in
//! order, a put that has left need not be waited for.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use hydrant::Number;
use parking_lot::{Mutex, MutexGuard};

use super::{
    missed::{Asker, MissedErrors, OperationOwner},
    work::TransferWork,
};
use crate::{Error, Result};

/// The most outstanding operations to a process. Beyond that the oldest is waited for.
const MAX_OUTSTANDING: usize = 256;

/// The outstanding operations, by process.
pub(crate) struct Outstanding(Box<[ProcessQueue]>);

#[derive(Default)]
struct ProcessQueue {
    /// The number of listed operations, gathered operations and kept errors, so that a caller sees
    /// cheaply if there are any.
    count: AtomicUsize,
    /// The operations, the oldest first. The lock is never held across a wait, because a waiter runs
    /// handlers that may read the list.
    list: Mutex<Vec<Arc<OutstandingOperation>>>,
    /// Errors that are kept for their owners.
    missed: Mutex<MissedErrors>,
}

/// An operation in flight.
pub(crate) struct OutstandingOperation {
    whose: OperationOwner,
    kind: OperationKind,
    /// The bytes in the process's arena that the operation touches.
    bytes: Range<usize>,
    keeps_order: bool,
    /// A waiter for the operation holds this lock.
    running: Mutex<GuardedWork>,
}

struct GuardedWork {
    work: TransferWork,
    /// The data of a put, if it is not in the caller's memory.
    kept: Option<Box<[u8]>>,
}

impl Drop for GuardedWork {
    /// Waits until the network no longer reads the kept data. Nothing else waits when ARMCI is dropped.
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if !self.work.is_complete() && self.work.wait_local().is_err() {
            // The network may still read the data.
            std::mem::forget(kept);
        }
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// A put or a get.
    Transfer,
    /// An accumulate.
    Accumulate(AddedElements),
}

/// The elements that an accumulate adds to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddedElements {
    /// Numbers whose starts all have this offset from a multiple of the number's size. The sum does not
    /// depend on the order of such accumulates.
    Aligned(Number, usize),
    /// Others, whose bytes may overlap two elements of another accumulate.
    Unaligned,
}

impl AddedElements {
    /// The elements of runs that begin at these bytes.
    pub(crate) fn of(number: Number, starts: impl Iterator<Item = usize>) -> Self {
        let mut behind = starts.map(|start| start % number.size());
        match behind.next() {
            Some(first) if behind.all(|it| it == first) => Self::Aligned(number, first),
            _ => Self::Unaligned,
        }
    }

    /// Returns true if the order of the two accumulates does not matter.
    fn commutes_with(self, other: Self) -> bool {
        self != Self::Unaligned && self == other
    }
}

/// The point until which an operation is waited for.
#[derive(Clone, Copy)]
enum WaitUntil {
    /// There is nothing to wait for.
    Now,
    /// The operation no longer needs memory of this process.
    Local,
    /// The operation is done.
    Done,
}

impl From<bool> for WaitUntil {
    fn from(waits: bool) -> Self {
        if waits {
            WaitUntil::Done
        } else {
            WaitUntil::Now
        }
    }
}

impl OutstandingOperation {
    pub(crate) fn new(
        handle: i32,
        kind: OperationKind,
        bytes: Range<usize>,
        work: TransferWork,
        kept: Option<Box<[u8]>>,
    ) -> Self {
        Self {
            whose: OperationOwner::of_handle(handle),
            kind,
            bytes,
            keeps_order: work.keeps_order(),
            running: Mutex::new(GuardedWork { work, kept }),
        }
    }

    /// The point to wait for before another operation on `bytes` begins.
    fn wait_before(&self, bytes: &Range<usize>) -> WaitUntil {
        if !overlap(&self.bytes, bytes) {
            WaitUntil::Now
        } else if self.keeps_order {
            WaitUntil::Local
        } else {
            WaitUntil::Done
        }
    }

    /// Waits for the operation. Returns its error, unless an earlier caller got it, and true if it
    /// is over. Where a caller may not wait, as in a handler, the operation stays in flight. `note`
    /// gets an error before another thread sees that the operation is over.
    fn wait(&self, until: WaitUntil, note: impl FnOnce(&Error)) -> (Result<()>, bool) {
        let mut running = match lock_or_refuse(&self.running, "waiting for an operation") {
            Ok(running) => running,
            Err(cause) => return (Err(cause), false),
        };
        let ended = match until {
            WaitUntil::Now => Ok(()),
            _ if running.work.is_complete() => Ok(()),
            WaitUntil::Local => running.work.wait_local(),
            WaitUntil::Done => running.work.wait(),
        };
        let (ended, is_over) = (ended.map_err(Error::from), running.work.is_complete());
        if let (Err(cause), true) = (&ended, is_over) {
            note(cause);
        }
        (ended, is_over)
    }

    /// Tests the operation without waiting. Returns false if another thread waits for it now.
    fn test(&self) -> (Result<()>, bool) {
        let Some(mut running) = self.running.try_lock() else {
            return (Ok(()), false);
        };
        if running.work.is_complete() {
            return (Ok(()), true);
        }
        match running.work.test() {
            Ok(is_over) => (Ok(()), is_over),
            Err(cause) => (Err(cause.into()), true),
        }
    }
}

/// Takes a lock whose holder may be waiting for the network.
///
/// # Errors
/// [`Error::Hydrant`] in a handler if the lock is taken, because the handler may interrupt the holder.
pub(super) fn lock_or_refuse<'a, T>(
    lock: &'a Mutex<T>,
    what: &'static str,
) -> Result<MutexGuard<'a, T>> {
    if let Some(free) = lock.try_lock() {
        return Ok(free);
    }
    hydrant::may_wait(what)?;
    Ok(lock.lock())
}

impl Outstanding {
    pub(crate) fn new(processes: usize) -> Self {
        Self((0..processes).map(|_| ProcessQueue::default()).collect())
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The error of an older operation that had to be waited for.
    pub(crate) fn add(&self, proc: usize, operation: OutstandingOperation) -> Result<()> {
        let queue = &self.0[proc];
        let oldest = {
            let mut list = queue.list.lock();
            let oldest = (list.len() >= MAX_OUTSTANDING).then(|| Arc::clone(&list[0]));
            list.push(Arc::new(operation));
            queue.count.fetch_add(1, Release);
            oldest
        };
        match oldest.map(|it| queue.wait(&it, WaitUntil::Done, Asker::OfAll)) {
            // Where the caller may not wait, the list grows beyond its limit.
            None | Some(Err(Error::Hydrant(hydrant::Error::InHandler { .. }))) => Ok(()),
            Some(ended) => ended,
        }
    }

    /// Counts `number` more gathered operations to a process.
    pub(crate) fn count_gathered(&self, proc: usize, number: usize) {
        self.0[proc].count.fetch_add(number, Release);
    }

    /// Counts `number` fewer gathered operations to a process.
    pub(crate) fn uncount_gathered(&self, proc: usize, number: usize) {
        self.0[proc].count.fetch_sub(number, Release);
    }

    /// Returns true if no operation to a process is outstanding or gathered, and no error is kept.
    #[inline]
    pub(crate) fn is_idle(&self, proc: usize) -> bool {
        self.0[proc].count.load(Acquire) == 0
    }

    /// Waits for the operations on any of these bytes that the network would not order before a
    /// following put, get or accumulate.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn settle(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.wait_for(proc, |it| it.wait_before(bytes), Asker::OfAll)
    }

    /// As [`settle`](Self::settle), before an accumulate to these elements.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn settle_to_add(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        elements: AddedElements,
    ) -> Result<()> {
        let until = |it: &OutstandingOperation| match it.kind {
            OperationKind::Accumulate(others) if others.commutes_with(elements) => WaitUntil::Now,
            OperationKind::Accumulate(_) | OperationKind::Transfer => it.wait_before(bytes),
        };
        self.wait_for(proc, until, Asker::OfAll)
    }

    /// Waits for all operations on any of these bytes.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn settle_all(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.wait_for(proc, |it| overlap(&it.bytes, bytes).into(), Asker::OfAll)
    }

    /// Waits for all operations to a process.
    ///
    /// # Errors
    /// The error of the first operation that failed, or a kept error of this thread.
    pub(crate) fn fence(&self, proc: usize) -> Result<()> {
        if self.is_idle(proc) {
            return Ok(());
        }
        let ended = self.wait_for(proc, |_| WaitUntil::Done, Asker::OfAll);
        ended.and(self.0[proc].take_missed(Asker::OfAll))
    }

    /// Waits for all operations to all processes.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn fence_all(&self) -> Result<()> {
        first_error((0..self.0.len()).map(|proc| self.fence(proc)))
    }

    /// Waits for the operations of a handle, to any process.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn wait(&self, handle: i32) -> Result<()> {
        first_error((0..self.0.len()).map(|proc| self.wait_at(proc, handle)))
    }

    /// Waits for the operations of a handle to one process.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn wait_at(&self, proc: usize, handle: i32) -> Result<()> {
        if self.is_idle(proc) {
            return Ok(());
        }
        let asker = Asker::OfHandle(handle);
        let ended = self.wait_for(proc, |it| (it.whose.handle() == handle).into(), asker);
        ended.and(self.0[proc].take_missed(asker))
    }

    /// Returns true if no operation of a handle is outstanding.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    pub(crate) fn test(&self, handle: i32) -> Result<bool> {
        let mut done = true;
        let mut outcome = Ok(());
        for queue in &self.0 {
            for operation in queue.select(|it| (it.whose.handle() == handle).then_some(())) {
                let (tested, is_over) = operation.0.test();
                keep_first(&mut outcome, tested);
                if is_over {
                    queue.remove(&operation.0);
                }
                done &= is_over;
            }
            keep_first(&mut outcome, queue.take_missed(Asker::OfHandle(handle)));
        }
        outcome?;
        Ok(done)
    }

    /// Keeps the error of an operation that another thread waited for, until its owner asks.
    pub(super) fn keep(&self, proc: usize, whose: OperationOwner, cause: &Error) {
        self.0[proc].keep(whose, cause);
    }

    fn wait_for(
        &self,
        proc: usize,
        until: impl Fn(&OutstandingOperation) -> WaitUntil,
        asker: Asker,
    ) -> Result<()> {
        let queue = &self.0[proc];
        let selected = queue.select(|it| match until(it) {
            WaitUntil::Now => None,
            until => Some(until),
        });
        first_error(
            (selected.iter()).map(|(operation, until)| queue.wait(operation, *until, asker)),
        )
    }
}

impl ProcessQueue {
    /// The operations for which `which` returns a value, with the value, the oldest first.
    fn select<R>(
        &self,
        which: impl Fn(&OutstandingOperation) -> Option<R>,
    ) -> Vec<(Arc<OutstandingOperation>, R)> {
        if self.count.load(Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        // Most operations are not selected, so only the selected ones are cloned.
        let selected = list.iter().filter_map(|it| {
            let value = which(it)?;
            Some((Arc::clone(it), value))
        });
        selected.collect()
    }

    /// Waits for an operation, and removes it if it is over.
    fn wait(
        &self,
        operation: &Arc<OutstandingOperation>,
        until: WaitUntil,
        asker: Asker,
    ) -> Result<()> {
        let whose = operation.whose;
        let (ended, is_over) = operation.wait(until, |cause| {
            if !whose.is_reported_to(asker) {
                self.keep(whose, cause);
            }
        });
        if is_over {
            self.remove(operation);
        }
        ended
    }

    fn keep(&self, whose: OperationOwner, cause: &Error) {
        let more = self.missed.lock().keep(whose, cause);
        self.count.fetch_add(usize::from(more), Release);
    }

    /// Takes the kept errors for an asker, and returns the first.
    fn take_missed(&self, asker: Asker) -> Result<()> {
        if self.count.load(Acquire) == 0 {
            return Ok(());
        }
        let (taken, first) = self.missed.lock().take(asker);
        self.count.fetch_sub(taken, Release);
        first.map_or(Ok(()), Err)
    }

    /// Removes an operation, unless another thread did.
    fn remove(&self, operation: &Arc<OutstandingOperation>) {
        let mut list = self.list.lock();
        if let Some(at) = list.iter().position(|it| Arc::ptr_eq(it, operation)) {
            list.remove(at);
            self.count.fetch_sub(1, Release);
        }
    }
}

/// Returns true if the two ranges share a byte.
pub(crate) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Runs all of an iterator, and returns the first error.
pub(crate) fn first_error(outcomes: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut all = Ok(());
    outcomes.for_each(|one| keep_first(&mut all, one));
    all
}

fn keep_first(first: &mut Result<()>, next: Result<()>) {
    if first.is_ok() {
        *first = next;
    }
}
