//! The begin, the break and the resumption of sessions.
//!
//! Each rank tells the other how many of its messages and writes have arrived. These counts are right only if the other
//! posts nothing meanwhile. So the rank that asks has no operation in flight, the rank that is asked ends its own before
//! it answers, and the confirmation has the counts of the rank that asked once more, as they are then.

use std::{
    sync::atomic::Ordering::{Acquire, Release},
    time::{Duration, Instant},
};

use bytemuck::Zeroable;
use hydrant_conduit::{Error, Rank, Standing};

use crate::{
    commands::LinkCommand,
    fabric::PostResult,
    introduction::{self, ADMIT, FabricIntroduction, INTRODUCE},
    message::{ControlKind, StreamMessage, StreamRole},
    peers::{Link, OfiPeer, PendingSession, Phase, Resumption},
    session::{self, Greeting, HELLO, REFUSAL, VERSION, WELCOME},
    shared::OfiShared,
    slots::{AccessDirection, receive_buffers},
};

/// The time between the first two hellos without an answer. It doubles up to the second value. The first hello is often
/// lost with the old connection.
const HELLO_AGAIN: Duration = Duration::from_millis(20);
const HELLO_SLOWLY: Duration = Duration::from_millis(500);
/// How long a rank that answered waits for the confirmation, before it asks itself.
const CONFIRMATION: Duration = Duration::from_secs(2);
/// The time until a hello that the provider did not take is tried again.
const HELLO_BUSY: Duration = Duration::from_millis(5);
/// Most keys that a cautious link remembers.
const MOST_KNOWN: usize = 1024;
/// Most receive buffers without a job.
const MOST_RECEIVES: usize = 512;
/// How often an access is posted again whose key is in force.
const MOST_RETRIES: u32 = 16;

/// The verdicts of an access.
const PERMITTED: u64 = 0;
const REVOKED: u64 = 1;
const OUTSIDE: u64 = 2;
const READ_ONLY: u64 = 3;

impl OfiShared {
    /// Asks the peer for a session, if it is time. Returns when to try again.
    pub(crate) fn ask(&self, peer: &OfiPeer, link: &mut Link, now: Instant) -> Option<Instant> {
        if link.phase != Phase::Down || link.resumption.is_some() {
            return None;
        }
        // Operations of the last session end before the next begins, so that their fate can be asked for. A session that
        // the peer asked for was answered; its confirmation is on its way.
        if link.in_flight > 0 {
            return Some(now + HELLO_BUSY);
        }
        if now < link.next_hello {
            return Some(link.next_hello);
        }
        let asked = *link.asked.get_or_insert_with(session::fresh);
        let hello = Greeting {
            step: HELLO,
            asked,
            ..self.greeting(peer)
        };
        let hello = link.known_as.sessions.sign(hello);
        let posted = self.send_unnumbered(peer, StreamRole::Hello, 0, bytemuck::bytes_of(&hello));
        link.next_hello = now
            + match posted {
                PostResult::Taken => {
                    let pause = link.hello_pause.max(HELLO_AGAIN);
                    link.hello_pause = HELLO_SLOWLY.min(2 * pause);
                    pause
                }
                _ => HELLO_BUSY,
            };
        Some(link.next_hello)
    }

    fn greeting(&self, peer: &OfiPeer) -> Greeting {
        Greeting {
            version: VERSION,
            from: peer.me(),
            to: peer.rank.0,
            writes: peer.counts.writes(),
            received: peer.counts.received(),
            ..Greeting::zeroed()
        }
    }

    /// Parses a greeting with this step. Returns `None` if its sender does not know the secret.
    fn proved(&self, bytes: &[u8], step: u32) -> Option<Greeting> {
        let greeting = session::parse(bytes, step)?;
        let sessions = self.peers.sessions_with(greeting.from)?;
        sessions.believes(&greeting).then_some(greeting)
    }

    /// Parses a greeting with this step to this process, of a peer that is known.
    fn proved_by_known(&self, bytes: &[u8], step: u32) -> Option<(Greeting, &OfiPeer)> {
        let greeting = self.proved(bytes, step)?;
        let peer = self.peers.known(greeting.from)?;
        (greeting.to == peer.me()).then_some((greeting, peer))
    }

