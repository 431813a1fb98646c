//! Messages and calls: none may be lost, doubled, reordered or changed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hydrant::{CallHandle, Function, Handler, Job, Rank, Result};
use hydrant_base::mix;

use super::{
    hand::{Crew, Hand},
    region::WrittenRegion,
};

/// The most words of a call's argument.
const LONG: usize = 30_000;

/// The messages received from a thread.
#[derive(Debug, Default)]
struct SenderCounts {
    arrived: AtomicU64,
    wrong: AtomicU64,
    /// Replies received for requests of this thread.
    replied: AtomicU64,
}

/// The handlers, which all threads of a rank share.
#[derive(Clone)]
pub(crate) struct Handlers {
    plain: Handler,
    answered: Handler,
    turn: Function<(u64, Vec<u64>), Vec<u64>>,
    arrived: Function<u64, (u64, u64)>,
    long: Handler,
    from: Arc<[SenderCounts]>,
    most: usize,
}

impl Handlers {
    /// Registers the handlers. Collective.
    pub(crate) fn new(job: &Job, crew: Crew) -> Result<Self> {
        let from: Arc<[SenderCounts]> = (0..crew.workers())
            .map(|_| SenderCounts::default())
            .collect();
        let count = |from: &Arc<[SenderCounts]>, threads: usize| {
            let from = Arc::clone(from);
            move |source: Rank, args: &[u64], payload: &[u8]| {
                let [worker, number, ..] = *args else { return };
                let Some(from) = from.get(worker as usize) else {
                    return;
                };
                let expected = from.arrived.fetch_add(1, Relaxed);
                let of_source = worker as usize / threads == source.index();
                if number != expected || !of_source || !is_payload(worker, number, payload) {
                    from.wrong.fetch_add(1, Relaxed);
                }
            }
        };
        let note = count(&from, crew.threads);
        let plain = job.handler(move |context, args, payload| {
            note(context.source(), args, payload);
        })?;
        let back = Arc::clone(&from);
        let returned = job.handler(move |_, args, payload| {
            let [worker, number, ..] = *args else { return };
            if let Some(from) = back.get(worker as usize)
                && is_payload(worker, number, payload)
            {
                from.replied.fetch_add(1, Relaxed);
            }
        })?;
        let note = count(&from, crew.threads);
        let answered = job.handler(move |context, args, payload| {
            note(context.source(), args, payload);
            let _ = context.reply_medium(returned, args, payload);
        })?;
        let note = count(&from, crew.threads);
        let long = job.handler(move |context, args, payload| {
            note(context.source(), args, payload);
        })?;
        let turn = job.function(|caller: Rank, (key, mut words): (u64, Vec<u64>)| {
            words
                .iter_mut()
                .for_each(|word| *word = turned(*word, key, caller));
            words
        })?;
        let asked = Arc::clone(&from);
        let arrived = job.function(move |_, worker: u64| {
            let from = asked.get(worker as usize);
            from.map_or((0, 1), |it| {
                (it.arrived.load(Relaxed), it.wrong.load(Relaxed))
            })
        })?;
        Ok(Self {
            plain,
            answered,
            turn,
            arrived,
            long,
            from,
            most: job.limits().max_medium,
        })
    }
}

/// A thread's messages.
pub(crate) struct ThreadCalls {
    handlers: Handlers,
    sent: Vec<u64>,
    /// The number of requests that need a reply.
    asked: u64,
}

impl ThreadCalls {
    pub(crate) fn new(handlers: &Handlers, crew: Crew) -> Self {
        Self {
            handlers: handlers.clone(),
            sent: vec![0; crew.ranks],
            asked: 0,
        }
    }

    pub(crate) fn step(&mut self, hand: &mut Hand, region: &mut WrittenRegion) -> Result<()> {
        let target = hand.draw_rank();
        match hand.dice.below(10) {
            0..3 => self.request(hand, target, false),
            3..5 => self.request(hand, target, true),
            5 => self.request_long(hand, target, region),
            6 => hand.must("am_quiet", Job::am_quiet).map(drop),
            _ => self.call(hand, target),
        }
    }

