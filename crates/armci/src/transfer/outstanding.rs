//! Operations that are not known to be done, by the process whose memory they are about.
//!
//! ARMCI orders what one process does to another's memory: a get sees what was put before, and of two
//! puts to one place the later one stays. Networks do not. So an operation waits for those outstanding
//! that touch the same bytes, unless all goes by messages, which stay in order: then a put that has
//! left is before whatever comes next.

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
    missed::{Asker, Missed, Whose},
    packed::Work,
};
use crate::{Error, Result};

/// So many may be outstanding to a process; then the oldest is waited for.
const MAX_OUTSTANDING: usize = 256;

/// The number that implicit handles have.
pub(crate) const IMPLICIT: i32 = 0;

/// What is outstanding, by process.
pub(crate) struct Outstanding(Box<[Queue]>);

#[derive(Default)]
struct Queue {
    /// As many as there are in the list, as handles gather, and as errors are kept, for whoever wants to
    /// know if there are any.
    count: AtomicUsize,
    /// The oldest first. It is locked to look at it and never while anything is waited for: who waits runs
    /// handlers, which may look, too.
    list: Mutex<Vec<Arc<Operation>>>,
    /// What befell some, until those are told whose they were.
    missed: Mutex<Missed>,
}

/// An operation under way.
pub(crate) struct Operation {
    whose: Whose,
    kind: Kind,
    /// The bytes of the process's arena that it is about.
    bytes: Range<usize>,
    keeps_order: bool,
    /// Whoever waits for it has the lock.
    running: Mutex<Running>,
}

struct Running {
    work: Work,
    /// What it puts, if that is not the caller's memory.
    kept: Option<Box<[u8]>>,
}

impl Drop for Running {
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
    /// It accumulates.
    Adds(Elements),
}

/// What elements an accumulate adds to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Numbers that all begin so many bytes behind a multiple of their size: the sum is the same in
    /// whatever order such are added to.
    Alike(Number, usize),
    /// Others, of which the bytes of one may be in two of another operation.
    Apart,
}

impl Elements {
    /// Those of runs that begin at these bytes.
    pub(crate) fn of(number: Number, starts: impl Iterator<Item = usize>) -> Self {
        let mut behind = starts.map(|start| start % number.size());
        match behind.next() {
            Some(first) if behind.all(|it| it == first) => Self::Alike(number, first),
            _ => Self::Apart,
        }
    }

    /// Whether it does not matter which of the two is added to first.
    fn commute(self, other: Self) -> bool {
        self != Self::Apart && self == other
    }
}

/// How long an operation is waited for.
#[derive(Clone, Copy)]
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
    pub(crate) fn new(
        handle: i32,
        kind: Kind,
        bytes: Range<usize>,
        work: Work,
        kept: Option<Box<[u8]>>,
    ) -> Self {
        Self {
            whose: Whose::begun(handle),
            kind,
            bytes,
            keeps_order: work.keeps_order(),
            running: Mutex::new(Running { work, kept }),
        }
    }

    /// How long it is waited for before something about these bytes begins.
    fn in_the_way(&self, bytes: &Range<usize>) -> Until {
        match touch(&self.bytes, bytes) {
            true if self.keeps_order => Until::Local,
            true => Until::Done,
            false => Until::Now,
        }
    }

    /// Waits for it: how that went, unless somebody was told before, and whether it is over. Where nobody
    /// can wait, as in a handler, it is under way still. What befell it is noted before anybody else
    /// sees that it is over.
    fn wait(&self, until: Until, note: impl FnOnce(&Error)) -> (Result<()>, bool) {
        let mut running = match turn(&self.running, "waiting for an operation") {
            Ok(running) => running,
            Err(cause) => return (Err(cause), false),
        };
        let ended = match until {
            Until::Now => Ok(()),
            _ if running.work.is_complete() => Ok(()),
            Until::Local => running.work.wait_local(),
            Until::Done => running.work.wait(),
        };
        let (ended, is_over) = (ended.map_err(Error::from), running.work.is_complete());
        if let (Err(cause), true) = (&ended, is_over) {
            note(cause);
        }
        (ended, is_over)
    }

    /// Whether it is over, without waiting: not as far as is known while somebody waits for it.
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

