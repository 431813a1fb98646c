//! Ends all descendants of the launcher, even those that left their session.

use std::collections::HashMap;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::kin::Kin;
use super::processes::{Process, reap_children};
use super::rank_process::RankProcess;

/// The time for processes left behind to end after SIGTERM.
const LEFT_GRACE: Duration = Duration::from_millis(500);

/// The time for a process to die after SIGKILL before it is given up. A process that is stuck in
/// the kernel never dies.
pub(super) const GIVE_UP: Duration = Duration::from_secs(5);

/// The pause between two checks for processes left behind, after all ranks have ended.
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// A process that could not be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    process: Process,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// The process belongs to another user.
    Refused(Option<u32>),
    /// The process survived SIGKILL.
    Stuck,
}

impl Stray {
    pub(super) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns true if the process is still alive.
    pub(super) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }
}

impl fmt::Display for Stray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid().as_raw_pid();
        match self.why {
            Why::Refused(Some(user)) => write!(
                f,
                "process {pid} runs as user {user}, whose processes this user may not end, and is still alive"
            ),
            Why::Refused(None) => {
                write!(
                    f,
                    "process {pid} may not be ended by this user, and is still alive"
                )
            }
            Why::Stuck => write!(
                f,
                "process {pid} did not die of SIGKILL in {} s; the kernel holds it, in a system call \
                 that does not return",
                GIVE_UP.as_secs()
            ),
        }
    }
}

/// The result of ending the descendants of this process.
#[derive(Debug, Default)]
pub(super) struct SweepOutcome {
    /// The number of processes that have ended.
    pub(super) ended: usize,
    /// The processes that are still alive.
    pub(super) strays: Vec<Stray>,
}

/// Kills the running ranks and everything they started.
pub(super) fn kill_all(ranks: &[RankProcess], guard: Pid, kin: &Kin) -> SweepOutcome {
    for rank in ranks {
        if rank.running {
            let _ = kill_process_group(rank.pid, Signal::KILL);
        } else if kin.may_be_hidden() {
            rank.signal_group(libc::SIGKILL);
        }
    }
    end_descendants(ranks, guard, kin, false)
}

/// Ends all processes that the ended ranks left behind.
pub(super) fn end_leftovers(
    ranks: &[RankProcess],
    guard: Pid,
    kin: &Kin,
    gently: bool,
) -> SweepOutcome {
    let mut swept = end_descendants(ranks, guard, kin, gently);
    if kin.may_be_hidden() {
        swept.ended += end_groups(ranks, gently);
    }
    swept
}

/// Ends the process groups that ranks led. Returns the number of groups that still had a process.
fn end_groups(ranks: &[RankProcess], gently: bool) -> usize {
    let begun = Instant::now();
    let mut ended = None;
    loop {
        // A dead leader that is not reaped still belongs to its group.
        reap_children();
        let left: Vec<&RankProcess> = (ranks.iter()).filter(|rank| rank.signal_group(0)).collect();
        let new = ended.is_none();
        let ended = *ended.get_or_insert(left.len());
        if left.is_empty() || begun.elapsed() > GIVE_UP {
            return ended - left.len();
        }
        let kill = !gently || begun.elapsed() > LEFT_GRACE;
        for rank in left {
            if kill {
                rank.signal_group(libc::SIGKILL);
            } else if new {
                rank.signal_group(libc::SIGTERM);
                rank.signal_group(libc::SIGCONT);
            }
        }
        thread::sleep(POLL_PAUSE);
    }
}

/// Ends every visible process of the job that descends from this process, except the guard.
fn end_descendants(ranks: &[RankProcess], guard: Pid, kin: &Kin, gently: bool) -> SweepOutcome {
    let begun = Instant::now();
    // Every process seen, and the reason why it cannot be ended.
    let mut seen: HashMap<Process, Option<Stray>> = HashMap::new();
    loop {
        // The loop reaps ranks that are killed here, and reads their endings.
        let left = kin.living(guard, |child| {
            seen.contains_key(&child) || ranks.iter().any(|rank| rank.is(child))
        });
        let kill = !gently || begun.elapsed() > LEFT_GRACE;
        let given_up = begun.elapsed() > GIVE_UP;
        let mut waiting = false;
        for process in left.iter().copied() {
            let new = !seen.contains_key(&process);
            let stray = seen.entry(process).or_default();
            let sent = match (kill, new) {
                (true, _) => process.signal(Signal::KILL),
                (false, true) => {
                    let sent = process.signal(Signal::TERM);
                    let _ = process.signal(Signal::CONT);
                    sent
                }
                (false, false) => Ok(()),
            };
            if sent == Err(Errno::PERM) {
                let why = Why::Refused(process.user());
                *stray = Some(Stray { process, why });
            } else if given_up {
                let why = Why::Stuck;
                stray.get_or_insert(Stray { process, why });
            }
            waiting |= stray.is_none();
        }
        if !waiting {
            let all = seen.len();
            seen.retain(|process, _| left.contains(process));
            let strays: Vec<Stray> = seen.into_values().flatten().collect();
            let ended = all - strays.len();
            return SweepOutcome { ended, strays };
        }
        thread::sleep(POLL_PAUSE);
    }
}
