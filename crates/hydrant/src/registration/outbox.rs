//! Messages to peers, in the order in which they were decided.

use std::collections::VecDeque;

use hydrant_conduit::{Access, Key, Local, Posted, Remote, Sent, Window};
use hydrant_pinning::{Data, Message};
use rustc_hash::FxHashMap;

use super::{Registration, lock};
use crate::{Rank, counters::Count, progress::kind};

/// A message that waits.
pub(super) enum Letter {
    /// From engine to engine, and what follows it.
    Engine(Message, Data),
    /// About an exposed buffer.
    Loan { tag: u16, key: u64 },
}

/// Answers to one peer that may wait before it is put out of the job. An honest one takes answers
/// after every few operations that it begins (`Transfer::take_answers`).
const MOST_ANSWERS: usize = 1 << 16;

/// What waits to be sent. Bounded by the own operations under way, by the buffers that are exposed,
/// and by [`MOST_ANSWERS`].
#[derive(Default)]
pub(super) struct Outbox {
    /// By peer. Those of peers that were sent anything stay, for what is sent next.
    queues: FxHashMap<u32, Queue>,
    /// Peers for which something waits.
    waiting: Vec<u32>,
    /// A peer that asks and takes no answers.
    greedy: Option<u32>,
    bytes: Vec<u8>,
}

impl Letter {
    /// Whether the peer asked for it.
    fn is_answer(&self) -> bool {
        use Message::{Fetched, Granted, Pulled, Revoked, Stored};
        match self {
            Letter::Engine(message, _) => matches!(
                message,
                Granted(_) | Stored { .. } | Fetched { .. } | Pulled { .. } | Revoked { .. }
            ),
            // A peer is told of a loan once for each question of its own or of this rank.
            Letter::Loan { .. } => false,
        }
    }
}

/// What waits to be sent to one peer.
#[derive(Default)]
struct Queue {
    letters: VecDeque<Letter>,
    /// How many of them are answers.
    answers: usize,
}

impl Queue {
    fn pop(&mut self) {
        let sent = self.letters.pop_front();
        self.answers -= usize::from(sent.is_some_and(|letter| letter.is_answer()));
    }
}

impl Outbox {
    pub(super) fn push(&mut self, to: u32, letter: Letter) {
        let queue = self.queues.entry(to).or_default();
        if letter.is_answer() {
            queue.answers += 1;
            if queue.answers > MOST_ANSWERS {
                self.greedy = Some(to);
            }
        }
        if queue.letters.is_empty() {
            self.waiting.push(to);
        }
        queue.letters.push_back(letter);
    }

