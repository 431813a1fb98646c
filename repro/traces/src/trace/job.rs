//! The ranks of one job together; their messages and collective calls must match.

use std::collections::{BTreeMap, VecDeque};

use super::{Error, MpiCall, RankTrace, TraceFault, TraceRecord};

/// The calls of all ranks of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// By rank.
    ranks: Vec<RankTrace>,
}

impl Trace {
    /// Combines the ranks' files, in any order.
    ///
    /// # Errors
    ///
    /// The files are not of one job, or a rank is missing. A message is sent and not received, received and not sent,
    /// or longer than its receiver's buffer. The ranks disagree about a collective call.
    pub fn new(files: Vec<RankTrace>) -> Result<Self, Error> {
        let ranks = by_rank(files)?;
        check_messages(&ranks)?;
        check_collectives(&ranks)?;
        Ok(Self { ranks })
    }

    /// The ranks, in order.
    pub fn ranks(&self) -> &[RankTrace] {
        &self.ranks
    }
}

fn by_rank(files: Vec<RankTrace>) -> Result<Vec<RankTrace>, Error> {
    let mut found: BTreeMap<u32, RankTrace> = BTreeMap::new();
    let mut job: Option<(String, u32)> = None;
    for file in files {
        let (other, others) = job.get_or_insert_with(|| (file.file().into(), file.ranks()));
        if file.ranks() != *others {
            let (other, others, ranks) = (other.clone(), *others, file.ranks());
            return Err(file.wrong_file(TraceFault::OtherJob {
                ranks,
                other,
                others,
            }));
        }
        if let Some(first) = found.get(&file.rank()) {
            let other = first.file().into();
            return Err(file.wrong_file(TraceFault::RankTwice { other }));
        }
        found.insert(file.rank(), file);
    }
    let Some((file, ranks)) = job else {
        return Err(missing("the trace".into(), 0, 0));
    };
    match (0..ranks).find(|rank| !found.contains_key(rank)) {
        Some(rank) => Err(missing(file, rank, ranks)),
        None => Ok(found.into_values().collect()),
    }
}

fn missing(file: String, missing: u32, ranks: u32) -> Error {
    let fault = TraceFault::RankMissing { missing, ranks };
    Error {
        file,
        rank: None,
        record: None,
        position: None,
        fault,
    }
}

/// The key of a stream of messages: sender, receiver and tag. Parts of an exchange have no tag.
type StreamKey = (u32, u32, Option<i32>);

/// The sends and receives of one stream, in the order of their calls.
#[derive(Default)]
struct StreamEnds<'a> {
    sends: Vec<&'a TraceRecord>,
    receives: Vec<&'a TraceRecord>,
}

fn check_messages(ranks: &[RankTrace]) -> Result<(), Error> {
    let mut streams: BTreeMap<StreamKey, StreamEnds<'_>> = BTreeMap::new();
    for trace in ranks {
        for record in trace.records() {
            let tag = (!record.call.is_exchange()).then_some(record.tag);
            // The peers were checked when the file was read.
            let (own, peer) = (trace.rank(), record.peer as u32);
            if record.call.sends() {
                streams
                    .entry((own, peer, tag))
                    .or_default()
                    .sends
                    .push(record);
            }
            if record.call.receives() {
                streams
                    .entry((peer, own, tag))
                    .or_default()
                    .receives
                    .push(record);
            }
        }
    }
    for (&(from, to, _), ends) in &streams {
        let (sender, receiver) = (&ranks[from as usize], &ranks[to as usize]);
        ends.check(sender, receiver)?;
    }
    Ok(())
}

impl StreamEnds<'_> {
    fn check(&self, sender: &RankTrace, receiver: &RankTrace) -> Result<(), Error> {
        // Each rank numbers its own communicators. If both ends number this stream alike, messages match within each
        // communicator; otherwise in the order of all of them.
        let alike = self.count_by_comm(&self.sends) == self.count_by_comm(&self.receives);
        let comm = |record: &TraceRecord| alike.then_some(record.comm);
        let mut posted: BTreeMap<Option<u16>, VecDeque<&TraceRecord>> = BTreeMap::new();
        for &record in &self.receives {
            posted.entry(comm(record)).or_default().push_back(record);
        }
        for &send in &self.sends {
            let receive = posted.get_mut(&comm(send)).and_then(VecDeque::pop_front);
            let (to, tag, sent) = (receiver.rank(), send.tag, send.bytes);
            let Some(receive) = receive else {
                return Err(sender.wrong(
                    send,
                    TraceFault::SendWithoutReceive {
                        to,
                        tag,
                        bytes: sent,
                    },
                ));
            };
            let received = receive.bytes;
            // A message may be shorter than its receive; a part of an exchange may not.
            if sent > received || send.call.is_exchange() && sent != received {
                return Err(sender.wrong(
                    send,
                    TraceFault::Length {
                        to,
                        tag,
                        sent,
                        received,
                    },
                ));
            }
        }
        let left = posted.values().filter_map(|it| it.front());
        match left.min_by_key(|record| record.index) {
            Some(receive) => {
                let (from, tag) = (sender.rank(), receive.tag);
                Err(receiver.wrong(receive, TraceFault::ReceiveWithoutSend { from, tag }))
            }
            None => Ok(()),
        }
    }

    fn count_by_comm(&self, records: &[&TraceRecord]) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for record in records {
            *counts.entry(record.comm).or_default() += 1;
        }
        counts
    }
}

/// All ranks make the same collective calls on the world communicator, which is 0 everywhere.
fn check_collectives(ranks: &[RankTrace]) -> Result<(), Error> {
    let first = world_collectives(&ranks[0]);
    for trace in &ranks[1..] {
        let own = world_collectives(trace);
        for number in 0..own.len().max(first.len()) {
            let (here, there) = (own.get(number), first.get(number));
            if here.map(|it| agreed_part(it)) == there.map(|it| agreed_part(it)) {
                continue;
            }
            let word =
                |it: Option<&&TraceRecord>| it.map_or("missing".into(), |it| agreed_part(it));
            let fault = TraceFault::Collective {
                number: number as u64,
                here: word(here),
                there: word(there),
            };
            return Err(match here {
                Some(record) => trace.wrong(record, fault),
                None => trace.wrong_file(fault),
            });
        }
    }
    Ok(())
}

fn world_collectives(trace: &RankTrace) -> Vec<&TraceRecord> {
    let mut last = None;
    let mut calls = Vec::new();
    for record in trace.records() {
        let is_one = record.call.is_collective() && record.comm == 0;
        if is_one && last != Some(record.sequence) {
            last = Some(record.sequence);
            calls.push(record);
        }
    }
    calls
}

/// The part of a collective call that all ranks must agree about.
fn agreed_part(record: &TraceRecord) -> String {
    let call = match record.call {
        MpiCall::AlltoallSend | MpiCall::AlltoallReceive => "Alltoall".into(),
        MpiCall::AlltoallvSend | MpiCall::AlltoallvReceive => "Alltoallv".into(),
        other => format!("{other:?}"),
    };
    if record.call.has_root() {
        format!("{call} with root {}", record.peer)
    } else {
        call
    }
}
