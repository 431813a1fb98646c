//! Getting to know peers without a job, and their end.
//!
//! Either process may begin, or both at once. A number stands for one session from its first message to its last: a
//! process that returns gets another number. An introduction alone changes nothing for other peers, because it may be an
//! old one. Only the first message that needs the secret of the session shows that its sender is there. Then an older
//! session with the same address ends, since no two processes have the same address.
//!
//! If two processes introduce themselves to each other at once, the introduction of the one with the smaller number
//! counts. The other gives its own up, and takes it up again if nothing becomes of that one.

use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use hydrant_conduit::Rank;

use super::{FAREWELL, LinkControl, silence::PROBE};
use crate::{
    events::{ConnectFailure, PeerEvent},
    fabric::PostResult,
    introduction::{
        ADMIT, DECLINE, FabricIntroduction, INTRODUCE, IntroductionHead, MOST_TEXT, Secret, fresh,
        mask, session_secret,
    },
    keys::ProviderKeys,
    listening::{Acquaintanceship, Attempt, Book, Listening, Newcomer},
    message::{ControlKind, StreamRole},
    peers::{Acquaintance, Phase},
    session::Sessions,
    shared::OfiShared,
    socket_address,
    sockets::{self, ListenerState},
};

/// The time until a message that the provider did not take is tried again.
const BUSY: Duration = Duration::from_millis(1);
/// The time between two looks for an acknowledgement.
const SOON: Duration = Duration::from_millis(2);
/// The time between the first two introductions without an answer. It doubles up to the second value.
const AGAIN: Duration = Duration::from_millis(20);
const SLOWLY: Duration = Duration::from_millis(500);
/// How long an introduction of this process goes before that of the peer, if it leads.
const LEAD: Duration = Duration::from_secs(1);
/// How long a peer that introduced itself may take to show that it is there.
const GUEST: Duration = Duration::from_secs(5);
/// Most peers that have introduced themselves and not shown yet that they are there.
const MOST_GUESTS: usize = 1024;
/// The time from the end of a session until its number is free.
const QUIET: Duration = Duration::from_millis(200);
/// The longest time between two looks at attempts and ends.
const LOOK: Duration = Duration::from_millis(20);
/// How long a look for a listener may take. It holds the control thread up.
const GLANCE: Duration = Duration::from_millis(20);
/// How long the cut of a session that the peer gave up waits, so that the peer gets the acknowledgement.
const WORD: Duration = Duration::from_millis(100);

/// The place for a peer that introduces itself.
enum BookPlace {
    /// There is none: the introduction is late, or this process's own goes first.
    None,
    /// It was answered before, under this number.
    Answered(Rank),
    /// An attempt of this process, or of the peer, has this number.
    Taken(Rank),
    /// A number has to be found.
    New,
}

impl LinkControl {
    /// Goes on with a peer whose stage may end by itself.
    pub(super) fn attend_book(&mut self, now: Instant) -> Option<Instant> {
        if self.pending.is_empty() {
            return None;
        }
        let mut next = now + LOOK;
        for number in self.pending.iter().copied().collect::<Vec<_>>() {
            let again = self.attend_acquaintance(Rank(number), now);
            next = again.map_or(next, |again| next.min(again));
        }
        // The book is not locked while the collector is.
        let cut = std::mem::take(&mut self.cut);
        if !cut.is_empty() {
            self.shared.cut_off(cut);
        }
        Some(next)
    }

