//! The end of a rank's program: the program sends and receives no further message, and messages in
//! flight are completed.
//!
//! From then on a rank keeps no message without a posted receive. It refuses messages whose senders
//! wait for a receive, and drops the others. It tells each peer how many of its own messages wait
//! for credit. The peer lends that credit, so that these messages arrive, or are announced, even if
//! it receives nothing. Once its peers have handled all that it sent, a rank tells them of its
//! [end](crate::progress::Progress). A receive from it fails once it owes no message, so the news
//! overtakes no message.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    MessageRequest, PeerTraffic, PendingSend, TwoSided, Unexpected, WireMessage, pattern::Envelope,
};
use crate::{
    Error, Rank, Result,
    progress::{For, On},
};

const NONE_SENT: &str = "no message of it can come any more";
const NONE_RECEIVED: &str = "it receives no message any more, and did not receive this one";

impl TwoSided {
    /// Ends sending and receiving by the program.
    ///
    /// # Errors
    /// The errors of a wait.
    pub(crate) fn come_to_end(&self) -> Result<()> {
        let mut gone = None;
        // A thread that sends waiting messages holds one of them for a moment.
        (self.progress).wait(On::Nobody, For::Message, || {
            gone = self.refuse_from_now_on();
            gone.is_some()
        })?;
        let Some((unexpected, held, owed)) = gone else {
            return Ok(());
        };
        for (rank, messages) in owed {
            self.tell(rank, WireMessage::Owed { messages }, &[]);
            self.state.lock().peer(rank).tells_owed = true;
            // From here on the sender of a waiting message announces how many are left. The list
            // may be empty by now.
            self.send_waiting(rank);
        }
        for (rank, send) in held {
            self.tell(Rank(rank), WireMessage::Refused { send }, &[]);
        }
        for (envelope, message) in unexpected {
            self.turn_away(envelope, message);
        }
        self.end_refused();
        Ok(())
    }

    /// Refuses messages from now on. Returns the kept messages, those of matched probes, and the
    /// number still to be sent to each peer. Returns `None` while a thread sends waiting messages.
    #[expect(clippy::type_complexity, reason = "three lists, for the one caller")]
    fn refuse_from_now_on(
        &self,
    ) -> Option<(
        Vec<(Envelope, Unexpected)>,
        Vec<(u32, u64)>,
        Vec<(Rank, u64)>,
    )> {
        let mut state = self.state.lock();
        if state.peers.iter().flatten().any(|peer| peer.draining) {
            return None;
        }
        state.refuses = true;
        // Receives look at the kept messages first, and so notice the end.
        self.keeps.store(true, Relaxed);
        let unexpected = state.matching.take_all_kept();
        let held = state.held.drain().collect();
        let mut owed = Vec::new();
        for (rank, peer) in (0..).map(Rank).zip(&state.peers) {
            if let Some(peer) = peer
                && !peer.waiting.is_empty()
            {
                owed.push((rank, peer.waiting.len() as u64));
            }
        }
        Some((unexpected, held, owed))
    }

    /// Ends the receives without a message, now that all programs have come to their ends.
    /// Functions of this rank may still wait in such receives.
    pub(crate) fn note_all_ended(&self) {
        self.all_refuse.store(true, Relaxed);
        self.fail_vain_receives();
    }

    /// Lets the program send and receive again, because the end of the job failed.
    pub(crate) fn resume(&self) {
        self.all_refuse.store(false, Relaxed);
        let mut state = self.state.lock();
        state.refuses = state.closed;
    }

    /// Waits until this rank's sends are complete, and its receives whose messages have arrived.
    ///
    /// # Errors
    /// [`Error::PeerLost`].
    pub(crate) fn finish_all(&self) -> Result<()> {
        (self.progress).wait(On::Anyone, For::Message, || self.in_flight.are_none())
    }