    /// A peer that asks and takes no answers.
    pub(super) fn take_greedy(&mut self) -> Option<Rank> {
        self.greedy.take().map(Rank)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Registration {
    /// Sends what there is room for. Whoever finds no room need not come back for it: one of the
    /// rank's threads does, as [`Progress::look_after_backlog`](crate::progress::Progress) sees to.
    pub(crate) fn flush(&self) {
        if self.send_waiting() {
            self.progress.look_after_backlog();
        }
    }

    /// Sends what there is room for; whether messages wait for room now that none did before.
    fn send_waiting(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        let mut stuck = false;
        let Outbox {
            queues,
            waiting,
            bytes,
            ..
        } = &mut *outbox;
        waiting.retain(|peer| {
            let Some(queue) = queues.get_mut(peer) else {
                return false;
            };
            while let Some(letter) = queue.letters.front_mut() {
                let to = Rank(*peer);
                let (kind, tag, key) = match letter {
                    Letter::Engine(message, data) => {
                        bytes.clear();
                        self.write_message(to, message, *data, bytes);
                        (kind::REGISTRATION, 0, None)
                    }
                    Letter::Loan { tag, key } => {
                        bytes.clear();
                        (kind::LOAN, *tag, Some(*key))
                    }
                };
                let message = hydrant_conduit::Message {
                    kind,
                    tag,
                    args: key.as_slice(),
                    payload: bytes,
                };
                match self.progress.conduit().send(to, &message) {
                    Ok(Sent::Full) => {
                        stuck = true;
                        return true;
                    }
                    Ok(Sent::Yes) => self.progress.tally.one(Count::RegistrationMessages),
                    // The peer is gone; who waits for it is told by its standing.
                    Err(_) => {}
                }
                queue.pop();
            }
            false
        });
        // Changed with the outbox held, so that it says what the last who sent has found.
        self.progress.set_backlog(stuck)
    }

    fn write_message(&self, to: Rank, message: &mut Message, data: Data, bytes: &mut Vec<u8>) {
        message.encode(bytes);
        let start = bytes.len();
        let (addr, len) = match data {
            Data::None => return,
            Data::Own { addr, len } | Data::Asked { addr, len, .. } => (addr, len as usize),
        };
        bytes.resize(start + len, 0);
        match data {
            Data::None => {}
            Data::Own { .. } => {
                let from = std::ptr::with_exposed_provenance::<u8>(addr as usize);
                // SAFETY: the buffer of an operation that is under way: the caller of
                // `begin` promised that it is readable until the operation is done, and
                // the engine says so only after the peer has answered this message.
                unsafe {
                    bytes
                        .as_mut_ptr()
                        .add(start)
                        .copy_from_nonoverlapping(from, len)
                };
            }
            Data::Asked { region, .. } => {
                let (lent, place) = (&self.lent, (addr, len as u64));
                let into = &mut bytes[start..];
                if !lent.while_lent(to, region, place, || self.load(addr, into)) {
                    bytes.clear();
                    message.refuse(lent.why_not(to, region, place));
                    message.encode(bytes);
                }
            }
        }
    }

    /// Copies from own memory that a peer asked for; `false` where it is not mapped.
    pub(super) fn load(&self, addr: u64, into: &mut [u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.read(offset, into).is_ok()
        {
            return true;
        }
        let from = Remote {
            key: Key::ANY,
            offset: addr,
        };
        let to = Local::unregistered(into.as_mut_ptr());
        let access = Access::get(self.progress.rank, from, to, into.len());
        // SAFETY: `into` is borrowed, and the copy is done on return.
        let read = unsafe { self.progress.conduit().post(&access) };
        matches!(read, Ok(Posted::Done))
    }

    /// Copies to own memory for a peer; `false` where it is not mapped or not writable.
    pub(super) fn store(&self, addr: u64, data: &[u8]) -> bool {
        if let Some((own, offset)) = self.in_own_segment(addr)
            && own.write(offset, data).is_ok()
        {
            return true;
        }
        let to = Remote {
            key: Key::ANY,
            offset: addr,
        };
        let from = Local::unregistered(data.as_ptr().cast_mut());
        let access = Access::put(self.progress.rank, to, from, data.len());
        // SAFETY: the memory is lent to peers, so that it bears being written; the copy is done
        // on return.
        let written = unsafe { self.progress.conduit().post(&access) };
        matches!(written, Ok(Posted::Done))
    }

    /// Where an address lies in the own segment, which is mapped and writable from end to end:
    /// nothing has to be asked of the kernel.
    fn in_own_segment(&self, addr: u64) -> Option<(&Window, usize)> {
        let base = self.segments.of(self.progress.rank).ok()?;
        let window = self.progress.conduit().window(self.progress.rank)?;
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        Some((window, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_takes_no_answers_is_found_and_own_questions_do_not_count() {
        let mut outbox = Outbox::default();
        let question = || Letter::Engine(Message::Recall { count: 1 }, Data::None);
        let answer = || {
            let (id, refused) = (1, None);
            Letter::Engine(Message::Stored { id, refused }, Data::None)
        };
        for _ in 0..2 * MOST_ANSWERS {
            outbox.push(3, question());
        }
        for _ in 0..MOST_ANSWERS {
            outbox.push(3, answer());
        }
        assert_eq!(outbox.take_greedy(), None);
        outbox.push(4, answer());
        outbox.push(3, answer());
        assert_eq!(outbox.take_greedy(), Some(Rank(3)));
        assert_eq!(outbox.take_greedy(), None);
        assert!(outbox.queues[&4].answers == 1);
        let queue = outbox.queues.get_mut(&3).expect("it is waiting");
        assert_eq!(queue.letters.len(), 3 * MOST_ANSWERS + 1);
        while !queue.letters.is_empty() {
            queue.pop();
        }
        assert_eq!(queue.answers, 0);
    }
}
