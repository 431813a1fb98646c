//! Puts, gets and accumulates of many runs in one call, for memory of a peer that is not mapped
//! here. Either each run is an operation of the network, with many in flight at once. Or the runs
//! are [packed](super::packed) into messages. The choice follows the [measured
//! times](crate::transfer::RunRoute).

use hydrant_conduit::{Remote, memory::Factor};

use super::{
    packed,
    unmapped::{ByteRun, MemoryName, Unmapped},
};
use crate::{
    Result,
    counters::Count,
    progress,
    transfer::{RunRoute, RunShape},
};

impl Unmapped<'_> {
    /// Puts runs of `data` in any order. The puts are remotely complete on return. The runs lie in
    /// `data` and in the memory.
    ///
    /// # Errors
    /// As [`put_each`](Self::put_each).
    pub(super) fn put(
        &self,
        data: &[u8],
        extent: (usize, usize),
        runs: impl Iterator<Item = ByteRun>,
    ) -> Result<()> {
        self.put_each(|run| &data[run.here..][..run.len], extent, runs)
    }

    /// As [`put`](Self::put), where `data` returns the bytes of each run.
    ///
    /// # Errors
    /// [`Error::InHandler`](crate::Error::InHandler), and the error of the first run that failed.
    pub(super) fn put_each<'d>(
        &self,
        data: impl Fn(&ByteRun) -> &'d [u8],
        (count, bytes): (usize, usize),
        runs: impl Iterator<Item = ByteRun>,
    ) -> Result<()> {
        let shape = RunShape {
            gets: false,
            count,
            bytes,
        };
        self.run_measured(shape, |route| match route {
            RunRoute::Packed => packed::put(self, data, runs),
            RunRoute::Pieces => {
                let pieces = runs.map(|run| (self.remote(run), data(&run)));
                self.transfer.write_all(self.rank, pieces)
            }
        })?;
        if let MemoryName::Exposed(_) = self.name {
            self.transfer.progress.conduit().notify(self.rank);
        }
        Ok(())
    }

    /// Gets runs into `data`, as [`put`](Self::put) puts them.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn get(
        &self,
        data: &mut [u8],
        (count, bytes): (usize, usize),
        runs: impl Iterator<Item = ByteRun>,
    ) -> Result<()> {
        let shape = RunShape {
            gets: true,
            count,
            bytes,
        };
        self.run_measured(shape, |route| match route {
            RunRoute::Packed => packed::get(self, runs, |run, bytes| {
                data[run.here..][..run.len].copy_from_slice(bytes);
            }),
            RunRoute::Pieces => {
                let pieces = runs.map(|run| (self.remote(run), run.here..run.here + run.len));
                self.transfer.read_all(self.rank, data, pieces)
            }
        })
    }

    /// Adds multiples of the elements of runs to elements in the memory, and returns when that is
    /// done. `data` returns the elements of each run. The owner adds, so no other rank adds to the
    /// same elements meanwhile.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn add<'d>(
        &self,
        data: impl Fn(&ByteRun) -> &'d [u8],
        runs: impl Iterator<Item = ByteRun>,
        factor: &Factor,
    ) -> Result<()> {
        progress::may_wait("an accumulate that goes through the network")?;
        packed::add(self, data, runs, factor)
    }

    /// Chooses a route for the runs, and records the time that it took.
    pub(super) fn run_measured(
        &self,
        shape: RunShape,
        act: impl FnOnce(RunRoute) -> Result<()>,
    ) -> Result<()> {
        let (progress, routes) = (&self.transfer.progress, &self.transfer.run_routes);
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
        // Peers that answer only now and then would unpack late, so the runs stay one-sided.
        if self.rank == progress.rank || !progress.peers_answer() {
            return act(RunRoute::Pieces);
        }
        let route = routes.choose(shape);
        let begun = progress.conduit().now();
        act(route)?;
        let time = progress.conduit().now().saturating_sub(begun);
        routes.record(shape, route, time);
        Ok(())
    }

    pub(super) fn remote(&self, run: ByteRun) -> Remote {
        Remote {
            key: self.at.key,
            offset: self.at.offset + run.there as u64,
        }
    }
}