    /// Returns whether no send is in flight, and no receive whose message has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.are_none()
    }

    /// As [`finish_all`](Self::finish_all), after all peers have done so. Some may have left since.
    ///
    /// # Errors
    /// The errors of a wait.
    pub(crate) fn finish_received(&self) -> Result<()> {
        (self.progress).wait(On::Nobody, For::Message, || self.in_flight.are_none())
    }

    /// Refuses or drops a message that arrived, or was kept, and will not be received.
    pub(super) fn turn_away(&self, envelope: Envelope, message: Unexpected) {
        let from = Rank(envelope.source);
        let (awaited, bytes) = (message.awaited(), message.held_bytes());
        if let Unexpected::Own { request, .. } = message {
            return request.end(&self.progress, Err(Error::JobOver));
        }
        self.release_credit(from, bytes, 0);
        if let Some(send) = awaited {
            self.tell(from, WireMessage::Refused { send }, &[]);
        }
    }

    /// Handles a peer's refusal of a message.
    pub(super) fn handle_refused(&self, from: Rank, send: u64) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        let request: std::sync::Arc<MessageRequest> = match state.sends.remove(&send) {
            Some(PendingSend::Sent(to, .., request)) if to == from => request,
            Some(PendingSend::Announced(to, outgoing)) if to == from => outgoing.request,
            other => {
                if let Some(other) = other {
                    state.sends.insert(send, other);
                }
                return Err("a message was refused that does not wait");
            }
        };
        state.refused.push((request, from));
        let counts = || {
            let has_come = self.progress.conduit().has_come_to_end(from);
            has_come && self.progress.any_has_come_to_end()
        };
        let is_settled = state.refuses || counts();
        drop(state);
        if is_settled {
            self.end_refused();
        }
        Ok(())
    }

    /// Ends the sends that peers refused.
    fn end_refused(&self) {
        let (refused, refuses) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.refused), state.refuses)
        };
        for (request, rank) in refused {
            let cause = if refuses {
                Error::JobOver
            } else {
                Error::PeerEnded {
                    rank,
                    why: NONE_RECEIVED,
                }
            };
            request.end(&self.progress, Err(cause));
        }
    }

    /// Handles the news that a peer's program has come to its end, with `messages` still to send.
    pub(super) fn note_owed(&self, from: Rank, messages: u64) {
        let lent = {
            let mut state = self.state.lock();
            let peer = state.peer(from);
            peer.owed = messages;
            peer.account.lend(messages)
        };
        if let Some(messages) = lent {
            self.tell(from, WireMessage::Credit { messages, bytes: 0 }, &[]);
        }
        if messages == 0 {
            self.fail_vain_receives();
            self.wake_probes();
        }
    }

    /// Returns the number of messages that this rank still has to send to a peer, if it is due to
    /// be announced.
    pub(super) fn take_owed_update(&self, peer: &mut PeerTraffic) -> Option<u64> {
        let left = peer.waiting.len() as u64;
        let tells = peer.tells_owed;
        peer.tells_owed = tells && left != 0;
        tells.then_some(left)
    }

    /// Returns the reason why no message of that source, or of any source, can come any more.
    /// Returns `None` if one may come.
    pub(super) fn why_none_comes(&self, source: Option<u32>) -> Option<Error> {
        let all_refuse = self.all_refuse.load(Relaxed);
        if !all_refuse && !self.progress.any_has_come_to_end() {
            return None;
        }
        let state = self.state.lock();
        let owes = |rank: u32| {
            let peer = state.peers.get(rank as usize);
            peer.is_some_and(|it| it.as_ref().is_some_and(|it| it.owed != 0))
        };
        if all_refuse {
            let any_owes = match source {
                Some(rank) => owes(rank),
                None => (0..self.progress.size).any(owes),
            };
            return (!any_owes).then_some(Error::JobOver);
        }
        // Once all programs have ended, this rank's own end is the better reason.
        if state.refuses {
            return None;
        }
        match source {
            Some(rank) if Rank(rank) == self.progress.rank => None,
            Some(rank) => (self.progress.conduit().has_come_to_end(Rank(rank)) && !owes(rank))
                .then_some(Error::PeerEnded {
                    rank: Rank(rank),
                    why: NONE_SENT,
                }),
            None => (self.progress.is_left_alone() && !(0..self.progress.size).any(owes))
                .then_some(Error::OthersEnded {
                    why: NONE_SENT_BY_ANY,
                }),
        }
    }

    /// Fails the receives that wait in vain for programs that have come to their ends.
    pub(super) fn fail_vain_receives(&self) {
        self.end_refused();
        let mut sources: Vec<Option<u32>> = (0..self.progress.size).map(Some).collect();
        sources.push(None);
        for source in sources {
            if self.why_none_comes(source).is_none() {
                continue;
            }
            let in_vain = (self.state.lock().matching).withdraw_all(|it| it.source == source);
            for posted in in_vain {
                if let Some(cause) = self.why_none_comes(source) {
                    posted.request.end(&self.progress, Err(cause));
                } else {
                    posted.request.end(&self.progress, Err(Error::JobOver));
                }
            }
        }
    }
}

const NONE_SENT_BY_ANY: &str = "no message can come any more";
