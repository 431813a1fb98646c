//! Operations that are not known to be done, by the process whose memory they are about.
//!
//! ARMCI orders what one process does to another's memory: a get sees what was put before, and of two
//! puts to one place the later one stays. Networks do not. So an operation waits for those outstanding
//! that touch the same bytes, unless all goes by messages, which stay in order: then a put that has
//! left is before whatever comes next.

use std::{
    ops::Range,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use parking_lot::Mutex;

use super::packed::Work;
use crate::Result;

/// So many may be outstanding to a process; then the oldest is waited for.
const MOST: usize = 256;

/// The number that implicit handles have.
pub(crate) const IMPLICIT: i32 = 0;

/// What is outstanding, by process.
pub(crate) struct Outstanding(Box<[Queue]>);

#[derive(Default)]
struct Queue {
    /// As many as there are in the list, and as many as handles gather, for whoever wants to know if
    /// there are any.
    count: AtomicUsize,
    list: Mutex<Vec<Operation>>,
}

/// An operation under way.
pub(crate) struct Operation {
    /// Its handle's number.
    pub(crate) handle: i32,
    pub(crate) kind: Kind,
    /// The bytes of the process's arena that it is about.
    pub(crate) bytes: Range<usize>,
    pub(crate) work: Work,
    /// What it puts, if that is not the caller's memory.
    pub(crate) kept: Option<Box<[u8]>>,
}

impl Drop for Operation {
    /// Whoever drops ARMCI waits for nothing else.
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if !self.work.is_complete() && self.work.wait_local().is_err() {
            // The network may still read it.
            std::mem::forget(kept);
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It puts or gets.
    Moves,
    /// It accumulates: the sum is the same in whatever order.
    Adds,
}

/// How long an operation is waited for.
enum Until {
    Now,
    /// It needs no own memory any more.
    Local,
    Done,
}

impl From<bool> for Until {
    fn from(waits: bool) -> Self {
        if waits { Until::Done } else { Until::Now }
    }
}

impl Operation {
    /// How long it is waited for before something about these bytes begins.
    fn in_the_way(&self, bytes: &Range<usize>) -> Until {
        match touch(&self.bytes, bytes) {
            true if self.work.keeps_order() => Until::Local,
            true => Until::Done,
            false => Until::Now,
        }
    }
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
        let mut oldest = Ok(());
        if list.len() >= MOST {
            oldest = list[0].work.wait();
            if list[0].work.is_complete() {
                list.remove(0);
                queue.count.fetch_sub(1, Release);
            }
        }
        list.push(operation);
        queue.count.fetch_add(1, Release);
        Ok(oldest?)
    }

    /// Handles gather so many more to a process.
    pub(crate) fn gather(&self, proc: usize, number: usize) {
        self.0[proc].count.fetch_add(number, Release);
    }

    /// They gather so many fewer.
    pub(crate) fn gathered(&self, proc: usize, number: usize) {
        self.0[proc].count.fetch_sub(number, Release);
    }

    /// Whether nothing is outstanding to a process, and nothing gathered.
    #[inline]
    pub(crate) fn is_idle(&self, proc: usize) -> bool {
        self.0[proc].count.load(Acquire) == 0
    }

    /// Waits for those about any of these bytes, as far as they would not stay before what comes next
    /// by themselves: a put, a get or an accumulate.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn settle(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.end(proc, |it| it.in_the_way(bytes))
    }

    /// As [`settle`](Self::settle), for an accumulate.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn settle_to_add(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.end(proc, |it| match it.kind {
            Kind::Adds => Until::Now,
            Kind::Moves => it.in_the_way(bytes),
        })
    }

    /// Waits for all about any of these bytes.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn settle_all(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.end(proc, |it| touch(&it.bytes, bytes).into())
    }

    /// Waits for all to a process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn fence(&self, proc: usize) -> Result<()> {
        match self.is_idle(proc) {
            true => Ok(()),
            false => self.end(proc, |_| Until::Done),
        }
    }

    /// Waits for all to all processes.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn fence_all(&self) -> Result<()> {
        each((0..self.0.len()).map(|proc| self.fence(proc)))
    }

    /// Waits for those of a handle, to any process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn wait(&self, handle: i32) -> Result<()> {
        each((0..self.0.len()).map(|proc| self.wait_at(proc, handle)))
    }

    /// Waits for those of a handle to one process.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn wait_at(&self, proc: usize, handle: i32) -> Result<()> {
        match self.is_idle(proc) {
            true => Ok(()),
            false => self.end(proc, |it| (it.handle == handle).into()),
        }
    }

    /// Whether none of a handle is outstanding.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn test(&self, handle: i32) -> Result<bool> {
        let mut done = true;
        let mut outcome = Ok(());
        for proc in (0..self.0.len()).filter(|proc| !self.is_idle(*proc)) {
            self.take_out(proc, |it| {
                if it.handle != handle {
                    return false;
                }
                match it.work.test() {
                    Ok(is_over) => {
                        done &= is_over;
                        is_over
                    }
                    Err(cause) => {
                        keep_first(&mut outcome, Err(cause));
                        true
                    }
                }
            });
        }
        outcome?;
        Ok(done)
    }

    fn end(&self, proc: usize, until: impl Fn(&Operation) -> Until) -> Result<()> {
        let mut outcome = Ok(());
        self.take_out(proc, |it| {
            let (ended, is_over) = match until(it) {
                Until::Now => return false,
                Until::Local => (it.work.wait_local(), false),
                Until::Done => (it.work.wait(), true),
            };
            keep_first(&mut outcome, ended);
            // Where nobody can wait, as in a handler, it is under way still.
            is_over && it.work.is_complete()
        });
        Ok(outcome?)
    }

    /// Takes those out that are over.
    fn take_out(&self, proc: usize, mut is_over: impl FnMut(&mut Operation) -> bool) {
        let queue = &self.0[proc];
        let mut list = queue.list.lock();
        let before = list.len();
        list.retain_mut(|it| !is_over(it));
        queue.count.fetch_sub(before - list.len(), Release);
    }
}

/// Whether some byte is in both.
pub(crate) fn touch(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// All of them, whatever befalls one: what befell the first that failed.
pub(crate) fn each(outcomes: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut all = Ok(());
    outcomes.for_each(|one| keep_first(&mut all, one));
    all
}

fn keep_first<E>(first: &mut Result<(), E>, next: Result<(), E>) {
    if first.is_ok() {
        *first = next;
    }
}
