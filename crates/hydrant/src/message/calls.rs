//! Questions to other ranks, and the answers that are waited for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Waker,
    time::Duration,
};

use hydrant_conduit::Standing;
use parking_lot::{Mutex, MutexGuard};

use super::large::{Lent, let_go};
use crate::{
    Error, Rank, Result,
    progress::{For, On, Progress},
};

/// Questions that were asked and not yet answered, and answers that nobody took yet.
#[derive(Default)]
pub(crate) struct Calls {
    /// By number.
    open: Mutex<HashMap<u64, Question>>,
    /// The next question's number.
    next: AtomicU64,
}

/// What an answer says: bytes, or how the question failed at the target.
type Answer = Result<Vec<u8>>;

struct Question {
    /// Who was asked.
    rank: Rank,
    state: State,
    /// What the question is about, until it is answered. Dropped when nothing is locked.
    lent: Option<Lent>,
    /// The answer is being got.
    ending: bool,
    /// Only [`Job::am_quiet`](crate::Job::am_quiet) reports how the call ended.
    one_way: bool,
    /// The function has begun, and uses no memory of a caller any more.
    begun: bool,
}

enum State {
    /// It is not answered; a task that waits for that is woken.
    Asked(Option<Waker>),
    Answered(Answer),
    /// Nobody wants to know any more.
    Abandoned,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Question>> {
        self.open.lock()
    }

    /// Asks `rank` by the message that `send` sends under the number given, and waits for what
    /// [`end`](Self::end) takes for that number.
    ///
    /// # Errors
    /// What `send` returns, what the answer says, [`Error::PeerLost`].
    pub(crate) fn ask(
        &self,
        progress: &Progress,
        rank: Rank,
        send: impl FnOnce(u64) -> Result<()>,
    ) -> Answer {
        let id = self.begin(rank, None, send)?;
        self.wait(progress, rank, id)
    }

    /// Asks `rank` by the message that `send` sends under the number given, which names the question
    /// from then on; `lent` is kept until it is answered. Somebody [waits](Self::wait) for the answer,
    /// or [abandons](Self::abandon) it.
    ///
    /// # Errors
    /// What `send` returns.
    pub(crate) fn begin(
        &self,
        rank: Rank,
        lent: Option<Lent>,
        send: impl FnOnce(u64) -> Result<()>,
    ) -> Result<u64> {
        let id = self.next.fetch_add(1, Relaxed);
        let question = Question {
            rank,
            state: State::Asked(None),
            lent,
            ending: false,
            one_way: false,
            begun: false,
        };
        self.open().insert(id, question);
        if let Err(error) = send(id) {
            let question = self.open().remove(&id);
            drop(question);
            return Err(error);
        }
        Ok(id)
    }

    /// Keeps what a question is about until it is answered, if it is not.
    pub(crate) fn keep(&self, id: u64, lent: Lent) {
        let mut open = self.open();
        let Some(question) = open.get_mut(&id) else {
            drop(open);
            return let_go(lent);
        };
        question.lent = Some(lent);
    }

    /// Waits for the answer of `rank`, which is given once.
    ///
    /// # Errors
    /// What the answer says, [`Error::PeerLost`].
    pub(crate) fn wait(&self, progress: &Progress, rank: Rank, id: u64) -> Answer {
        let mut answer = None;
        let waited = progress.wait(On::Rank(rank), For::Message, || {
            answer = self.take(id);
            answer.is_some()
        });
        if let Err(error) = waited {
            // What was answered before the end still counts.
            progress.drain();
            if let Some(answer) = self.take(id) {
                return answer;
            }
            if self.let_be(progress, rank, id).is_some() {
                progress.task_ends();
            }
            return Err(error);
        }
        answer.unwrap_or(Err(Error::PeerLost(rank)))
    }