    /// Goes on with a peer. Returns when to continue, if that is soon.
    fn attend_acquaintance(&mut self, number: Rank, now: Instant) -> Option<Instant> {
        let shared = std::sync::Arc::clone(&self.shared);
        let listening = shared.listening.as_ref()?;
        let mut book = listening.book.lock();
        let Book { entries, begun, .. } = &mut *book;
        let Some(entry) = entries.get_mut(&number) else {
            self.pending.remove(&number.0);
            return None;
        };
        match &mut entry.stage {
            Acquaintanceship::Asking(attempt) => {
                let is_late = now.duration_since(attempt.began) >= listening.connect_timeout;
                let is_gone = || {
                    let at = socket_address::parse(&entry.name);
                    at.is_some_and(|at| sockets::probe(at, GLANCE) == ListenerState::Gone)
                };
                let why = if is_late {
                    Some("it did not answer in time; it may not be there, or have another key")
                } else if now.duration_since(attempt.began) >= PROBE
                    && now >= self.next_glance
                    && self.own.is_some()
                {
                    self.next_glance = now + PROBE;
                    is_gone().then_some("nothing listens at its address")
                } else {
                    None
                };
                if let Some(why) = why {
                    drop(book);
                    let why = ConnectFailure::Unreachable(why);
                    self.fail(number, why);
                    return None;
                }
                introduce(&shared, listening, begun, number, attempt, now);
                return Some(attempt.next);
            }
            Acquaintanceship::Admitting(guest) if now >= guest.until => {
                if let Some(own) = guest.own.take() {
                    let again = Attempt::new(own.key, own.text, now);
                    let names = (again.asked, (number, again.key));
                    listening.attempts.lock().insert(names.0, names.1);
                    listening.attempts.lock().remove(&own.asked);
                    entry.stage = Acquaintanceship::Asking(again);
                } else {
                    drop(book);
                    self.conclude(number, None);
                }
            }
            Acquaintanceship::Leaving { until } => {
                let until = *until;
                drop(book);
                if now >= until || self.is_acknowledged(number) {
                    shared.cut_off([number]);
                    self.end_operations(number, Phase::Ended);
                    self.conclude(number, Some(PeerEvent::Left { peer: number }));
                    return None;
                }
                return Some(now + SOON);
            }
            Acquaintanceship::Abandoned { until } => {
                let until = *until;
                drop(book);
                if now >= until || self.has_all(number) {
                    self.end(number, "the session was given up");
                    return None;
                }
                return Some(now + SOON);
            }
            Acquaintanceship::GivenUp { until } if now >= *until => {
                drop(book);
                self.end(number, "the peer gave the session up");
            }
            Acquaintanceship::Over { is_released, since } => {
                let (is_quiet, is_released) = (now.duration_since(*since) >= QUIET, *is_released);
                if !is_quiet {
                    // A peer that left waits for the acknowledgement.
                    if let Some(peer) = shared.peers.known(number.0) {
                        let _ = shared.send_counts(peer, &peer.link.lock());
                    }
                } else {
                    self.end_operations(number, Phase::Ended);
                    if is_released {
                        self.retire(&mut book, number);
                    }
                }
            }
            Acquaintanceship::Declined { until, .. } if now >= *until => {
                drop(book);
                self.conclude(number, None);
            }
            Acquaintanceship::Admitting(_)
            | Acquaintanceship::GivenUp { .. }
            | Acquaintanceship::Met { .. }
            | Acquaintanceship::Declined { .. } => {}
        }
        None
    }

    /// Returns true if a peer has all messages. It has all writes, too: the connection is ordered.
    fn has_all(&self, number: Rank) -> bool {
        self.shared.peers.known(number.0).is_none_or(|peer| {
            let link = peer.link.lock();
            link.sent == peer.counts.known()
        })
    }

    /// Returns true if a peer that was told that this process leaves has that message, or cannot have it any more.
    fn is_acknowledged(&self, number: Rank) -> bool {
        let peer = self.shared.peers.known(number.0);
        peer.is_none_or(|peer| peer.link.lock().phase == Phase::Ended) || self.has_all(number)
    }

    /// Leaves a session in good order, or gives an attempt up.
    pub(super) fn disconnect(&mut self, number: Rank) {
        if !self.is_met(number) {
            let why = "the attempt was given up";
            return self.fail(number, ConnectFailure::Unreachable(why));
        }
        let shared = std::sync::Arc::clone(&self.shared);
        if let Some(peer) = shared.peers.known(number.0) {
            shared.peers.standings.end(number, true);
            shared.send_control(peer, ControlKind::Leave, &[1]);
            self.end_operations(number, Phase::Up);
        }
        let until = Instant::now() + FAREWELL;
        self.set_stage(number, Acquaintanceship::Leaving { until });
    }

    /// Gives a session up. It is lost once nothing of it lands any more, on either side.
    pub(super) fn abandon(&mut self, number: Rank) {
        if !self.is_met(number) {
            let why = "the attempt was given up";
            return self.fail(number, ConnectFailure::Unreachable(why));
        }
        let shared = std::sync::Arc::clone(&self.shared);
        if let Some(peer) = shared.peers.known(number.0) {
            shared.peers.standings.end(number, false);
            shared.send_control(peer, ControlKind::Lost, &[]);
            self.end_operations(number, Phase::Up);
        }
        // A peer that hears nothing for that long ends the session itself, before it reads what arrived.
        let until = Instant::now() + shared.patience.unwrap_or(FAREWELL);
        self.set_stage(number, Acquaintanceship::Abandoned { until });
    }

