//! Mutexes that the ranks of a job share. They are fair, and a waiter spins on its own memory.
//!
//! Each mutex is a queue lock (Mellor-Crummey and Scott 1991, §2.3). Its *tail*, a word at the mutex's
//! owner, names the last rank in the queue. A rank swaps its own name into the tail. If another rank was
//! there, it writes its name into the successor word of that rank, and waits for the grant in a word of its
//! own memory. So no waiter polls over the network, and ranks get the mutex in the order in which they
//! came. ARMCI's mutexes (Nieplocha and others 2002, Table 1) are queues at the owner's server thread. Here
//! the owner does nothing.
//!
//! Unlocking never waits, as in ARMCI. The part of a release that needs the network goes on in the
//! background ([`release`]), and ends before this rank joins the queue again. A holder that leaves and a
//! successor that arrives may meet. Both swap the holder's successor word, and the later one finds the
//! value of the earlier one: a name or [`PASSED`].
//!
//! A rank may come to the end of the job and still hold a mutex. Its successor notices that, and leaves the queue with
//! an error. It marks the mutex as [`BROKEN`] for its own successor, which does the same.
//!
//! The words of a rank: a tail for each of its mutexes, then a successor word and a grant word for each
//! mutex of the job.

mod closing;
#[cfg(test)]
mod model;
mod release;

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};

use parking_lot::{RawMutex, lock_api::RawMutex as _};

use crate::{
    Error, Rank, Result,
    memory::{Symmetric, check_range},
    progress,
    rma::signal::SignalWords,
};
use release::{NEVER_UNLOCKED, UnfinishedRelease};

/// Sentinel in the successor word: the holder has left, so the next waiter owns the mutex without a grant.
const PASSED: u64 = u64::MAX;
/// The bit that marks a mutex as broken, in a grant word or a successor word. The other bits are the rank whose program
/// ended.
const BROKEN: u64 = 1 << 63;

/// Mutexes of a job, at one rank; see [`Job::mutexes`](crate::Job::mutexes).
pub struct Mutexes {
    words: Symmetric<u64>,
    /// This rank.
    own: Rank,
    /// By rank, the number of mutexes of all earlier ranks; the last entry is the total.
    before: Box<[usize]>,
    /// Words in front of the successor words: tails for the largest count of any rank.
    max_count: usize,
    /// This rank's state of each mutex of the job.
    states: Box<[MutexState]>,
    /// Set while the mutexes may be about to be freed: until that is decided, no thread begins to lock one.
    is_closing: AtomicBool,
}

/// The state of a mutex among the threads of this rank.
struct MutexState {
    /// Held by the thread that has the mutex, or waits for other ranks to give it.
    turn: RawMutex,
    /// The number of that thread; 0 if none.
    thread: AtomicUsize,
    /// Not 0 if this rank has the mutex and no longer waits.
    is_held: AtomicU32,
    /// Not 0 if `unfinished` must be looked at before this rank joins the queue.
    has_unfinished: AtomicU32,
    /// The part of this rank's last release that must end before it joins the queue.
    unfinished: parking_lot::Mutex<UnfinishedRelease>,
}

/// A mutex that this rank holds until the guard is dropped. If the guard is forgotten, the mutex stays
/// locked until [`Mutexes::unlock`].
#[must_use = "the mutex is unlocked as soon as this is dropped"]
pub struct MutexGuard<'a> {
    mutexes: &'a Mutexes,
    rank: Rank,
    mutex: usize,
}

impl MutexGuard<'_> {
    /// Unlocks the mutex and returns the outcome.
    ///
    /// # Errors
    /// As [`Mutexes::unlock`].
    pub fn unlock(self) -> Result<()> {
        let (mutexes, rank, mutex) = (self.mutexes, self.rank, self.mutex);
        std::mem::forget(self);
        mutexes.unlock(rank, mutex)
    }
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        if self.mutexes.words.block().is_forked() {
            return;
        }
        if let Err(cause) = self.mutexes.unlock(self.rank, self.mutex) {
            tracing::warn!(%cause, rank = %self.rank, mutex = self.mutex, "a mutex could not be unlocked");
        }
    }
}

impl std::fmt::Debug for MutexGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MutexGuard(mutex {} of rank {})", self.mutex, self.rank)
    }
}

