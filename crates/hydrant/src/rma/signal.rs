//! Puts that say when they have arrived, and waiting for that (OpenSHMEM's put with signal
//! and wait-until).

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::Ordering::{AcqRel, Acquire, Release},
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

/// Waits until word `at` of this rank's part is as `enough` wants, and returns it.
///
/// # Errors
/// As [`Job::wait_until`](crate::Job::wait_until).
///
/// # Panics
/// If `enough` does.
pub(crate) fn wait_until(
    progress: &Progress,
    signals: &Symmetric<u64>,
    at: usize,
    mut enough: impl FnMut(u64) -> bool,
) -> Result<u64> {
    signals.block().check_job(progress.id)?;
    let part = signals.block().part(progress.rank)?;
    let offset = signals.offset(at, 1)?;
    // The own part is always mapped, and whoever changes the word, a processor sees it.
    let mapped = part.mapped.as_ref().ok_or(Error::JobOver)?;
    let word = (mapped.window.atomic_u64(offset)).map_err(|_| Error::JobOver)?;
    let mut value = 0;
    let mut panicked = None;
    // A program may ask again and again for what is so already, and in virtual time nothing else
    // would let time pass.
    progress.poll_memory();
    progress.wait(On::Anyone, For::Memory, || {
        value = word.load(Acquire);
        // It is asked while the conduit puts this thread to sleep: it ends the wait in good
        // order, and unwinds out of here.
        let said = panic::catch_unwind(AssertUnwindSafe(|| enough(value)));
        said.unwrap_or_else(|cause| {
            panicked = Some(cause);
            true
        })
    })?;
    match panicked {
        None => Ok(value),
        Some(cause) => panic::resume_unwind(cause),
    }
}