    /// Notes that a peer gave a session up.
    pub(super) fn given_up(&mut self, number: Rank) {
        if !self.is_met(number) {
            return;
        }
        self.shared.peers.standings.end(number, false);
        self.end_operations(number, Phase::Up);
        let until = Instant::now() + WORD;
        self.set_stage(number, Acquaintanceship::GivenUp { until });
    }

    fn is_met(&self, number: Rank) -> bool {
        let listening = self.shared.listening.as_ref();
        listening.is_some_and(|listening| {
            let mut book = listening.book.lock();
            matches!(book.stage(number), Some(Acquaintanceship::Met { .. }))
        })
    }

    fn set_stage(&mut self, number: Rank, next: Acquaintanceship) {
        if let Some(listening) = &self.shared.listening
            && let Some(stage) = listening.book.lock().stage(number)
        {
            *stage = next;
            self.pending.insert(number.0);
        }
    }

    /// Notes that the layer above does not use a number any more.
    pub(super) fn release(&mut self, number: Rank) {
        if let Some(listening) = &self.shared.listening
            && let Some(Acquaintanceship::Over { is_released, .. }) =
                listening.book.lock().stage(number)
        {
            *is_released = true;
            self.pending.insert(number.0);
        }
    }

    /// Ends all sessions, because this process stood still.
    pub(super) fn lose_all(&mut self, why: &'static str) {
        let Some(listening) = &self.shared.listening else {
            return;
        };
        let is_met = |stage: &Acquaintanceship| matches!(stage, Acquaintanceship::Met { .. });
        let all: Vec<Rank> = (listening.book.lock().entries.iter())
            .filter(|(_, entry)| is_met(&entry.stage))
            .map(|(number, _)| *number)
            .collect();
        for number in all {
            self.end(number, why);
        }
    }

    /// Frees the number of a peer, once nothing is in flight to it.
    fn retire(&mut self, book: &mut Book, number: Rank) {
        let shared = &self.shared;
        if let Some(peer) = shared.peers.known(number.0) {
            let (is_busy, is_cut, at) = {
                let link = peer.link.lock();
                (link.in_flight > 0, link.is_cut, link.known_as.at)
            };
            if is_busy || peer.has_outside() {
                if !is_cut {
                    self.cut.push(number);
                }
                return;
            }
            let is_last = book.entries.get(&number).is_none_or(|entry| {
                let others = book.at(&entry.name);
                others.len() <= 1
            });
            if let Err(cause) = shared.retire_peer(peer) {
                tracing::debug!(%cause, peer = %number, "the address of a peer stays");
            }
            // The connection that this process made is of no use any more. The peer closes those that it made.
            if let (Some(own), Some(at)) = (self.own, at.filter(|_| is_last && !is_cut)) {
                sockets::end_connections_to(own, at);
            }
        }
        book.remove(number);
        self.pending.remove(&number.0);
        self.down.remove(&number.0);
    }

    /// Begins an attempt that another thread entered.
    pub(super) fn attempt(&mut self, number: Rank) {
        self.pending.insert(number.0);
        let _in_this_step = self.attend_acquaintance(number, Instant::now());
    }

    /// Ends an attempt of this process.
    fn fail(&mut self, number: Rank, why: ConnectFailure) {
        self.conclude(number, Some(PeerEvent::Failed { peer: number, why }));
    }