impl std::fmt::Debug for Mutexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mutexes({} of the job)", self.states.len())
    }
}

/// The words that a rank needs if the ranks have these numbers of mutexes.
pub(crate) fn words_for(counts: &[usize]) -> Option<usize> {
    let most = counts.iter().copied().max().unwrap_or(0);
    let all = (counts.iter()).try_fold(0_usize, |all, count| all.checked_add(*count))?;
    all.checked_mul(2)?.checked_add(most)
}

impl Mutexes {
    /// Makes mutexes from words that are zero.
    pub(crate) fn new(words: Symmetric<u64>, own: Rank, counts: &[usize]) -> Self {
        let mut all = 0;
        let mut before = vec![0];
        before.extend(counts.iter().map(|count| {
            all += count;
            all
        }));
        let state = || MutexState {
            turn: RawMutex::INIT,
            thread: AtomicUsize::new(0),
            is_held: AtomicU32::new(0),
            has_unfinished: AtomicU32::new(0),
            unfinished: parking_lot::Mutex::new(UnfinishedRelease::Nothing),
        };
        Self {
            words,
            own,
            before: before.into(),
            max_count: counts.iter().copied().max().unwrap_or(0),
            states: (0..all).map(|_| state()).collect(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// How many mutexes a rank has.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`].
    pub fn count(&self, rank: Rank) -> Result<usize> {
        match self.before.get(rank.index()..).unwrap_or(&[]) {
            [before, end, ..] => Ok(end - before),
            _ => Err(Error::RankOutOfRange {
                rank,
                size: self.before.len() as u32 - 1,
            }),
        }
    }

    /// Locks a mutex of `rank`, and waits while other holders have it. Ranks get it in the order in which
    /// they came; among threads of this rank the order is open.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::OutOfBounds`] if there is no such mutex, [`Error::MutexHeld`] if
    /// this thread has it, [`Error::InHandler`], [`Error::Freed`], [`Error::JobOver`]. [`Error::PeerLost`]
    /// if a rank is lost while this one waits, and [`Error::PeerEnded`] if the holder came to the end of the
    /// job: then the mutex can no longer be locked.
    #[inline]
    pub fn lock(&self, rank: Rank, mutex: usize) -> Result<MutexGuard<'_>> {
        self.acquire(rank, mutex)?;
        Ok(MutexGuard {
            mutexes: self,
            rank,
            mutex,
        })
    }

    /// Unlocks a mutex of `rank` whose guard was forgotten, in any thread of this rank. A release over the
    /// network is in flight on return. [`Job::quiet`](crate::Job::quiet) waits for it, and so does this
    /// rank's next lock of the mutex, which returns its error.
    ///
    /// # Errors
    /// [`Error::MutexNotHeld`] if this rank does not have it, and as [`lock`](Self::lock).
    pub fn unlock(&self, rank: Rank, mutex: usize) -> Result<()> {
        let number = self.number(rank, mutex)?;
        progress::may_wait("unlocking a mutex")?;
        self.words.block().check_origin()?;
        let state = &self.states[number];
        if state.is_held.swap(0, Acquire) == 0 {
            return Err(Error::MutexNotHeld { rank, mutex });
        }
        if let Ok(transfer) = self.words.block().transfer() {
            // As before a signal: who locks it next may tell others of new memory.
            transfer.progress.settle_if_needed();
        }
        let passed = self.release(rank, mutex, number);
        self.note_loss(number, &passed);
        state.thread.store(0, Relaxed);
        // SAFETY: `is_held` was 1, so this rank has the mutex with the lock of `turn`, and only the thread
        // that swapped `is_held` to 0 releases it.
        #[allow(unsafe_code)]
        unsafe {
            state.turn.unlock();
        }
        passed
    }

    pub(crate) fn words(&self) -> &Symmetric<u64> {
        &self.words
    }

    fn number(&self, rank: Rank, mutex: usize) -> Result<usize> {
        let count = self.count(rank)?;
        check_range(mutex, 1, count)?;
        Ok(self.before[rank.index()] + mutex)
    }

    #[inline]
    fn acquire(&self, rank: Rank, mutex: usize) -> Result<()> {
        let number = self.number(rank, mutex)?;
        progress::may_wait("locking a mutex")?;
        self.words.block().check_origin()?;
        let state = &self.states[number];
        let thread = this_thread();
        loop {
            if !state.turn.try_lock() {
                if state.thread.load(Relaxed) == thread {
                    return Err(Error::MutexHeld { rank, mutex });
                }
                state.turn.lock();
            }
            // Either the closing thread sees that the turn is taken, or this thread sees that the mutexes
            // are closed.
            if !self.is_closing.load(SeqCst) {
                break;
            }
            // SAFETY: this thread has taken the lock above.
            #[allow(unsafe_code)]
            unsafe {
                state.turn.unlock();
            }
            self.wait_while_closing()?;
        }
        let queued = self.join_queue(rank, mutex, number);
        match &queued {
            Ok(()) => {
                state.thread.store(thread, Relaxed);
                state.is_held.store(1, Release);
            }
            Err(_) => {
                self.note_loss(number, &queued);
                // SAFETY: this thread has taken the lock above.
                #[allow(unsafe_code)]
                unsafe {
                    state.turn.unlock();
                }
            }
        }
        queued
    }

    /// Joins the queue of the mutex and waits until this rank has it.
    #[inline]
    fn join_queue(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        if self.states[number].has_unfinished.load(Relaxed) != 0 {
            self.finish_last_release(number)?;
        }
        match self.words.swap(rank, mutex, self.own_name())? {
            0 => Ok(()),
            last => self.wait_behind(last, number),
        }
    }

    #[cold]
    fn wait_behind(&self, last: u64, number: usize) -> Result<()> {
        let (before_this, granted) = (rank_of(last), self.grant_word(number));
        match (self.words).swap(before_this, self.successor_word(number), self.own_name())? {
            PASSED => return Ok(()),
            0 => {}
            broken => return self.leave_broken(number, broken),
        }
        let progress = Arc::clone(&self.words.block().transfer()?.progress);
        let has_ended = || progress.check_present(before_this, NEVER_UNLOCKED);
        self.wait_for(granted, |word| {
            word != 0 || matches!(has_ended(), Err(Error::PeerEnded { .. }))
        })?;
        match self.words.get_value(self.own, granted)? {
            // Nobody else writes the grant word until this rank joins the queue again.
            1 => self.words.put_value(self.own, granted, 0),
            0 => self.leave_broken(number, broken_by(before_this)),
            broken => self.leave_broken(number, broken),
        }
    }

    /// Gives the mutex to the next waiter, or to nobody.
    #[inline]
    fn release(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        let next = self
            .words
            .get_value(self.own, self.successor_word(number))?;
        if next != 0 {
            return self.grant(next, number);
        }
        match self
            .words
            .compare_swap_here(rank, mutex, self.own_name(), 0)?
        {
            Some(last) if last == self.own_name() => Ok(()),
            Some(_) => self.leave_to_successor(number),
            None => self.begin_release(rank, mutex, number),
        }
    }

    /// Waits until `enough` holds for one of this rank's words.
    fn wait_for(&self, at: usize, enough: impl Fn(u64) -> bool) -> Result<()> {
        let transfer = self.words.block().transfer()?;
        let words = SignalWords::one(&transfer.progress, &self.words, at)?;
        words.wait(None, |_, word| enough(word)).map(drop)
    }

    /// The name of this rank in words: never 0.
    fn own_name(&self) -> u64 {
        u64::from(self.own.0) + 1
    }

    fn successor_word(&self, number: usize) -> usize {
        self.max_count + 2 * number
    }

    fn grant_word(&self, number: usize) -> usize {
        self.successor_word(number) + 1
    }
}

/// The mark of a mutex that `rank` never unlocks.
fn broken_by(rank: Rank) -> u64 {
    BROKEN | u64::from(rank.0)
}

/// The rank of this name.
fn rank_of(name: u64) -> Rank {
    Rank((name - 1) as u32)
}

/// A number that no other thread has or had; never 0. The address of a thread-local would not do, because a
/// later thread may get the same.
fn this_thread() -> usize {
    thread_local!(static HERE: Cell<usize> = const { Cell::new(0) });
    HERE.with(|here| match here.get() {
        0 => number(here),
        known => known,
    })
}

#[cold]
fn number(here: &Cell<usize>) -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let number = LAST.fetch_add(1, Relaxed) + 1;
    here.set(number);
    number
}
