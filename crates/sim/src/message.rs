//! Messages: buffers, tokens, replies that wait for room.
//!
//! A rank keeps some buffers for the requests of each peer, and some for its replies; who has
//! no buffer left at a peer sends no request, and a reply waits at the one who gave it, who then
//! takes no further request of that peer.

use hydrant_conduit::OwnedMessage;

use crate::{
    event::Event,
    pair::Item,
    state::{Fixed, State},
    time::Time,
    transfer::{Payload, Transfer},
    turns::News,
};

impl State {
    /// Whether a request could be sent now.
    pub(crate) fn has_room(&mut self, fixed: &Fixed, rank: usize, peer: usize) -> bool {
        let pair = self.pair(rank, peer);
        pair.sent - pair.handled < fixed.profile.message().buffers && self.ranks[rank].tokens > 0
    }

    /// Sends a request, for which there is room.
    pub(crate) fn send_request(
        &mut self,
        rank: usize,
        peer: usize,
        message: OwnedMessage,
        time: Time,
    ) {
        self.pair(rank, peer).sent += 1;
        self.ranks[rank].tokens -= 1;
        self.ranks[rank].statistics.messages += 1;
        self.ranks[rank].statistics.bytes += message.payload.len() as u64;
        let transfer = Transfer {
            from: rank,
            to: peer,
            bytes: bytes_of(&message),
            payload: Payload::Request(message),
        };
        let [posted, _] = &mut self.pair(rank, peer).posted;
        let time = time.max(*posted);
        *posted = time;
        self.post(transfer, time);
    }

    /// Sends a reply, or keeps it until there is room.
    pub(crate) fn send_reply(
        &mut self,
        fixed: &Fixed,
        rank: usize,
        peer: usize,
        message: OwnedMessage,
        time: Time,
    ) {
        if !fixed.present(peer) {
            return; // nobody waits for it
        }
        self.ranks[rank].statistics.messages += 1;
        self.ranks[rank].statistics.bytes += message.payload.len() as u64;
        let pair = self.pair(rank, peer);
        if pair.replies >= fixed.profile.message().buffers || !pair.kept.is_empty() {
            pair.kept.push_back((time, message));
            return;
        }
        pair.replies += 1;
        self.post_reply(rank, peer, message, time);
    }

    fn post_reply(&mut self, rank: usize, peer: usize, message: OwnedMessage, time: Time) {
        self.pair(peer, rank).coming += 1;
        let transfer = Transfer {
            from: rank,
            to: peer,
            bytes: bytes_of(&message),
            payload: Payload::Reply(message),
        };
        let [_, posted] = &mut self.pair(rank, peer).posted;
        let time = time.max(*posted);
        *posted = time;
        self.post(transfer, time);
    }

    pub(crate) fn request_arrived(
        &mut self,
        fixed: &Fixed,
        from: usize,
        to: usize,
        message: OwnedMessage,
    ) {
        self.ranks[to].inbox.push_back(Item::Request(from, message));
        self.notify(to, News::Message);
        let profile = &fixed.profile;
        let time = self.now + profile.nic().ack.0 + profile.link().latency.0;
        self.events.at(time, Event::Token(from as u32));
    }

    pub(crate) fn reply_arrived(&mut self, from: usize, to: usize, message: OwnedMessage) {
        let pair = self.pair(to, from);
        pair.coming -= 1;
        pair.settle();
        self.ranks[to].inbox.push_back(Item::Reply(from, message));
        self.notify(to, News::Message);
    }

    pub(crate) fn token_back(&mut self, rank: usize) {
        self.ranks[rank].tokens += 1;
        self.notify(rank, News::Room);
    }

    /// The next thing to hand up.
    pub(crate) fn take_item(&mut self, rank: usize) -> Option<Item> {
        match self.ranks[rank].inbox.pop_front()? {
            Item::Request(from, message) if !self.pair(rank, from).kept.is_empty() => {
                self.pair(rank, from).held.push_back(message);
                None
            }
            item => Some(item),
        }
    }

    /// `rank` has run the handler of a request of `from`.
    pub(crate) fn handler_done(&mut self, fixed: &Fixed, rank: usize, from: usize, time: Time) {
        let pair = self.pair(rank, from);
        if pair.kept.is_empty() {
            let time = time + fixed.profile.link().latency.0;
            (self.events).at(time, Event::Handled(from as u32, rank as u32));
        } else {
            pair.owed += 1;
        }
    }

    /// `rank` has taken a reply of `from`.
    pub(crate) fn reply_done(&mut self, fixed: &Fixed, rank: usize, from: usize, time: Time) {
        let time = time + fixed.profile.link().latency.0;
        (self.events).at(time, Event::Taken(from as u32, rank as u32));
    }

    /// `rank` hears that `peer` has handled a request of its.
    pub(crate) fn request_handled(&mut self, rank: usize, peer: usize) {
        let pair = self.pair(rank, peer);
        pair.handled += 1;
        pair.settle();
        self.notify(rank, News::Room);
    }

    /// `rank` hears that `peer` has taken a reply of its: one that was kept may go.
    pub(crate) fn reply_taken(&mut self, fixed: &Fixed, rank: usize, peer: usize) {
        let pair = self.pair(rank, peer);
        pair.replies -= 1;
        let Some((given, message)) = pair.kept.pop_front() else {
            return;
        };
        pair.replies += 1;
        let time = self.now.max(given);
        self.post_reply(rank, peer, message, time);
        self.release_held(fixed, rank, peer, time);
    }

    /// `rank` keeps nothing for `peer`, whose part is over.
    pub(crate) fn forget_replies(&mut self, rank: usize, peer: usize) {
        let pair = self.pair(rank, peer);
        pair.kept.clear();
        pair.owed = 0;
        self.take_held(rank, peer);
    }

    /// Once no reply is kept, requests go on.
    fn release_held(&mut self, fixed: &Fixed, rank: usize, peer: usize, time: Time) {
        let pair = self.pair(rank, peer);
        if !pair.kept.is_empty() {
            return;
        }
        for _ in 0..std::mem::take(&mut pair.owed) {
            self.handler_done(fixed, rank, peer, time);
        }
        self.take_held(rank, peer);
    }

    fn take_held(&mut self, rank: usize, peer: usize) {
        let held = std::mem::take(&mut self.pair(rank, peer).held);
        if held.is_empty() {
            return;
        }
        for message in held.into_iter().rev() {
            (self.ranks[rank].inbox).push_front(Item::Request(peer, message));
        }
        self.notify(rank, News::Message);
    }
}

/// Bytes that a message takes on the wire.
fn bytes_of(message: &OwnedMessage) -> usize {
    message.payload.len() + 8 * (message.args.len() + 1)
}