    /// Hears an introduction whose sender knows the key.
    pub(super) fn introduced(&mut self, it: &FabricIntroduction) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(listening) = &shared.listening else {
            return;
        };
        if shared.has_left() || !fits(&listening.own.name, &it.name) {
            return;
        }
        match place_for(listening, it) {
            BookPlace::None => return,
            BookPlace::Answered(number) => return repeat_answer(&shared, listening, number),
            BookPlace::Taken(_) | BookPlace::New => {}
        }
        // The layer above decides without a lock of this crate.
        let verdict = listening.handler.admit(&it.text);
        let number = match place_for(listening, it) {
            BookPlace::None | BookPlace::Answered(_) => return,
            BookPlace::Taken(number) if verdict.is_ok() => number,
            // This process's own attempt goes on, although the peer's is declined.
            BookPlace::Taken(_) | BookPlace::New => match self.place(listening, it) {
                Some(number) => number,
                None => return,
            },
        };
        let attempts = listening.book.lock().begun;
        let answered = fresh();
        let asked = it.head.asked;
        let (step, text) = match &verdict {
            Ok(text) => (ADMIT, text),
            Err(text) => (DECLINE, text),
        };
        let answer = FabricIntroduction {
            head: IntroductionHead {
                step,
                asked,
                answered,
                process: listening.process,
                memory: mask(&listening.key, &asked, &answered, ADMIT, listening.memory),
                attempts,
                number: number.0,
                ..IntroductionHead::zeroed()
            },
            name: listening.own.name.clone(),
            text: text[..text.len().min(MOST_TEXT)].to_vec(),
        };
        let reply = answer.seal(&listening.key);
        let now = Instant::now();
        if verdict.is_ok() {
            self.know(number, it, &listening.key, &answered, false);
        }
        let mut book = listening.book.lock();
        let Some(stage) = book.stage(number) else {
            return;
        };
        if verdict.is_err() {
            let until = now + WORD;
            *stage = Acquaintanceship::Declined {
                asked,
                reply,
                until,
            };
        } else {
            let before = std::mem::replace(
                stage,
                Acquaintanceship::Over {
                    is_released: false,
                    since: now,
                },
            );
            let own = match before {
                Acquaintanceship::Asking(attempt) => Some(attempt),
                Acquaintanceship::Admitting(guest) => guest.own,
                _ => None,
            };
            *stage = Acquaintanceship::Admitting(Newcomer {
                asked,
                process: it.head.process,
                attempts: it.head.attempts,
                reply,
                text: it.text.clone(),
                until: now + GUEST,
                own,
            });
        }
        drop(book);
        repeat_answer(&shared, listening, number);
    }

    /// Finds a number for a peer that introduces itself.
    fn place(&mut self, listening: &Listening, it: &FabricIntroduction) -> Option<Rank> {
        if self.pending.len() >= MOST_GUESTS {
            return None;
        }
        let shared = &self.shared;
        let mut book = listening.book.lock();
        let number = book.take()?;
        let began = shared.begin_peer(number, &it.name);
        if let Err(cause) = began {
            tracing::debug!(%cause, "the address of a peer is refused");
            book.give_back(number);
            return None;
        }
        let (is_released, since) = (true, Instant::now());
        let over = Acquaintanceship::Over { is_released, since };
        book.add(number, it.name.clone(), over);
        self.pending.insert(number.0);
        Some(number)
    }

    /// Sets what is needed for sessions with a peer.
    fn know(
        &self,
        number: Rank,
        it: &FabricIntroduction,
        key: &Secret,
        answered: &Secret,
        is_asker: bool,
    ) {
        let shared = &self.shared;
        let Some(peer) = shared.peers.known(number.0) else {
            return;
        };
        let asked = &it.head.asked;
        let secret = session_secret(key, asked, answered);
        // The masks of both directions differ by the step of the message.
        let zero = [0; 16];
        let memory = if is_asker {
            mask(key, asked, answered, ADMIT, it.head.memory)
        } else {
            mask(key, asked, &zero, INTRODUCE, it.head.memory)
        };
        let [own, other] = if is_asker { [0, 1] } else { [1, 0] };
        let key_size = shared.fabric.offer().key_size();
        peer.set_me(it.head.number);
        peer.note_heard(shared.now_ms());
        shared.peers.standings.begin_anew(number);
        let mut link = peer.link.lock();
        link.known_as = Acquaintance {
            at: socket_address::parse(&it.name).filter(|_| shared.fabric.is_over_tcp()),
            sessions: Sessions::new(secret, own, other),
            // Each process numbers itself 0.
            keys: ProviderKeys::new(memory, Rank(0), key_size),
        };
    }

    /// Hears that a peer admitted this process.
    pub(super) fn admitted(&mut self, number: Rank, it: &FabricIntroduction) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(listening) = &shared.listening else {
            return;
        };
        let mut book = listening.book.lock();
        let leads = listening.process < it.head.process;
        let attempt = match book.stage(number) {
            Some(Acquaintanceship::Asking(attempt)) => attempt,
            // Both gave their own up. Then that of the one that leads counts.
            Some(Acquaintanceship::Admitting(Newcomer { own: Some(own), .. })) if leads => own,
            _ => return,
        };
        if attempt.asked != it.head.asked {
            return;
        }
        let key = attempt.key;
        listening.attempts.lock().remove(&it.head.asked);
        if let Some(stage) = book.stage(number) {
            *stage = Acquaintanceship::Met {
                process: it.head.process,
                attempts: it.head.attempts,
            };
        }
        drop(book);
        self.know(number, it, &key, &it.head.answered, true);
        self.supersede(listening, number);
        listening.prepare(PeerEvent::Met {
            peer: number,
            introduction: it.text.clone(),
            asked: true,
        });
        if let Some(peer) = shared.peers.known(number.0) {
            let mut link = peer.link.lock();
            link.is_proved = true;
            shared.bring_up(peer, &mut link);
        }
        self.pending.remove(&number.0);
    }

    /// Hears that a peer declined this process.
    pub(super) fn declined(&mut self, number: Rank, it: FabricIntroduction) {
        let Some(listening) = &self.shared.listening else {
            return;
        };
        let is_asking = matches!(
            listening.book.lock().stage(number),
            Some(Acquaintanceship::Asking(attempt)) if attempt.asked == it.head.asked
        );
        if is_asking {
            self.fail(number, ConnectFailure::Declined(it.text));
        }
    }

    /// Hears the first hello of a peer that was admitted: it is there.
    pub(super) fn proved(&mut self, number: Rank, hello: &[u8]) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(listening) = &shared.listening else {
            return;
        };
        let mut book = listening.book.lock();
        let Some(stage) = book.stage(number) else {
            return;
        };
        let Acquaintanceship::Admitting(guest) = stage else {
            return;
        };
        let (process, attempts) = (guest.process, guest.attempts);
        let event = PeerEvent::Met {
            peer: number,
            introduction: std::mem::take(&mut guest.text),
            asked: guest.own.is_some(),
        };
        if let Some(own) = &guest.own {
            listening.attempts.lock().remove(&own.asked);
        }
        *stage = Acquaintanceship::Met { process, attempts };
        drop(book);
        self.pending.remove(&number.0);
        self.supersede(listening, number);
        listening.prepare(event);
        if let Some(peer) = shared.peers.known(number.0) {
            peer.link.lock().is_proved = true;
        }
        shared.hear_hello(hello);
    }

    /// Ends older sessions with the address of a peer that is there.
    fn supersede(&mut self, listening: &Listening, number: Rank) {
        let mut book = listening.book.lock();
        let Some(entry) = book.entries.get(&number) else {
            return;
        };
        let numbers = book.at(&entry.name).to_vec();
        let is_met = |other: &Rank| {
            matches!(
                book.stage(*other),
                Some(
                    Acquaintanceship::Met { .. }
                        | Acquaintanceship::Leaving { .. }
                        | Acquaintanceship::Abandoned { .. }
                        | Acquaintanceship::GivenUp { .. }
                )
            )
        };
        let older: Vec<Rank> = (numbers.into_iter())
            .filter(|other| *other != number)
            .filter(is_met)
            .collect();
        drop(book);
        for other in older {
            self.end(other, "another session with its address began");
        }
    }

    /// Tells the layer above the end of a peer, if it knows of the peer, and begins the end of its number.
    pub(super) fn conclude(&mut self, number: Rank, event: Option<PeerEvent>) {
        let shared = std::sync::Arc::clone(&self.shared);
        let Some(listening) = &shared.listening else {
            return;
        };
        let mut book = listening.book.lock();
        let Some(stage) = book.stage(number) else {
            return;
        };
        let own = match stage {
            Acquaintanceship::Over { .. } => return,
            Acquaintanceship::Asking(attempt) => Some(attempt.asked),
            Acquaintanceship::Admitting(guest) => guest.own.as_ref().map(|own| own.asked),
            _ => None,
        };
        // A session that never began was not told. If only the peer asked for it, nobody knows of it.
        let event = match listening.forget(number) {
            Some(PeerEvent::Met { asked: true, .. }) => Some(PeerEvent::Failed {
                peer: number,
                why: ConnectFailure::Unreachable("the connection broke at its begin"),
            }),
            Some(_) => None,
            None => event,
        };
        if let Some(own) = own {
            listening.attempts.lock().remove(&own);
        }
        *stage = Acquaintanceship::Over {
            is_released: event.is_none(),
            since: Instant::now(),
        };
        drop(book);
        self.pending.insert(number.0);
        let is_orderly = matches!(event, Some(PeerEvent::Left { .. }));
        shared.peers.standings.end(number, is_orderly);
        if !is_orderly {
            self.end_operations(number, Phase::Ended);
        }
        if let Some(event) = event {
            // Messages that were collected before are delivered before.
            shared.collector.lock().push_event(event);
            shared.sleepers.wake_all();
        }
    }
}

