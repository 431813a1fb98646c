//! Calls to other ranks, and their answers.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::Waker,
    time::Duration,
};

use hydrant_conduit::Standing;
use parking_lot::{Mutex, MutexGuard};

use super::large::{LoanGuard, end_loans};
use crate::{
    Error, Rank, Result,
    progress::{For, On, Progress},
};

/// The calls that are not answered, and the answers that no waiter has taken.
#[derive(Default)]
pub(crate) struct Calls {
    /// The calls by id.
    open: Mutex<HashMap<u64, OpenCall>>,
    /// The id of the next call.
    next: AtomicU64,
}

/// The bytes of an answer, or the reason why the call failed.
type CallAnswer = Result<Vec<u8>>;

struct OpenCall {
    /// The callee.
    rank: Rank,
    state: CallState,
    /// The loan of the argument, until the call is answered. It is dropped without a lock held.
    lent: Option<LoanGuard>,
    /// The answer is being fetched.
    ending: bool,
    /// Only [`Job::am_quiet`](crate::Job::am_quiet) reports how the call ended.
    one_way: bool,
    /// The function has begun, and uses no memory of the caller any more.
    begun: bool,
}

enum CallState {
    /// The call is not answered. The answer wakes this task.
    Asked(Option<Waker>),
    Answered(CallAnswer),
    /// The answer, when it comes, is dropped.
    Abandoned,
}

impl Calls {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenCall>> {
        self.open.lock()
    }

    /// Calls `rank` by the message that `send` sends with the given id. Waits for the answer, which
    /// [`end`](Self::end) takes.
    ///
    /// # Errors
    /// The errors of `send`, the failure in the answer, [`Error::PeerLost`].
    pub(crate) fn ask(
        &self,
        progress: &Progress,
        rank: Rank,
        send: impl FnOnce(u64) -> Result<()>,
    ) -> CallAnswer {
        let id = self.begin(rank, None, send)?;
        self.wait(progress, rank, id)
    }

    /// Begins a call to `rank`: `send` sends the message with the given id. Keeps `lent` until the
    /// call is answered. The caller [waits](Self::wait) for the answer, or
    /// [abandons](Self::abandon) it.
    ///
    /// # Errors
    /// The errors of `send`.
    pub(crate) fn begin(
        &self,
        rank: Rank,
        lent: Option<LoanGuard>,
        send: impl FnOnce(u64) -> Result<()>,
    ) -> Result<u64> {
        let id = self.next.fetch_add(1, Relaxed);
        let call = OpenCall {
            rank,
            state: CallState::Asked(None),
            lent,
            ending: false,
            one_way: false,
            begun: false,
        };
        self.open().insert(id, call);
        if let Err(error) = send(id) {
            let call = self.open().remove(&id);
            drop(call);
            return Err(error);
        }
        Ok(id)
    }

    /// Keeps the loan of a call's argument until the call is answered. Ends the loan if it is
    /// answered.
    pub(crate) fn keep(&self, id: u64, lent: LoanGuard) {
        let mut open = self.open();
        let Some(call) = open.get_mut(&id) else {
            drop(open);
            return end_loans(lent);
        };
        call.lent = Some(lent);
    }

    /// Waits for the answer of `rank`. An answer is returned once.
    ///
    /// # Errors
    /// The failure in the answer, [`Error::PeerLost`].
    pub(crate) fn wait(&self, progress: &Progress, rank: Rank, id: u64) -> CallAnswer {
        let mut answer = None;
        let waited = progress.wait(On::Rank(rank), For::Message, || {
            answer = self.take(id);
            answer.is_some()
        });
        if let Err(error) = waited {
            // An answer from before the end counts.
            progress.drain();
            if let Some(answer) = self.take(id) {
                return answer;
            }
            if self.stop_waiting(progress, rank, id).is_some() {
                progress.task_ends();
            }
            return Err(error);
        }
        answer.unwrap_or(Err(Error::PeerLost(rank)))
    }

