//! A short job that puts and gets between each pair of its ranks.

use std::time::Instant;

use hydrant::{Job, Rank, Symmetric};
use serde::{Deserialize, Serialize};

/// The accesses of each kind that are timed.
const TIMED: usize = 32;

/// The bytes of a rank's port, at most.
const PORT: usize = 256;

/// The outcome of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PairsReport {
    /// The conduit of the job.
    pub(crate) conduit: String,
    /// The port of each rank.
    pub(crate) ports: Vec<String>,
    /// The median time of a put and a get of 8 bytes in nanoseconds, by rank and peer.
    pub(crate) times: Vec<Vec<[u64; 2]>>,
    /// The reason why a rank's host makes no connection to a peer's, by rank and peer.
    pub(crate) blocked: Vec<Vec<Option<String>>>,
}

/// Runs one rank. Rank 0 prints the report.
pub(super) fn run() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let report = pairs(job)?;
        match report {
            Some(report) => super::print(&report).map_err(hydrant::Error::other),
            None => Ok(()),
        }
    })
}

/// Puts and gets between all ranks, one rank after the other. Returns the report on rank 0.
fn pairs(job: &Job) -> hydrant::Result<Option<PairsReport>> {
    let ranks = job.size() as usize;
    let words = job.alloc::<u64>(ranks)?;
    let times = job.alloc::<u64>(2 * ranks * ranks)?;
    let ports = job.alloc::<u8>(PORT * ranks)?;
    let own = job.rank().index();
    job.barrier()?;
    let mut row = vec![0; 2 * ranks];
    for turn in job.ranks() {
        if turn == job.rank() {
            for peer in job.ranks().filter(|peer| *peer != turn) {
                let at = 2 * peer.index();
                row[at..at + 2].copy_from_slice(&pair(&words, own, peer)?);
            }
        }
        job.barrier()?;
    }
    times.put(Rank(0), 2 * ranks * own, &row)?;
    let mut port = job.port().into_bytes();
    port.resize(PORT, 0);
    ports.put(Rank(0), PORT * own, &port)?;
    let blocked = super::ways::blocked(job)?;
    job.barrier()?;
    if job.rank() != Rank(0) {
        return Ok(None);
    }
    let mut all_times = vec![0; 2 * ranks * ranks];
    times.local()?.read(0, &mut all_times)?;
    let mut all_ports = vec![0; PORT * ranks];
    ports.local()?.read(0, &mut all_ports)?;
    let port = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.trim_end_matches('\0').to_owned()
    };
    let row = |row: &[u64]| row.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    Ok(Some(PairsReport {
        conduit: job.conduit().name.to_owned(),
        ports: all_ports.chunks(PORT).map(port).collect(),
        times: all_times.chunks(2 * ranks).map(row).collect(),
        blocked,
    }))
}

/// Puts words to the peer and gets them back. Returns the median times.
fn pair(words: &Symmetric<u64>, own: usize, peer: Rank) -> hydrant::Result<[u64; 2]> {
    let mut puts = Vec::with_capacity(TIMED);
    let mut gets = Vec::with_capacity(TIMED);
    for turn in 0..TIMED as u64 {
        let sent = (turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ own as u64;
        let since = Instant::now();
        words.put(peer, own, &[sent])?;
        puts.push(since.elapsed().as_nanos() as u64);
        let mut got = [0];
        let since = Instant::now();
        words.get(peer, own, &mut got)?;
        gets.push(since.elapsed().as_nanos() as u64);
        if got != [sent] {
            return Err(hydrant::Error::other(format!(
                "rank {own} put {sent:#x} to rank {} and got {:#x}",
                peer.0, got[0]
            )));
        }
    }
    Ok([puts, gets].map(|mut times| {
        times.sort_unstable();
        times[TIMED / 2]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_has_its_times() {
        let reports = Job::builder().unwrap().run_local(3, pairs);
        let report = reports.into_iter().next().unwrap().unwrap().unwrap();
        assert_eq!(report.ports, [""; 3]);
        for (rank, row) in report.times.iter().enumerate() {
            let timed: Vec<bool> = row.iter().map(|[put, get]| put + get > 0).collect();
            let expected: Vec<bool> = (0..3).map(|peer| peer != rank).collect();
            assert_eq!(timed, expected);
        }
    }
}
