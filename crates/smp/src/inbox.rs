//! Taking messages out of the rings.
//!
//! A reply that finds no room is kept, one at most for each peer. No further request of that peer is handled until
//! the reply is sent. So ranks can flood each other without deadlock, in bounded memory, and no message is dropped.

mod front;

use std::sync::atomic::Ordering::Acquire;

use hydrant_conduit::{Delivery, Error, Message, OwnedMessage, Rank, ReplyPort, Sink};

use crate::{
    layout::RingKind,
    mapping::MappedRing,
    notify,
    ring::{Head, MAX_ARGS, Malformed, Reader, Taken, Writer},
    shared::Shared,
    transfer,
};

/// Messages taken from one ring before the next peer's turn. Whoever polls may wait for the first of them, and do what
/// the others are to find: what comes before that has to be kept somewhere else than in the ring.
const TURN: usize = 16;
/// The same, of bytes of payload: a turn ends with the message that reaches that.
const TURN_BYTES: usize = 16 << 10;

/// The receiving side of a rank: one thread at a time holds it.
pub(crate) struct Inbox {
    /// The peers that ever sent something.
    peers: Vec<Peer>,
    /// The bits of [`Shared::opened`] that have their peer in the list.
    known: Vec<u64>,
    /// The place of the peer whose requests of one kind are [taken](Self::take_requests) first.
    first: usize,
}

/// The rings with one peer.
struct Peer {
    /// What it asks of this rank.
    requests: Reader<MappedRing>,
    /// What it answers.
    replies: Reader<MappedRing>,
    /// Where replies to it go.
    back: Back,
    /// A request whose reply is stuck: handled, but not finished with, so that "handled"
    /// means that the reply was sent.
    unfinished: Option<Taken>,
    /// It broke a rule and was expelled: nothing more is read from it.
    broken: bool,
}

/// The way back to a peer: replies leave only from here, so they need no lock.
struct Back {
    peer: Rank,
    /// The ring of replies.
    writer: Writer<MappedRing>,
    /// A reply that found no room. While it is here no request of the peer is taken, so
    /// there is never a second one.
    stuck: Option<OwnedMessage>,
}

impl Back {
    fn push(&mut self, shared: &Shared, message: &Message<'_>) {
        let sent = (self.writer).push(message.kind, message.tag, message.args, message.payload);
        if sent {
            shared.notify(self.peer);
        } else {
            self.stuck = Some(OwnedMessage::new(message));
            // Who fell asleep before did not ask to be told of room, and who polls here may be
            // about to compute.
            notify::wake(&shared.notify_words[shared.rank.index()].bits);
        }
    }

    /// Whether a reply waits no more than for a poll to send it.
    fn can_go_on(&mut self, shared: &Shared) -> bool {
        let Some(stuck) = &self.stuck else {
            return false;
        };
        self.writer.fits(stuck.payload.len()) || shared.alive(self.peer).is_err()
    }

    /// Sends the reply that waits; `false` if there is still no room.
    #[cold]
    fn resend(&mut self, shared: &Shared) -> bool {
        let Some(stuck) = &self.stuck else {
            return true;
        };
        if shared.alive(self.peer).is_err() {
            // Nobody will ever take it; the requests behind it are delivered all the same.
            self.stuck = None;
            return true;
        }
        let sent = (self.writer).push(stuck.kind, stuck.tag, &stuck.args, &stuck.payload);
        if sent {
            self.stuck = None;
            shared.notify(self.peer);
        }
        sent
    }
}

/// Where the handler of one request puts its reply.
struct Port<'a> {
    shared: &'a Shared,
    back: &'a mut Back,
}

impl ReplyPort for Port<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.caps.check(message)?;
        if self.back.stuck.is_some() {
            // One reply a request; the layer above sees to it.
            return Err(Error::Exhausted {
                what: "replies to one request",
                limit: 1,
                remedy: "reply once",
            });
        }
        self.back.push(self.shared, message);
        Ok(())
    }
}

