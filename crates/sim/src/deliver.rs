//! Delivery of arrived items, and their cost to the host.

use hydrant_conduit::{Error, Message, OwnedMessage, Rank, ReplyPort, Sink};

use crate::{
    World,
    call::SimCall,
    pair::InboxItem,
    profile::Attentiveness,
    state::SimShared,
    time::{LAST, VirtualTime},
    turns::{ActorWait, News},
};

impl SimCall<'_> {
    /// Delivers the inbox, unless another thread of the rank is doing so.
    pub(crate) fn deliver(&mut self, sink: &mut dyn Sink) -> usize {
        if self.own().polling {
            return 0;
        }
        self.own().polling = true;
        let latch = Polling {
            world: self.world,
            rank: self.rank,
        };
        let mut count = 0;
        for _ in 0..self.own().inbox.len() {
            let rank = self.rank;
            if let Some(item) = self.take_item(rank) {
                self.hand_up(item, sink);
                count += 1;
            }
        }
        std::mem::forget(latch);
        self.own().polling = false;
        let (rank, clock) = (self.rank, self.clock());
        self.turns.notify(rank, News::Polled, clock);
        count
    }

    /// Waits until no other thread of the rank delivers.
    pub(crate) fn await_poller(&mut self) {
        while self.own().polling {
            self.begin_wait(ActorWait::Polling);
            self.wait_for_news(None);
            self.end_wait();
        }
    }

    fn hand_up(&mut self, item: InboxItem, sink: &mut dyn Sink) {
        let world = self.world;
        let fixed = &world.fixed;
        let rank = self.rank;
        match item {
            InboxItem::Request(from, message) => {
                self.charge(receive_cost(fixed, &message));
                let mut port = SimReplyPort {
                    world,
                    rank,
                    peer: from,
                };
                self.without_lock(|| sink.request(message.delivery(Rank(from as u32)), &mut port));
                let clock = self.clock();
                self.handler_done(fixed, rank, from, clock);
            }
            InboxItem::Reply(from, message) => {
                self.charge(receive_cost(fixed, &message));
                self.without_lock(|| sink.reply(message.delivery(Rank(from as u32))));
                let clock = self.clock();
                self.reply_done(fixed, rank, from, clock);
            }
            InboxItem::Local(ticket) => self.without_lock(|| sink.local(ticket)),
            InboxItem::Complete(ticket, outcome) => {
                self.charge(fixed.profile.host().completion.0);
                self.without_lock(|| sink.complete(ticket, outcome));
            }
        }
    }

    /// Lets the application compute; the host model decides when messages are delivered. No
    /// computation goes beyond [`LAST`].
    pub(crate) fn compute(&mut self, time: VirtualTime, sink: &mut dyn Sink) {
        let host = self.world.fixed.profile.host();
        let time = time.min(LAST.saturating_sub(self.clock()));
        let computing = &mut self.own().computing;
        *computing = computing.saturating_add(time);
        if host.attentiveness == Attentiveness::Polling {
            self.charge(time);
            self.sync();
            self.deliver(sink);
            self.without_lock(|| sink.send_waiting());
            return;
        }
        let mut end = self.clock() + time;
        loop {
            self.sync();
            let before = self.clock();
            let stuck = self.without_lock(|| sink.send_waiting());
            if host.processors == 1 {
                end += self.clock() - before;
            }
            if self.clock() >= end {
                break;
            }
            if !self.own().polling && self.is_interrupted(sink) {
                let before = self.clock();
                self.charge(host.interrupt.0);
                self.deliver(sink);
                if host.processors == 1 {
                    end += self.clock() - before;
                }
                continue;
            }
            self.begin_wait(if stuck {
                ActorWait::ComputingForRoom
            } else {
                ActorWait::Computing
            });
            self.wait_for_news(Some(end));
            self.end_wait();
        }
    }

    /// True if an interrupting item has arrived: a message, or the completion of an operation that
    /// others wait for.
    fn is_interrupted(&mut self, sink: &mut dyn Sink) -> bool {
        let mut ended = Vec::new();
        for item in &self.own().inbox {
            match item {
                InboxItem::Request(..) | InboxItem::Reply(..) => return true,
                InboxItem::Complete(ticket, _) => ended.push(*ticket),
                InboxItem::Local(_) => {}
            }
        }
        !ended.is_empty()
            && self.without_lock(|| ended.into_iter().any(|ticket| sink.is_awaited(ticket)))
    }
}

/// Ends the polling of a thread whose sink panicked.
struct Polling<'w> {
    world: &'w World,
    rank: usize,
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.ranks[self.rank].polling = false;
        state.notify(self.rank, News::Polled);
    }
}

/// Sends the reply of a request.
struct SimReplyPort<'w> {
    world: &'w World,
    rank: usize,
    peer: usize,
}

impl ReplyPort for SimReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        let fixed = &self.world.fixed;
        fixed.caps.check(message)?;
        let mut call = self.world.call(Rank(self.rank as u32));
        call.charge(send_cost(fixed, message));
        let clock = call.clock();
        call.send_reply(
            fixed,
            self.rank,
            self.peer,
            OwnedMessage::new(message),
            clock,
        );
        Ok(())
    }
}

/// The host's cost of sending a message.
pub(crate) fn send_cost(fixed: &SimShared, message: &Message<'_>) -> VirtualTime {
    let host = fixed.profile.host();
    host.send.0 + host.copying(message.payload.len())
}

fn receive_cost(fixed: &SimShared, message: &OwnedMessage) -> VirtualTime {
    let host = fixed.profile.host();
    host.receive.0 + host.copying(message.payload.len()) + host.handler.0
}
