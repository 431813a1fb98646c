//! A process that outlives a launcher that is killed, to kill what the ranks had started.
//!
//! When the launcher dies by SIGKILL the kernel kills the ranks, for they asked
//! for it, but not what they forked: that goes to init. The guard is a fork of
//! the launcher which waits for the other end of a pipe to close. If the
//! launcher did not dismiss it first, it kills the ranks' process groups and
//! every process that has the job's identifier in its environment.
#![allow(
    unsafe_code,
    reason = "fork, in a process that is about to start others"
)]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

use super::processes;

/// The variable that tells the processes of a job from all others.
pub(super) const MARK: &str = "PMI_JOBID";

/// What the launcher sends in place of a rank's process to dismiss the guard.
const DISMISS: i32 = 0;

/// How often the guard looks again for processes that were being forked.
const ROUNDS: u32 = 20;

/// A running guard.
#[derive(Debug)]
pub(super) struct Guard {
    pid: Pid,
    lifeline: PipeWriter,
}

impl Guard {
    /// Starts the guard of `job`.
    pub(super) fn start(job: &str) -> io::Result<Guard> {
        let (reader, lifeline) = io::pipe()?;
        let mark = format!("{MARK}={job}");
        // SAFETY: the launcher has started no threads of its own by now, and
        // where a caller has, glibc makes its allocator usable in the child,
        // which uses nothing else that a lost thread could have held.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(lifeline);
                keep_watch(reader, &mark);
                // SAFETY: ends this process at once, without what the launcher
                // registered to be done at its own end.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                Ok(Guard { pid, lifeline })
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Gives a rank, which leads its process group, into its care.
    pub(super) fn watch(&mut self, rank: Pid) {
        // A guard that somebody killed leaves the job as it is.
        let _ = self.lifeline.write_all(&rank.as_raw_pid().to_ne_bytes());
    }

    /// Ends it without harm.
    pub(super) fn dismiss(mut self) {
        let _ = self.lifeline.write_all(&DISMISS.to_ne_bytes());
        drop(self.lifeline);
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        });
    }
}

fn keep_watch(mut lifeline: PipeReader, mark: &str) {
    // Apart from the terminal's signals, and holding none of the launcher's streams open.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"hydrant-guard");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
    let mut groups = Vec::new();
    let mut record = [0; size_of::<i32>()];
    while lifeline.read_exact(&mut record).is_ok() {
        match i32::from_ne_bytes(record) {
            DISMISS => return,
            pid => groups.extend(Pid::from_raw(pid)),
        }
    }
    for group in groups {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    // What was just being forked is seen in the next round.
    let mut empty_rounds = 0;
    for _ in 0..ROUNDS {
        let left = processes::with_variable(mark);
        for &pid in &left {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        empty_rounds = if left.is_empty() { empty_rounds + 1 } else { 0 };
        if empty_rounds == 2 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
