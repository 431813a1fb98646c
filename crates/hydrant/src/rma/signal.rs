//! Puts that signal their arrival, and waits for such signals: OpenSHMEM's put with signal and
//! wait-until.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    time::Duration,
};

use bytemuck::Pod;

use super::{
    handles::{self, PutHandle},
    pointed::{Resolved, resolve},
    section::Section,
};
use crate::{
    BackgroundHandle, Error, GlobalPtr, Rank, Refused, Result,
    atomics::{Verb, begin_exposed},
    memory::{Registry, Symmetric},
    message::Calls,
    progress::{For, On, Progress},
    transfer::Transfer,
};

/// The change of the signal word after the data of a put has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Sets the word.
    Set(u64),
    /// Adds to the word.
    Add(u64),
}

impl<T: Pod> Symmetric<T> {
    /// Puts `data`, then changes a word of `signals` on the same rank. A thread that sees the
    /// change also sees the data.
    ///
    /// # Errors
    /// As [`put`](Self::put), for the data or for the word.
    pub fn put_signal(
        &self,
        rank: Rank,
        index: usize,
        data: &[T],
        signals: &Symmetric<u64>,
        at: usize,
        signal: Signal,
    ) -> Result<()> {
        signals.check_signal(self, rank, at)?;
        self.put(rank, index, data)?;
        signals.signal(rank, at, signal)
    }

    /// Puts a section as [`put_section`](Self::put_section), then changes a word of `signals` on the
    /// same rank.
    ///
    /// # Errors
    /// As [`put_section`](Self::put_section) and [`put_signal`](Self::put_signal).
    #[expect(
        clippy::too_many_arguments,
        reason = "two sections, a buffer and a word, as in the two calls that this joins"
    )]
    pub fn put_section_signal(
        &self,
        rank: Rank,
        to: &Section,
        data: &[T],
        from: &Section,
        signals: &Symmetric<u64>,
        at: usize,
        signal: Signal,
    ) -> Result<()> {
        signals.check_signal(self, rank, at)?;
        self.put_section(rank, to, data, from)?;
        signals.signal(rank, at, signal)
    }
}