    /// Hears the introduction of a process, if it knows the key of this endpoint.
    pub(crate) fn hear_introduction(&self, bytes: &[u8]) {
        if let Some(listening) = &self.listening
            && let Some(it) = FabricIntroduction::open(&listening.key, bytes, INTRODUCE)
        {
            self.commands.push(LinkCommand::Introduced(Box::new(it)));
        }
    }

    /// Hears the answer to an introduction, if its sender knows the key that the introduction was made with.
    pub(crate) fn hear_answer(&self, bytes: &[u8], step: u32) {
        let Some(listening) = &self.listening else {
            return;
        };
        let known = introduction::attempt_of(bytes)
            .and_then(|asked| listening.attempts.lock().get(&asked).copied());
        if let Some((number, key)) = known
            && let Some(it) = FabricIntroduction::open(&key, bytes, step)
        {
            let it = Box::new(it);
            self.commands.push(match step {
                ADMIT => LinkCommand::Admitted(number, it),
                _ => LinkCommand::Declined(number, it),
            });
        }
    }

    /// Answers a hello.
    pub(crate) fn hear_hello(&self, bytes: &[u8]) {
        let Some((hello, Ok(peer))) =
            (self.proved(bytes, HELLO)).map(|hello| (hello, self.peer(Rank(hello.from))))
        else {
            return;
        };
        if hello.to != peer.me() {
            return;
        }
        let has_ended = peer.link.lock().phase == Phase::Ended;
        if has_ended || self.peers.standings.of(peer.rank) == Standing::Lost {
            // The peer may not know that it counts as lost, or that nothing more is expected of it.
            self.refuse_session(peer, hello.asked);
            return;
        }
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        if link.phase == Phase::Ended {
            return;
        }
        if self.listening.is_some() && !link.is_proved {
            // The control thread notes that the peer is there, and hears the hello again.
            let first = LinkCommand::Proved(peer.rank, bytes.into());
            return self.commands.push(first);
        }
        // If both ask at once, the hello of the one that leads counts.
        let sessions = link.known_as.sessions;
        if link.asked.is_some() && sessions.leads() || link.last_asked == hello.asked {
            return;
        }
        self.break_link(peer, link);
        if link.phase == Phase::Ended {
            // It has left, and all that it sent has arrived.
            drop(guard);
            self.refuse_session(peer, hello.asked);
            return;
        }
        link.asked = None;
        let answered = match &link.pending {
            Some(pending) if pending.hello.asked == hello.asked => pending.answered,
            _ => session::fresh(),
        };
        let token = sessions.token_here(hello.asked, answered);
        link.pending = Some(PendingSession {
            hello,
            answered,
            token,
        });
        if link.phase == Phase::Unused {
            self.bring_up(peer, link);
        }
        link.next_hello = Instant::now() + CONFIRMATION;
        self.answer(peer, link);
    }

    /// Answers the hello of a peer, once all operations of the last session have ended.
    pub(crate) fn answer(&self, peer: &OfiPeer, link: &Link) {
        let Some(pending) = link.pending.filter(|_| link.in_flight == 0) else {
            return;
        };
        let welcome = Greeting {
            step: WELCOME,
            asked: pending.hello.asked,
            answered: pending.answered,
            ..self.greeting(peer)
        };
        // Writes of the last session that land from now on are not in that count.
        peer.epoch.store(pending.token as u32, Release);
        let welcome = link.known_as.sessions.sign(welcome);
        self.send_unnumbered(peer, StreamRole::Welcome, 0, bytemuck::bytes_of(&welcome));
    }

    /// Tells a peer that this rank begins no session with it any more.
    pub(crate) fn refuse_session(&self, peer: &OfiPeer, asked: u64) {
        let refusal = Greeting {
            step: REFUSAL,
            asked,
            ..self.greeting(peer)
        };
        let sessions = peer.link.lock().known_as.sessions;
        let refusal = sessions.sign(refusal);
        let bytes = bytemuck::bytes_of(&refusal);
        self.send_unnumbered(peer, StreamRole::Refusal, 0, bytes);
    }

