//! A process group that is signalled by a descriptor of its leader.
//!
//! The number of a group may be reused once its last process is gone. A descriptor never is, and it needs no `/proc`.
#![allow(unsafe_code, reason = "a system call that has no name")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

/// The leader of a process group, alive or not.
#[derive(Debug)]
pub(super) struct Leader {
    pid: Pid,
    handle: OwnedFd,
}

impl Leader {
    /// The process `pid`: a child that was not reaped yet, so its number is its own.
    pub(super) fn of_child(pid: Pid) -> Option<Leader> {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Leader { pid, handle })
    }

    /// The process behind `handle`, with the number `pid`.
    pub(super) fn known(pid: Pid, handle: OwnedFd) -> Leader {
        Leader { pid, handle }
    }

    /// Sends a signal, or none, to its process group. Returns whether the group has a process.
    pub(super) fn signal_group(&self, signal: i32) -> bool {
        /// Linux 6.9 and later: the signal is for the process group.
        const PROCESS_GROUP: libc::c_uint = 1 << 2;
        match self.send(signal, PROCESS_GROUP) {
            Err(libc::EINVAL) => {}
            sent => return sent.is_ok(),
        }
        // An older kernel signals groups only by number. The number belongs to the group as long as its leader was
        // not reaped. Numbers are given out in turn, so one that is freed at this very moment is not reused before
        // the next line. Without its leader, the group is found by the mark in the environment.
        let group = Signal::from_named_raw(signal);
        self.send(0, 0).is_ok()
            && match group {
                Some(signal) => rustix::process::kill_process_group(self.pid, signal).is_ok(),
                None => rustix::process::test_kill_process_group(self.pid).is_ok(),
            }
    }

    fn send(&self, signal: i32, flags: libc::c_uint) -> Result<(), i32> {
        // SAFETY: the call takes a descriptor, which is open, two numbers, and no further
        // information, for which the pointer is null.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                flags,
            )
        };
        match sent {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }
}
