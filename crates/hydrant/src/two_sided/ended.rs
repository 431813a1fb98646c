//! Peers that have ended, and the end of the job: all requests that wait for them end.

use std::sync::atomic::Ordering::SeqCst;

use hydrant_conduit::{Key, Standing};

use super::{
    MessageRequest, PendingSend, PostedReceive, Receiving, Transport, TwoSided, TwoSidedState,
    Unexpected, Unlending,
};
use crate::{Error, Rank};

/// Requests that are to end once the lock is released.
#[derive(Default)]
struct EndedRequests {
    requests: Vec<(std::sync::Arc<MessageRequest>, Rank)>,
    receives: Vec<Receiving>,
    /// Receives by number, to whose buffers their senders may still write.
    landings: Vec<(u64, Rank)>,
}

impl TwoSided {
    /// Ends what waits for ended peers, if any peer has ever ended. It is called in a handler after
    /// a new waiting request was noted. The next message may still be one that a peer sent before
    /// its end, so a task checks after those.
    pub(super) fn check_for_ended_peers(&self) {
        if self.has_any_ended()
            && let Some(this) = self.me.upgrade()
        {
            // After the end of the job `close` has ended all requests.
            self.progress
                .spawn(async move { this.end_for_ended_peers() });
        }
    }

    /// As [`check_for_ended_peers`](Self::check_for_ended_peers), by a thread of the program.
    pub(super) fn check_for_ended_peers_now(&self) {
        if self.has_any_ended() {
            self.end_for_ended_peers();
        }
    }

    /// Returns whether the standing of any rank has changed.
    fn has_any_ended(&self) -> bool {
        let conduit = self.progress.conduit();
        conduit.changes() != conduit.endings()
    }

    /// Ends what waits for ended peers, after a drain of the messages that they sent before. A rank
    /// that ends during the drain may have sent more. It is skipped here, and handled when its end
    /// is noticed.
    pub(super) fn end_for_ended_peers(&self) {
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

    /// Ends all requests that wait for ranks that have ended. All messages of these ranks were
    /// handled. `alone`: the others have declared this rank lost.
    fn end_all_of(&self, ended: &[Rank], alone: bool) {
        let progress = &self.progress;
        // The first lost rank is the cause: others may have ended only because of it.
        let first = (progress.conduit().first_lost()).filter(|rank| ended.contains(rank));
        let is_lost = |rank: Rank| alone || progress.conduit().standing(rank) == Standing::Lost;
        let lost = first.or_else(|| ended.iter().copied().find(|rank| is_lost(*rank)));
        let gone = self.state.lock().forget(ended, lost);
        let why = |rank| {
            if alone {
                Error::Expelled(progress.rank)
            } else {
                progress.why_gone(rank)
            }
        };
        for (request, rank) in gone.requests {
            request.end(progress, Err(why(rank)));
        }
        for receiving in gone.receives {
            let cause = why(receiving.from);
            self.end_receive(receiving, Err(cause));
        }
        for (receive, from) in gone.landings {
            self.end_lost_receive(receive, why(from));
        }
    }

    /// Wakes the threads that wait in a probe.
    pub(super) fn wake_probes(&self) {
        if self.probing.load(SeqCst) != 0 {
            self.progress.wake_sleepers();
        }
    }

    /// Ends all requests, because the job is over.
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
        let peers = state.peers.iter_mut().flatten();
        let assemblies = peers.flat_map(|peer| peer.assemblies.drain());
        requests.extend(assemblies.filter_map(|(_, it)| it.into_request()));
        requests.extend(state.refused.drain(..).map(|(request, _)| request));
        let posted = state.matching.withdraw_all(|_| true);
        requests.extend(posted.into_iter().map(|posted| posted.request));
        for message in state.matching.take_all(|_, _| true) {
            if let Unexpected::Own { request, .. } = message {
                requests.push(request);
            }
        }
        let receives: Vec<u64> = state.receives.keys().copied().collect();
        let receives = receives
            .into_iter()
            .filter_map(|it| state.take_receiving(it));
        let receives: Vec<Receiving> = receives.collect();
        let unlending: Vec<_> = state.unlending.drain().collect();
        drop(state);
        for request in requests {
            request.end(&self.progress, Err(Error::JobOver));
        }
        for receiving in receives {
            match receiving.transport {
                // The entries of `unlending` end it.
                Transport::Loan(_) => continue,
                // This thread leaves the job, so it may wait.
                Transport::Landing(landing) => drop(landing),
                Transport::Parts => {}
            }
            (receiving.request).end(&self.progress, Err(Error::JobOver));
        }
        for (key, unlending) in unlending {
            let Unlending { place, request, .. } = unlending;
            // Another thread may have begun to end the loan.
            let key = Key(key);
            let over = self.transfer.unlend(key) && self.transfer.finish_unlending(key, place);
            debug_assert!(over, "a job is left outside handlers");
            request.end(&self.progress, Err(Error::JobOver));
        }
    }
}

impl TwoSidedState {
    /// Takes out all requests that wait for ended ranks. `lost` is a lost rank, which makes
    /// receives from any rank wait in vain.
    fn forget(&mut self, ended: &[Rank], lost: Option<Rank>) -> EndedRequests {
        let mut gone = EndedRequests::default();
        let sends = self.sends.extract_if(|_, sending| {
            let (PendingSend::Sent(to, ..) | PendingSend::Announced(to, _)) = sending;
            ended.contains(to)
        });
        let sends = sends.map(|(_, sending)| {
            let (PendingSend::Sent(to, ..) | PendingSend::Announced(to, _)) = &sending;
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
                let assemblies = peer.assemblies.drain();
                let requests = assemblies.filter_map(|(_, it)| it.into_request());
                gone.requests.extend(requests.map(|it| (it, *rank)));
            }
        }
        let receives = self.receives.iter_mut();
        let receives = receives.filter(|(_, it)| ended.contains(&it.from));
        let receives = receives.filter_map(|(receive, it)| match &mut it.transport {
            Transport::Landing(landing) => {
                // The receive stays in the table until its landing is revoked, so that `close`
                // finds it.
                if landing.mark_lost() {
                    gone.landings.push((*receive, it.from));
                }
                None
            }
            Transport::Parts | Transport::Loan(_) => Some(*receive),
        });
        let receives: Vec<u64> = receives.collect();
        (gone.receives).extend(
            receives
                .into_iter()
                .filter_map(|it| self.take_receiving(it)),
        );
        let in_vain = |posted: &PostedReceive| match posted.source {
            Some(source) => ended.contains(&Rank(source)),
            None => lost.is_some(),
        };
        for posted in self.matching.withdraw_all(in_vain) {
            let of = posted.source.map(Rank).or(lost).unwrap_or(Rank(0));
            gone.requests.push((posted.request, of));
        }
        // Messages that are here can still be received. Announced ones cannot.
        drop(self.matching.take_all(|envelope, message| {
            ended.contains(&Rank(envelope.source))
                && matches!(message, Unexpected::Announced { .. })
        }));
        gone
    }
}

fn request_of(sending: PendingSend) -> std::sync::Arc<MessageRequest> {
    match sending {
        PendingSend::Sent(.., request) => request,
        PendingSend::Announced(_, outgoing) => outgoing.request,
    }
}