    /// Begins the session that a peer answered.
    pub(crate) fn hear_welcome(&self, bytes: &[u8]) {
        let Some((welcome, peer)) = self.proved_by_known(bytes, WELCOME) else {
            return;
        };
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        if link.phase != Phase::Down || link.asked != Some(welcome.asked) {
            return;
        }
        // The confirmation is the first message with the new token. Without it the peer answers the next hello again.
        let sessions = link.known_as.sessions;
        let token = sessions.token_there(welcome.asked, welcome.answered);
        let writes = peer.counts.writes().to_ne_bytes();
        let confirmed = self.send_unnumbered(peer, StreamRole::Counts, token, &writes);
        if confirmed == PostResult::Taken {
            let there = Resumption {
                received: welcome.received,
                writes: welcome.writes,
            };
            self.adopt(peer, link, [welcome.asked, welcome.answered], there);
        }
    }

    /// Notes that a peer counts this rank as lost.
    pub(crate) fn hear_refusal(&self, bytes: &[u8]) {
        if let Some((refusal, peer)) = self.proved_by_known(bytes, REFUSAL)
            && (self.has_left() || peer.link.lock().asked == Some(refusal.asked))
        {
            if self.has_left() {
                // The peer knows that this rank left, and waits for nothing of it.
                peer.link.lock().phase = Phase::Ended;
                return;
            }
            let why = "it counts this rank as lost";
            self.commands.push(LinkCommand::Lose(peer.rank, why));
        }
    }

    /// Checks whether a message confirms a pending session, and begins the session then.
    #[cold]
    pub(crate) fn confirm(&self, peer: &OfiPeer, message: &StreamMessage<'_>) -> bool {
        let (true, Ok(writes)) = (
            message.role == StreamRole::Counts,
            message.payload.try_into(),
        ) else {
            return false;
        };
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        match link.pending {
            Some(pending)
                if pending.token == message.header.token && link.phase != Phase::Ended =>
            {
                let there = Resumption {
                    received: message.header.received,
                    writes: u64::from_ne_bytes(writes),
                };
                self.adopt(peer, link, [pending.hello.asked, pending.answered], there);
                true
            }
            _ => false,
        }
    }

    /// Begins the session of these two fresh numbers.
    fn adopt(
        &self,
        peer: &OfiPeer,
        link: &mut Link,
        [asked, answered]: [u64; 2],
        there: Resumption,
    ) {
        link.asked = None;
        link.hello_pause = Duration::ZERO;
        link.last_asked = asked;
        link.pending = None;
        link.token = link.known_as.sessions.token_there(asked, answered);
        let theirs_to_us = link.known_as.sessions.token_here(asked, answered);
        peer.token.store(theirs_to_us, Release);
        peer.epoch.store(theirs_to_us as u32, Release);
        peer.note_heard(self.now_ms());
        link.phase = Phase::Down;
        link.resumption = Some(there);
        self.resume(peer, link);
    }

    /// Goes on with the handshake, which waits for the end of the operations in flight.
    #[inline]
    pub(crate) fn go_on(&self, peer: &OfiPeer, link: &mut Link) {
        if link.in_flight > 0 || link.phase == Phase::Up {
            return;
        }
        if link.resumption.is_some() {
            self.resume(peer, link);
        } else if link.phase == Phase::Down {
            self.answer(peer, link);
        }
    }

    /// Continues after the begin of a session, once all operations of the last have ended.
    pub(crate) fn resume(&self, peer: &OfiPeer, link: &mut Link) {
        if link.in_flight > 0 {
            return;
        }
        let Some(there) = link.resumption.take() else {
            return;
        };
        peer.counts.note_known(there.received);
        self.release_known(peer, link);
        link.posted = link.first_kept().wrapping_sub(1);
        link.written = there.writes;
        link.phase = Phase::Up;
        self.commands.push(LinkCommand::MarkSockets);
        let is_first = !peer.was_up.swap(true, std::sync::atomic::Ordering::AcqRel);
        if is_first {
            self.grow_receives();
            if let Some(listening) = &self.listening {
                listening.note_met(peer.rank);
            }
        }
        // A question that was asked before is in the stream, and so is its verdict. A second one would come for whatever
        // access has the entry by then.
        let mut unknown = std::mem::take(&mut link.unknown);
        unknown.sort_by_key(|index| self.accesses.record(*index).number);
        // A key whose access was refused may be revoked.
        link.known_keys.clear();
        for index in unknown {
            let record = *self.accesses.record(index);
            if record.direction == AccessDirection::Write && record.number <= there.writes {
                if self.accesses.end_piece(index) {
                    self.finish(index, Ok(()));
                } else {
                    link.queue.push_back(index);
                }
            } else {
                self.ask_about(peer, link, index);
            }
        }
        self.post_messages(peer, link);
        self.post_accesses(peer, link);
        self.sleepers.wake_listening();
    }

