//! Mutexes that the ranks of a job share: fair, and waited for in the waiter's own memory.
//!
//! Each is a queue lock (Mellor-Crummey and Scott 1991, §2.3). Its *tail*, a word at the mutex's owner,
//! says who is last in the queue. Who comes swaps itself in: if somebody was there, it tells that one
//! who comes next, and waits for a word of its own memory to be granted. So nobody asks the network
//! again and again, and the mutex goes from rank to rank in the order in which they came. ARMCI's
//! mutexes (Nieplocha and others 2002, Table 1) are queues at the owner's server thread; here the owner
//! has nothing to do.
//!
//! Who leaves waits for nobody, as ARMCI's unlock does not: what must be asked of the network goes on
//! by itself ([`release`]), and what comes of it is known before this rank is in the queue again. So
//! two that leave and come at once settle it by the word that says who is next: both swap, and the
//! later one finds what the earlier one left there, a name or [`PASSED`].
//!
//! A rank may come to the end of the job and still have a mutex. The rank behind it notices that, and leaves the queue
//! with an error. It marks the mutex as [`BROKEN`] for the rank behind itself, which does the same.
//!
//! The words of a rank: a tail for each of its mutexes, then for each mutex of the job who is next
//! after this rank and whether this rank was granted it.

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
    rma::signal::Words,
};
use release::{Left, NEVER_UNLOCKED};

/// Who left wrote this where who is next says so: the mutex is that one's, without a grant.
const PASSED: u64 = u64::MAX;
/// The bit that marks a mutex as broken, in a word that grants it or says who is next. The other bits are the rank
/// whose program ended.
const BROKEN: u64 = 1 << 63;

/// Mutexes of a job, at one rank; see [`Job::mutexes`](crate::Job::mutexes).
pub struct Mutexes {
    words: Symmetric<u64>,
    /// This rank.
    own: Rank,
    /// Mutexes of the ranks before each, and of all at the end.
    before: Box<[usize]>,
    /// Words before those of a rank that say who comes next.
    tails: usize,
    /// What this rank knows of each mutex of the job.
    states: Box<[State]>,
    /// Whether they are about to be done away with: until that is decided nobody begins to lock one.
    is_closing: AtomicBool,
}

/// A mutex, among the threads of this rank.
struct State {
    /// Who of them has it, or waits for other ranks to give it.
    turn: RawMutex,
    /// Which thread that is; 0 if none.
    thread: AtomicUsize,
    /// Whether this rank has the mutex, and no longer waits.
    is_held: AtomicU32,
    /// Whether `left` says anything.
    is_unsettled: AtomicU32,
    /// What is to be seen to before this rank is in the queue again.
    left: parking_lot::Mutex<Left>,
}

/// A mutex that this rank has, until this is dropped. If it is forgotten, it is held on, until
/// [`Mutexes::unlock`].
#[must_use = "the mutex is unlocked as soon as this is dropped"]
pub struct MutexGuard<'a> {
    mutexes: &'a Mutexes,
    rank: Rank,
    mutex: usize,
}

impl MutexGuard<'_> {
    /// Unlocks it, and says how that went.
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

/// Words that a rank needs where the ranks have so many mutexes.
pub(crate) fn words_for(counts: &[usize]) -> Option<usize> {
    let most = counts.iter().copied().max().unwrap_or(0);
    let all = (counts.iter()).try_fold(0_usize, |all, count| all.checked_add(*count))?;
    all.checked_mul(2)?.checked_add(most)
}

