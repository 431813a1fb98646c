//! Ranks that are children of this process.

use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};

use super::Ending;
use super::connection::{READ, ReadOutcome};
use super::group::{BRIEFLY, JobGroup};
use super::guard::Guard;
use super::kin::Kin;
use super::output::OutputThreads;
use super::processes::reap_children;
use super::rank_process::RankProcess;
use super::signals::Signals;
use super::supervise::{Behind, Finished, Hands, Heard, HostFailure, Left, Whom};
use super::sweep::{Stray, end_leftovers, kill_all};

/// More bytes than a socket holds.
const SOCKET: usize = 256 * 1024;

/// The ranks of this host.
pub(super) struct LocalRanks {
    ranks: Vec<RankProcess>,
    /// The number of the first rank.
    first: u32,
    guard: Guard,
    group: Option<Arc<JobGroup>>,
    kin: Kin,
    output: Option<OutputThreads>,
    /// Indices of the ranks with something to read.
    ready: Vec<usize>,
    /// The processes that could not be killed.
    strays: Vec<Stray>,
    /// The processes of ranks that could not be killed. They were reported and count as ended.
    given_up: Vec<Pid>,
}

impl LocalRanks {
    pub(super) fn new(
        ranks: Vec<RankProcess>,
        first: u32,
        (guard, group, kin): (Guard, Option<Arc<JobGroup>>, Kin),
        output: Option<OutputThreads>,
    ) -> LocalRanks {
        LocalRanks {
            ranks,
            first,
            guard,
            group,
            kin,
            output,
            ready: Vec::new(),
            strays: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Returns the descriptors of the ranks' connections to poll, each with the rank's index.
    pub(super) fn sources(&self) -> impl Iterator<Item = (usize, PollFd<'_>)> {
        let connections = self.ranks.iter().enumerate();
        connections.filter_map(|(index, rank)| {
            let connection = rank.connection.as_ref()?;
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.may_read());
            flags.set(PollFlags::OUT, connection.wants_to_send());
            let fd = PollFd::from_borrowed_fd(connection.fd(), flags);
            Some((index, fd))
        })
    }

    /// Notes the ranks with something to read.
    pub(super) fn speaking(&mut self, ready: Vec<usize>) {
        self.ready = ready;
    }

    /// Ends the processes that the ranks left behind.
    pub(super) fn sweep(self, left: Left) -> (Behind, Option<OutputThreads>) {
        let gently = left == Left::Ended;
        let swept = end_leftovers(&self.ranks, self.guard.pid(), &self.kin, gently);
        let (mut ended, mut strays) = (swept.ended, swept.strays);
        if let Some(group) = &self.group {
            // The processes still in the group could not be seen, or only the group can kill them.
            let left = group.count();
            if group.end(BRIEFLY) {
                self.guard.dismiss();
            }
            strays.retain(Stray::is_alive);
            ended += left.saturating_sub(strays.len());
        } else {
            self.guard.dismiss();
        }
        strays.retain(|stray| !self.given_up.contains(&stray.pid()));
        let strays = strays.iter().map(Stray::to_string).collect();
        (Behind { ended, strays }, self.output)
    }

    fn at(&mut self, rank: u32) -> Option<&mut RankProcess> {
        self.ranks.get_mut(rank.checked_sub(self.first)? as usize)
    }
}

impl Hands for LocalRanks {
    fn wait(&mut self, signals: &Signals, until: Option<Instant>) {
        let (indices, mut fds): (Vec<usize>, Vec<_>) = self.sources().unzip();
        fds.push(PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // After an interrupted or refused wait, the loop only runs once more.
        let woken = poll(&mut fds, left.as_ref()).is_ok();
        let ready = indices.into_iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| woken && !fd.revents().is_empty());
        self.ready = ready.map(|(index, _)| index).collect();
    }