    fn grow_receives(&self) {
        let up = self
            .peers
            .all_known()
            .filter(|peer| peer.was_up.load(Acquire))
            .count();
        let mut wanted = receive_buffers(up);
        if self.listening.is_some() {
            // Idle peers cost no memory. Messages do not stay in the buffers while these are short.
            wanted = wanted.min(MOST_RECEIVES);
        }
        if let Err(cause) = self.receives.grow_to(wanted) {
            tracing::error!(%cause, "no more receive buffers");
        }
    }

    /// Notes that the connection broke: an operation failed.
    pub(crate) fn break_link(&self, peer: &OfiPeer, link: &mut Link) {
        if link.phase == Phase::Up {
            tracing::debug!(peer = %peer.rank, "a connection broke");
            if link.is_closing {
                // The peer has left. Nothing more is due to it.
                link.phase = Phase::Ended;
                return;
            }
            link.phase = Phase::Down;
            link.down_since = Instant::now();
            link.next_hello = link.down_since;
            self.commands.push(LinkCommand::Attend(peer.rank));
        }
    }

    /// Answers whether an access of `from` is permitted.
    pub(crate) fn judge(&self, from: &OfiPeer, question: &[u64]) {
        let &[index, key, addr, len, writes] = question else {
            return;
        };
        let (verdict, extent) = match self.table.find(hydrant_conduit::Key(key)) {
            None => (REVOKED, 0),
            Some(extent) if !extent.covers(addr, len) => (OUTSIDE, extent.len),
            Some(extent) if writes != 0 && !extent.writable => (READ_ONLY, extent.len),
            Some(extent) => (PERMITTED, extent.len),
        };
        self.send_control(from, ControlKind::Verdict, &[index, verdict, extent]);
    }

    /// Ends an access that the peer refused, or posts it again.
    pub(crate) fn hear_verdict(&self, peer: &OfiPeer, answer: &[u64]) {
        let &[index, verdict, extent] = answer else {
            return;
        };
        let index = index as u32;
        let mut guard = peer.link.lock();
        let link = &mut *guard;
        let Some(place) = link.asked_about.iter().position(|it| *it == index) else {
            return;
        };
        link.asked_about.swap_remove(place);
        let mut record = self.accesses.record(index);
        let (rank, offset, len) = (peer.rank, record.addr, record.len as u64);
        let error = match verdict {
            PERMITTED if record.retries < MOST_RETRIES => None,
            PERMITTED => Some(Error::System {
                what: "accessing a peer's memory",
                cause: format!(
                    "rank {rank} permits it, but the provider refuses it again and again"
                ),
            }),
            OUTSIDE => Some(Error::OutOfExtent {
                peer: rank,
                offset,
                len,
                extent,
            }),
            READ_ONLY => Some(Error::BadAddress {
                peer: rank,
                addr: offset,
                len,
            }),
            _ => Some(Error::Revoked {
                peer: rank,
                key: record.key.0,
            }),
        };
        match error {
            Some(error) => {
                drop(record);
                link.is_cautious = true;
                self.finish(index, Err(error));
            }
            None => {
                record.retries += 1;
                let key = record.key.0;
                drop(record);
                if link.known_keys.len() >= MOST_KNOWN {
                    link.known_keys.clear();
                }
                link.known_keys.insert(key);
                link.queue.push_back(index);
                if link.phase == Phase::Up {
                    self.post_accesses(peer, link);
                }
            }
        }
    }

    /// Hands up the end of an access, and frees its entry.
    pub(crate) fn finish(&self, index: u32, outcome: Result<(), Error>) {
        let ticket = self.accesses.record(index).ticket;
        self.accesses.give_back(index);
        self.end_operation((ticket, outcome));
    }
}
