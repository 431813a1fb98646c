//! Numbered messages between the ranks, so that a lost, doubled or reordered message is noticed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hydrant::{Function, Handler, Job, Rank, Result};
use hydrant_base::{Random, mix};

use super::{die::RankPhase, log::RankLog};

/// The most messages in a row, and the most words of payload.
const ROW: usize = 8;
const WORDS: usize = 64;

/// The messages received from a rank.
#[derive(Debug, Default)]
struct SenderLog {
    arrived: AtomicU64,
    wrong: AtomicU64,
}

/// The messages of one rank.
pub(crate) struct HammerMessages {
    handler: Handler,
    /// Returns how many of the caller's messages arrived, and how many of those were wrong.
    arrived: Function<(), (u64, u64)>,
    sent: Vec<u64>,
}

impl HammerMessages {
    /// Registers the handlers. Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let from: Arc<[SenderLog]> = job.ranks().map(|_| SenderLog::default()).collect();
        let heard = Arc::clone(&from);
        let handler = job.handler(move |context, args, payload| {
            let source = context.source();
            let from = &from[source.index()];
            let number = from.arrived.fetch_add(1, Relaxed);
            if args != [number] || !is_payload(source, number, payload) {
                from.wrong.fetch_add(1, Relaxed);
            }
        })?;
        let arrived = job.function(move |caller: Rank, ()| {
            let from = &heard[caller.index()];
            (from.arrived.load(Relaxed), from.wrong.load(Relaxed))
        })?;
        Ok(Self {
            handler,
            arrived,
            sent: job.ranks().map(|_| 0).collect(),
        })
    }

    /// Sends a few messages to a rank.
    pub(crate) fn send_some(&mut self, log: &mut RankLog, target: Rank, dice: &mut Random) {
        for _ in 0..=dice.below(ROW) {
            let sent = &mut self.sent[target.index()];
            let bytes = payload(log.rank(), *sent, dice.below(WORDS));
            let request = log.attempt(RankPhase::Request, |job| {
                job.request_medium(target, self.handler, &[*sent], &bytes)
            });
            if request.is_err() {
                return;
            }
            *sent += 1;
            log.tally.requests += 1;
        }
    }

    /// Asks every surviving rank whether all messages arrived.
    pub(crate) fn check_all(&self, log: &mut RankLog) {
        for (target, sent) in (0..).map(Rank).zip(&self.sent) {
            if !log.is_there(target) {
                continue;
            }
            // The call is handled after all messages that were sent before it.
            let called = log.attempt(RankPhase::Request, |job| {
                job.call(target, &self.arrived, &())
            });
            if let Ok((arrived, wrong)) = called {
                log.verified((arrived, wrong) == (*sent, 0), || {
                    format!(
                        "of {sent} messages to rank {target} {arrived} arrived, {wrong} of them \
                         not as sent"
                    )
                });
            }
        }
    }
}

fn payload(source: Rank, number: u64, words: usize) -> Vec<u8> {
    (0..words as u64)
        .flat_map(|at| word(source, number, at).to_le_bytes())
        .collect()
}

fn is_payload(source: Rank, number: u64, payload: &[u8]) -> bool {
    (0..)
        .zip(payload.chunks(8))
        .all(|(at, chunk)| chunk == word(source, number, at).to_le_bytes())
}

fn word(source: Rank, number: u64, at: u64) -> u64 {
    mix(mix(u64::from(source.0) << 40 ^ number) ^ at)
}
