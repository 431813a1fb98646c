//! A rank of a job that does what a rank of a trace did.

#![allow(unsafe_code)] // uses memory that is lent to messages under way; see each block

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use hydrant::{Counters, Foresight, Job, Rank, RegistrationStats, Result, Scope, Transit, at_site};

use super::{
    memory::{Memory, MemoryError, STAMP},
    schedule::{End, Step},
};

/// A computation shorter than this is not slept through: to wake takes as long.
const NAP: Duration = Duration::from_micros(100);

/// What a replay does beside the communication.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// If data is looked at: of which messages fewer than [`STAMP`] bytes, and how many, by their numbers.
    pub(super) checks: Option<&'a HashMap<u64, usize>>,
    /// How many times as long as in the trace each computation takes.
    pub(super) slowdown: f64,
    /// Most bytes of a message whose sender does not wait until it is asked for.
    pub(super) at_once: u64,
    /// The host of each rank; empty: each rank has its own.
    pub(super) hosts: &'a [u32],
}

impl Options<'_> {
    /// Whether two ranks share a host.
    fn is_near(&self, rank: Rank, peer: u32) -> bool {
        let host = |rank: u32| self.hosts.get(rank as usize);
        host(peer).is_some() && host(rank.0) == host(peer)
    }
}

/// What a rank did.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// From the first step to the last.
    pub(crate) took: Duration,
    /// Of this, within communication.
    pub(crate) communicating: Duration,
    /// Bytes that were registered, and from when on; the time is that since the first step.
    pub(crate) series: Vec<(Duration, u64)>,
    pub(crate) registration: Option<RegistrationStats>,
    pub(crate) foresight: Option<Foresight>,
    pub(crate) counters: Counters,
    /// Messages whose data was looked at.
    pub(crate) checked: u64,
}

/// Does the steps of this rank. `done` is told of steps as they are done.
pub(super) fn play(
    job: &Job,
    steps: &[Step],
    options: &Options<'_>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<Played> {
    let mut memory = raised(Memory::of(steps))?;
    let pace = Pace::of(job, options.slowdown);
    job.barrier()?;
    job.keep_registered_series();
    let begun = job.now();
    let (communicating, checked) = job.scope(|scope| {
        let mut player = Player {
            job,
            scope,
            memory: &mut memory,
            options,
            site: 0,
            under_way: HashMap::new(),
            communicating: Duration::ZERO,
            checked: 0,
        };
        for some in steps.chunks(64) {
            for step in some {
                player.step(step, &pace)?;
            }
            done(some.len() as u64);
        }
        Ok((player.communicating, player.checked))
    })?;
    let took = job.now().saturating_sub(begun);
    let since = |(at, bytes): (Duration, u64)| (at.saturating_sub(begun), bytes);
    let played = Played {
        took,
        communicating,
        series: job.registered_series().into_iter().map(since).collect(),
        registration: job.registration(),
        foresight: job.foresight(),
        counters: job.counters(),
        checked,
    };
    job.barrier()?;
    Ok(played)
}

/// How long computing takes.
struct Pace {
    /// Operations in a nanosecond, where they are what takes time.
    per_ns: Option<f64>,
    slowdown: f64,
}

impl Pace {
    /// Measures, in virtual time, what a million operations take; in real time they take none.
    fn of(job: &Job, slowdown: f64) -> Self {
        if !job.settings().conduit.is_virtual() {
            return Self {
                per_ns: None,
                slowdown,
            };
        }
        const OPERATIONS: u64 = 1_000_000;
        let begun = job.now();
        job.compute(OPERATIONS);
        let took = job.now().saturating_sub(begun).as_nanos().max(1);
        Self {
            per_ns: Some(OPERATIONS as f64 / took as f64),
            slowdown,
        }
    }

    fn wait_out(&self, job: &Job, computed_ns: u64) {
        let computed_ns = computed_ns as f64 * self.slowdown;
        if let Some(per_ns) = self.per_ns {
            job.compute((computed_ns * per_ns) as u64);
            return;
        }
        // The cores may be fewer than the ranks, which none of them is to feel.
        let until = Instant::now() + Duration::from_nanos(computed_ns as u64);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match left {
                Duration::ZERO => return,
                left if left > NAP => thread::sleep(left - NAP),
                _ => thread::yield_now(),
            }
        }
    }
}

/// A message under way.
struct UnderWay<'scope> {
    transit: Transit<'scope>,
    loan: u64,
    /// If it is received here.
    received: Option<End>,
}

struct Player<'scope, 'env, 'a> {
    job: &'a Job,
    scope: &'scope Scope<'scope, 'env>,
    memory: &'a mut Memory,
    options: &'a Options<'a>,
    /// Where in the traced program the rank is.
    site: u64,
    /// By the number of the request.
    under_way: HashMap<u64, UnderWay<'scope>>,
    communicating: Duration,
    checked: u64,
}

