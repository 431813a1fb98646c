//! Messages: buffers, tokens, and replies that wait for room.
//!
//! A rank keeps some buffers for the requests of each peer, and some for the replies. A sender
//! without a free buffer at a peer sends no request. A reply without a buffer waits at the
//! handler's rank, which then takes no further request of that peer.

use hydrant_conduit::OwnedMessage;

use crate::{
    event::SimEvent,
    pair::InboxItem,
    state::{SimShared, SimState},
    time::VirtualTime,
    transfer::{NicTransfer, Payload},
    turns::News,
};

impl SimState {
    /// True if a request could be sent now.
    pub(crate) fn has_room(&mut self, fixed: &SimShared, rank: usize, peer: usize) -> bool {
        let pair = self.pair(rank, peer);
        pair.sent - pair.handled < fixed.profile.message().buffers && self.ranks[rank].tokens > 0
    }

    /// Sends a request, for which there is room.
    pub(crate) fn send_request(
        &mut self,
        rank: usize,
        peer: usize,
        message: OwnedMessage,
        time: VirtualTime,
    ) {
        self.pair(rank, peer).sent += 1;
        self.ranks[rank].tokens -= 1;
        self.ranks[rank].statistics.messages += 1;
        self.ranks[rank].statistics.bytes += message.payload.len() as u64;
        let transfer = NicTransfer {
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
        fixed: &SimShared,
        rank: usize,
        peer: usize,
        message: OwnedMessage,
        time: VirtualTime,
    ) {
        if !fixed.present(peer) {
            return; // its receiver has ended
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

    fn post_reply(&mut self, rank: usize, peer: usize, message: OwnedMessage, time: VirtualTime) {
        self.pair(peer, rank).coming += 1;
        let transfer = NicTransfer {
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
        fixed: &SimShared,
        from: usize,
        to: usize,
        message: OwnedMessage,
    ) {
        self.ranks[to]
            .inbox
            .push_back(InboxItem::Request(from, message));
        self.notify(to, News::Message);
        let profile = &fixed.profile;
        let time = self.now + profile.nic().ack.0 + profile.link().latency.0;
        self.events.at(time, SimEvent::Token(from as u32));
    }

    pub(crate) fn reply_arrived(&mut self, from: usize, to: usize, message: OwnedMessage) {
        let pair = self.pair(to, from);
        pair.coming -= 1;
        pair.settle();
        self.ranks[to]
            .inbox
            .push_back(InboxItem::Reply(from, message));
        self.notify(to, News::Message);
    }

    pub(crate) fn return_token(&mut self, rank: usize) {
        self.ranks[rank].tokens += 1;
        self.notify(rank, News::Room);
    }

    /// Takes the next item to deliver.
    pub(crate) fn take_item(&mut self, rank: usize) -> Option<InboxItem> {
        match self.ranks[rank].inbox.pop_front()? {
            InboxItem::Request(from, message) if !self.pair(rank, from).kept.is_empty() => {
                self.pair(rank, from).held.push_back(message);
                None
            }
            item => Some(item),
        }
    }

    /// Notes that `rank` has run the handler of a request from `from`.
    pub(crate) fn handler_done(
        &mut self,
        fixed: &SimShared,
        rank: usize,
        from: usize,
        time: VirtualTime,
    ) {
        let pair = self.pair(rank, from);
        if pair.kept.is_empty() {
            let time = time + fixed.profile.link().latency.0;
            (self.events).at(time, SimEvent::Handled(from as u32, rank as u32));
        } else {
            pair.owed += 1;
        }
    }

    /// Notes that `rank` has taken a reply from `from`.
    pub(crate) fn reply_done(
        &mut self,
        fixed: &SimShared,
        rank: usize,
        from: usize,
        time: VirtualTime,
    ) {
        let time = time + fixed.profile.link().latency.0;
        (self.events).at(time, SimEvent::Taken(from as u32, rank as u32));
    }

    /// Tells `rank` that `peer` has handled one of its requests.
    pub(crate) fn request_handled(&mut self, rank: usize, peer: usize) {
        let pair = self.pair(rank, peer);
        pair.handled += 1;
        pair.settle();
        self.notify(rank, News::Room);
    }

    /// Tells `rank` that `peer` has taken one of its replies, so a kept reply may be sent.
    pub(crate) fn reply_taken(&mut self, fixed: &SimShared, rank: usize, peer: usize) {
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

    /// Drops all replies that `rank` keeps for `peer`, which has ended.
    pub(crate) fn forget_replies(&mut self, rank: usize, peer: usize) {
        let pair = self.pair(rank, peer);
        pair.kept.clear();
        pair.owed = 0;
        self.take_held(rank, peer);
    }

    /// Once no reply is kept, requests of the peer are delivered again.
    fn release_held(&mut self, fixed: &SimShared, rank: usize, peer: usize, time: VirtualTime) {
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
            (self.ranks[rank].inbox).push_front(InboxItem::Request(peer, message));
        }
        self.notify(rank, News::Message);
    }
}

/// Bytes that a message takes on the wire.
fn bytes_of(message: &OwnedMessage) -> usize {
    message.payload.len() + 8 * (message.args.len() + 1)
}