/// Locks what somebody may have locked who waits for the network.
///
/// # Errors
/// [`Error::Hydrant`] in a handler, if somebody has: that may be who the handler interrupts.
pub(super) fn turn<'a, T>(lock: &'a Mutex<T>, what: &'static str) -> Result<MutexGuard<'a, T>> {
    if let Some(free) = lock.try_lock() {
        return Ok(free);
    }
    hydrant::may_wait(what)?;
    Ok(lock.lock())
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
        let oldest = {
            let mut list = queue.list.lock();
            let oldest = (list.len() >= MAX_OUTSTANDING).then(|| Arc::clone(&list[0]));
            list.push(Arc::new(operation));
            queue.count.fetch_add(1, Release);
            oldest
        };
        match oldest.map(|it| queue.wait(&it, Until::Done, Asker::OfAll)) {
            // Where nobody can wait there are more.
            None | Some(Err(Error::Hydrant(hydrant::Error::InHandler { .. }))) => Ok(()),
            Some(ended) => ended,
        }
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
        self.end(proc, |it| it.in_the_way(bytes), Asker::OfAll)
    }

    /// As [`settle`](Self::settle), for an accumulate to such elements.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn settle_to_add(
        &self,
        proc: usize,
        bytes: &Range<usize>,
        elements: Elements,
    ) -> Result<()> {
        let until = |it: &Operation| match it.kind {
            Kind::Adds(others) if others.commute(elements) => Until::Now,
            Kind::Adds(_) | Kind::Moves => it.in_the_way(bytes),
        };
        self.end(proc, until, Asker::OfAll)
    }

    /// Waits for all about any of these bytes.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn settle_all(&self, proc: usize, bytes: &Range<usize>) -> Result<()> {
        self.end(proc, |it| touch(&it.bytes, bytes).into(), Asker::OfAll)
    }

    /// Waits for all to a process.
    ///
    /// # Errors
    /// What befell the first that failed, or one of this thread's that others waited for.
    pub(crate) fn fence(&self, proc: usize) -> Result<()> {
        match self.is_idle(proc) {
            true => Ok(()),
            false => {
                let ended = self.end(proc, |_| Until::Done, Asker::OfAll);
                ended.and(self.0[proc].told(Asker::OfAll))
            }
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
            false => {
                let asker = Asker::OfHandle(handle);
                let ended = self.end(proc, |it| (it.whose.handle() == handle).into(), asker);
                ended.and(self.0[proc].told(asker))
            }
        }
    }

    /// Whether none of a handle is outstanding.
    ///
    /// # Errors
    /// What befell the first that failed.
    pub(crate) fn test(&self, handle: i32) -> Result<bool> {
        let mut done = true;
        let mut outcome = Ok(());
        for queue in &self.0 {
            for operation in queue.those(|it| (it.whose.handle() == handle).then_some(())) {
                let (tested, is_over) = operation.0.test();
                keep_first(&mut outcome, tested);
                if is_over {
                    queue.take_out(&operation.0);
                }
                done &= is_over;
            }
            keep_first(&mut outcome, queue.told(Asker::OfHandle(handle)));
        }
        outcome?;
        Ok(done)
    }

    /// What befell something of this process's that another thread waited for is kept for whom it is for.
    pub(super) fn keep(&self, proc: usize, whose: Whose, cause: &Error) {
        self.0[proc].keep(whose, cause);
    }

    fn end(&self, proc: usize, until: impl Fn(&Operation) -> Until, asker: Asker) -> Result<()> {
        let queue = &self.0[proc];
        let those = queue.those(|it| match until(it) {
            Until::Now => None,
            until => Some(until),
        });
        each((those.iter()).map(|(operation, until)| queue.wait(operation, *until, asker)))
    }
}

impl Queue {
    /// Those that something is said of, and what, the oldest first.
    fn those<R>(&self, which: impl Fn(&Operation) -> Option<R>) -> Vec<(Arc<Operation>, R)> {
        if self.count.load(Acquire) == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        // Most are looked at and left alone.
        let those = list.iter().filter_map(|it| {
            let said = which(it)?;
            Some((Arc::clone(it), said))
        });
        those.collect()
    }

    /// Waits for one, and takes it out if it is over.
    fn wait(&self, operation: &Arc<Operation>, until: Until, asker: Asker) -> Result<()> {
        let whose = operation.whose;
        let (ended, is_over) = operation.wait(until, |cause| {
            if !whose.is(asker) {
                self.keep(whose, cause);
            }
        });
        if is_over {
            self.take_out(operation);
        }
        ended
    }

    fn keep(&self, whose: Whose, cause: &Error) {
        let more = self.missed.lock().keep(whose, cause);
        self.count.fetch_add(usize::from(more), Release);
    }

    /// What befell those of who asks while another waited for them, the first of it.
    fn told(&self, asker: Asker) -> Result<()> {
        if self.count.load(Acquire) == 0 {
            return Ok(());
        }
        let (told, first) = self.missed.lock().take(asker);
        self.count.fetch_sub(told, Release);
        first.map_or(Ok(()), Err)
    }

    /// Takes one out, unless somebody else did.
    fn take_out(&self, operation: &Arc<Operation>) {
        let mut list = self.list.lock();
        if let Some(at) = list.iter().position(|it| Arc::ptr_eq(it, operation)) {
            list.remove(at);
            self.count.fetch_sub(1, Release);
        }
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

fn keep_first(first: &mut Result<()>, next: Result<()>) {
    if first.is_ok() {
        *first = next;
    }
}
