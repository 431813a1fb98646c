//! Handles requests with packed runs at the owner of the memory, and the answers at the rank that
//! asked.

use std::sync::Arc;

use hydrant_conduit::{
    Delivery, Message, ReplyPort, Window,
    memory::{Factor, Number},
};

use super::{
    ADD, BROKEN, DONE, EXPOSED, GET, PUT, REVOKED, UNKNOWN, WORD,
    words::{pack, parse_exactly, unpack},
};
use crate::{
    Error, Rank,
    memory::{Mapped, Registry},
    message::Calls,
    progress::{Progress, Route, kind},
};

/// Unpacks runs for peers, and passes their answers to the waiters here.
pub(crate) struct Unpacker {
    /// Finds memory by its name.
    memory: Arc<Registry>,
    /// Holds the waiters for answers.
    calls: Arc<Calls>,
}

impl Unpacker {
    pub(crate) fn new(memory: &Arc<Registry>, calls: &Arc<Calls>) -> Self {
        Self {
            memory: Arc::clone(memory),
            calls: Arc::clone(calls),
        }
    }

    /// Does the work of a request on memory of this rank. Returns the outcome, or `None` if the
    /// request is malformed.
    fn act(&self, progress: &Progress, delivery: &Delivery<'_>) -> Option<Acted> {
        let (&[_, name, words], factor) = delivery.args.split_first_chunk()?;
        let factor = match (delivery.tag & !EXPOSED).to_le_bytes() {
            [verb, number] if u16::from(verb) == ADD => {
                let &[low, high] = factor else { return None };
                let number = *Number::ALL.get(usize::from(number))?;
                let words = [low.to_le_bytes(), high.to_le_bytes()].concat();
                Some(Factor::from_bytes(number, &words[..number.size()])?)
            }
            _ if factor.is_empty() => None,
            _ => return None,
        };
        let gets = match delivery.tag & !EXPOSED {
            GET => true,
            PUT => false,
            _ if factor.is_some() => false,
            _ => return None,
        };
        let words = usize::try_from(words).ok()?.checked_mul(WORD)?;
        let bytes = delivery.payload.len().checked_sub(words)?;
        let (bytes, words) = delivery.payload.split_at(bytes);
        let most = progress.conduit().caps().max_payload;
        let unpack = |window: &Window| match (gets, &factor) {
            (false, None) => unpack(window, words, bytes).map(|()| Acted::Done(Vec::new())),
            (false, Some(factor)) => self.add(progress, window, words, bytes, factor),
            (true, _) if bytes.is_empty() => pack(window, words, most).map(Acted::Done),
            (true, _) => None,
        };
        if delivery.tag & EXPOSED != 0 {
            let done = self.memory.on_exposed(name, unpack);
            // No message wakes another thread that sleeps while this one polls.
            progress.conduit().notify(progress.rank);
            return done.unwrap_or(Some(Acted::Not(REVOKED)));
        }
        let own_part = |own: &Mapped| (unpack(&own.window), own.is_watched());
        let Some((done, is_watched)) = self.memory.on_own_part(name, own_part) else {
            return Some(Acted::Not(UNKNOWN));
        };
        if is_watched {
            progress.conduit().notify(progress.rank);
        }
        done
    }

    /// Adds multiples of `bytes` to the runs that the words name. Nothing is added if a run lies
    /// outside the window or has no whole elements.
    fn add(
        &self,
        progress: &Progress,
        window: &Window,
        words: &[u8],
        mut bytes: &[u8],
        factor: &Factor,
    ) -> Option<Acted> {
        let size = factor.number().size();
        let rows = parse_exactly(window, words, bytes)?;
        if rows.iter().any(|row| row.len() % size != 0) {
            return None;
        }
        let mut adder = self.memory.locks().adder(progress.rank, window).ok()?;
        let runs = (rows.into_iter()).flat_map(|row| row.starts().map(move |at| (at, row.len())));
        for (at, len) in runs {
            let (run, rest) = bytes.split_at(len);
            match adder.add(at, run, factor) {
                Ok(()) => bytes = rest,
                Err(Error::PeerLost(rank)) => return Some(Acted::Broken(rank)),
                Err(_) => return Some(Acted::Not(UNKNOWN)),
            }
        }
        Some(Acted::Done(Vec::new()))
    }
}

/// The outcome of a request.
enum Acted {
    /// The request was done; with the bytes of a get.
    Done(Vec<u8>),
    /// Nothing was done, for the reason in this status.
    Not(u16),
    /// This rank ended while it added to the same memory.
    Broken(Rank),
}

impl Route for Unpacker {
    fn request(&self, progress: &Progress, delivery: &Delivery<'_>, port: &mut dyn ReplyPort) {
        let (Some(acted), Some(id)) = (self.act(progress, delivery), delivery.args.first()) else {
            return progress.malformed(delivery.from, "packed runs that do not fit the memory");
        };
        let (status, payload) = match &acted {
            Acted::Done(bytes) => (DONE, bytes.as_slice()),
            Acted::Not(status) => (*status, &[][..]),
            Acted::Broken(_) => (BROKEN, &[][..]),
        };
        let args = match acted {
            Acted::Broken(rank) => &[*id, u64::from(rank.0)][..],
            _ => &[*id],
        };
        let message = Message {
            kind: kind::PACKED,
            tag: status,
            args,
            payload,
        };
        if let Err(cause) = port.reply(&message) {
            tracing::warn!(%cause, to = %delivery.from, "packed runs could not be answered");
        }
    }

    fn reply(&self, progress: &Progress, delivery: &Delivery<'_>) {
        let answer = match delivery.tag {
            DONE => Ok(delivery.payload.to_vec()),
            UNKNOWN => Err(Error::Freed),
            BROKEN => {
                let holder = delivery
                    .args
                    .get(1)
                    .map_or(delivery.from, |it| Rank(*it as u32));
                Err(Error::PeerLost(holder))
            }
            _ => Err(Error::Revoked {
                rank: delivery.from,
            }),
        };
        let asked = match delivery.args {
            &[id] | &[id, _] => self.calls.end(progress, delivery.from, id, answer),
            _ => false,
        };
        if !asked {
            let what = "an answer to packed runs that nobody asked for";
            progress.malformed(delivery.from, what);
        }
    }
}