/// Sends the introduction of this process, if it is time.
fn introduce(
    shared: &OfiShared,
    listening: &Listening,
    begun: &mut u64,
    number: Rank,
    attempt: &mut Attempt,
    now: Instant,
) {
    let Some(peer) = shared.peers.known(number.0).filter(|_| now >= attempt.next) else {
        return;
    };
    if attempt.message.is_empty() {
        *begun += 1;
        let (key, asked, none) = (&attempt.key, attempt.asked, [0; 16]);
        let introduction = FabricIntroduction {
            head: IntroductionHead {
                step: INTRODUCE,
                asked,
                process: listening.process,
                memory: mask(key, &asked, &none, INTRODUCE, listening.memory),
                attempts: *begun,
                number: number.0,
                ..IntroductionHead::zeroed()
            },
            name: listening.own.name.clone(),
            text: std::mem::take(&mut attempt.text),
        };
        attempt.message = introduction.seal(key);
        attempt.text = introduction.text;
    }
    let posted = shared.send_unnumbered(peer, StreamRole::Introduce, 0, &attempt.message);
    attempt.pause = match posted {
        PostResult::Taken => (2 * attempt.pause).clamp(AGAIN, SLOWLY),
        // The provider connects.
        _ => BUSY,
    };
    attempt.next = now + attempt.pause;
}

