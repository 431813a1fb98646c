//! Puts that say when they have arrived, and waiting for that (OpenSHMEM's put with signal
//! and wait-until).

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Release},
    },
    time::Duration,
};

use bytemuck::Pod;

use crate::{
    Error, Rank, Result,
    atomics::Verb,
    memory::Symmetric,
    progress::{For, On, Progress},
};

/// What a put does to its signal word once the data is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Sets it.
    Set(u64),
    /// Adds to it.
    Add(u64),
}

impl<T: Pod> Symmetric<T> {
    /// Puts `data`, then changes a word of `signals` on the same rank; who sees the word
    /// changed sees the data.
    ///
    /// # Errors
    /// As [`put`](Self::put), for either.
    pub fn put_signal(
        &self,
        rank: Rank,
        index: usize,
        data: &[T],
        signals: &Symmetric<u64>,
        at: usize,
        signal: Signal,
    ) -> Result<()> {
        // Nothing is put if the signal cannot be given.
        if signals.block().job != self.block().job {
            return Err(Error::ForeignHandle { what: "memory" });
        }
        signals.block().part(rank)?;
        signals.offset(at, 1)?;
        self.put(rank, index, data)?;
        signals.signal(rank, at, signal)
    }
}

impl Symmetric<u64> {
    /// Changes a signal word of `rank`; who sees it changed sees what was put before.
    ///
    /// # Errors
    /// As [`put`](Symmetric::put).
    pub fn signal(&self, rank: Rank, at: usize, signal: Signal) -> Result<()> {
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
}

/// Words of this rank's part that are waited for, in an array or a vector.
pub(crate) struct Words<'a, W> {
    progress: &'a Progress,
    words: W,
}

impl<'a> Words<'a, [&'a AtomicU64; 1]> {
    /// One word of `signals`.
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

impl<'a> Words<'a, Vec<&'a AtomicU64>> {
    /// Several words of `signals`.
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

/// A word of this rank's part.
fn word<'a>(progress: &Progress, signals: &'a Symmetric<u64>, at: usize) -> Result<&'a AtomicU64> {
    signals.block().check_job(progress.id)?;
    let part = signals.block().part(progress.rank)?;
    let offset = signals.offset(at, 1)?;
    // The own part is always mapped, and whoever changes the word, a processor sees it.
    let mapped = part.mapped.as_ref().ok_or(Error::JobOver)?;
    (mapped.window.atomic_u64(offset)).map_err(|_| Error::JobOver)
}

impl<'a, W: AsRef<[&'a AtomicU64]>> Words<'a, W> {
    /// The first of the words, in their order, that is as `enough` wants: its place, and the word.
    ///
    /// # Panics
    /// If `enough` does.
    pub(crate) fn test(&self, mut enough: impl FnMut(usize, u64) -> bool) -> Option<(usize, u64)> {
        // A program may ask again and again for what is so already, and in virtual time nothing else
        // would let time pass.
        self.progress.poll_memory();
        self.look(&mut enough)
    }

    /// Waits until one of the words is as `enough` wants, for so long at most if a time is given.
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
            // It is asked while the conduit puts this thread to sleep: it ends the wait in good
            // order, and unwinds out of here.
            let said = panic::catch_unwind(AssertUnwindSafe(|| self.look(&mut enough)));
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

    fn look(&self, enough: &mut impl FnMut(usize, u64) -> bool) -> Option<(usize, u64)> {
        let words = self.words.as_ref().iter().map(|word| word.load(Acquire));
        words
            .enumerate()
            .find(|(place, word)| enough(*place, *word))
    }
}
