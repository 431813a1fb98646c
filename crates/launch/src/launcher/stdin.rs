//! The terminal's input, carried to rank 0.
//!
//! Rank 0 has the launcher's own standard input, except where that is a
//! terminal: ranks are in process groups of their own, and the kernel stops a
//! process that reads a terminal from the background.

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

/// How long to wait before asking again whether the launcher is in the foreground.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// What a rank has for its standard input.
pub(super) fn of_rank(rank: u32) -> Stdio {
    match rank {
        0 if io::stdin().is_terminal() => Stdio::piped(),
        0 => Stdio::inherit(),
        _ => Stdio::null(),
    }
}

/// Carries the terminal's input to rank 0, or on the way to it, for as long as both last.
pub(super) fn carry(to: OwnedFd) -> io::Result<()> {
    let mut to = File::from(to);
    thread::Builder::new()
        .name("hydrant-stdin".into())
        .spawn(move || {
            // Read from the background is then an error and stops nobody.
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
                    thread::sleep(ASK_AGAIN);
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
