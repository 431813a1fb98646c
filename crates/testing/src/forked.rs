//! Forked children of a test, with copies of all its state.

#![allow(unsafe_code)] // forks

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::HANG;

/// Forks a child that calls `act` and ends with the returned status. Returns the child's process
/// id. The child has one thread, even if its parent has several.
///
/// # Panics
/// If no further process can be started.
pub fn child(act: impl FnOnce() -> i32) -> i32 {
    match fork() {
        0 => end(act()),
        pid => pid,
    }
}

/// Like the system call: returns 0 in the child, which continues from here.
///
/// # Panics
/// If no further process can be started.
pub fn fork() -> i32 {
    // SAFETY: the C library releases its own locks in the child. The libraries that the test calls
    // there document their further limits.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork succeeds");
    pid
}

/// Ends the process with this status, without destructors or exit handlers.
pub fn end(status: i32) -> ! {
    // SAFETY: `_exit` only ends the process.
    unsafe { libc::_exit(status) }
}

/// The exit status of a child; `None` if a signal ended it, or if it hung and was killed.
pub fn ended(pid: i32) -> Option<i32> {
    let until = Instant::now() + HANG / 2;
    let mut status = 0;
    loop {
        // SAFETY: `status` is a local variable that lives through the call.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if Instant::now() > until => {
                // SAFETY: `pid` is a child of this process that has not been waited for, so its id
                // is not reused.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return None;
            }
            0 => thread::sleep(Duration::from_millis(1)),
            _ => return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        }
    }
}
