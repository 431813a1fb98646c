//! Takes messages out of the rings.
//!
//! A reply that finds no room is kept, at most one for each peer. No further request of that peer
//! is handled until the reply is sent. Ranks can therefore flood each other without deadlock, in
//! bounded memory, and no message is dropped.

mod front;

use std::sync::atomic::Ordering::Acquire;

use hydrant_conduit::{Delivery, Error, Message, OwnedMessage, Rank, ReplyPort, Sink};

use crate::{
    layout::RingKind,
    mapping::MappedRing,
    notify,
    ring::{Head, MAX_ARGS, MalformedHeader, RingReader, RingWriter, TakenMessage},
    shared::SharedState,
    transfer,
};

/// The most messages taken from one ring before the next peer's turn. A thread that polls may wait
/// for the first of them, and then do the work for which the others come. Messages taken too early
/// must be kept outside the ring.
const TURN: usize = 16;
/// The most payload bytes taken in a turn. The turn ends with the message that reaches them.
const TURN_BYTES: usize = 16 << 10;

/// The receiving side of a rank. One thread at a time holds it.
pub(crate) struct RingInbox {
    /// The peers that ever sent a message.
    peers: Vec<PeerRings>,
    /// The bits of [`SharedState::opened`] whose peers are in the list.
    known: Vec<u64>,
    /// The index of the peer whose requests of one kind are [taken](Self::take_requests) first.
    first: usize,
}

/// The rings with one peer.
struct PeerRings {
    /// The peer's requests to this rank.
    requests: RingReader<MappedRing>,
    /// The peer's replies to this rank.
    replies: RingReader<MappedRing>,
    /// The path of replies to the peer.
    back: ReplyPath,
    /// A request whose reply is stuck. It was handled, but is not finished. "Finished" means that
    /// the reply was sent.
    unfinished: Option<TakenMessage>,
    /// The peer broke a rule and was expelled. Nothing more is read from it.
    broken: bool,
}

/// The path of replies to a peer. Replies leave only from here, so they need no lock.
struct ReplyPath {
    peer: Rank,
    /// The ring of replies.
    writer: RingWriter<MappedRing>,
    /// A reply that found no room. Meanwhile no request of the peer is taken, so there is never a
    /// second one.
    stuck: Option<OwnedMessage>,
}

impl ReplyPath {
    fn push(&mut self, shared: &SharedState, message: &Message<'_>) {
        let sent = (self.writer).push(message.kind, message.tag, message.args, message.payload);
        if sent {
            shared.notify(self.peer);
        } else {
            self.stuck = Some(OwnedMessage::new(message));
            // A thread that fell asleep earlier did not ask for notifications of room. The thread
            // that polls here may be about to compute.
            notify::wake(&shared.notify_words[shared.rank.index()].bits);
        }
    }

    /// Looks for room for the waiting reply. Returns true if a poll can send it.
    fn find_room_to_resend(&mut self, shared: &SharedState) -> bool {
        let Some(stuck) = &self.stuck else {
            return false;
        };
        self.writer.find_room(stuck.payload.len()) || shared.alive(self.peer).is_err()
    }

