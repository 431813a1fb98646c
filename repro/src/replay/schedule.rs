//! The steps of each rank of a trace: its calls, with collectives as point-to-point messages.
//! Everything is computed before the replay, and nothing runs here.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
};

use hydrant_traces::trace::{HEADER_BYTES, MpiCall, RECORD_BYTES, RankTrace, Trace, TraceRecord};

use super::{
    pattern,
    step::{MessageEnd, MessagePlace, ReplayStep},
};

/// The reason why a trace cannot be replayed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unplayable {
    /// The trace does not say which ranks take part in a collective.
    #[error(
        "{file}: rank {rank}, call {call}: a {what} on communicator {comm}, which not all ranks call alike; \
         the trace does not say who its members are, and only point-to-point messages and exchanges are \
         replayed on parts of the ranks"
    )]
    Members {
        /// The file.
        file: String,
        /// The rank.
        rank: u32,
        /// The number of the call.
        call: u32,
        /// The name of the call.
        what: String,
        /// The communicator, by the rank's count.
        comm: u16,
    },
    /// The trace lasts beyond the end of virtual time.
    #[error("{file}: rank {rank} computes for {days} days; 100 can be replayed")]
    Long {
        /// The file.
        file: String,
        /// The rank.
        rank: u32,
        /// The days of computation so far.
        days: u64,
    },
}

/// The position of a call in the trace of its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The file.
    pub(crate) file: String,
    /// The first record of the call, from 0 on, and the byte of the file where it begins.
    pub(crate) record: u64,
    pub(crate) byte: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, record, byte } = self;
        write!(f, "{file}, record {record} at byte {byte}")
    }
}

/// The position of the call that a rank's step belongs to.
pub(crate) fn position(
    trace: &Trace,
    schedules: &[Vec<ReplayStep>],
    rank: u32,
    step: usize,
) -> Position {
    let steps = schedules.get(rank as usize).into_iter().flatten();
    let begins = |it: &&ReplayStep| matches!(it, ReplayStep::Call { .. });
    let calls = steps.take(step + 1).filter(begins).count();
    let trace = trace.ranks().get(rank as usize);
    let records = trace.map_or(&[][..], RankTrace::records);
    let mut all = records.chunk_by(|a, b| a.sequence == b.sequence);
    let record = all.nth(calls.saturating_sub(1)).and_then(<[_]>::first);
    let record = record.map_or(0, |it| it.index);
    Position {
        file: trace.map_or(String::new(), |it| it.file().to_owned()),
        record,
        byte: HEADER_BYTES as u64 + record * RECORD_BYTES as u64,
    }
}

/// Nanoseconds in a day.
const DAY: u64 = 86_400_000_000_000;
/// The most days that a rank may compute: virtual time ends after twice as many.
const MOST_DAYS: u64 = 100;

/// The steps of each rank, by rank.
pub(crate) fn schedules(trace: &Trace) -> Result<Vec<Vec<ReplayStep>>, Unplayable> {
    check_members(trace)?;
    check_computing(trace)?;
    let numbers = Numbers::of(trace);
    let ranks = trace.ranks().len() as u32;
    let of = |rank: &RankTrace| Schedule::new(rank, ranks, &numbers).steps();
    Ok(trace.ranks().iter().map(of).collect())
}

/// The kinds of the collective calls on each communicator, which all members must call alike.
fn collectives(rank: &RankTrace) -> BTreeMap<u16, Vec<(MpiCall, i32)>> {
    let mut found: BTreeMap<u16, Vec<(MpiCall, i32)>> = BTreeMap::new();
    for record in whole(rank) {
        let root = if record.call.has_root() {
            record.peer
        } else {
            -1
        };
        found
            .entry(record.comm)
            .or_default()
            .push((record.call, root));
    }
    found
}

/// The collectives that all members of a communicator join with one record each.
fn whole(rank: &RankTrace) -> impl Iterator<Item = &TraceRecord> {
    let records = rank.records().iter();
    records.filter(|it| it.call.is_collective() && !it.call.is_exchange())
}

fn check_members(trace: &Trace) -> Result<(), Unplayable> {
    let Some(first) = trace.ranks().first() else {
        return Ok(());
    };
    let expected = collectives(first);
    for rank in trace.ranks() {
        let own = collectives(rank);
        for record in whole(rank) {
            if own.get(&record.comm) != expected.get(&record.comm) {
                return Err(Unplayable::Members {
                    file: rank.file().to_owned(),
                    rank: rank.rank(),
                    call: record.sequence,
                    what: format!("{:?}", record.call),
                    comm: record.comm,
                });
            }
        }
    }
    Ok(())
}

