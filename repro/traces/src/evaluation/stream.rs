//! A rank's trace as the stream of communications that the application would have recorded.

use std::collections::HashMap;

use hydrant_foresight::{
    Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome, Time,
};

use crate::trace::{RankTrace, TraceRecord};

/// A clock of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceClock {
    /// The computing time of the rank, without its waits and without the turns of other ranks.
    Computing,
    /// Computing time without its jitter: the computation before each call takes the median of its call site.
    Smooth,
    /// The wall clock of the recorded run.
    Wall,
}

/// The communications of a rank that name a buffer, in the order of its calls.
pub fn communications(rank: &RankTrace, clock: TraceClock) -> Vec<Communication> {
    let times = match clock {
        TraceClock::Smooth => smoothed(rank.records()),
        TraceClock::Computing => rank.records().iter().map(|it| it.computed).collect(),
        TraceClock::Wall => rank.records().iter().map(|it| it.at).collect(),
    };
    let timed = rank.records().iter().zip(times);
    let with_buffer = timed.filter(|(record, _)| record.has_buffer());
    with_buffer
        .map(|(record, begun)| communication(record, begun))
        .collect()
}

fn communication(record: &TraceRecord, begun: Time) -> Communication {
    let mut stack = [0; FRAMES];
    stack[0] = record.stack;
    Communication {
        begun,
        kind: CommunicationKind(record.call as u16),
        outcome: RegistrationOutcome::Found,
        addr: record.addr,
        bytes: record.bytes,
        region: PageRun::default(),
        stack,
    }
}

/// The begin of each record's call, if the computation before it had taken the median of its call site.
fn smoothed(records: &[TraceRecord]) -> Vec<Time> {
    let site = |record: &TraceRecord| (record.call, record.stack);
    let mut taken: HashMap<_, Vec<u64>> = HashMap::new();
    for (before, record) in pairs(records) {
        taken
            .entry(site(record))
            .or_default()
            .push(record.computed.since(before.computed));
    }
    let medians: HashMap<_, u64> = taken
        .iter_mut()
        .map(|(site, all)| (*site, median(all)))
        .collect();
    let mut now = Time(0);
    let mut times = Vec::with_capacity(records.len());
    times.extend(records.first().map(|_| now));
    for (before, record) in pairs(records) {
        // Records of one call begin together.
        if before.sequence != record.sequence {
            now = now.after(medians[&site(record)]);
        }
        times.push(now);
    }
    times
}

fn pairs(records: &[TraceRecord]) -> impl Iterator<Item = (&TraceRecord, &TraceRecord)> {
    records.windows(2).map(|pair| (&pair[0], &pair[1]))
}

fn median(all: &mut [u64]) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}
