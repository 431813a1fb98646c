//! Ending what descends from the launcher, whatever it did to get away.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::processes;
use super::start::Rank;

/// How long what ranks left behind may take to heed SIGTERM.
const LEFT_GRACE: Duration = Duration::from_millis(500);

/// How long a process may take to die of SIGKILL before it is left to itself: one
/// that belongs to another user, or is stuck in the kernel, never does.
const GIVE_UP: Duration = Duration::from_secs(5);

/// How often the launcher looks for what is left behind, once all ranks have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Kills the ranks that run and everything they started.
pub(super) fn kill_all(ranks: &[Rank], guard: Pid) {
    for rank in ranks.iter().filter(|rank| rank.running) {
        let _ = kill_process_group(rank.pid, Signal::KILL);
    }
    end_descendants(guard, false);
}

/// Ends every process that descends from this one, but for the guard; gives how many there were.
pub(super) fn end_descendants(guard: Pid, gently: bool) -> usize {
    let begun = Instant::now();
    let mut seen: Vec<Pid> = Vec::new();
    loop {
        // Ranks that are killed here are reaped by the loop, which reads their endings.
        let left = processes::descendants(getpid(), guard);
        if left.is_empty() || begun.elapsed() > GIVE_UP {
            return seen.len();
        }
        let kill = !gently || begun.elapsed() > LEFT_GRACE;
        for pid in left {
            let new = !seen.contains(&pid);
            if new {
                seen.push(pid);
            }
            if kill {
                let _ = kill_process(pid, Signal::KILL);
            } else if new {
                let _ = kill_process(pid, Signal::TERM);
                let _ = kill_process(pid, Signal::CONT);
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}
