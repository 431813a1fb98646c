//! Atomic operations in the background.

use std::sync::Arc;

use bytemuck::Pod;
use hydrant_conduit::Remote;

use super::{
    AtomicInteger,
    by_message::{AtomicRequest, Verb, answer_of, on_own_exposed, word_of},
    native,
    sealed::Sealed,
};
use crate::{
    BackgroundHandle, Error, Rank, Result,
    counters::Count,
    memory::{Block, Registry, Symmetric},
    message::{CallFuture, Calls},
    progress::Progress,
    transfer::Transfer,
};

impl<T: Pod + Sealed> Symmetric<T> {
    /// Begins an operation on the word of an element. `act` is run where the word is mapped; otherwise its
    /// owner or NIC does `what`.
    pub(crate) fn begin_on_word(
        &self,
        rank: Rank,
        index: usize,
        what: (Verb, [T; 2]),
        act: impl FnOnce(&T::Word) -> T,
    ) -> Result<BackgroundHandle<T>> {
        let block = self.shared_block();
        let part = block.word_part(rank, T::WIDE)?;
        let offset = self.offset(index, 1)?;
        block.count_atomic()?;
        let transfer = block.transfer()?;
        let progress = &transfer.progress;
        progress.check_running()?;
        let word = (part.mapped.as_ref()).and_then(|mapped| T::word(&mapped.window, offset));
        if let Some(word) = word {
            let old = act(word);
            if what.0 != Verb::Load {
                block.wake_watchers(rank);
            }
            return Ok(BackgroundHandle::done(progress, old));
        }
        if !(T::WIDE && block.by_nics) {
            return ask(progress, block, rank, offset, what);
        }
        let mapped = block.part(rank)?.mapped.as_ref();
        if let Some(word) = mapped.and_then(|mapped| T::word(&mapped.window, offset))
            && what.0 == Verb::Load
        {
            return Ok(BackgroundHandle::done(progress, T::load(word)));
        }
        let at = (block.offset + offset) as u64;
        let (verb, operands) = what;
        let done = native::change_later(
            Arc::clone(&transfer),
            rank,
            at,
            (verb, T::KIND),
            operands.map(T::to_bits),
        );
        Ok(progress.begin(async move { done.await.map(T::of_bits) }))
    }

    /// Begins to load an element atomically.
    ///
    /// # Errors
    /// As [`atomic_load`](Self::atomic_load); errors found later are the handle's. Works in a handler, too.
    pub fn atomic_load_nb(&self, rank: Rank, index: usize) -> Result<BackgroundHandle<T>> {
        self.begin_on_word(rank, index, (Verb::Load, [T::zeroed(); 2]), T::load)
    }

    /// Begins to store an element; the handle returns its old value.
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn swap_nb(&self, rank: Rank, index: usize, value: T) -> Result<BackgroundHandle<T>> {
        let what = (Verb::Swap, [value; 2]);
        self.begin_on_word(rank, index, what, |word| T::swap(word, value))
    }

    /// Begins to store an element if it equals `expected`, bit for bit; the handle returns its old value.
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn compare_swap_nb(
        &self,
        rank: Rank,
        index: usize,
        expected: T,
        value: T,
    ) -> Result<BackgroundHandle<T>> {
        let what = (Verb::CompareSwap, [value, expected]);
        self.begin_on_word(rank, index, what, |word| {
            T::compare_swap(word, expected, value).unwrap_or_else(|old| old)
        })
    }

    /// Begins to add to an element; the handle gives what it was. Integers wrap.
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(2, |job| {
    /// let counts = job.alloc::<u64>(8)?;
    /// let begun = (0..8).map(|at| counts.fetch_add_nb(job.right(), at, at as u64));
    /// let begun = begun.collect::<hydrant::Result<Vec<_>>>()?;
    /// // ... compute ...
    /// for add in begun {
    ///     assert_eq!(add.wait()?, 0);
    /// }
    /// job.barrier()?;
    /// assert_eq!(counts.local()?.load(7)?, 7);
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn fetch_add_nb(&self, rank: Rank, index: usize, value: T) -> Result<BackgroundHandle<T>> {
        let what = (Verb::Add, [value; 2]);
        self.begin_on_word(rank, index, what, |word| T::fetch_add(word, value))
    }
}

impl<T: AtomicInteger> Symmetric<T> {
    /// Begins to take the bitwise and of an element and `value`; the handle gives what it was.
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn fetch_and_nb(&self, rank: Rank, index: usize, value: T) -> Result<BackgroundHandle<T>> {
        let what = (Verb::And, [value; 2]);
        self.begin_on_word(rank, index, what, |word| T::fetch_and(word, value))
    }

    /// Begins to take the bitwise or of an element and `value`; the handle gives what it was.
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn fetch_or_nb(&self, rank: Rank, index: usize, value: T) -> Result<BackgroundHandle<T>> {
        let what = (Verb::Or, [value; 2]);
        self.begin_on_word(rank, index, what, |word| T::fetch_or(word, value))
    }

    /// Begins to take the bitwise exclusive or of an element and `value`; the handle gives what it was.
    ///
    /// # Errors
    /// As [`atomic_load_nb`](Self::atomic_load_nb).
    pub fn fetch_xor_nb(&self, rank: Rank, index: usize, value: T) -> Result<BackgroundHandle<T>> {
        let what = (Verb::Xor, [value; 2]);
        self.begin_on_word(rank, index, what, |word| T::fetch_xor(word, value))
    }
}

/// Asks the owner of a word for an operation.
fn ask<T: Pod + Sealed>(
    progress: &Arc<Progress>,
    block: &Arc<Block>,
    rank: Rank,
    offset: usize,
    what: (Verb, [T; 2]),
) -> Result<BackgroundHandle<T>> {
    let question = AtomicRequest::of_allocation(block.number, offset, what);
    let mut id = question.begin(progress, &block.calls, rank)?;
    let (here, block) = (Arc::clone(progress), Arc::clone(block));
    Ok(progress.begin(async move {
        loop {
            match CallFuture::new(&here, &block.calls, rank, id).await {
                // The allocation exists here: its owner does not know it yet, or this rank is about to free
                // it, too.
                Err(Error::Freed) => {
                    block.check()?;
                    id = question.begin(&here, &block.calls, rank)?;
                }
                answer => return answer.map(|answer| T::of_bits(word_of(answer))),
            }
        }
    }))
}

/// Begins an operation of the owner on a word of its exposed buffer.
pub(crate) fn begin_exposed<T: Pod + Sealed>(
    transfer: &Transfer,
    memory: &Registry,
    calls: &Arc<Calls>,
    (rank, place): (Rank, Remote),
    what: (Verb, [T; 2]),
) -> Result<BackgroundHandle<T>> {
    let progress = &transfer.progress;
    progress.check_running()?;
    progress.tally.one(Count::Atomics);
    if rank == progress.rank {
        progress.poll_memory();
        let old = answer_of(place.offset, on_own_exposed(memory, rank, place, what))?;
        return Ok(BackgroundHandle::done(progress, old));
    }
    let id = AtomicRequest::of_exposed(place, what).begin(progress, calls, rank)?;
    let call = CallFuture::new(progress, calls, rank, id);
    Ok(progress.begin(async move { answer_of(place.offset, call.await.map(word_of)) }))
}
