//! The input of rank 0.
//!
//! Rank 0 has the launcher's own standard input, unless that is a terminal. Ranks are in process
//! groups of their own, and the kernel stops a process that reads a terminal from the background.
//! The launcher then copies the terminal's input to rank 0.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;

use super::signals;

/// The pause before the next check whether the launcher is in the foreground.
const FOREGROUND_PAUSE: Duration = Duration::from_millis(250);

/// Returns the standard input for a rank.
pub(super) fn of_rank(rank: u32) -> Stdio {
    match rank {
        0 if io::stdin().is_terminal() => Stdio::piped(),
        0 => Stdio::inherit(),
        _ => Stdio::null(),
    }
}

/// Copies the terminal's input to rank 0, or to the pipe on the way there, until either ends.
pub(super) fn carry(to: OwnedFd) -> io::Result<()> {
    let mut to = File::from(to);
    thread::Builder::new()
        .name("hydrant-stdin".into())
        .spawn(move || {
            // A read from the background then returns an error, and stops no process.
            if signals::block(Signal::TTIN).is_err() {
                return;
            }
            let from = io::stdin();
            let mut buffer = [0; 4096];
            loop {
                let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
                if !matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR)) {
                    return;
                }
                if rustix::termios::tcgetpgrp(&from) != Ok(rustix::process::getpgrp()) {
                    thread::sleep(FOREGROUND_PAUSE);
                    continue;
                }
                match rustix::io::read(&from, &mut buffer) {
                    Ok(0) => return,
                    Ok(n) if to.write_all(&buffer[..n]).is_ok() => {}
                    Err(Errno::INTR | Errno::IO | Errno::AGAIN) => {}
                    _ => return,
                }
            }
        })?;
    Ok(())
}
