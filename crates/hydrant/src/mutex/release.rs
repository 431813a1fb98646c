//! Leaving a mutex without waiting.
//!
//! If nobody is known to be next, the tail says whether somebody is: it is asked for, and a task of the
//! job's own goes on with the answer. A grant goes to another host in the same way.

use std::sync::atomic::Ordering::Relaxed;

use super::{Mutexes, PASSED, ranked};
use crate::{Begun, Error, Rank, Result, memory::Symmetric};

/// What is left of a mutex that this rank had, or waited for.
pub(super) enum Left {
    Nothing,
    /// It is being given up.
    Begun(Begun<Passed>),
    /// Who is next has not said so yet, and will find that the mutex is its own.
    ToWhoComes,
    /// That rank ended while this one waited for it. Nobody can leave the queue, so that the mutex is
    /// of no use any more.
    Broken(Rank),
}

/// What became of a mutex that was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passed {
    /// Nobody has it, or who is next was granted it.
    Wholly,
    /// Who is next has not said so yet.
    ToWhoComes,
}

impl Mutexes {
    /// Grants the mutex to `next`, who waits for it.
    #[cold]
    pub(super) fn grant(&self, next: u64, number: usize) -> Result<()> {
        self.words.put_value(self.own, self.next(number), 0)?;
        let (next, granted) = (ranked(next), self.granted(number));
        if self.words.block().part(next)?.mapped.is_some() {
            return self.words.put_value(next, granted, 1);
        }
        let put = self.words.put_nb(next, granted, vec![1])?;
        self.go_on(number, async move {
            put.await?;
            Ok(Passed::Wholly)
        })
    }

    /// Somebody is in the queue behind this rank, and about to say so, or has just done so.
    #[cold]
    pub(super) fn leave_to_next(&self, number: usize) -> Result<()> {
        match self.words.swap(self.own, self.next(number), PASSED)? {
            0 => {
                self.leave(number, Left::ToWhoComes);
                Ok(())
            }
            next => self.grant(next, number),
        }
    }

    /// As the two, with the answer of whoever changes the tail, which is not waited for.
    #[cold]
    pub(super) fn begin_release(&self, rank: Rank, mutex: usize, number: usize) -> Result<()> {
        let (words, own, name) = (self.words.clone(), self.own, self.name());
        let (next, granted) = (self.next(number), self.granted(number));
        let asked = words.compare_swap_nb(rank, mutex, name, 0)?;
        self.go_on(number, async move {
            if asked.await? == name {
                Ok(Passed::Wholly)
            } else {
                pass_on(&words, own, next, granted).await
            }
        })
    }

    fn go_on(
        &self,
        number: usize,
        work: impl Future<Output = Result<Passed>> + Send + 'static,
    ) -> Result<()> {
        let transfer = self.words.block().transfer()?;
        self.leave(number, Left::Begun(transfer.progress.begin(work)));
        Ok(())
    }

    /// For who has the turn.
    fn leave(&self, number: usize, left: Left) {
        let state = &self.states[number];
        *state.left.lock() = left;
        state.is_unsettled.store(1, Relaxed);
    }

    /// Notes that the mutex is of no use any more, if that is so.
    pub(super) fn note_loss(&self, number: usize, outcome: &Result<()>) {
        if let Err(Error::PeerLost(lost)) = outcome {
            self.leave(number, Left::Broken(*lost));
        }
    }

    /// Sees to what is left of the mutex, so that this rank may be in the queue again.
    ///
    /// # Errors
    /// What befell the last unlock; [`Error::PeerLost`] if the mutex can be locked no more.
    #[cold]
    pub(super) fn settle(&self, number: usize) -> Result<()> {
        self.finish_release(number)?;
        let state = &self.states[number];
        let left = std::mem::replace(&mut *state.left.lock(), Left::Nothing);
        match left {
            Left::Nothing | Left::Begun(_) => {}
            Left::Broken(lost) => return Err(Error::PeerLost(lost)),
            Left::ToWhoComes => {
                let next = self.next(number);
                self.wait_for(next, |word| word != PASSED)?;
                self.words.put_value(self.own, next, 0)?;
            }
        }
        state.is_unsettled.store(0, Relaxed);
        Ok(())
    }

    /// Waits until the mutex is given up, if it is being so.
    pub(super) fn finish_release(&self, number: usize) -> Result<()> {
        let left = std::mem::replace(&mut *self.states[number].left.lock(), Left::Nothing);
        let left = match left {
            Left::Begun(release) => match release.wait()? {
                Passed::Wholly => Left::Nothing,
                Passed::ToWhoComes => Left::ToWhoComes,
            },
            left => left,
        };
        *self.states[number].left.lock() = left;
        Ok(())
    }
}

/// As [`Mutexes::leave_to_next`], in a task.
async fn pass_on(
    words: &Symmetric<u64>,
    own: Rank,
    next_at: usize,
    granted: usize,
) -> Result<Passed> {
    let next = words.swap_nb(own, next_at, PASSED)?.await?;
    if next == 0 {
        return Ok(Passed::ToWhoComes);
    }
    // The own part is mapped: that waits for nobody.
    words.put_value(own, next_at, 0)?;
    words.put_nb(ranked(next), granted, vec![1])?.await?;
    Ok(Passed::Wholly)
}