fn check_computing(trace: &Trace) -> Result<(), Unplayable> {
    for rank in trace.ranks() {
        let computed = rank.records().last().map_or(0, |it| it.computed.0);
        let days = computed / DAY;
        if days >= MOST_DAYS {
            return Err(Unplayable::Long {
                file: rank.file().to_owned(),
                rank: rank.rank(),
                days,
            });
        }
    }
    Ok(())
}

/// The messages between two ranks that only their order tells apart.
type MessageStream = (u32, u32, Option<i32>);

/// The number of each message, at both ends: by rank and index of the record in its trace.
struct Numbers(HashMap<(u32, u64), u64>);

impl Numbers {
    /// Matches sends with receives, in the way that the reader checked.
    fn of(trace: &Trace) -> Self {
        let mut streams: BTreeMap<MessageStream, [Vec<&TraceRecord>; 2]> = BTreeMap::new();
        for rank in trace.ranks() {
            for record in rank.records() {
                let tag = (!record.call.is_exchange()).then_some(record.tag);
                let (own, peer) = (rank.rank(), record.peer as u32);
                if record.call.sends() {
                    streams.entry((own, peer, tag)).or_default()[0].push(record);
                }
                if record.call.receives() {
                    streams.entry((peer, own, tag)).or_default()[1].push(record);
                }
            }
        }
        let (mut numbers, mut next) = (HashMap::new(), 0);
        for ((from, to, _), [sends, receives]) in &streams {
            let count = |records: &[&TraceRecord]| {
                let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
                records
                    .iter()
                    .for_each(|it| *counts.entry(it.comm).or_default() += 1);
                counts
            };
            let alike = count(sends) == count(receives);
            let comm = |record: &TraceRecord| alike.then_some(record.comm);
            let mut posted: BTreeMap<Option<u16>, VecDeque<&TraceRecord>> = BTreeMap::new();
            for receive in receives {
                posted.entry(comm(receive)).or_default().push_back(receive);
            }
            for send in sends {
                let receive = posted.get_mut(&comm(send)).and_then(VecDeque::pop_front);
                numbers.insert((*from, send.index), next);
                if let Some(receive) = receive {
                    numbers.insert((*to, receive.index), next);
                }
                next += 1;
            }
        }
        Self(numbers)
    }

    fn tag(&self, rank: u32, record: &TraceRecord) -> u64 {
        self.0.get(&(rank, record.index)).copied().unwrap_or(0)
    }
}

/// The lowest tag of the messages of collectives, above those of the trace itself.
const COLLECTIVE: u64 = 1 << 40;

/// The steps of one rank so far.
struct Schedule<'a> {
    rank: &'a RankTrace,
    ranks: u32,
    numbers: &'a Numbers,
    steps: Vec<ReplayStep>,
    computed: u64,
    /// The number of collectives so far on each communicator.
    collectives: HashMap<u16, u64>,
}

impl<'a> Schedule<'a> {
    fn new(rank: &'a RankTrace, ranks: u32, numbers: &'a Numbers) -> Self {
        Self {
            rank,
            ranks,
            numbers,
            steps: Vec::new(),
            computed: 0,
            collectives: HashMap::new(),
        }
    }

    fn steps(mut self) -> Vec<ReplayStep> {
        let rank = self.rank;
        for call in rank.records().chunk_by(|a, b| a.sequence == b.sequence) {
            let Some(first) = call.first() else {
                continue;
            };
            let computed_ns = first.computed.0.saturating_sub(self.computed);
            self.computed = first.computed.0;
            // Init, and calls without a stack, are told apart by their kind.
            let site = match first.stack {
                0 => first.call as u64,
                stack => stack,
            };
            self.steps.push(ReplayStep::Call { site, computed_ns });
            self.call(call);
        }
        self.steps
    }

    /// Adds one call; its records are its parts.
    fn call(&mut self, records: &[TraceRecord]) {
        let Some(first) = records.first() else {
            return;
        };
        match first.call {
            MpiCall::Init | MpiCall::Finalize => {}
            MpiCall::Send | MpiCall::Recv | MpiCall::Isend | MpiCall::Irecv => {
                for record in records {
                    let (end, request) = (self.end(record), record.request);
                    self.steps.push(match first.call {
                        MpiCall::Send => ReplayStep::Send(end),
                        MpiCall::Recv => ReplayStep::Receive(end),
                        MpiCall::Isend => ReplayStep::BeginSend(request, end),
                        _ => ReplayStep::BeginReceive(request, end),
                    });
                }
            }
            MpiCall::Wait | MpiCall::Waitall => {
                let waited = records.iter().filter(|it| it.request != 0);
                self.steps
                    .extend(waited.map(|it| ReplayStep::Complete(it.request)));
            }
            MpiCall::SendrecvSend
            | MpiCall::SendrecvReceive
            | MpiCall::AlltoallSend
            | MpiCall::AlltoallReceive
            | MpiCall::AlltoallvSend
            | MpiCall::AlltoallvReceive => self.exchange(records),
            MpiCall::Barrier
            | MpiCall::Bcast
            | MpiCall::Reduce
            | MpiCall::Allreduce
            | MpiCall::CommSplit
            | MpiCall::CommDup => self.collective(first),
        }
    }