    /// Sends several requests in a row.
    fn request(&mut self, hand: &mut Hand, target: Rank, answered: bool) -> Result<()> {
        for _ in 0..=hand.dice.below(6) {
            let number = self.sent[target.index()];
            let most = 1 << hand.dice.below(self.handlers.most.ilog2() as usize + 1);
            let len = hand.dice.below(most);
            let worker = hand.worker as u64;
            let bytes = payload(worker, number, len);
            let handler = if answered {
                self.handlers.answered
            } else {
                self.handlers.plain
            };
            let what = format!("request {number} of {len} bytes to rank {target}");
            let sent = hand.must(&what, |job| {
                job.request_medium(target, handler, &[worker, number], &bytes)
            })?;
            if sent.is_some() {
                self.sent[target.index()] += 1;
                self.asked += u64::from(answered);
            }
        }
        Ok(())
    }

    /// A put into the thread's region, with a message that announces it.
    fn request_long(
        &mut self,
        hand: &mut Hand,
        target: Rank,
        region: &mut WrittenRegion,
    ) -> Result<()> {
        let (at, len) = WrittenRegion::run(hand, super::region::BYTES);
        let number = self.sent[target.index()];
        let (data, worker) = (hand.draw_bytes(len), hand.worker);
        let index = worker * super::region::BYTES + at;
        let what = format!("request_long of {len} bytes at {index} of rank {target}");
        let args = [worker as u64, number];
        let memory = region.memory.clone();
        let sent = hand.must(&what, |job| {
            job.request_long(target, self.handlers.long, &args, &memory, index, &data)
        })?;
        if sent.is_some() {
            self.sent[target.index()] += 1;
        }
        region.settle(hand, sent, target, at, &data)
    }

    fn call(&self, hand: &mut Hand, target: Rank) -> Result<()> {
        // As many words as surely fit a message, encoded; at times more, which travel by
        // rendezvous.
        let most = if hand.dice.one_in(8) {
            LONG
        } else {
            (self.handlers.most / 12).clamp(1, 400)
        };
        let (key, len) = (hand.dice.word(), hand.dice.below(most));
        let words: Vec<u64> = (0..len).map(|_| hand.dice.word()).collect();
        let caller = hand.job.rank();
        let expected: Vec<u64> = words
            .iter()
            .map(|word| turned(*word, key, caller))
            .collect();
        let what = format!("call with {len} words at rank {target}");
        let (turn, argument) = (self.handlers.turn, (key, words));
        let got = match hand.dice.below(4) {
            0 => hand.must(&what, |job| {
                let handle = job.call_nb(target, &turn, &argument)?;
                job.wait_for(handle)?
            })?,
            // The function answers even if nobody waits.
            1 => hand.must(&what, |job| {
                let mut called = job.call_each([target, job.right(), target], &turn, &argument)?;
                let last = called.pop();
                last.map_or_else(|| Ok(Vec::new()), CallHandle::wait)
            })?,
            _ => hand.must(&what, |job| job.call(target, &turn, &argument))?,
        };
        if let Some(got) = got {
            hand.check(got == expected, || format!("{what}: the result is wrong"));
        }
        Ok(())
    }

    /// Checks that all messages arrived, and that every reply came back.
    pub(crate) fn check_all(&self, hand: &mut Hand) -> Result<()> {
        hand.must("am_quiet", Job::am_quiet)?;
        let worker = hand.worker as u64;
        for (target, sent) in hand.job.ranks().zip(&self.sent) {
            let arrived = self.handlers.arrived;
            let asked = hand.must("call for what arrived", |job| {
                job.call(target, &arrived, &worker)
            })?;
            if let Some((arrived, wrong)) = asked {
                hand.check((arrived, wrong) == (*sent, 0), || {
                    format!("of {sent} requests to rank {target} {arrived} arrived, {wrong} wrong")
                });
            }
        }
        let replied = self.handlers.from[hand.worker].replied.load(Relaxed);
        hand.check(replied == self.asked, || {
            format!("{replied} of {} answers came back", self.asked)
        });
        Ok(())
    }
}

fn turned(word: u64, key: u64, caller: Rank) -> u64 {
    mix(word ^ key ^ u64::from(caller.0))
}

fn payload(worker: u64, number: u64, len: usize) -> Vec<u8> {
    let words = (0..).flat_map(|at| mix(mix(worker << 40 ^ number) ^ at).to_le_bytes());
    words.take(len).collect()
}

fn is_payload(worker: u64, number: u64, bytes: &[u8]) -> bool {
    bytes == payload(worker, number, bytes.len())
}
