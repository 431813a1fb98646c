//! A rank of a job that replays a rank of a trace.

#![allow(unsafe_code)] // uses memory that is lent to messages under way; see each block

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use hydrant::{Counters, Foresight, Job, Rank, RegistrationStats, Result, Scope, Transit, at_site};

use super::{
    memory::{MemoryError, ReplayMemory, STAMP},
    step::{MessageEnd, ReplayStep},
};

/// A computation shorter than this does not sleep: waking takes as long.
const NAP: Duration = Duration::from_micros(100);

/// The options of a replay.
#[derive(Debug)]
pub(super) struct ReplayOptions<'a> {
    /// With checks: the messages of which fewer than [`STAMP`] bytes are distinguishable, with
    /// those bytes, by number.
    pub(super) checks: Option<&'a HashMap<u64, usize>>,
    /// The factor on the time of each computation in the trace.
    pub(super) slowdown: f64,
    /// The most bytes of an eager message, whose sender does not wait for the receiver.
    pub(super) at_once: u64,
    /// The host of each rank. Empty if each rank has its own.
    pub(super) hosts: &'a [u32],
}

impl ReplayOptions<'_> {
    /// True if two ranks share a host.
    fn is_near(&self, rank: Rank, peer: u32) -> bool {
        let host = |rank: u32| self.hosts.get(rank as usize);
        host(peer).is_some() && host(rank.0) == host(peer)
    }
}

/// The results of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// The time from the first step to the last.
    pub(crate) took: Duration,
    /// The part of it within communication.
    pub(crate) communicating: Duration,
    /// Registered bytes with the time of each change, counted from the first step.
    pub(crate) series: Vec<(Duration, u64)>,
    pub(crate) registration: Option<RegistrationStats>,
    pub(crate) foresight: Option<Foresight>,
    pub(crate) counters: Counters,
    /// The messages whose data was checked.
    pub(crate) checked: u64,
}

/// Replays the steps of this rank. `done` hears of finished steps.
pub(super) fn play(
    job: &Job,
    steps: &[ReplayStep],
    options: &ReplayOptions<'_>,
    done: &(dyn Fn(u64) + Sync),
) -> Result<Played> {
    let mut memory = raised(ReplayMemory::of(steps))?;
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

/// The speed of computation.
struct Pace {
    /// Operations in a nanosecond, where operations take time.
    per_ns: Option<f64>,
    slowdown: f64,
}

impl Pace {
    /// Measures the virtual time of a million operations; in real time they take none.
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
        // There may be fewer cores than ranks, and no rank may notice.
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

/// A message in flight.
struct MessageInFlight<'scope> {
    transit: Transit<'scope>,
    loan: u64,
    /// The end of the message, if it is received here.
    received: Option<MessageEnd>,
}

struct Player<'scope, 'env, 'a> {
    job: &'a Job,
    scope: &'scope Scope<'scope, 'env>,
    memory: &'a mut ReplayMemory,
    options: &'a ReplayOptions<'a>,
    /// The rank's call site in the traced program.
    site: u64,
    /// By the number of the request.
    under_way: HashMap<u64, MessageInFlight<'scope>>,
    communicating: Duration,
    checked: u64,
}