    fn end(&self, record: &TraceRecord) -> MessageEnd {
        MessageEnd {
            peer: record.peer as u32,
            tag: self.numbers.tag(self.rank.rank(), record),
            place: place_of(record),
        }
    }

    /// Sends a part to each rank and receives one from each, peer by peer.
    fn exchange(&mut self, records: &[TraceRecord]) {
        let (own, ranks) = (self.rank.rank(), self.ranks);
        let part = |peer: u32, sends: bool| {
            let mut parts = records.iter().filter(move |it| {
                it.peer as u32 == peer && it.call.sends() == sends && it.call.receives() != sends
            });
            parts.next()
        };
        for (to, from) in pattern::rounds(own, ranks) {
            let send = part(to, true).map(|it| self.end(it));
            let receive = part(from, false).map(|it| self.end(it));
            self.steps.push(match (send, receive) {
                (Some(send), Some(_)) if to == own => ReplayStep::Copy {
                    bytes: send.place.bytes(),
                },
                (Some(send), Some(receive)) => ReplayStep::SendReceive(send, receive),
                (Some(send), None) => ReplayStep::Send(send),
                (None, Some(receive)) => ReplayStep::Receive(receive),
                (None, None) => continue,
            });
        }
    }

    /// Adds a collective of all ranks.
    fn collective(&mut self, record: &TraceRecord) {
        let number = self.collectives.entry(record.comm).or_default();
        *number += 1;
        // Each collective has as many tags as a rank has rounds.
        let base = COLLECTIVE | u64::from(record.comm) << 41 | *number << 6;
        let (own, ranks) = (self.rank.rank(), self.ranks);
        let root = u32::try_from(record.peer).unwrap_or(0);
        let buffer = match place_of(record) {
            MessagePlace::Traced { addr: 0, .. } => MessagePlace::Scratch { bytes: 8 },
            place => place,
        };
        let steps = match record.call {
            MpiCall::Bcast => pattern::broadcast(own, ranks, root, base, buffer),
            MpiCall::Reduce => pattern::reduce(own, ranks, root, base, buffer),
            MpiCall::Allreduce => {
                let mut steps = pattern::reduce(own, ranks, 0, base, buffer);
                steps.extend(pattern::broadcast(own, ranks, 0, base + 32, buffer));
                steps
            }
            _ => pattern::barrier(own, ranks, base),
        };
        self.steps.extend(steps);
    }
}

fn place_of(record: &TraceRecord) -> MessagePlace {
    MessagePlace::Traced {
        addr: record.addr,
        bytes: record.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the ends of all messages: each sent message is received once, with room for it.
    pub(super) fn check(schedules: &[Vec<ReplayStep>]) {
        let mut sent: HashMap<(u32, u32, u64), u64> = HashMap::new();
        let mut received = sent.clone();
        for (own, steps) in (0..).zip(schedules) {
            let mut send = |end: &MessageEnd| {
                let before = sent.insert((own, end.peer, end.tag), end.place.bytes());
                assert_eq!(before, None, "{end:?} twice");
            };
            let mut receive = |end: &MessageEnd| {
                let before = received.insert((end.peer, own, end.tag), end.place.bytes());
                assert_eq!(before, None, "{end:?} twice");
            };
            for step in steps {
                match step {
                    ReplayStep::Send(end) | ReplayStep::BeginSend(_, end) => send(end),
                    ReplayStep::Receive(end) | ReplayStep::BeginReceive(_, end) => receive(end),
                    ReplayStep::SendReceive(to, from) => {
                        send(to);
                        receive(from);
                    }
                    ReplayStep::Call { .. } | ReplayStep::Complete(_) | ReplayStep::Copy { .. } => {
                    }
                }
            }
        }
        assert_eq!(sent.len(), received.len());
        for (message, bytes) in sent {
            assert!(received[&message] >= bytes, "{message:?}");
        }
    }

    #[test]
    fn every_message_of_a_recorded_program_has_two_ends() {
        for name in ["bt", "ft", "is", "lu"] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/data");
            let path = std::path::Path::new(folder).join(format!("{name}.S.4.tar.zst"));
            let trace = hydrant_traces::read(&path).unwrap();
            let schedules = schedules(&trace).unwrap();
            check(&schedules);
            for (rank, steps) in trace.ranks().iter().zip(&schedules) {
                let computed = steps.iter().map(|it| match it {
                    ReplayStep::Call { computed_ns, .. } => *computed_ns,
                    _ => 0,
                });
                let last = rank.records().last().map_or(0, |it| it.computed.0);
                assert_eq!(computed.sum::<u64>(), last);
            }
        }
    }
}