    fn take_heard(&mut self, whom: Whom) -> Vec<(u32, Heard)> {
        let ready = std::mem::take(&mut self.ready);
        // The last lines of a rank that ended are in its socket. A rank that writes faster than the
        // launcher reads does not delay the others.
        let (indices, reads) = match whom {
            Whom::Ready => (ready, 1),
            Whom::All => ((0..self.ranks.len()).collect(), SOCKET / READ),
        };
        let mut heard = Vec::new();
        for index in indices {
            let rank = self.first + index as u32;
            let Some(connection) = &mut self.ranks[index].connection else {
                continue;
            };
            connection.flush();
            let mut lines = Vec::new();
            let reads = if connection.may_read() { reads } else { 0 };
            let received = (0..reads)
                .map(|_| connection.receive(&mut lines))
                .find(|received| *received != Ok(ReadOutcome::Something));
            heard.extend(lines.into_iter().map(|line| (rank, Heard::Line(line))));
            match received {
                None | Some(Ok(ReadOutcome::Something | ReadOutcome::Nothing)) => {}
                Some(Ok(ReadOutcome::End)) => heard.push((rank, Heard::Closed)),
                Some(Err(why)) => heard.push((rank, Heard::Wrong(why))),
            }
        }
        heard
    }

    fn take_ended(&mut self) -> Vec<(u32, Ending)> {
        let mut ended = Vec::new();
        for (pid, status) in reap_children() {
            let found = (self.ranks.iter()).position(|rank| rank.running && rank.pid == pid);
            let (Some(index), Some(ending)) = (found, ending(status)) else {
                continue;
            };
            self.ranks[index].running = false;
            ended.push((self.first + index as u32, ending));
        }
        ended
    }

    fn take_failed(&mut self) -> Vec<HostFailure> {
        Vec::new()
    }

    fn send(&mut self, rank: u32, line: &str) -> Result<(), String> {
        let connection = self.at(rank).and_then(|rank| rank.connection.as_mut());
        connection.map_or(Ok(()), |connection| connection.send(line))
    }

    fn hang_up(&mut self, rank: u32) {
        if let Some(rank) = self.at(rank) {
            rank.connection = None;
        }
    }

    fn running(&self) -> Vec<u32> {
        let ranks = (self.first..).zip(&self.ranks);
        ranks
            .filter(|(_, rank)| rank.running)
            .map(|(number, _)| number)
            .collect()
    }

    fn signal(&mut self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.running) {
            let _ = kill_process_group(rank.pid, signal);
        }
    }

    fn kill(&mut self) {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.strays = kill_all(&self.ranks, self.guard.pid(), &self.kin).strays;
    }

    fn give_up(&mut self) -> Vec<(u32, String)> {
        let mut given_up = Vec::new();
        for (number, rank) in (self.first..).zip(&mut self.ranks) {
            if std::mem::take(&mut rank.running) {
                let known = self.strays.iter().find(|stray| stray.pid() == rank.pid);
                let why = known.map_or_else(
                    || {
                        format!(
                            "process {} was killed and is still alive",
                            rank.pid.as_raw_pid()
                        )
                    },
                    Stray::to_string,
                );
                self.given_up.push(rank.pid);
                given_up.push((number, why));
            }
        }
        given_up
    }

    fn note_resumed(&mut self) {}

    fn finish(self, left: Left, signals: Signals) -> Finished {
        let (behind, output) = self.sweep(left);
        // From here on a signal ends the launcher, even if nobody reads its output any more.
        drop(signals);
        Finished {
            behind,
            written: output.map_or(Ok(()), OutputThreads::finish),
        }
    }
}

pub(super) fn ending(status: WaitStatus) -> Option<Ending> {
    let exited = status
        .exit_status()
        .map(|status| Ending::Exited((status & 0xff) as u8));
    exited.or_else(|| {
        status
            .terminating_signal()
            .map(|signal| Ending::Killed(signal as u8))
    })
}
