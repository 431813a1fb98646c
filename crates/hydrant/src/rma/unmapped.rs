//! Many runs of a peer's memory that is not mapped here, in one call. Each is an operation of the
//! network, many of them under way at once, or they are [packed](super::packed) into messages,
//! whichever [took less time](crate::transfer::Way) before.

use hydrant_conduit::{Remote, memory::Factor};

use super::packed;
use crate::{
    Rank, Result,
    counters::Count,
    memory::Block,
    message::Calls,
    progress,
    transfer::{Shape, Transfer, Way},
};

/// Bytes of a peer's memory, from its beginning on, and of a buffer here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) there: usize,
    pub(super) here: usize,
    pub(super) len: usize,
}

/// Memory that is reached through the network, as what is not mapped here is.
#[derive(Clone, Copy)]
pub(super) struct Unmapped<'a> {
    pub(super) transfer: &'a Transfer,
    pub(super) calls: &'a Calls,
    pub(super) rank: Rank,
    /// Where it begins, for the network.
    pub(super) at: Remote,
    /// What it is called, for the peer.
    pub(super) name: Name<'a>,
}

/// What a peer knows memory by.
#[derive(Clone, Copy)]
pub(super) enum Name<'a> {
    Allocation(&'a Block),
    /// An exposed buffer, by its key.
    Exposed(u64),
}

impl Unmapped<'_> {
    /// Puts runs of `data`, which lie in there and in the memory; remotely complete on return. In no
    /// order.
    ///
    /// # Errors
    /// As [`put_each`](Self::put_each).
    pub(super) fn put(
        &self,
        data: &[u8],
        extent: (usize, usize),
        runs: impl Iterator<Item = Run>,
    ) -> Result<()> {
        self.put_each(|run| &data[run.here..][..run.len], extent, runs)
    }

    /// As [`put`](Self::put), for bytes given run by run.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler), and the error of the first run that failed.
    pub(super) fn put_each<'d>(
        &self,
        data: impl Fn(&Run) -> &'d [u8],
        (count, bytes): (usize, usize),
        runs: impl Iterator<Item = Run>,
    ) -> Result<()> {
        let shape = Shape {
            gets: false,
            count,
            bytes,
        };
        self.measured(shape, |way| match way {
            Way::Packed => packed::put(self, data, runs),
            Way::Pieces => {
                let pieces = runs.map(|run| (self.place(run), data(&run)));
                self.transfer.write_all(self.rank, pieces)
            }
        })?;
        if let Name::Exposed(_) = self.name {
            self.transfer.progress.conduit().notify(self.rank);
        }
        Ok(())
    }

    /// Gets runs into `data`, as [`put`](Self::put) puts them.
    ///
    /// # Errors
    /// As there.
    pub(super) fn get(
        &self,
        data: &mut [u8],
        (count, bytes): (usize, usize),
        runs: impl Iterator<Item = Run>,
    ) -> Result<()> {
        let shape = Shape {
            gets: true,
            count,
            bytes,
        };
        self.measured(shape, |way| match way {
            Way::Packed => packed::get(self, runs, |run, bytes| {
                data[run.here..][..run.len].copy_from_slice(bytes);
            }),
            Way::Pieces => {
                let pieces = runs.map(|run| (self.place(run), run.here..run.here + run.len));
                self.transfer.read_all(self.rank, data, pieces)
            }
        })
    }

    /// Adds multiples of the elements of runs to elements in the memory; done on return. `data` gives the elements of
    /// each run. The owner does the addition, so that no other rank adds to them meanwhile.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn add<'d>(
        &self,
        data: impl Fn(&Run) -> &'d [u8],
        runs: impl Iterator<Item = Run>,
        factor: &Factor,
    ) -> Result<()> {
        progress::may_wait("an accumulate that goes through the network")?;
        packed::add(self, data, runs, factor)
    }

    /// Chooses a way, and notes what it took.
    pub(super) fn measured(&self, shape: Shape, act: impl FnOnce(Way) -> Result<()>) -> Result<()> {
        let (progress, ways) = (&self.transfer.progress, &self.transfer.ways);
        let (calls, bytes, what) = if shape.gets {
            (
                Count::Gets,
                Count::GetBytes,
                "a get that goes through the network",
            )
        } else {
            (
                Count::Puts,
                Count::PutBytes,
                "a put that goes through the network",
            )
        };
        progress::may_wait(what)?;
        (progress.tally).add_each([(calls, shape.count as u64), (bytes, shape.bytes as u64)]);
        // Nobody unpacks where peers answer only now and then: what is one-sided stays so.
        if self.rank == progress.rank || !progress.peers_answer() {
            return act(Way::Pieces);
        }
        let way = ways.choose(shape);
        let begun = progress.conduit().now();
        act(way)?;
        let time = progress.conduit().now().saturating_sub(begun);
        ways.took(shape, way, time);
        Ok(())
    }

    pub(super) fn place(&self, run: Run) -> Remote {
        Remote {
            key: self.at.key,
            offset: self.at.offset + run.there as u64,
        }
    }
}