impl Player<'_, '_, '_> {
    fn step(&mut self, step: &Step, pace: &Pace) -> Result<()> {
        if let Step::Call { site, computed_ns } = step {
            self.site = *site;
            pace.wait_out(self.job, *computed_ns);
            return Ok(());
        }
        let begun = self.job.now();
        let outcome = at_site(self.site, || self.communicate(step));
        self.communicating += self.job.now().saturating_sub(begun);
        outcome
    }

    fn communicate(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Call { .. } => {}
            Step::Copy { bytes } => self.copies(*bytes),
            Step::Send(end) => {
                self.stamp(end);
                // SAFETY: 1. The memory outlives this. 2. The loan ends when the message was sent.
                let (data, loan) = raised(unsafe { self.memory.lend(end.place) })?;
                self.copies_near(end);
                let sent = &data[..self.goes(end, data.len())];
                self.job.send(Rank(end.peer), end.tag, sent)?;
                self.memory.end(loan);
            }
            Step::Receive(end) => {
                // SAFETY: as above.
                let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
                let len = self.goes(end, data.len());
                self.job
                    .receive(Rank(end.peer), end.tag, &mut data[..len])?;
                self.copies_near(end);
                self.memory.end(loan);
                self.look(end)?;
            }
            Step::SendReceive(to, from) => {
                self.stamp(to);
                // SAFETY: as above.
                let (data, sent) = raised(unsafe { self.memory.lend(to.place) })?;
                // SAFETY: as above.
                let (buffer, received) = raised(unsafe { self.memory.lend_mut(from.place) })?;
                self.copies_near(to);
                let len = self.goes(from, buffer.len());
                (self.job).send_receive(
                    (Rank(to.peer), to.tag, &data[..self.goes(to, data.len())]),
                    (Rank(from.peer), from.tag, &mut buffer[..len]),
                )?;
                self.copies_near(from);
                self.memory.end(sent);
                self.memory.end(received);
                self.look(from)?;
            }
            Step::BeginSend(request, end) => {
                self.stamp(end);
                // SAFETY: 1. The memory outlives the scope, which ends all that was begun. 2. The loan ends
                //         with the message.
                let (data, loan) = raised(unsafe { self.memory.lend(end.place) })?;
                self.copies_near(end);
                let sent = &data[..self.goes(end, data.len())];
                let peer = Rank(end.peer);
                // What would wait for its receiver does, though between ranks of one host only a stamp goes.
                let transit = match end.place.bytes() <= self.options.at_once {
                    true => self.scope.send(peer, end.tag, sent)?,
                    false => self.scope.send_synchronous(peer, end.tag, sent)?,
                };
                let it = UnderWay {
                    transit,
                    loan,
                    received: None,
                };
                self.under_way.insert(*request, it);
            }
            Step::BeginReceive(request, end) => {
                // SAFETY: as above.
                let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
                let len = self.goes(end, data.len());
                let buffer = &mut data[..len];
                let transit = self.scope.receive(Rank(end.peer), end.tag, buffer)?;
                let it = UnderWay {
                    transit,
                    loan,
                    received: Some(*end),
                };
                self.under_way.insert(*request, it);
            }
            Step::Complete(request) => {
                if let Some(mut it) = self.under_way.remove(request) {
                    it.transit.wait()?;
                    self.memory.end(it.loan);
                    if let Some(end) = it.received {
                        self.copies_near(&end);
                        self.look(&end)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// As long as it takes to copy so many bytes. What a library copies is no program's to see.
    fn copies(&self, bytes: u64) {
        if self.job.settings().conduit.is_virtual() {
            self.job.compute(bytes / 8);
        }
    }

    /// A message between ranks of one host is copied at both ends, through memory that they share.
    fn copies_near(&self, end: &End) {
        if self.options.is_near(self.job.rank(), end.peer) {
            self.copies(end.place.bytes());
        }
    }

    /// How many of a message's bytes go by the network: between ranks of one host those that say which message it is.
    fn goes(&self, end: &End, len: usize) -> usize {
        match self.options.is_near(self.job.rank(), end.peer) {
            true => len.min(STAMP),
            false => len,
        }
    }

    /// How many bytes of a message are looked at.
    fn checked_bytes(&self, end: &End) -> usize {
        let checked = |short: &HashMap<u64, usize>| short.get(&end.tag).copied().unwrap_or(STAMP);
        self.options.checks.map_or(0, checked)
    }

    /// Writes down in a message which one it is.
    fn stamp(&mut self, end: &End) {
        let bytes = self.checked_bytes(end);
        if bytes == 0 {
            return;
        }
        // SAFETY: the loan ends here, and the slice is used no more.
        if let Ok((data, loan)) = unsafe { self.memory.lend_mut(end.place) } {
            let bytes = bytes.min(data.len());
            data[..bytes].copy_from_slice(&stamp_of(end.tag)[..bytes]);
            self.memory.end(loan);
        }
    }

    /// Looks whether a message that was received is the right one.
    fn look(&mut self, end: &End) -> Result<()> {
        let bytes = self.checked_bytes(end);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as in `stamp`. What was received into scratch memory lies where the next is received.
        let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
        // The message may be shorter than the buffer, which it was found to fit.
        let bytes = bytes.min(data.len());
        let is_right = data[..bytes] == stamp_of(end.tag)[..bytes];
        self.memory.end(loan);
        if !is_right {
            let text = format!(
                "rank {} received other data than rank {} sent it as message {}",
                self.job.rank(),
                end.peer,
                end.tag
            );
            return Err(hydrant::Error::other(text));
        }
        self.checked += 1;
        Ok(())
    }
}

/// The steps were checked before, so that this is no error of the program's.
fn raised<T>(outcome: std::result::Result<T, MemoryError>) -> Result<T> {
    outcome.map_err(hydrant::Error::other)
}

fn stamp_of(tag: u64) -> [u8; STAMP] {
    // Never zero, which is what memory begins with.
    (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101).to_le_bytes()
}