impl Inbox {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            peers: Vec::new(),
            known: vec![0; ranks.div_ceil(64)],
            first: 0,
        }
    }

    /// Delivers what has arrived.
    #[inline(always)]
    pub(crate) fn poll(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        self.meet(shared);
        let mut count = 0;
        for peer in &mut self.peers {
            count += peer.poll(shared, sink);
        }
        count
    }

    /// As [`poll`](Self::poll), but leaves rings of requests that begin with one of this kind: of one peer, or of all.
    pub(crate) fn poll_past(
        &mut self,
        shared: &Shared,
        kind: u8,
        of: Option<Rank>,
        sink: &mut dyn Sink,
    ) -> usize {
        self.meet(shared);
        let polls = self.peers.iter_mut().map(|peer| {
            let is_left = of.is_none_or(|of| of == peer.back.peer) && peer.is_to_take(kind);
            match is_left {
                true => peer.poll_replies(shared, sink),
                false => peer.poll(shared, sink),
            }
        });
        polls.sum()
    }

    /// Whether a poll would find something.
    pub(crate) fn waiting(&mut self, shared: &Shared) -> bool {
        self.meet(shared);
        self.peers.iter_mut().any(|peer| {
            !peer.broken
                && (peer.replies.waiting()
                    || peer.requests.waiting() && peer.back.stuck.is_none()
                    || peer.back.can_go_on(shared))
        })
    }

    /// Whether a reply waits for room.
    pub(crate) fn is_stuck(&self) -> bool {
        self.peers.iter().any(|peer| peer.back.stuck.is_some())
    }

    /// Takes those in who have begun to send.
    #[inline]
    fn meet(&mut self, shared: &Shared) {
        let words = shared.opened().iter().zip(&self.known);
        for (opened, known) in words {
            if opened.load(Acquire) != *known {
                return self.meet_new(shared);
            }
        }
    }

    #[cold]
    fn meet_new(&mut self, shared: &Shared) {
        for (word, (opened, known)) in shared.opened().iter().zip(&mut self.known).enumerate() {
            let opened = opened.load(Acquire);
            let mut new = opened & !*known;
            *known = opened;
            while new != 0 {
                let from = word * 64 + new.trailing_zeros() as usize;
                new &= new - 1;
                if from < shared.shape.ranks() {
                    self.peers.push(Peer::new(shared, from));
                }
            }
        }
    }
}

impl Peer {
    fn new(shared: &Shared, from: usize) -> Self {
        let me = shared.rank.index();
        let ring = |to, from, kind| {
            let place = shared.shape.ring(to, from, kind);
            MappedRing::new(&shared.mapping, place, &shared.shape)
        };
        let peer = Rank(from as u32);
        shared.open(peer);
        Self {
            requests: Reader::new(ring(me, from, RingKind::Request)),
            replies: Reader::new(ring(me, from, RingKind::Reply)),
            back: Back {
                peer,
                writer: Writer::new(ring(from, me, RingKind::Reply)),
                stuck: None,
            },
            unfinished: None,
            broken: false,
        }
    }

    #[inline]
    fn poll(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        if self.broken {
            return 0;
        }
        let count = self.poll_replies(shared, sink);
        count + self.poll_requests(shared, sink)
    }

    #[inline]
    fn poll_replies(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        let from = self.back.peer;
        for count in 0..TURN {
            let taken = match self.replies.take() {
                Ok(Some(taken)) if taken.head.payload > shared.caps.max_payload => {
                    let what = "a payload longer than a message's";
                    return self.give_up(shared, Error::Malformed { peer: from, what }, sink);
                }
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    if self.replies.publish() {
                        shared.notify_room(from);
                    }
                    return count;
                }
                Err(Malformed(what)) => {
                    let error = Error::Malformed { peer: from, what };
                    return self.give_up(shared, error, sink);
                }
            };
            let payload = self
                .replies
                .memory()
                .payload(taken.offset, taken.head.payload);
            let args = self.replies.args();
            let delivery = delivery(from, &taken.head, &args, payload);
            if delivery.kind < Message::KINDS {
                sink.reply(delivery);
            } else if let Err(malformed) = transfer::answered(shared, &delivery, sink) {
                return self.give_up(shared, malformed, sink);
            }
            if self.replies.finish(&taken) {
                shared.notify_room(from);
            }
        }
        if self.replies.publish() {
            shared.notify_room(from);
        }
        TURN
    }

    #[inline]
    fn poll_requests(&mut self, shared: &Shared, sink: &mut dyn Sink) -> usize {
        if self.back.stuck.is_some() && !self.settle(shared) {
            return 0;
        }
        let from = self.back.peer;
        let mut bytes = 0;
        for count in 0..TURN {
            let taken = match self.requests.take() {
                Ok(Some(taken)) if taken.head.payload > shared.caps.max_payload => {
                    let what = "a payload longer than a message's";
                    return self.give_up(shared, Error::Malformed { peer: from, what }, sink);
                }
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    if self.requests.publish() {
                        shared.notify_room(from);
                    }
                    return count;
                }
                Err(Malformed(what)) => {
                    let error = Error::Malformed { peer: from, what };
                    return self.give_up(shared, error, sink);
                }
            };
            let payload = self
                .requests
                .memory()
                .payload(taken.offset, taken.head.payload);
            let args = self.requests.args();
            let delivery = delivery(from, &taken.head, &args, payload);
            let mut port = Port {
                shared,
                back: &mut self.back,
            };
            if delivery.kind < Message::KINDS {
                sink.request(delivery, &mut port);
            } else if let Err(malformed) = transfer::serve(shared, &delivery, &mut port) {
                return self.give_up(shared, malformed, sink);
            }
            if self.back.stuck.is_some() {
                self.unfinished = Some(taken);
                return count + 1;
            }
            self.finish(shared, &taken);
            bytes += taken.head.payload;
            if bytes >= TURN_BYTES {
                // Of what has a payload its writer was told.
                return count + 1;
            }
        }
        if self.requests.publish() {
            shared.notify_room(from);
        }
        TURN
    }

    /// Sends the reply that waits and finishes with its request; `false` if it still waits.
    #[cold]
    fn settle(&mut self, shared: &Shared) -> bool {
        let sent = self.back.resend(shared);
        if sent && let Some(taken) = self.unfinished.take() {
            self.finish(shared, &taken);
        }
        sent
    }

    /// Done with a request.
    #[inline]
    fn finish(&mut self, shared: &Shared, taken: &Taken) {
        if self.requests.finish(taken) {
            shared.notify_room(self.back.peer);
        }
    }

    /// The peer broke a rule: nothing more is read from it, so nothing that anybody waits for
    /// would come of it. It is lost, which ends those waits, and its own. What it did is told
    /// before the loss can be seen.
    #[cold]
    fn give_up(&mut self, shared: &Shared, error: Error, sink: &mut dyn Sink) -> usize {
        self.broken = true;
        sink.malformed(error);
        shared.expel(self.back.peer);
        1
    }
}

