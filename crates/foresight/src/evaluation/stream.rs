//! A rank's trace as the stream of communications that the application would have recorded.

use std::collections::HashMap;

use crate::communication::{Communication, FRAMES, Kind, Region, Way};
use crate::time::Time;
use crate::trace::{RankTrace, Record};

/// Which clock of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The computing time of the rank: free of its waiting, and of the turns of others.
    Computing,
    /// The same without its jitter: the computing before each call takes what it takes in the
    /// median of the calls from the same call site.
    Smooth,
    /// The wall clock of the run that was recorded.
    Wall,
}

/// The communications of a rank that name a buffer, in the order of its calls.
pub fn communications(rank: &RankTrace, clock: Clock) -> Vec<Communication> {
    let times = match clock {
        Clock::Smooth => smoothed(rank.records()),
        Clock::Computing => rank.records().iter().map(|it| it.computed).collect(),
        Clock::Wall => rank.records().iter().map(|it| it.at).collect(),
    };
    let timed = rank.records().iter().zip(times);
    let with_buffer = timed.filter(|(record, _)| record.has_buffer());
    with_buffer
        .map(|(record, begun)| communication(record, begun))
        .collect()
}

fn communication(record: &Record, begun: Time) -> Communication {
    let mut stack = [0; FRAMES];
    stack[0] = record.stack;
    Communication {
        begun,
        kind: Kind(record.call as u16),
        way: Way::Found,
        addr: record.addr,
        bytes: record.bytes,
        region: Region::default(),
        stack,
    }
}

/// When each record's call would have begun, had the computing before it taken the median of its call
/// site.
fn smoothed(records: &[Record]) -> Vec<Time> {
    let site = |record: &Record| (record.call, record.stack);
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

fn pairs(records: &[Record]) -> impl Iterator<Item = (&Record, &Record)> {
    records.windows(2).map(|pair| (&pair[0], &pair[1]))
}

fn median(all: &mut [u64]) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}