    /// Nobody will take the answer of `rank`, which may come all the same as long as that is there:
    /// even if this rank's own job is over. And who was to be woken, as [there](Self::wake_at_end).
    pub(crate) fn let_be(&self, progress: &Progress, rank: Rank, id: u64) -> Option<Waker> {
        if progress.conduit().standing(rank) != Standing::Present {
            return self.give_up(id);
        }
        if progress.is_stopped() {
            // What it is about is not kept beyond the job.
            let lent = (self.open().get_mut(&id)).and_then(|question| question.lent.take());
            let_go(lent);
        }
        self.abandon(id)
    }

    /// An answer of `from` is to be got before it [ends](Self::end) the question; `false` if nobody
    /// asked it.
    pub(super) fn begin_to_end(&self, from: Rank, id: u64) -> bool {
        match self.open().get_mut(&id) {
            Some(question) if question.is_of(from) => {
                question.ending = true;
                true
            }
            _ => false,
        }
    }

    /// An answer of `from` came; `false` if nobody asked it, or it answered before.
    pub(crate) fn end(&self, progress: &Progress, from: Rank, id: u64, answer: Answer) -> bool {
        let mut open = self.open();
        let question = match open.get_mut(&id) {
            Some(question) if question.rank == from => question,
            _ => return false,
        };
        let lent = question.lent.take();
        let waker = match std::mem::replace(&mut question.state, State::Answered(answer)) {
            State::Asked(waker) => waker,
            State::Abandoned => {
                open.remove(&id);
                None
            }
            // One answer is enough.
            first @ State::Answered(_) => {
                question.state = first;
                return false;
            }
        };
        drop(open);
        let_go(lent);
        if let Some(waker) = waker {
            progress.wake_task(waker);
        }
        // Tasks end questions, too, after whoever handed up what they follow from let others look.
        progress.wake_sleepers();
        true
    }

    /// The answer, if it has come, once.
    pub(crate) fn take(&self, id: u64) -> Option<Answer> {
        let mut open = self.open();
        if !matches!(open.get(&id)?.state, State::Answered(_)) {
            return None;
        }
        match open.remove(&id)?.state {
            State::Answered(answer) => Some(answer),
            State::Asked(_) | State::Abandoned => None,
        }
    }

    /// Has a task be woken by the answer, if it has not come: whether it will be. And who was to be
    /// woken before, to be dropped when nothing is locked.
    pub(crate) fn wake_at_end(&self, id: u64, waker: &Waker) -> (bool, Option<Waker>) {
        // What cloning does is the program's affair, too.
        let waker = waker.clone();
        let mut open = self.open();
        match open.get_mut(&id).map(|question| &mut question.state) {
            Some(State::Asked(asker)) => (true, asker.replace(waker)),
            _ => (false, None),
        }
    }

    /// Nobody will take the answer. And who was to be woken, as [there](Self::wake_at_end).
    pub(crate) fn abandon(&self, id: u64) -> Option<Waker> {
        let mut open = self.open();
        let question = open.get_mut(&id)?;
        match std::mem::replace(&mut question.state, State::Abandoned) {
            State::Asked(waker) => waker,
            State::Abandoned => None,
            // It is over, and what it was about is gone.
            State::Answered(_) => {
                open.remove(&id);
                None
            }
        }
    }

    /// Only [`Job::am_quiet`](crate::Job::am_quiet) is to report how the call ended.
    pub(crate) fn is_made_one_way(&self, id: u64) {
        if let Some(question) = self.open().get_mut(&id) {
            question.one_way = true;
            question.state = State::Abandoned;
        }
    }

    /// Returns whether `from` answers a call that only [`Job::am_quiet`](crate::Job::am_quiet) waits for.
    pub(super) fn is_one_way(&self, from: Rank, id: u64) -> bool {
        (self.open().get(&id)).is_some_and(|question| question.rank == from && question.one_way)
    }

