//! The guard: a process that outlives a killed launcher and ends the job's processes.
//!
//! When SIGKILL ends the launcher, the kernel kills the ranks, which asked for that. Processes that
//! the ranks forked live on as children of init. The guard is a fork of the launcher. It waits
//! until the other end of a socket closes. Unless the launcher dismissed it before, the guard then
//! kills the ranks' process groups and the job's control group. It also kills every process with
//! the job's identifier in its environment.
//!
//! Each leader of a process group enters the guard's care before its program begins, and sends a
//! descriptor of itself. A process id may be reused after its process is gone. A descriptor never
//! is.
#![allow(
    unsafe_code,
    reason = "fork, in a process that is about to start others"
)]

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open};

use super::group::{JobGroup, PATIENTLY};
use super::leader::Leader;
use super::processes;

/// The variable whose value marks the processes of a job.
pub(super) const MARK: &str = "PMI_JOBID";

/// The launcher sends this instead of a process id to dismiss the guard.
const DISMISS: i32 = 0;

/// The guard sends this once signals to the launcher's process group no longer reach it.
const READY: [u8; 1] = [1];

/// The number of rounds in which the guard looks again for processes that were being forked.
const ROUNDS: u32 = 20;

/// The pause between two checks whether the remote shells have ended.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// The processes that a guard ends.
pub(super) enum GuardCharge {
    /// The ranks of this job and all that they started, at once.
    Ranks(String, Option<Arc<JobGroup>>),
    /// Remote shells. Their agents have ranks to end, so the shells get this long to end by
    /// themselves.
    Shells(Duration),
}

/// A running guard.
pub(super) struct Guard {
    pid: Pid,
    care: Arc<Care>,
}

/// The socket through which processes enter a guard's care.
#[derive(Debug)]
pub(super) struct Care(OwnedFd);

impl Care {
    /// Puts the calling process, which leads its process group, under the guard's care. Safe to
    /// call between fork and exec.
    pub(super) fn enter(&self) {
        let myself = getpid();
        if let Ok(handle) = pidfd_open(myself, PidfdFlags::empty()) {
            self.send(myself.as_raw_pid(), &[handle.as_fd()]);
        }
    }

    fn send(&self, number: i32, handles: &[std::os::fd::BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !handles.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(handles));
        }
        let bytes = number.to_ne_bytes();
        // A dead guard does not affect the job.
        let _ = rustix::io::retry_on_intr(|| {
            sendmsg(
                &self.0,
                &[IoSlice::new(&bytes)],
                &mut ancillary,
                SendFlags::NOSIGNAL,
            )
        });
    }
}

impl Guard {
    /// Starts a guard, and waits until it has left the launcher's process group. Resources made for
    /// a job before that would outlive both, if somebody killed the launcher's process group.
    pub(super) fn start(charge: GuardCharge) -> io::Result<Guard> {
        let (theirs, ours) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: the launcher has started no threads of its own so far, except some that only
        // wait. If a caller has threads, glibc makes its allocator usable in the child. The child
        // uses nothing else that a lost thread could have locked.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                keep_watch(&theirs, &charge);
                // SAFETY: the call ends this process at once, without the exit handlers that the
                // launcher registered.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
                drop(theirs);
                let mut ready = [0; READY.len()];
                let read = rustix::io::retry_on_intr(|| rustix::io::read(&ours, &mut ready))?;
                if read != READY.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let care = Arc::new(Care(ours));
                Ok(Guard { pid, care })
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns the socket through which processes enter the guard's care.
    pub(super) fn care(&self) -> Arc<Care> {
        Arc::clone(&self.care)
    }

    /// Ends the guard without harm to the job.
    pub(super) fn dismiss(self) {
        self.care.send(DISMISS, &[]);
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        });
    }
}

fn keep_watch(launcher: &OwnedFd, charge: &GuardCharge) {
    // The guard gets none of the terminal's signals, and holds none of the launcher's streams open.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"hydrant-guard");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null.as_fd());
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
        let _ = rustix::stdio::dup2_stderr(null.as_fd());
    }
    let _ = rustix::io::write(launcher, &READY);
    let mut leaders = Vec::new();
    loop {
        match receive(launcher) {
            Some((DISMISS, _)) => return,
            Some((number, handle)) => leaders.extend(
                Pid::from_raw(number)
                    .zip(handle)
                    .map(|(pid, handle)| Leader::from_handle(pid, handle)),
            ),
            None => break,
        }
    }
    match charge {
        GuardCharge::Shells(grace) => end_shells(&leaders, *grace),
        GuardCharge::Ranks(job, group) => end_ranks(&leaders, job, group.as_deref()),
    }
}

/// Returns the next message of the launcher or its children. `None` when all are gone.
fn receive(launcher: &OwnedFd) -> Option<(i32, Option<OwnedFd>)> {
    let mut number = [0; size_of::<i32>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut number)];
        recvmsg(launcher, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    if received.ok()?.bytes != size_of::<i32>() {
        return None;
    }
    let handle = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handles) => handles.next(),
        _ => None,
    });
    Some((i32::from_ne_bytes(number), handle))
}

fn end_shells(leaders: &[Leader], grace: Duration) {
    let signal = |signal: i32| {
        let there = leaders.iter().filter(|leader| leader.signal_group(signal));
        there.count() > 0
    };
    signal(libc::SIGTERM);
    signal(libc::SIGCONT);
    let begun = Instant::now();
    while signal(0) && begun.elapsed() < grace {
        thread::sleep(POLL_PAUSE);
    }
    signal(libc::SIGKILL);
}

fn end_ranks(leaders: &[Leader], job: &str, group: Option<&JobGroup>) {
    for leader in leaders {
        leader.signal_group(libc::SIGKILL);
    }
    let mark = format!("{MARK}={job}");
    // The next round finds processes that were being forked in this one.
    let mut empty_rounds = 0;
    for _ in 0..ROUNDS {
        let left = processes::with_variable(&mark);
        for process in &left {
            let _ = process.signal(Signal::KILL);
        }
        empty_rounds = if left.is_empty() { empty_rounds + 1 } else { 0 };
        if empty_rounds == 2 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    if let Some(group) = group {
        group.end(PATIENTLY);
    }
}
