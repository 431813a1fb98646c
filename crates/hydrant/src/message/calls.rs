//! Questions to other ranks, and the answers that are waited for.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Waker,
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    Error, Rank, Result,
    progress::{For, On, Progress},
};

/// Questions that were asked and not yet answered, and answers that nobody took yet.
#[derive(Default)]
pub(crate) struct Calls {
    /// By number, with whom was asked.
    open: Mutex<HashMap<u64, (Rank, Question)>>,
    /// The next question's number.
    next: AtomicU64,
}

/// What an answer says: bytes, or how the question failed at the target.
type Answer = Result<Vec<u8>>;

enum Question {
    /// It is not answered; a task that waits for that is woken.
    Asked(Option<Waker>),
    Answered(Answer),
    /// Nobody wants to know any more.
    Abandoned,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, (Rank, Question)>> {
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
        let id = self.begin(rank, send)?;
        self.wait(progress, rank, id)
    }

    /// Asks `rank` by the message that `send` sends under the number given, which names the question from
    /// then on. Somebody [waits](Self::wait) for the answer, or [abandons](Self::abandon) it.
    ///
    /// # Errors
    /// What `send` returns.
    pub(crate) fn begin(&self, rank: Rank, send: impl FnOnce(u64) -> Result<()>) -> Result<u64> {
        let id = self.next.fetch_add(1, Relaxed);
        self.open().insert(id, (rank, Question::Asked(None)));
        if let Err(error) = send(id) {
            self.open().remove(&id);
            return Err(error);
        }
        Ok(id)
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
            drop(self.give_up(id));
            return Err(error);
        }
        answer.unwrap_or(Err(Error::PeerLost(rank)))
    }

    /// An answer of `from` came; `false` if nobody asked it.
    pub(crate) fn end(&self, progress: &Progress, from: Rank, id: u64, answer: Answer) -> bool {
        let mut open = self.open();
        let question = match open.get_mut(&id) {
            Some((asked, question)) if *asked == from => question,
            _ => return false,
        };
        let waker = match std::mem::replace(question, Question::Answered(answer)) {
            Question::Asked(waker) => waker,
            Question::Abandoned => {
                open.remove(&id);
                None
            }
            // One answer is enough.
            first @ Question::Answered(_) => {
                *question = first;
                return false;
            }
        };
        drop(open);
        if let Some(waker) = waker {
            progress.wake_task(waker);
        }
        true
    }

    /// The answer, if it has come, once.
    pub(crate) fn take(&self, id: u64) -> Option<Answer> {
        let mut open = self.open();
        if !matches!(open.get(&id)?.1, Question::Answered(_)) {
            return None;
        }
        match open.remove(&id)?.1 {
            Question::Answered(answer) => Some(answer),
            Question::Asked(_) | Question::Abandoned => None,
        }
    }

    /// Has a task be woken by the answer, if it has not come: whether it will be. And who was to be
    /// woken before, to be dropped when nothing is locked.
    pub(crate) fn wake_at_end(&self, id: u64, waker: &Waker) -> (bool, Option<Waker>) {
        // What cloning does is the program's affair, too.
        let waker = waker.clone();
        let mut open = self.open();
        match open.get_mut(&id) {
            Some((_, Question::Asked(asker))) => (true, asker.replace(waker)),
            _ => (false, None),
        }
    }

    /// Nobody will take the answer. And who was to be woken, as [there](Self::wake_at_end).
    pub(crate) fn abandon(&self, id: u64) -> Option<Waker> {
        let mut open = self.open();
        let (rank, question) = open.remove(&id)?;
        match question {
            Question::Asked(waker) => {
                open.insert(id, (rank, Question::Abandoned));
                waker
            }
            Question::Answered(_) | Question::Abandoned => None,
        }
    }

    /// None can come any more. And who was to be woken, as [there](Self::wake_at_end).
    pub(crate) fn give_up(&self, id: u64) -> Option<Waker> {
        match self.open().remove(&id)?.1 {
            Question::Asked(waker) => waker,
            Question::Answered(_) | Question::Abandoned => None,
        }
    }
}