    /// `from` has begun the function of a call and has its argument. Returns `false` if there was no such call.
    pub(super) fn begun(&self, progress: &Progress, from: Rank, id: u64) -> bool {
        let mut open = self.open();
        let question = match open.get_mut(&id) {
            Some(question) if question.is_of(from) => question,
            _ => return false,
        };
        question.begun = true;
        let lent = question.lent.take();
        drop(open);
        let_go(lent);
        progress.wake_sleepers();
        true
    }

    /// Waits until the one-way calls made so far have run.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn finish_one_way(&self, progress: &Progress) -> Result<()> {
        self.finish_those(progress, |question| question.one_way)
    }

    /// Waits until the functions of the calls made so far have begun, and their arguments were got. A call that fits one
    /// message has begun once that was handled.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn begin_all(&self, progress: &Progress) -> Result<()> {
        self.finish_those(progress, Question::is_to_begin)
    }

    /// Waits until the calls made so far are answered for which a caller waits, but no longer than this time.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn finish_all_within(&self, progress: &Progress, time: Duration) -> Result<()> {
        let mut those: Vec<u64> = (self.open().iter())
            .filter(|(_, question)| question.is_wanted())
            .map(|(id, _)| *id)
            .collect();
        let waited = progress.wait_within(On::Anyone, For::Message, time, || {
            let open = self.open();
            those.retain(|id| open.get(id).is_some_and(Question::is_wanted));
            those.is_empty()
        });
        waited.map(drop)
    }

    /// The number of calls made so far, and of those that are not over.
    pub(crate) fn made_and_wanted(&self) -> (u64, usize) {
        let open = self.open();
        let wanted = open.values().filter(|question| question.is_wanted());
        (self.next.load(Relaxed), wanted.count())
    }

    fn finish_those(&self, progress: &Progress, which: fn(&Question) -> bool) -> Result<()> {
        let mut those: Vec<(Rank, u64)> = (self.open().iter())
            .filter(|(_, question)| question.is_unanswered() && which(question))
            .map(|(id, question)| (question.rank, *id))
            .collect();
        while let Some((rank, _)) = those.last().copied() {
            let waited = progress.wait(On::Rank(rank), For::Message, || {
                let open = self.open();
                those.retain(|(_, id)| {
                    (open.get(id)).is_some_and(|it| it.is_unanswered() && which(it))
                });
                those.iter().all(|(of, _)| *of != rank)
            });
            if waited.is_err() {
                // Calls without a waiter report the error once, here.
                let in_vain = those.iter().filter(|(of, _)| *of == rank);
                let in_vain = in_vain.filter(|(of, id)| self.is_one_way(*of, *id));
                in_vain.for_each(|(_, id)| _ = self.give_up(*id));
            }
            waited?;
        }
        Ok(())
    }

    /// None can come any more. And who was to be woken, as [there](Self::wake_at_end).
    fn give_up(&self, id: u64) -> Option<Waker> {
        let question = self.open().remove(&id)?;
        let_go(question.lent);
        match question.state {
            State::Asked(waker) => waker,
            State::Answered(_) | State::Abandoned => None,
        }
    }

    /// The job is over: what questions were about goes.
    pub(super) fn close(&self) {
        let lent: Vec<_> = (self.open().values_mut())
            .filter_map(|question| question.lent.take())
            .collect();
        drop(lent);
    }
}

impl Question {
    fn is_unanswered(&self) -> bool {
        !matches!(self.state, State::Answered(_))
    }

    /// Returns whether a caller waits for the answer, or the function has not begun yet.
    fn is_wanted(&self) -> bool {
        matches!(self.state, State::Asked(_)) || self.is_to_begin()
    }

    /// Returns whether the function has not begun yet, as far as the network does not say that itself.
    fn is_to_begin(&self) -> bool {
        let is_due = self.one_way || self.ending || self.lent.is_some() && !self.begun;
        is_due && self.is_unanswered()
    }

    /// Whether an answer of `from` is to come.
    fn is_of(&self, from: Rank) -> bool {
        self.rank == from && !self.ending && !matches!(self.state, State::Answered(_))
    }
}