impl Mutexes {
    /// Mutexes whose words are zero.
    pub(crate) fn new(words: Symmetric<u64>, own: Rank, counts: &[usize]) -> Self {
        let mut all = 0;
        let mut before = vec![0];
        before.extend(counts.iter().map(|count| {
            all += count;
            all
        }));
        let state = || State {
            turn: RawMutex::INIT,
            thread: AtomicUsize::new(0),
            is_held: AtomicU32::new(0),
            is_unsettled: AtomicU32::new(0),
            left: parking_lot::Mutex::new(Left::Nothing),
        };
        Self {
            words,
            own,
            before: before.into(),
            tails: counts.iter().copied().max().unwrap_or(0),
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

    /// Locks a mutex of `rank`; waits while others have it. Of ranks, the one that came first gets it
    /// first; of threads of this rank, any.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::OutOfBounds`] if there is no such mutex,
    /// [`Error::MutexHeld`] if this thread has it, [`Error::InHandler`], [`Error::Freed`],
    /// [`Error::JobOver`]; [`Error::PeerLost`] if a rank is lost while this one waits, [`Error::PeerEnded`] if the rank
    /// that has the mutex came to the end of the job: then the mutex can be locked no more.
    #[inline]
    pub fn lock(&self, rank: Rank, mutex: usize) -> Result<MutexGuard<'_>> {
        self.acquire(rank, mutex)?;
        Ok(MutexGuard {
            mutexes: self,
            rank,
            mutex,
        })
    }

    /// Unlocks a mutex of `rank` that a forgotten guard holds, of any thread of this rank. Where that
    /// takes the network it is under way on return: [`Job::quiet`](crate::Job::quiet) waits for it, and
    /// so does this rank's next lock of the mutex, which says if it failed.
    ///
    /// # Errors
    /// [`Error::MutexNotHeld`] if this rank has not got it, and as [`lock`](Self::lock).
    pub fn unlock(&self, rank: Rank, mutex: usize) -> Result<()> {
        let number = self.number(rank, mutex)?;
        progress::may_wait("unlocking a mutex")?;
        self.words.block().check_origin()?;
        let state = &self.states[number];
        if state.is_held.swap(0, Acquire) == 0 {
            return Err(Error::MutexNotHeld { rank, mutex });
        }
        let passed = self.pass_on(rank, mutex, number);
        self.note_loss(number, &passed);
        state.thread.store(0, Relaxed);
        // SAFETY: who got `is_held` has the turn that came with it.
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
            // Whoever closes them sees that the turn is taken, or this sees that they are closed.
            if !self.is_closing.load(SeqCst) {
                break;
            }
            // SAFETY: it was taken above.
            #[allow(unsafe_code)]
            unsafe {
                state.turn.unlock();
            }
            self.wait_while_closing()?;
        }
        let queued = self.queue(rank, mutex, number);
        match &queued {
            Ok(()) => {
                state.thread.store(thread, Relaxed);
                state.is_held.store(1, Release);
            }
            Err(_) => {
                self.note_loss(number, &queued);
                // SAFETY: it was taken above.
                #[allow(unsafe_code)]
                unsafe {
                    state.turn.unlock();
                }
            }
        }
        queued
    }

    /// Waits for the mutex in its queue.
    #[inline]
    fn queue(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        if self.states[number].is_unsettled.load(Relaxed) != 0 {
            self.settle(number)?;
        }
        match self.words.swap(rank, mutex, self.name())? {
            0 => Ok(()),
            last => self.wait_behind(last, number),
        }
    }

    #[cold]
    fn wait_behind(&self, last: u64, number: usize) -> Result<()> {
        let (before_this, granted) = (ranked(last), self.granted(number));
        match (self.words).swap(before_this, self.next(number), self.name())? {
            PASSED => return Ok(()),
            0 => {}
            broken => return self.give_up(number, broken),
        }
        let progress = Arc::clone(&self.words.block().transfer()?.progress);
        let has_ended = || progress.check_present(before_this, NEVER_UNLOCKED);
        self.wait_for(granted, |word| {
            word != 0 || matches!(has_ended(), Err(Error::PeerEnded { .. }))
        })?;
        match self.words.get_value(self.own, granted)? {
            // Nobody else writes to it until this rank is in the queue again.
            1 => self.words.put_value(self.own, granted, 0),
            0 => self.give_up(number, broken_by(before_this)),
            broken => self.give_up(number, broken),
        }
    }

    /// Gives the mutex to who is next.
    #[inline]
    fn pass_on(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        let next = self.words.get_value(self.own, self.next(number))?;
        if next != 0 {
            return self.grant(next, number);
        }
        match self.words.compare_swap_here(rank, mutex, self.name(), 0)? {
            Some(last) if last == self.name() => Ok(()),
            Some(_) => self.leave_to_next(number),
            None => self.begin_release(rank, mutex, number),
        }
    }

    /// Waits until one of this rank's words is as `enough` says.
    fn wait_for(&self, at: usize, enough: impl Fn(u64) -> bool) -> Result<()> {
        let transfer = self.words.block().transfer()?;
        let words = Words::one(&transfer.progress, &self.words, at)?;
        words.wait(None, |_, word| enough(word)).map(drop)
    }

    /// What this rank writes into words.
    fn name(&self) -> u64 {
        u64::from(self.own.0) + 1
    }

    fn next(&self, number: usize) -> usize {
        self.tails + 2 * number
    }

    fn granted(&self, number: usize) -> usize {
        self.next(number) + 1
    }
}

/// The mark of a mutex that this rank never unlocks.
fn broken_by(rank: Rank) -> u64 {
    BROKEN | u64::from(rank.0)
}

/// The rank that wrote this into a word.
fn ranked(name: u64) -> Rank {
    Rank((name - 1) as u32)
}

/// A number that no other thread has or had; never 0. An address of the thread's own will not do: who
/// comes after it may get the same.
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
