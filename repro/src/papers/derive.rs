//! Traces of more ranks than were recorded, of programs in which each rank does the same and
//! exchanges with all.
//!
//! Each rank of the derived job does the work of one recorded rank. An exchange of all with all
//! moves the same bytes in smaller parts, as the program itself divides its arrays. Computation is
//! divided likewise, or stays with each rank. Exchanges of a few bytes, a count for each peer, and
//! collectives without parts stay as they are.
//!
//! Messages of a few bytes between two ranks are left out. A program with larger ones cannot be
//! derived, because a trace does not say which of more ranks would talk to each other.

use hydrant_traces::trace::{self, MAGIC, MpiCall, RECORD_BYTES, RankTrace, Trace, TraceRecord};

/// The largest message, or part, that counts as a count and not as data.
const COUNT: u64 = 64;

/// An address above those that programs use.
const ELSEWHERE: u64 = 1 << 60;

/// The quantity that stays the same with more ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// The problem: each rank has a smaller part.
    Strong,
    /// The part of each rank.
    Weak,
}

/// The reason why there is no trace of more ranks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Underivable {
    /// The number is no multiple of the recorded number.
    #[error("a trace of {recorded} ranks makes none of {ranks}: that is no multiple")]
    Ranks {
        /// The ranks of the trace.
        recorded: u32,
        /// The ranks asked for.
        ranks: u32,
    },
    /// The trace has messages whose peers are not known.
    #[error(
        "rank {rank} sends or receives {bytes} bytes by {call:?}: its peer among more ranks is not known"
    )]
    Message {
        /// The rank.
        rank: u32,
        /// The bytes of the message.
        bytes: u64,
        /// The call.
        call: MpiCall,
    },
    /// The trace has an exchange among some of the ranks.
    #[error(
        "rank {rank} exchanges with {peers} of {ranks} ranks: their counterparts among more ranks are not known"
    )]
    Some {
        /// The rank.
        rank: u32,
        /// The number of peers in the exchange.
        peers: usize,
        /// The number of ranks.
        ranks: u32,
    },
    /// The result is no valid trace.
    #[error(transparent)]
    Trace(#[from] trace::Error),
}

/// Derives a trace of `ranks` ranks.
pub(super) fn derive(trace: &Trace, ranks: u32, scaling: Scaling) -> Result<Trace, Underivable> {
    let recorded = trace.ranks().len() as u32;
    if recorded == 0 || ranks == 0 || !ranks.is_multiple_of(recorded) {
        return Err(Underivable::Ranks { recorded, ranks });
    }
    let files = (0..ranks).map(|rank| {
        let source = &trace.ranks()[(rank % recorded) as usize];
        Derived::new(source, ranks, scaling).file(rank)
    });
    Ok(Trace::new(files.collect::<Result<_, _>>()?)?)
}

/// The trace file of a rank so far.
struct Derived<'a> {
    source: &'a RankTrace,
    ranks: u32,
    scaling: Scaling,
    bytes: Vec<u8>,
    calls: u32,
}

impl<'a> Derived<'a> {
    fn new(source: &'a RankTrace, ranks: u32, scaling: Scaling) -> Self {
        Self {
            source,
            ranks,
            scaling,
            bytes: Vec::new(),
            calls: 0,
        }
    }

    /// The derived ranks for each recorded rank.
    fn times(&self) -> u64 {
        u64::from(self.ranks / self.source.ranks())
    }

    fn file(mut self, rank: u32) -> Result<RankTrace, Underivable> {
        let header = [
            MAGIC,
            RECORD_BYTES as u64,
            u64::from(rank),
            u64::from(self.ranks),
            0,
            0,
            0,
            0,
        ];
        self.bytes
            .extend(header.iter().flat_map(|it| it.to_le_bytes()));
        let source = self.source;
        for call in (source.records()).chunk_by(|a, b| a.sequence == b.sequence) {
            self.call(call)?;
        }
        let name = format!("{} as rank {rank} of {}", source.file(), self.ranks);
        Ok(RankTrace::parse(&name, &self.bytes)?)
    }

    fn call(&mut self, records: &[TraceRecord]) -> Result<(), Underivable> {
        let Some(first) = records.first() else {
            return Ok(());
        };
        let is_message = first.call.sends() || first.call.receives() || first.call.completes();
        if first.call.is_exchange() {
            self.exchange(records, true)?;
            self.exchange(records, false)?;
        } else if is_message {
            let data = records.iter().find(|it| it.bytes > COUNT);
            return match data {
                Some(it) => Err(Underivable::Message {
                    rank: self.source.rank(),
                    bytes: it.bytes,
                    call: it.call,
                }),
                None => Ok(()),
            };
        } else {
            records.iter().for_each(|it| self.write(it));
        }
        self.calls += 1;
        Ok(())
    }