impl<T: Pod + Send> Symmetric<T> {
    /// Begins to put `data`, and then to change a word of `signals` on the same rank. The handle
    /// gives the buffer back when both are done. [`Job::quiet`](crate::Job::quiet) waits for both.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// use hydrant::Signal;
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let (field, flags) = (job.alloc::<f64>(100)?, job.alloc::<u64>(1)?);
    /// let put = field.put_signal_nb(job.right(), 0, vec![1.5; 100], &flags, 0, Signal::Set(1))?;
    /// // ... compute ...
    /// job.wait_until(&flags, 0, |word| word == 1)?;
    /// assert_eq!(field.local()?.load(99)?, 1.5);
    /// put.wait()?;
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put_signal`](Self::put_signal), except that handlers may call this. The error gives the
    /// buffer back. The handle reports errors found later.
    pub fn put_signal_nb(
        &self,
        rank: Rank,
        index: usize,
        data: Vec<T>,
        signals: &Symmetric<u64>,
        at: usize,
        signal: Signal,
    ) -> Result<BackgroundHandle<Vec<T>>, Refused<Vec<T>>> {
        let checked = (signals.check_signal(self, rank, at)).and_then(|()| self.block().transfer());
        let progress = match checked {
            Ok(transfer) => Arc::clone(&transfer.progress),
            Err(cause) => return Err(Refused::buffer(data, cause)),
        };
        // The signal is given by a task, which cannot wait.
        progress.settle_if_needed();
        let (put, signals) = (self.put_nb(rank, index, data)?, signals.clone());
        signal_after(&progress, put, move || signals.signal_nb(rank, at, signal))
    }
}

/// Begins to put `data` to the memory that `to` points to, and then to change the word that `at`
/// points to.
///
/// # Errors
/// As [`Job::put_signal_to_nb`](crate::Job::put_signal_to_nb).
pub(crate) fn put_to_nb<T: Pod + Send>(
    (transfer, memory, calls): (&Arc<Transfer>, &Arc<Registry>, &Arc<Calls>),
    to: GlobalPtr<T>,
    data: Vec<T>,
    at: GlobalPtr<u64>,
    signal: Signal,
) -> Result<BackgroundHandle<Vec<T>>, Refused<Vec<T>>> {
    let found = check_ranks(&to, &at).and_then(|rank| {
        let word = resolve(transfer, memory, &at)?;
        if let Resolved::Symmetric(word, index) = &word {
            word.offset(*index, 1)?;
        }
        Ok((rank, word))
    });
    let (rank, word) = match found {
        Ok(found) => found,
        Err(cause) => return Err(Refused::buffer(data, cause)),
    };
    let put = handles::put_to(transfer, memory, to, data)?;
    let (here, memory, calls) = (Arc::clone(transfer), Arc::clone(memory), Arc::clone(calls));
    signal_after(&transfer.progress, put, move || match word {
        Resolved::Symmetric(word, index) => word.signal_nb(rank, index, signal),
        Resolved::Extent(at) => begin_exposed(&here, &memory, &calls, (rank, at), signal.verb()),
    })
}

/// Checks that both pointers lead to memory of one rank. Returns that rank.
///
/// # Errors
/// [`Error::RankMismatch`].
pub(crate) fn check_ranks<T: Pod>(to: &GlobalPtr<T>, at: &GlobalPtr<u64>) -> Result<Rank> {
    if to.rank() != at.rank() {
        return Err(Error::RankMismatch {
            data: to.rank(),
            signal: at.rank(),
        });
    }
    Ok(to.rank())
}

/// Gives a signal after a put is complete.
fn signal_after<T: Pod + Send>(
    progress: &Arc<Progress>,
    put: PutHandle<T>,
    signal: impl FnOnce() -> Result<BackgroundHandle<u64>> + Send + 'static,
) -> Result<BackgroundHandle<Vec<T>>, Refused<Vec<T>>> {
    let put = match put.into_result() {
        Err(put) => put,
        Ok(data) => {
            let given = match signal() {
                Ok(given) => given,
                Err(cause) => return Err(Refused::buffer(data, cause)),
            };
            return match given.into_result() {
                Ok(Ok(_)) => Ok(BackgroundHandle::done(progress, data)),
                Ok(Err(cause)) => Err(Refused::buffer(data, cause)),
                Err(given) => Ok(progress.begin(async move { given.await.map(|_| data) })),
            };
        }
    };
    Ok(progress.begin(async move {
        let data = put.await?;
        signal()?.await?;
        Ok(data)
    }))
}

impl Signal {
    /// Returns the operation that is asked of the owner of the word.
    fn verb(self) -> (Verb, [u64; 2]) {
        match self {
            Signal::Set(value) => (Verb::Swap, [value; 2]),
            Signal::Add(value) => (Verb::Add, [value; 2]),
        }
    }
}

impl Symmetric<u64> {
    /// Checks the signal before anything is put to `memory`.
    fn check_signal<T: Pod>(&self, memory: &Symmetric<T>, rank: Rank, at: usize) -> Result<()> {
        if self.block().job != memory.block().job {
            return Err(Error::ForeignHandle { what: "memory" });
        }
        self.block().part(rank)?;
        self.offset(at, 1).map(drop)
    }

    /// Begins to change a signal word of `rank`. The handle gives the old value. Handlers may call
    /// this.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), except that handlers may call this. The handle reports errors
    /// found later.
    pub fn signal_nb(
        &self,
        rank: Rank,
        at: usize,
        signal: Signal,
    ) -> Result<BackgroundHandle<u64>> {
        let act = |word: &AtomicU64| match signal {
            Signal::Set(value) => word.swap(value, AcqRel),
            Signal::Add(value) => word.fetch_add(value, AcqRel),
        };
        self.settle_before_signal()?;
        self.begin_on_word(rank, at, signal.verb(), act)
    }

    /// Changes a signal word of `rank`. A thread that sees the change also sees all that was put
    /// before.
    ///
    /// # Errors
    /// As [`put`](Symmetric::put).
    pub fn signal(&self, rank: Rank, at: usize, signal: Signal) -> Result<()> {
        self.settle_before_signal()?;
        let changed = match signal {
            Signal::Set(value) => self.change(rank, at, (Verb::Store, [value; 2]), |word| {
                word.store(value, Release);
                value
            }),
            Signal::Add(value) => self.change(rank, at, (Verb::Add, [value; 2]), |word| {
                word.fetch_add(value, AcqRel)
            }),
        };
        changed.map(drop)
    }

    /// Settles changes of own memory. A rank of this host sees the signal by a store, and may tell a rank of another host,
    /// which reaches the old memory.
    fn settle_before_signal(&self) -> Result<()> {
        self.block().transfer()?.progress.settle_if_needed();
        Ok(())
    }
}

/// SignalWords of this rank's part that a thread waits for, in an array or a vector.
pub(crate) struct SignalWords<'a, W> {
    progress: &'a Progress,
    words: W,
}

impl<'a> SignalWords<'a, [&'a AtomicU64; 1]> {
    /// Takes one word of `signals`.
    ///
    /// # Errors
    /// As [`Job::wait_until`](crate::Job::wait_until).
    pub(crate) fn one(
        progress: &'a Progress,
        signals: &'a Symmetric<u64>,
        at: usize,
    ) -> Result<Self> {
        let words = [word(progress, signals, at)?];
        Ok(Self { progress, words })
    }
}

impl<'a> SignalWords<'a, Vec<&'a AtomicU64>> {
    /// Takes several words of `signals`.
    ///
    /// # Errors
    /// As [`Job::wait_until_any`](crate::Job::wait_until_any).
    pub(crate) fn several(
        progress: &'a Progress,
        signals: &'a Symmetric<u64>,
        at: &[usize],
    ) -> Result<Self> {
        if at.is_empty() {
            return Err(Error::NothingToWaitFor);
        }
        let words = at.iter().map(|at| word(progress, signals, *at));
        let words = words.collect::<Result<_>>()?;
        Ok(Self { progress, words })
    }
}

/// Returns a word of this rank's part.
fn word<'a>(progress: &Progress, signals: &'a Symmetric<u64>, at: usize) -> Result<&'a AtomicU64> {
    signals.block().check_job(progress.id)?;
    let part = signals.block().part(progress.rank)?;
    let offset = signals.offset(at, 1)?;
    // The own part is always mapped, and a processor sees every change of the word.
    let mapped = part.mapped.as_ref().ok_or(Error::JobOver)?;
    (mapped.window.atomic_u64(offset)).map_err(|_| Error::JobOver)
}

impl<'a, W: AsRef<[&'a AtomicU64]>> SignalWords<'a, W> {
    /// Returns the first of the words, in their order, that `enough` accepts: its index and its
    /// value.
    ///
    /// # Errors
    /// As [`Job::test_until`](crate::Job::test_until).
    ///
    /// # Panics
    /// If `enough` does.
    pub(crate) fn test(
        &self,
        mut enough: impl FnMut(usize, u64) -> bool,
    ) -> Result<Option<(usize, u64)>> {
        // A program may poll a word that never changes. In virtual time, only this call lets time
        // pass then.
        self.progress.poll_memory();
        let found = self.find_match(&mut enough);
        if found.is_some() {
            return Ok(found);
        }
        match self.progress.memory_poll_failure() {
            None => Ok(None),
            Some(cause) => self.find_match(&mut enough).map(Some).ok_or(cause),
        }
    }

    /// Waits until `enough` accepts one of the words, for at most `time` if it is given.
    ///
    /// # Errors
    /// As [`Job::wait_until`](crate::Job::wait_until).
    ///
    /// # Panics
    /// If `enough` does.
    pub(crate) fn wait(
        &self,
        time: Option<Duration>,
        mut enough: impl FnMut(usize, u64) -> bool,
    ) -> Result<Option<(usize, u64)>> {
        let progress = self.progress;
        let (mut found, mut panicked) = (None, None);
        progress.poll_memory();
        let mut done = || {
            // `enough` runs while the conduit puts this thread to sleep. A panic ends the wait
            // first, and is resumed below.
            let said = panic::catch_unwind(AssertUnwindSafe(|| self.find_match(&mut enough)));
            match said {
                Ok(said) => found = said,
                Err(cause) => panicked = Some(cause),
            }
            found.is_some() || panicked.is_some()
        };
        match time {
            None => progress.wait(On::Anyone, For::Memory, &mut done)?,
            Some(time) => {
                progress.wait_within(On::Anyone, For::Memory, time, &mut done)?;
            }
        }
        match panicked {
            None => Ok(found),
            Some(cause) => panic::resume_unwind(cause),
        }
    }

    fn find_match(&self, enough: &mut impl FnMut(usize, u64) -> bool) -> Option<(usize, u64)> {
        let words = self.words.as_ref().iter().map(|word| word.load(Acquire));
        words
            .enumerate()
            .find(|(place, word)| enough(*place, *word))
    }
}