#[inline]
fn delivery<'a>(
    from: Rank,
    head: &Head,
    args: &'a [u64; MAX_ARGS],
    payload: &'a [u8],
) -> Delivery<'a> {
    Delivery {
        from,
        kind: head.kind,
        tag: head.tag,
        args: &args[..head.count],
        payload,
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use std::thread;

    use hydrant_conduit::{Conduit, Membership, Sent, Sleep, Sleeper, Standing, Ticket};

    use super::*;
    use crate::{Options, Smp, attach};

    /// What a poll handed up.
    #[derive(Default)]
    pub(super) struct Log {
        pub(super) requests: Vec<Rank>,
        malformed: Vec<Error>,
    }

    impl Sink for Log {
        fn request(&mut self, delivery: Delivery<'_>, _: &mut dyn ReplyPort) {
            self.requests.push(delivery.from);
        }
        fn reply(&mut self, delivery: Delivery<'_>) {
            panic!("nobody asked for {delivery:?}");
        }
        fn local(&mut self, _: Ticket) {}
        fn complete(&mut self, _: Ticket, _: Result<(), Error>) {}
        fn malformed(&mut self, error: Error) {
            self.malformed.push(error);
        }
    }

    pub(crate) fn start(ranks: u32) -> Vec<Smp> {
        let options = Options {
            segment: 1 << 20,
            ..Options::default()
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (hydrant_launch::local(ranks).into_iter())
                .map(|mut bootstrap| {
                    let options = &options;
                    scope.spawn(move || attach(&mut bootstrap, options).unwrap())
                })
                .collect();
            (ranks.into_iter())
                .map(|rank| rank.join().unwrap())
                .collect()
        })
    }

    pub(super) const MESSAGE: Message<'static> = Message {
        kind: 0,
        tag: 0,
        args: &[],
        payload: &[],
    };

    /// A header that no writer makes, in either kind: its sender is lost to the others and to
    /// itself, asleep or not, and they go on.
    #[test]
    fn a_malformed_header_costs_its_sender_the_job_and_nobody_else() {
        for kind in [RingKind::Request, RingKind::Reply] {
            let ranks = start(3);
            let [reader, sender, other] = [&ranks[0], &ranks[1], &ranks[2]];
            let before = sender.changes();
            thread::scope(|scope| {
                // It waits for an answer that will not come.
                scope.spawn(|| {
                    while sender.changes() == before {
                        let mut ready = || sender.changes() != before;
                        sender.wait(Sleeper::Application, None, &mut ready);
                    }
                });
                let shared = &sender.shared;
                shared.open(Rank(0));
                let (_, slots, _) = shared.shape.ring(0, 1, kind);
                let first_lap_many_arguments = 1 << 48 | 15 << 40;
                (shared.mapping.words(slots, 1)[0]).store(
                    first_lap_many_arguments,
                    std::sync::atomic::Ordering::Release,
                );
                let mut log = Log::default();
                reader.poll(&mut log);
                assert!(
                    matches!(log.malformed[..], [Error::Malformed { peer: Rank(1), .. }]),
                    "{:?}",
                    log.malformed
                );
            });
            for rank in &ranks {
                let standings = [0, 1, 2].map(|peer| rank.standing(Rank(peer)));
                use Standing::{Lost, Present};
                assert_eq!(standings, [Present, Lost, Present]);
                assert_eq!(rank.first_lost(), Some(Rank(1)));
            }
            let mut log = Log::default();
            assert_eq!(sender.send(Rank(0), &MESSAGE).unwrap(), Sent::Yes);
            assert_eq!(other.send(Rank(0), &MESSAGE).unwrap(), Sent::Yes);
            reader.drain(&mut log);
            assert_eq!(log.requests, [Rank(2)], "taken from");
            assert_eq!(log.malformed.len(), 0, "published once");
            for rank in &ranks {
                rank.leave(true);
            }
        }
    }
}