    /// Sends the waiting reply. Returns `false` if there is still no room.
    #[cold]
    fn resend(&mut self, shared: &SharedState) -> bool {
        let Some(stuck) = &self.stuck else {
            return true;
        };
        if shared.alive(self.peer).is_err() {
            // The peer will never take the reply. The requests behind it are delivered all the
            // same.
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

/// The port for the reply to one request.
struct RingReplyPort<'a> {
    shared: &'a SharedState,
    back: &'a mut ReplyPath,
}

impl ReplyPort for RingReplyPort<'_> {
    fn reply(&mut self, message: &Message<'_>) -> Result<(), Error> {
        self.shared.caps.check(message)?;
        if self.back.stuck.is_some() {
            // The layer above sends one reply to a request.
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

impl RingInbox {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            peers: Vec::new(),
            known: vec![0; ranks.div_ceil(64)],
            first: 0,
        }
    }

    /// Delivers the messages that have arrived.
    #[inline(always)]
    pub(crate) fn poll(&mut self, shared: &SharedState, sink: &mut dyn Sink) -> usize {
        self.meet(shared);
        let mut count = 0;
        for peer in &mut self.peers {
            count += peer.poll(shared, sink);
        }
        count
    }

    /// Like [`poll`](Self::poll), but skips request rings whose first request is of this kind:
    /// those of one peer, or of all.
    pub(crate) fn poll_past(
        &mut self,
        shared: &SharedState,
        kind: u8,
        of: Option<Rank>,
        sink: &mut dyn Sink,
    ) -> usize {
        self.meet(shared);
        let polls = self.peers.iter_mut().map(|peer| {
            let is_left = of.is_none_or(|of| of == peer.back.peer) && peer.is_to_take(kind);
            if is_left {
                peer.poll_replies(shared, sink)
            } else {
                peer.poll(shared, sink)
            }
        });
        polls.sum()
    }

    /// Returns true if a poll would find work.
    pub(crate) fn waiting(&mut self, shared: &SharedState) -> bool {
        self.meet(shared);
        self.peers.iter_mut().any(|peer| {
            !peer.broken
                && (peer.replies.waiting()
                    || peer.requests.waiting() && peer.back.stuck.is_none()
                    || peer.back.find_room_to_resend(shared))
        })
    }

    /// Returns true if a reply waits for room.
    pub(crate) fn is_stuck(&self) -> bool {
        self.peers.iter().any(|peer| peer.back.stuck.is_some())
    }

    /// Adds the peers that have begun to send.
    #[inline]
    fn meet(&mut self, shared: &SharedState) {
        let words = shared.opened().iter().zip(&self.known);
        for (opened, known) in words {
            if opened.load(Acquire) != *known {
                return self.meet_new(shared);
            }
        }
    }

    #[cold]
    fn meet_new(&mut self, shared: &SharedState) {
        for (word, (opened, known)) in shared.opened().iter().zip(&mut self.known).enumerate() {
            let opened = opened.load(Acquire);
            let mut new = opened & !*known;
            *known = opened;
            while new != 0 {
                let from = word * 64 + new.trailing_zeros() as usize;
                new &= new - 1;
                if from < shared.shape.ranks() {
                    self.peers.push(PeerRings::new(shared, from));
                }
            }
        }
    }
}

impl PeerRings {
    fn new(shared: &SharedState, from: usize) -> Self {
        let me = shared.rank.index();
        let ring = |to, from, kind| {
            let place = shared.shape.ring(to, from, kind);
            MappedRing::new(&shared.mapping, place, &shared.shape)
        };
        let peer = Rank(from as u32);
        shared.open(peer);
        Self {
            requests: RingReader::new(ring(me, from, RingKind::Request)),
            replies: RingReader::new(ring(me, from, RingKind::Reply)),
            back: ReplyPath {
                peer,
                writer: RingWriter::new(ring(from, me, RingKind::Reply)),
                stuck: None,
            },
            unfinished: None,
            broken: false,
        }
    }

    #[inline]
    fn poll(&mut self, shared: &SharedState, sink: &mut dyn Sink) -> usize {
        if self.broken {
            return 0;
        }
        let count = self.poll_replies(shared, sink);
        count + self.poll_requests(shared, sink)
    }

    #[inline]
    fn poll_replies(&mut self, shared: &SharedState, sink: &mut dyn Sink) -> usize {
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
                Err(MalformedHeader(what)) => {
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
    fn poll_requests(&mut self, shared: &SharedState, sink: &mut dyn Sink) -> usize {
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
                Err(MalformedHeader(what)) => {
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
            let mut port = RingReplyPort {
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
                // The writer was notified already, because the message had a payload.
                return count + 1;
            }
        }
        if self.requests.publish() {
            shared.notify_room(from);
        }
        TURN
    }

    /// Sends the waiting reply and finishes its request. Returns `false` if the reply still waits.
    #[cold]
    fn settle(&mut self, shared: &SharedState) -> bool {
        let sent = self.back.resend(shared);
        if sent && let Some(taken) = self.unfinished.take() {
            self.finish(shared, &taken);
        }
        sent
    }

    /// Finishes a request, and notifies its writer if needed.
    #[inline]
    fn finish(&mut self, shared: &SharedState, taken: &TakenMessage) {
        if self.requests.finish(taken) {
            shared.notify_room(self.back.peer);
        }
    }

    /// Expels the peer, which broke a rule. Nothing more is read from it, so all waits for its
    /// messages would be in vain. The loss ends those waits, and the peer's own. The violation is
    /// reported before the loss can be seen.
    #[cold]
    fn give_up(&mut self, shared: &SharedState, error: Error, sink: &mut dyn Sink) -> usize {
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
    use crate::{Smp, SmpOptions, attach};

    /// The messages that a poll delivered.
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
            panic!("no request led to {delivery:?}");
        }
        fn local(&mut self, _: Ticket) {}
        fn complete(&mut self, _: Ticket, _: Result<(), Error>) {}
        fn malformed(&mut self, error: Error) {
            self.malformed.push(error);
        }
    }

    pub(crate) fn start(ranks: u32) -> Vec<Smp> {
        let options = SmpOptions {
            segment: 1 << 20,
            ..SmpOptions::default()
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

    /// A header that no writer makes, in either kind of ring. All ranks see its sender as lost,
    /// even the sender itself, awake or asleep. The others continue.
    #[test]
    fn a_malformed_header_expels_its_sender_and_no_other_rank() {
        for kind in [RingKind::Request, RingKind::Reply] {
            let ranks = start(3);
            let [reader, sender, other] = [&ranks[0], &ranks[1], &ranks[2]];
            let before = sender.changes();
            thread::scope(|scope| {
                // The sender waits for an answer that will not come.
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