    /// Gives up waiting for the answer of `rank`. The answer may still arrive as long as `rank` is
    /// present, even after the end of this rank's job. Returns the replaced waker, as
    /// [`wake_at_end`](Self::wake_at_end).
    pub(crate) fn stop_waiting(&self, progress: &Progress, rank: Rank, id: u64) -> Option<Waker> {
        if progress.conduit().standing(rank) != Standing::Present {
            return self.remove(id);
        }
        if progress.is_stopped() {
            // Memory is not lent beyond the job.
            let lent = (self.open().get_mut(&id)).and_then(|call| call.lent.take());
            end_loans(lent);
        }
        self.abandon(id)
    }

    /// Notes that the answer of `from` is being fetched, before it [ends](Self::end) the call.
    /// Returns `false` if there is no such call.
    pub(super) fn begin_fetch(&self, from: Rank, id: u64) -> bool {
        match self.open().get_mut(&id) {
            Some(call) if call.awaits_answer_of(from) => {
                call.ending = true;
                true
            }
            _ => false,
        }
    }

    /// Takes the answer of `from`. Returns `false` if there is no such call, or it was answered
    /// before.
    pub(crate) fn end(&self, progress: &Progress, from: Rank, id: u64, answer: CallAnswer) -> bool {
        let mut open = self.open();
        let call = match open.get_mut(&id) {
            Some(call) if call.rank == from => call,
            _ => return false,
        };
        let lent = call.lent.take();
        let waker = match std::mem::replace(&mut call.state, CallState::Answered(answer)) {
            CallState::Asked(waker) => waker,
            CallState::Abandoned => {
                open.remove(&id);
                None
            }
            // A second answer is ignored.
            first @ CallState::Answered(_) => {
                call.state = first;
                return false;
            }
        };
        drop(open);
        end_loans(lent);
        if let Some(waker) = waker {
            progress.wake_task(waker);
        }
        // Tasks end calls, too, after the poll has woken its sleepers.
        progress.wake_sleepers();
        true
    }

    /// Returns the answer once it has come, and forgets the call.
    pub(crate) fn take(&self, id: u64) -> Option<CallAnswer> {
        let mut open = self.open();
        if !matches!(open.get(&id)?.state, CallState::Answered(_)) {
            return None;
        }
        match open.remove(&id)?.state {
            CallState::Answered(answer) => Some(answer),
            CallState::Asked(_) | CallState::Abandoned => None,
        }
    }

    /// Has the answer wake a task. Returns `false` if the answer has come, and the waker that was
    /// replaced. The caller drops that waker without a lock held.
    pub(crate) fn wake_at_end(&self, id: u64, waker: &Waker) -> (bool, Option<Waker>) {
        // A waker's `clone` is code of the program: no lock is held.
        let waker = waker.clone();
        let mut open = self.open();
        match open.get_mut(&id).map(|call| &mut call.state) {
            Some(CallState::Asked(asker)) => (true, asker.replace(waker)),
            _ => (false, None),
        }
    }

    /// Drops the answer when it comes. Returns the replaced waker, as
    /// [`wake_at_end`](Self::wake_at_end).
    pub(crate) fn abandon(&self, id: u64) -> Option<Waker> {
        let mut open = self.open();
        let call = open.get_mut(&id)?;
        match std::mem::replace(&mut call.state, CallState::Abandoned) {
            CallState::Asked(waker) => waker,
            CallState::Abandoned => None,
            // The call is over, and its loan has ended.
            CallState::Answered(_) => {
                open.remove(&id);
                None
            }
        }
    }

    /// Makes a call one-way: only [`Job::am_quiet`](crate::Job::am_quiet) reports how it ended.
    pub(crate) fn make_one_way(&self, id: u64) {
        if let Some(call) = self.open().get_mut(&id) {
            call.one_way = true;
            call.state = CallState::Abandoned;
        }
    }

