//! A process that outlives a launcher that is killed, to end what it had started.
//!
//! When the launcher dies by SIGKILL the kernel kills the ranks, for they asked
//! for it, but not what they forked: that goes to init. The guard is a fork of
//! the launcher which waits for the other end of a socket to close. If the
//! launcher did not dismiss it first, it kills the ranks' process groups, all
//! that is in the job's control group, and every process that has the job's
//! identifier in its environment.
//!
//! Whatever leads a process group says so itself before its program begins, and
//! gives the guard a descriptor of itself: a number would be somebody else's once
//! its process is gone, a descriptor never is.
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

use super::group::{Group, PATIENTLY};
use super::leader::Leader;
use super::processes;

/// The variable that tells the processes of a job from all others.
pub(super) const MARK: &str = "PMI_JOBID";

/// What the launcher sends in place of a process's number to dismiss the guard.
const DISMISS: i32 = 0;

/// What the guard sends once no signal to the launcher's process group reaches it any more.
const READY: [u8; 1] = [1];

/// How often the guard looks again for processes that were being forked.
const ROUNDS: u32 = 20;

/// How often the guard looks whether what may end by itself has.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What a guard is to end.
pub(super) enum Charge {
    /// The ranks of this job, and all that they started, at once.
    Ranks(String, Option<Arc<Group>>),
    /// Remote shells, which may take so long to end by themselves: their agents have ranks to end.
    Shells(Duration),
}

/// A running guard.
pub(super) struct Guard {
    pid: Pid,
    care: Arc<Care>,
}

/// The way into a guard's care.
#[derive(Debug)]
pub(super) struct Care(OwnedFd);

impl Care {
    /// Gives the calling process, which leads its process group, into the guard's care. Safe to
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
        // A guard that somebody killed leaves the job as it is.
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
    /// Starts a guard, and waits until it stands apart: what is made for a job before that would
    /// outlive both, if somebody killed the launcher's process group.
    pub(super) fn start(charge: Charge) -> io::Result<Guard> {
        let (theirs, ours) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // SAFETY: the launcher has started no threads of its own by now but those that wait, and
        // where a caller has, glibc makes its allocator usable in the child,
        // which uses nothing else that a lost thread could have held.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                keep_watch(&theirs, &charge);
                // SAFETY: ends this process at once, without what the launcher
                // registered to be done at its own end.
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

    /// The way into its care.
    pub(super) fn care(&self) -> Arc<Care> {
        Arc::clone(&self.care)
    }

    /// Ends it without harm.
    pub(super) fn dismiss(self) {
        self.care.send(DISMISS, &[]);
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        });
    }
}

fn keep_watch(launcher: &OwnedFd, charge: &Charge) {
    // Apart from the terminal's signals, and holding none of the launcher's streams open.
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
                    .map(|(pid, handle)| Leader::known(pid, handle)),
            ),
            None => break,
        }
    }
    match charge {
        Charge::Shells(grace) => end_shells(&leaders, *grace),
        Charge::Ranks(job, group) => end_ranks(&leaders, job, group.as_deref()),
    }
}

/// The next message of the launcher or of what it starts, until all are gone.
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
        thread::sleep(LOOK_AGAIN);
    }
    signal(libc::SIGKILL);
}

fn end_ranks(leaders: &[Leader], job: &str, group: Option<&Group>) {
    for leader in leaders {
        leader.signal_group(libc::SIGKILL);
    }
    let mark = format!("{MARK}={job}");
    // What was just being forked is seen in the next round.
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
