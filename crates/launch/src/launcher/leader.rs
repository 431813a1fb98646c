//! A process group that is signalled through a descriptor of its leader.
//!
//! The id of a group may be reused once its last process is gone. A descriptor is never reused, and
//! it needs no `/proc`.
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
    /// Opens the child `pid`, which was not reaped yet, so that its id is still its own.
    pub(super) fn of_child(pid: Pid) -> Option<Leader> {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Leader { pid, handle })
    }

    /// Wraps the descriptor `handle` of the process `pid`.
    pub(super) fn from_handle(pid: Pid, handle: OwnedFd) -> Leader {
        Leader { pid, handle }
    }

    /// Sends a signal, or 0, to the process group. Returns true if the group has a process.
    pub(super) fn signal_group(&self, signal: i32) -> bool {
        /// Sends the signal to the process group, since Linux 6.9.
        const PROCESS_GROUP: libc::c_uint = 1 << 2;
        match self.send(signal, PROCESS_GROUP) {
            Err(libc::EINVAL) => {}
            sent => return sent.is_ok(),
        }
        // An older kernel signals groups only by id. The id belongs to the group until its leader
        // is reaped. The kernel assigns ids in turn, so an id that is freed here is not reused
        // before the next line. A group without its leader is found by the mark in the environment.
        let group = Signal::from_named_raw(signal);
        self.send(0, 0).is_ok()
            && match group {
                Some(signal) => rustix::process::kill_process_group(self.pid, signal).is_ok(),
                None => rustix::process::test_kill_process_group(self.pid).is_ok(),
            }
    }

    fn send(&self, signal: i32, flags: libc::c_uint) -> Result<(), i32> {
        // SAFETY: the descriptor is open, and the null pointer means no further information.
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