/// Sends the answer to a peer that introduced itself.
fn repeat_answer(shared: &OfiShared, listening: &Listening, number: Rank) {
    let mut book = listening.book.lock();
    let (role, reply) = match book.stage(number) {
        Some(Acquaintanceship::Admitting(guest)) => (StreamRole::Admit, &guest.reply),
        Some(Acquaintanceship::Declined { reply, .. }) => (StreamRole::Decline, &*reply),
        _ => return,
    };
    if let Some(peer) = shared.peers.known(number.0) {
        let _ = shared.send_unnumbered(peer, role, 0, reply);
    }
}

/// Finds the place for a peer that introduces itself.
fn place_for(listening: &Listening, it: &FabricIntroduction) -> BookPlace {
    let book = listening.book.lock();
    let (process, attempts, asked) = (it.head.process, it.head.attempts, it.head.asked);
    let mut place = BookPlace::New;
    for number in book.at(&it.name).iter().copied() {
        match book.entries.get(&number).map(|entry| &entry.stage) {
            Some(Acquaintanceship::Admitting(guest)) if guest.asked == asked => {
                return BookPlace::Answered(number);
            }
            Some(Acquaintanceship::Declined { asked: known, .. }) if *known == asked => {
                return BookPlace::Answered(number);
            }
            Some(Acquaintanceship::Admitting(guest)) if guest.process == process => {
                if attempts <= guest.attempts {
                    return BookPlace::None;
                }
                place = BookPlace::Taken(number);
            }
            Some(Acquaintanceship::Met {
                process: known,
                attempts: last,
            }) if *known == process && attempts <= *last => return BookPlace::None,
            Some(Acquaintanceship::Asking(own)) => {
                if listening.process < process && own.began.elapsed() < LEAD {
                    return BookPlace::None;
                }
                place = BookPlace::Taken(number);
            }
            _ => {}
        }
    }
    place
}

/// Returns true if the provider may take an address of a peer that another process told.
fn fits(own: &[u8], name: &[u8]) -> bool {
    if name.len() != own.len() || name == own {
        return false;
    }
    let [Some(own), there] = [own, name].map(socket_address::parse) else {
        return true;
    };
    there.is_some_and(|there| {
        let ip = there.ip();
        let is_host = !ip.is_unspecified() && !ip.is_multicast();
        there.is_ipv4() == own.is_ipv4() && there.port() != 0 && is_host
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_hosts_are_taken() {
        let name = |ip: [u8; 4], port: u16| {
            let mut name = vec![0; 16];
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[2..4].copy_from_slice(&port.to_be_bytes());
            name[4..8].copy_from_slice(&ip);
            name
        };
        let own = name([10, 0, 0, 1], 5);
        assert!(fits(&own, &name([10, 0, 0, 2], 5)) && fits(&own, &name([10, 0, 0, 1], 6)));
        for bad in [
            own.clone(),
            name([10, 0, 0, 2], 0),
            name([0, 0, 0, 0], 5),
            name([224, 0, 0, 1], 5),
            name([10, 0, 0, 2], 5)[..15].to_vec(),
            vec![0; 16],
            vec![],
        ] {
            assert!(!fits(&own, &bad), "{bad:?}");
        }
        // Addresses of other networks are only compared.
        assert!(fits(&[1; 20], &[2; 20]) && !fits(&[1; 20], &[2; 19]));
    }
}