    /// Returns whether `from` answers a call that only [`Job::am_quiet`](crate::Job::am_quiet)
    /// waits for.
    pub(super) fn is_one_way(&self, from: Rank, id: u64) -> bool {
        (self.open().get(&id)).is_some_and(|call| call.rank == from && call.one_way)
    }

    /// Notes that `from` has got the argument of a call and has begun its function. Returns `false`
    /// if there is no such call.
    pub(super) fn note_begun(&self, progress: &Progress, from: Rank, id: u64) -> bool {
        let mut open = self.open();
        let call = match open.get_mut(&id) {
            Some(call) if call.awaits_answer_of(from) => call,
            _ => return false,
        };
        call.begun = true;
        let lent = call.lent.take();
        drop(open);
        end_loans(lent);
        progress.wake_sleepers();
        true
    }

    /// Waits until the one-way calls made so far have run.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn finish_one_way(&self, progress: &Progress) -> Result<()> {
        self.finish_matching(progress, |call| call.one_way)
    }

    /// Waits until the functions of the calls made so far have begun and their arguments were
    /// fetched. A call whose argument fits one message has begun once that message was handled.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn wait_until_begun(&self, progress: &Progress) -> Result<()> {
        self.finish_matching(progress, OpenCall::is_to_begin)
    }

    /// Waits until the calls made so far with a waiting caller are answered, at most this long.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn finish_all_within(&self, progress: &Progress, time: Duration) -> Result<()> {
        let mut those: Vec<u64> = (self.open().iter())
            .filter(|(_, call)| call.is_wanted())
            .map(|(id, _)| *id)
            .collect();
        let waited = progress.wait_within(On::Anyone, For::Message, time, || {
            let open = self.open();
            those.retain(|id| open.get(id).is_some_and(OpenCall::is_wanted));
            those.is_empty()
        });
        waited.map(drop)
    }

    /// Returns the number of calls made so far, and the number of those that are not over.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let open = self.open();
        let wanted = open.values().filter(|call| call.is_wanted());
        (self.next.load(Relaxed), wanted.count())
    }

    fn finish_matching(&self, progress: &Progress, which: fn(&OpenCall) -> bool) -> Result<()> {
        let mut those: Vec<(Rank, u64)> = (self.open().iter())
            .filter(|(_, call)| call.is_unanswered() && which(call))
            .map(|(id, call)| (call.rank, *id))
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
                in_vain.for_each(|(_, id)| _ = self.remove(*id));
            }
            waited?;
        }
        Ok(())
    }

    /// Removes a call whose answer cannot come any more. Returns the replaced waker, as
    /// [`wake_at_end`](Self::wake_at_end).
    fn remove(&self, id: u64) -> Option<Waker> {
        let call = self.open().remove(&id)?;
        end_loans(call.lent);
        match call.state {
            CallState::Asked(waker) => waker,
            CallState::Answered(_) | CallState::Abandoned => None,
        }
    }

    /// Ends all loans, because the job is over.
    pub(super) fn close(&self) {
        let lent: Vec<_> = (self.open().values_mut())
            .filter_map(|call| call.lent.take())
            .collect();
        drop(lent);
    }
}

impl OpenCall {
    fn is_unanswered(&self) -> bool {
        !matches!(self.state, CallState::Answered(_))
    }

    /// Returns whether a caller waits for the answer, or the function has not begun yet.
    fn is_wanted(&self) -> bool {
        matches!(self.state, CallState::Asked(_)) || self.is_to_begin()
    }

    /// Returns whether the function may not have begun yet. For a call in one message the network
    /// itself knows that.
    fn is_to_begin(&self) -> bool {
        let is_due = self.one_way || self.ending || self.lent.is_some() && !self.begun;
        is_due && self.is_unanswered()
    }

    /// Returns whether an answer of `from` is awaited.
    fn awaits_answer_of(&self, from: Rank) -> bool {
        self.rank == from && !self.ending && !matches!(self.state, CallState::Answered(_))
    }
}