impl Player<'_, '_, '_> {
    fn step(&mut self, step: &ReplayStep, pace: &Pace) -> Result<()> {
        if let ReplayStep::Call { site, computed_ns } = step {
            self.site = *site;
            pace.wait_out(self.job, *computed_ns);
            return Ok(());
        }
        let begun = self.job.now();
        let outcome = at_site(self.site, || self.communicate(step));
        self.communicating += self.job.now().saturating_sub(begun);
        outcome
    }

    fn communicate(&mut self, step: &ReplayStep) -> Result<()> {
        match step {
            ReplayStep::Call { .. } => {}
            ReplayStep::Copy { bytes } => self.copies(*bytes),
            ReplayStep::Send(end) => {
                self.stamp(end);
                // SAFETY: 1. the memory outlives the slice; 2. the loan ends when the message was
                // sent.
                let (data, loan) = raised(unsafe { self.memory.lend(end.place) })?;
                self.copies_near(end);
                let sent = &data[..self.network_bytes(end, data.len())];
                self.job.send(Rank(end.peer), end.tag, sent)?;
                self.memory.end(loan);
            }
            ReplayStep::Receive(end) => {
                // SAFETY: 1. and 2. as above, when the message was received.
                let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
                let len = self.network_bytes(end, data.len());
                self.job
                    .receive(Rank(end.peer), end.tag, &mut data[..len])?;
                self.copies_near(end);
                self.memory.end(loan);
                self.check(end)?;
            }
            ReplayStep::SendReceive(to, from) => {
                self.stamp(to);
                // SAFETY: as above.
                let (data, sent) = raised(unsafe { self.memory.lend(to.place) })?;
                // SAFETY: as above.
                let (buffer, received) = raised(unsafe { self.memory.lend_mut(from.place) })?;
                self.copies_near(to);
                let len = self.network_bytes(from, buffer.len());
                (self.job).send_receive(
                    (
                        Rank(to.peer),
                        to.tag,
                        &data[..self.network_bytes(to, data.len())],
                    ),
                    (Rank(from.peer), from.tag, &mut buffer[..len]),
                )?;
                self.copies_near(from);
                self.memory.end(sent);
                self.memory.end(received);
                self.check(from)?;
            }
            ReplayStep::BeginSend(request, end) => {
                self.stamp(end);
                // SAFETY: 1. the memory outlives the scope, which completes all begun messages; 2.
                // the loan ends with the message.
                let (data, loan) = raised(unsafe { self.memory.lend(end.place) })?;
                self.copies_near(end);
                let sent = &data[..self.network_bytes(end, data.len())];
                let peer = Rank(end.peer);
                // A message that would wait for its receiver does so, though between ranks of one
                // host only a stamp travels.
                let transit = if end.place.bytes() <= self.options.at_once {
                    self.scope.send(peer, end.tag, sent)?
                } else {
                    self.scope.send_synchronous(peer, end.tag, sent)?
                };
                let it = MessageInFlight {
                    transit,
                    loan,
                    received: None,
                };
                self.under_way.insert(*request, it);
            }
            ReplayStep::BeginReceive(request, end) => {
                // SAFETY: as above.
                let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
                let len = self.network_bytes(end, data.len());
                let buffer = &mut data[..len];
                let transit = self.scope.receive(Rank(end.peer), end.tag, buffer)?;
                let it = MessageInFlight {
                    transit,
                    loan,
                    received: Some(*end),
                };
                self.under_way.insert(*request, it);
            }
            ReplayStep::Complete(request) => {
                if let Some(mut it) = self.under_way.remove(request) {
                    it.transit.wait()?;
                    self.memory.end(it.loan);
                    if let Some(end) = it.received {
                        self.copies_near(&end);
                        self.check(&end)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Spends the time to copy this many bytes. The copies of a library are not part of the
    /// program.
    fn copies(&self, bytes: u64) {
        if self.job.settings().conduit.is_virtual() {
            self.job.compute(bytes / 8);
        }
    }

    /// Copies a message between ranks of one host at both ends, through memory that they share.
    fn copies_near(&self, end: &MessageEnd) {
        if self.options.is_near(self.job.rank(), end.peer) {
            self.copies(end.place.bytes());
        }
    }

    /// The bytes of a message that travel over the network: between ranks of one host only the
    /// identifying ones.
    fn network_bytes(&self, end: &MessageEnd, len: usize) -> usize {
        if self.options.is_near(self.job.rank(), end.peer) {
            len.min(STAMP)
        } else {
            len
        }
    }

    /// The bytes of a message that are checked.
    fn checked_bytes(&self, end: &MessageEnd) -> usize {
        let checked = |short: &HashMap<u64, usize>| short.get(&end.tag).copied().unwrap_or(STAMP);
        self.options.checks.map_or(0, checked)
    }

    /// Writes the identity of a message into its data.
    fn stamp(&mut self, end: &MessageEnd) {
        let bytes = self.checked_bytes(end);
        if bytes == 0 {
            return;
        }
        // SAFETY: 1. the memory lives; 2. the slice is not used after the end of the loan below.
        if let Ok((data, loan)) = unsafe { self.memory.lend_mut(end.place) } {
            let bytes = bytes.min(data.len());
            data[..bytes].copy_from_slice(&stamp_of(end.tag)[..bytes]);
            self.memory.end(loan);
        }
    }

    /// Checks that a received message is the right one.
    fn check(&mut self, end: &MessageEnd) -> Result<()> {
        let bytes = self.checked_bytes(end);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as in `stamp`. Data received into scratch memory lies at the address of the next
        // receive.
        let (data, loan) = raised(unsafe { self.memory.lend_mut(end.place) })?;
        // The message may be shorter than the buffer, which was checked to fit.
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

/// The steps were checked before, so this is no error of the program.
fn raised<T>(outcome: std::result::Result<T, MemoryError>) -> Result<T> {
    outcome.map_err(hydrant::Error::other)
}

fn stamp_of(tag: u64) -> [u8; STAMP] {
    // Never zero, which is the initial content of memory.
    (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101).to_le_bytes()
}