    /// The parts of an exchange that are sent, or received. Each is divided among the derived ranks
    /// of its peer. The parts are in the order of the peers, from the address of the recorded ones.
    fn exchange(&mut self, records: &[TraceRecord], sends: bool) -> Result<(), Underivable> {
        let mut parts: Vec<&TraceRecord> = (records.iter())
            .filter(|it| it.call.sends() == sends)
            .collect();
        parts.sort_by_key(|it| it.peer);
        if parts.len() != self.source.ranks() as usize {
            return Err(Underivable::Some {
                rank: self.source.rank(),
                peers: parts.len(),
                ranks: self.source.ranks(),
            });
        }
        let used = parts.iter().filter(|it| it.bytes > 0).map(|it| it.addr);
        let mut addr = used.min().unwrap_or(0);
        let times = self.times();
        if parts.iter().all(|it| it.bytes <= COUNT) {
            // More counts take more memory than the program has, so they go to an unused range, as
            // far apart as they need.
            addr = ELSEWHERE + addr * times;
        }
        let shrunk = match self.scaling {
            Scaling::Strong => times * times,
            Scaling::Weak => times,
        };
        for peer in 0..self.ranks {
            let part = parts[(peer % self.source.ranks()) as usize];
            let bytes = match part.bytes {
                count if count <= COUNT => count,
                // Elements are not split.
                data => data / shrunk / 4 * 4,
            };
            self.write(&TraceRecord {
                peer: peer as i32,
                addr,
                bytes,
                ..*part
            });
            addr += bytes;
        }
        Ok(())
    }

    fn write(&mut self, record: &TraceRecord) {
        let computed = match self.scaling {
            Scaling::Strong => record.computed.0 / self.times(),
            Scaling::Weak => record.computed.0,
        };
        let words = [
            // The other of the two clocks is not derived.
            computed,
            0,
            record.addr,
            record.bytes,
            record.stack,
            record.request,
        ];
        self.bytes
            .extend(words.iter().flat_map(|it| it.to_le_bytes()));
        for word in [record.peer, record.tag] {
            self.bytes.extend(word.to_le_bytes());
        }
        for word in [record.call as u16, record.comm] {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(self.calls.to_le_bytes());
        self.bytes.extend(computed.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::Traces;
    use super::*;

    fn sent(trace: &Trace, rank: usize) -> u64 {
        let records = trace.ranks()[rank].records().iter();
        records
            .filter(|it| it.call.sends())
            .map(|it| it.bytes)
            .sum()
    }

    #[test]
    fn more_ranks_exchange_what_fewer_did() {
        let traces = Traces::own().unwrap();
        let recorded = &traces.find("ft", "S").expect("it is there").trace;
        let strong = derive(recorded, 16, Scaling::Strong).unwrap();
        assert_eq!(strong.ranks().len(), 16);
        for rank in 0..16 {
            assert_eq!(4 * sent(&strong, rank), sent(recorded, rank % 4));
        }
        let weak = derive(recorded, 16, Scaling::Weak).unwrap();
        assert_eq!(sent(&weak, 7), sent(recorded, 3));
        let computed = |trace: &Trace| trace.ranks()[1].records().last().unwrap().computed.0;
        assert_eq!(computed(&weak), computed(recorded));
        assert_eq!(computed(&strong), computed(recorded) / 4);
    }

    #[test]
    fn counts_of_more_peers_have_memory_of_their_own() {
        let traces = Traces::own().unwrap();
        let recorded = &traces.find("is", "A").expect("it is there").trace;
        let derived = derive(recorded, 64, Scaling::Strong).unwrap();
        // The check finds messages in flight that share bytes.
        assert!(crate::papers::replays::script(&derived, "connectx").is_ok());
    }

    #[test]
    fn a_trace_with_unknown_peers_is_not_derived() {
        let traces = Traces::own().unwrap();
        let lu = &traces.find("lu", "S").expect("it is there").trace;
        let refused = derive(lu, 16, Scaling::Weak).unwrap_err();
        assert!(
            refused.to_string().contains("among more ranks"),
            "{refused}"
        );
        let ft = &traces.find("ft", "S").expect("it is there").trace;
        let refused = derive(ft, 6, Scaling::Weak).unwrap_err();
        assert!(refused.to_string().contains("no multiple"), "{refused}");
    }
}
