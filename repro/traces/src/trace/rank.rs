//! The file of one rank.

use std::collections::HashMap;

use hydrant_base::words::Fixed;

use super::{
    Error, HEADER_BYTES, MAGIC, MAX_RANKS, MpiCall, RECORD_BYTES, TraceFault, TraceRecord,
};

/// The calls of one rank, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankTrace {
    file: String,
    rank: u32,
    ranks: u32,
    records: Vec<TraceRecord>,
}

impl RankTrace {
    /// Parses a file; errors name it `file`.
    ///
    /// # Errors
    ///
    /// Any fault in the file, with its place.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Error> {
        let header = TraceHeader::parse(bytes).map_err(|fault| Error {
            file: file.into(),
            rank: None,
            record: None,
            position: None,
            fault,
        })?;
        let mut trace = Self {
            file: file.into(),
            rank: header.rank,
            ranks: header.ranks,
            records: Vec::new(),
        };
        trace.records = trace.read(&bytes[HEADER_BYTES..])?;
        // Records are written at the end of their call; calls are numbered as they begin.
        trace.records.sort_by_key(|record| record.sequence);
        trace.check_order()?;
        trace.check_peers()?;
        trace.check_requests()?;
        Ok(trace)
    }

    /// The file, as the caller named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The ranks of its job.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// All records, in the order of the calls.
    pub fn records(&self) -> &[TraceRecord] {
        &self.records
    }

    /// The error for a fault in a record.
    pub(super) fn wrong(&self, record: &TraceRecord, fault: TraceFault) -> Error {
        self.at(record.index, fault)
    }

    /// The error for a fault in the file as a whole.
    pub(super) fn wrong_file(&self, fault: TraceFault) -> Error {
        Error {
            file: self.file.clone(),
            rank: Some(self.rank),
            record: None,
            position: None,
            fault,
        }
    }

    fn at(&self, index: u64, fault: TraceFault) -> Error {
        Error {
            record: Some(index),
            position: Some(HEADER_BYTES as u64 + index * RECORD_BYTES as u64),
            ..self.wrong_file(fault)
        }
    }

    fn read(&self, bytes: &[u8]) -> Result<Vec<TraceRecord>, Error> {
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        if !rest.is_empty() {
            let fault = TraceFault::Truncated {
                bytes: rest.len() as u64,
            };
            return Err(self.at(records.len() as u64, fault));
        }
        if records.is_empty() {
            return Err(self.wrong_file(TraceFault::Empty));
        }
        let numbered = records.iter().zip(0..);
        let parse = |(bytes, index)| {
            TraceRecord::parse(index, bytes).map_err(|fault| self.at(index, fault))
        };
        numbered.map(parse).collect()
    }

    /// Checks the order: from MPI_Init to MPI_Finalize, no call missing, no clock set back.
    fn check_order(&self) -> Result<(), Error> {
        let last = self.records.len() - 1;
        for (at, record) in self.records.iter().enumerate() {
            if (record.call == MpiCall::Init) != (at == 0) {
                return Err(self.wrong(record, TraceFault::Init));
            }
            if (record.call == MpiCall::Finalize) != (at == last) {
                return Err(self.wrong(record, TraceFault::Finalize));
            }
        }
        for pair in self.records.windows(2) {
            let (before, now) = (&pair[0], &pair[1]);
            self.check_pair(before, now)
                .map_err(|fault| self.wrong(now, fault))?;
        }
        Ok(())
    }

    fn check_pair(&self, before: &TraceRecord, now: &TraceRecord) -> Result<(), TraceFault> {
        for (clock, earlier, later) in [
            ("t_ns", before.at, now.at),
            ("comp_ns", before.computed, now.computed),
        ] {
            if later < earlier {
                return Err(TraceFault::TimeBack {
                    clock,
                    before: earlier.0,
                    now: later.0,
                });
            }
        }
        match now.sequence - before.sequence {
            0 => same_call(before, now),
            1 => Ok(()),
            _ => Err(TraceFault::MissingCall {
                before: before.sequence,
                now: now.sequence,
            }),
        }
    }

    fn check_peers(&self) -> Result<(), Error> {
        for record in &self.records {
            let named = record.call.sends() || record.call.receives() || record.call.has_root();
            let is_rank = u32::try_from(record.peer).is_ok_and(|peer| peer < self.ranks);
            if named && !is_rank {
                let fault = TraceFault::Peer {
                    peer: record.peer,
                    ranks: self.ranks,
                };
                return Err(self.wrong(record, fault));
            }
        }
        Ok(())
    }

    /// Each request is begun once and completed once, in this order.
    fn check_requests(&self) -> Result<(), Error> {
        // For each request, the record that began it, and whether it is still in flight.
        let mut begun: HashMap<u64, (&TraceRecord, bool)> = HashMap::new();
        for record in &self.records {
            let request = record.request;
            if record.call.begins()
                && (request == 0 || begun.insert(request, (record, true)).is_some())
            {
                return Err(self.wrong(record, TraceFault::RequestAgain { request }));
            }
            // A call may wait without any request.
            if record.call.completes() && request != 0 {
                match begun.get_mut(&request) {
                    Some((_, under_way)) if *under_way => *under_way = false,
                    _ => return Err(self.wrong(record, TraceFault::RequestUnknown { request })),
                }
            }
        }
        let left = begun.values().filter(|it| it.1).map(|it| it.0);
        match left.min_by_key(|record| record.index) {
            Some(record) => Err(self.wrong(
                record,
                TraceFault::RequestLeft {
                    request: record.request,
                },
            )),
            None => Ok(()),
        }
    }
}

/// Records of one call share all but the buffer, the peer and the request.
fn same_call(before: &TraceRecord, now: &TraceRecord) -> Result<(), TraceFault> {
    let family = |call: MpiCall| match call {
        MpiCall::AlltoallReceive => MpiCall::AlltoallSend,
        MpiCall::AlltoallvReceive => MpiCall::AlltoallvSend,
        MpiCall::SendrecvReceive => MpiCall::SendrecvSend,
        other => other,
    };
    let call = now.sequence;
    for (field, same) in [
        ("t_ns", before.at == now.at),
        ("comp_ns", before.computed == now.computed),
        ("stack", before.stack == now.stack),
        ("comm", before.comm == now.comm),
        ("kind", family(before.call) == family(now.call)),
    ] {
        if !same {
            return Err(TraceFault::Contradiction { call, field });
        }
    }
    Ok(())
}

/// The fields of the header.
struct TraceHeader {
    rank: u32,
    ranks: u32,
}

impl TraceHeader {
    fn parse(bytes: &[u8]) -> Result<Self, TraceFault> {
        let header = Fixed::take(&mut &bytes[..]).map_err(|_| TraceFault::NoHeader {
            bytes: bytes.len() as u64,
        })?;
        let [magic, size, rank, ranks, low, high, ..]: [u64; HEADER_BYTES / 8] = header;
        if magic != MAGIC {
            return Err(TraceFault::Magic { found: magic });
        }
        if size != RECORD_BYTES as u64 {
            return Err(TraceFault::RecordSize { found: size });
        }
        if ranks == 0 || ranks > u64::from(MAX_RANKS) {
            return Err(TraceFault::Ranks { ranks });
        }
        if rank >= ranks {
            return Err(TraceFault::Rank { rank, ranks });
        }
        if low > high {
            return Err(TraceFault::Executable { low, high });
        }
        // Both are below MAX_RANKS.
        Ok(Self {
            rank: rank as u32,
            ranks: ranks as u32,
        })
    }
}
