//! Children that a test forks, with copies of all its state.

#![allow(unsafe_code)] // forks

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::HANG;

/// Forks a child that calls `act` and ends with the status that it returns. Returns the child's process number. The
/// child has one thread, even if its parent has several.
///
/// # Panics
/// If no further process can be started.
pub fn child(act: impl FnOnce() -> i32) -> i32 {
    match fork() {
        0 => end(act()),
        pid => pid,
    }
}

/// As the system call: 0 in the child, which goes on from here.
///
/// # Panics
/// If no further process can be started.
pub fn fork() -> i32 {
    // SAFETY: the C library frees its own locks in the child. The libraries that the test calls there document their
    // further limits.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "there may be another process");
    pid
}

/// Ends the process with that status, and nothing else.
pub fn end(status: i32) -> ! {
    // SAFETY: it ends the process.
    unsafe { libc::_exit(status) }
}

/// The status with which a child ended; none if a signal ended it, or if it hung and was killed.
pub fn ended(pid: i32) -> Option<i32> {
    let until = Instant::now() + HANG / 2;
    let mut status = 0;
    loop {
        // SAFETY: the status is a local.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if Instant::now() > until => {
                // SAFETY: a child of this process that was not waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return None;
            }
            0 => thread::sleep(Duration::from_millis(1)),
            _ => return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        }
    }
}
