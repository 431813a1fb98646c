//! Peers that have ended, and the end of the job: everything that waits for them ends.

use std::sync::atomic::Ordering::SeqCst;

use hydrant_conduit::{Key, Standing};

use super::{By, Posted, Receiving, Request, Sending, State, TwoSided, Unexpected, Unlending};
use crate::{Error, Rank};

/// What ended, to be told when nothing is locked.
#[derive(Default)]
struct Gone {
    requests: Vec<(std::sync::Arc<Request>, Rank)>,
    receives: Vec<Receiving>,
    /// By number: those to whose buffers their senders may write yet.
    landings: Vec<(u64, Rank)>,
}

impl TwoSided {
    /// Has it looked whether a peer has ended, if any ever has: called when something was noted that waits, in the midst
    /// of what a peer said. What is handled next may be what a rank sent before its end, so a task looks behind that.
    pub(super) fn look_for_change(&self) {
        if self.has_any_ended()
            && let Some(this) = self.me.upgrade()
        {
            // If the job is over, `close` has ended all.
            self.progress.spawn(async move { this.look_after_drain() });
        }
    }

    /// As [`look_for_change`](Self::look_for_change), by a thread of the program.
    pub(super) fn look_for_change_here(&self) {
        if self.has_any_ended() {
            self.look_after_drain();
        }
    }

    /// Returns whether the standing of any rank has changed.
    fn has_any_ended(&self) -> bool {
        let conduit = self.progress.conduit();
        conduit.changes() != conduit.endings()
    }

    /// What ranks sent before their end still counts, and may not be handled yet. Of a rank that ends while that is
    /// handled more may come, so it is not among those that end here: its end is looked for when it is noticed.
    pub(super) fn look_after_drain(&self) {
        let alone = self.progress.is_lost_itself();
        let has_ended = |rank: Rank| {
            rank != self.progress.rank
                && (alone || self.progress.conduit().standing(rank) != Standing::Present)
        };
        let ended: Vec<Rank> = (0..self.progress.size)
            .map(Rank)
            .filter(|it| has_ended(*it))
            .collect();
        self.progress.drain();
        if !ended.is_empty() {
            self.end_all_of(&ended, alone);
        }
    }

    /// Ends everything that waits for ranks that have ended, all of whose messages were handled. `alone`: this rank is
    /// lost to the others.
    fn end_all_of(&self, ended: &[Rank], alone: bool) {
        let progress = &self.progress;
        // Of many, the one lost first: the others may only have given up for its sake.
        let first = (progress.conduit().first_lost()).filter(|rank| ended.contains(rank));
        let is_lost = |rank: Rank| alone || progress.conduit().standing(rank) == Standing::Lost;
        let lost = first.or_else(|| ended.iter().copied().find(|rank| is_lost(*rank)));
        let gone = self.state.lock().forget(ended, lost);
        let why = |rank| match alone {
            true => Error::Expelled(progress.rank),
            false => progress.gone(rank),
        };
        for (request, rank) in gone.requests {
            request.end(progress, Err(why(rank)));
        }
        for receiving in gone.receives {
            let cause = why(receiving.from);
            self.end_receive(receiving, Err(cause));
        }
        for (receive, from) in gone.landings {
            self.give_up(receive, why(from));
        }
    }

    /// Whoever waits until a message comes looks again.
    pub(super) fn tell_probing(&self) {
        if self.probing.load(SeqCst) != 0 {
            self.progress.wake_sleepers();
        }
    }

    /// The job is over: so is all that is under way.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.refuses = true;
        let mut requests: Vec<_> = (state.sends.drain())
            .map(|(_, sending)| request_of(sending))
            .collect();
        let peers = state.peers.iter_mut().flatten();
        let waiting = peers.flat_map(|peer| peer.waiting.drain(..));
        requests.extend(waiting.map(|outgoing| outgoing.request));
        requests.extend(state.refused.drain(..).map(|(request, _)| request));
        let posted = state.matching.withdraw_all(|_| true);
        requests.extend(posted.into_iter().map(|posted| posted.request));
        for message in state.matching.take_all(|_, _| true) {
            if let Unexpected::Own { request, .. } = message {
                requests.push(request);
            }
        }
        let receives: Vec<u64> = state.receives.keys().copied().collect();
        let receives = receives.into_iter().filter_map(|it| state.part_with(it));
        let receives: Vec<Receiving> = receives.collect();
        let unlending: Vec<_> = state.unlending.drain().collect();
        drop(state);
        for request in requests {
            request.end(&self.progress, Err(Error::JobOver));
        }
        for receiving in receives {
            match receiving.by {
                // It is among those below.
                By::Loan(_) => continue,
                // This thread may wait: it is the one that leaves.
                By::Landing(landing) => drop(landing),
                By::Parts => {}
            }
            (receiving.request).end(&self.progress, Err(Error::JobOver));
        }
        for (key, unlending) in unlending {
            let Unlending { place, request, .. } = unlending;
            // Whoever was to end the loan may have begun.
            let key = Key(key);
            let over = self.transfer.unlend(key) && self.transfer.finish_unlending(key, place);
            debug_assert!(over, "a job is left outside handlers");
            request.end(&self.progress, Err(Error::JobOver));
        }
    }
}

impl State {
    /// Takes out what waits for ranks that have ended; `lost`: one that is lost, for which receives from
    /// anybody wait in vain.
    fn forget(&mut self, ended: &[Rank], lost: Option<Rank>) -> Gone {
        let mut gone = Gone::default();
        let sends = self.sends.extract_if(|_, sending| {
            let (Sending::Sent(to, ..) | Sending::Announced(to, _)) = sending;
            ended.contains(to)
        });
        let sends = sends.map(|(_, sending)| {
            let (Sending::Sent(to, ..) | Sending::Announced(to, _)) = &sending;
            (*to, sending)
        });
        (gone.requests).extend(sends.map(|(to, sending)| (request_of(sending), to)));
        let refused = self
            .refused
            .extract_if(.., |(_, rank)| ended.contains(rank));
        gone.requests.extend(refused);
        for rank in ended {
            if let Some(peer) = &mut self.peers[rank.index()] {
                let waiting = peer.waiting.drain(..).map(|it| (it.request, *rank));
                gone.requests.extend(waiting);
            }
        }
        let receives = self.receives.iter_mut();
        let receives = receives.filter(|(_, it)| ended.contains(&it.from));
        let receives = receives.filter_map(|(receive, it)| match &mut it.by {
            By::Landing(landing) => {
                // It stays here until that is done, where `close` finds it.
                if landing.give_up() {
                    gone.landings.push((*receive, it.from));
                }
                None
            }
            By::Parts | By::Loan(_) => Some(*receive),
        });
        let receives: Vec<u64> = receives.collect();
        (gone.receives).extend(receives.into_iter().filter_map(|it| self.part_with(it)));
        let in_vain = |posted: &Posted| match posted.source {
            Some(source) => ended.contains(&Rank(source)),
            None => lost.is_some(),
        };
        for posted in self.matching.withdraw_all(in_vain) {
            let of = posted.source.map(Rank).or(lost).unwrap_or(Rank(0));
            gone.requests.push((posted.request, of));
        }
        // What is here can still be received; what is not cannot.
        drop(self.matching.take_all(|envelope, message| {
            ended.contains(&Rank(envelope.source))
                && matches!(message, Unexpected::Announced { .. })
        }));
        gone
    }
}

fn request_of(sending: Sending) -> std::sync::Arc<Request> {
    match sending {
        Sending::Sent(.., request) => request,
        Sending::Announced(_, outgoing) => outgoing.request,
    }
}
