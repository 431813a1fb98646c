//! Traces of more ranks than were recorded, of programs in which each rank does the same and exchanges with all.
//!
//! Each rank of the derived job does what one of the recorded ranks did. An exchange of all with all moves the same
//! bytes in smaller parts, as the program itself divides its arrays; computing is divided likewise, or stays with
//! each rank. What is exchanged in a few bytes, a count for each peer, stays as it is. Collectives without parts
//! stay, too. Messages between two ranks are left out where they are of a few bytes; a program that has others is
//! not derived: who talks to whom among more ranks is nothing that a trace says.

use hydrant_foresight::trace::{self, MAGIC, MpiCall, RECORD_BYTES, RankTrace, Trace, TraceRecord};

/// Bytes of a message, or of a part, that is a count and no data.
const COUNT: u64 = 64;

/// An address above all that programs use.
const ELSEWHERE: u64 = 1 << 60;

/// What stays the same where ranks are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// The problem: each rank has less of it.
    Strong,
    /// The part of each rank.
    Weak,
}

/// Why there is no trace of more ranks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Underivable {
    /// The number is no multiple.
    #[error("a trace of {recorded} ranks makes none of {ranks}: that is no multiple")]
    Ranks {
        /// Those of the trace.
        recorded: u32,
        /// Those asked for.
        ranks: u32,
    },
    /// It has messages whose peers are not known.
    #[error(
        "rank {rank} sends or receives {bytes} bytes by {call:?}: to whom it would among more ranks is not known"
    )]
    Message {
        /// Whose.
        rank: u32,
        /// How many.
        bytes: u64,
        /// By what.
        call: MpiCall,
    },
    /// It has an exchange of some of the ranks.
    #[error(
        "rank {rank} exchanges with {peers} of {ranks} ranks: who these would be among more is not known"
    )]
    Some {
        /// Whose.
        rank: u32,
        /// With how many.
        peers: usize,
        /// Of how many.
        ranks: u32,
    },
    /// What came out is no trace.
    #[error(transparent)]
    Trace(#[from] trace::Error),
}

/// A trace of as many ranks.
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

/// The file of a rank, as far as it is written.
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

    /// How many ranks there are for each that was recorded.
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

    /// The parts of an exchange that are sent, or received: each in as many as there are ranks for its peer, in the
    /// order of the peers, from where the recorded ones began.
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
            // More counts take more memory than was there: they go where nothing else is, as far apart as they need.
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
                // Elements stay whole.
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
            // Of the two clocks the other is not derived.
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
        // That finds messages under way that share their bytes.
        assert!(crate::papers::replays::script(&derived, "connectx").is_ok());
    }

    #[test]
    fn what_peers_talk_to_is_not_guessed() {
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
