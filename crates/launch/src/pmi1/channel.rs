//! A stream of lines to the launcher, with a bound on every wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::Error;

/// The service's name in errors.
pub(crate) const SERVICE: &str = "PMI-1";

/// The most bytes without a newline. More is an error.
const MAX_UNREAD: usize = 64 * 1024;

/// Lines to and from the launcher.
#[derive(Debug)]
pub(crate) struct Channel {
    fd: OwnedFd,
    unread: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Channel {
        Channel {
            fd,
            unread: Vec::new(),
        }
    }

    /// Sends a line, which ends in a newline. PMI-1 servers want each line in one write.
    pub(crate) fn send(&mut self, line: &str, doing: &dyn Fn() -> String) -> Result<(), Error> {
        debug_assert!(line.ends_with('\n'));
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            // A write to a dead launcher must not raise SIGPIPE here.
            let sent = match rustix::net::send(&self.fd, rest, SendFlags::NOSIGNAL) {
                Err(Errno::NOTSOCK) => rustix::io::write(&self.fd, rest),
                other => other,
            };
            match sent {
                Ok(n) => rest = &rest[n..],
                Err(Errno::INTR) => {}
                Err(e) => return Err(lost(e.into(), doing)),
            }
        }
        Ok(())
    }

    /// Returns the next line without its newline.
    pub(crate) fn receive(
        &mut self,
        within: Duration,
        doing: &dyn Fn() -> String,
    ) -> Result<String, Error> {
        let until = Instant::now() + within;
        loop {
            if let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                line.pop();
                return String::from_utf8(line)
                    .map_err(|_| broken("a line that is not UTF-8".into(), doing));
            }
            if self.unread.len() > MAX_UNREAD {
                return Err(broken(
                    format!("{} bytes without a newline", self.unread.len()),
                    doing,
                ));
            }
            self.wait(until, within, doing)?;
            let mut buffer = [0; 4096];
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into(), doing)),
                Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(lost(e.into(), doing)),
            }
        }
    }

    /// Waits until the descriptor is readable.
    fn wait(
        &self,
        until: Instant,
        within: Duration,
        doing: &dyn Fn() -> String,
    ) -> Result<(), Error> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::TimedOut {
                    service: SERVICE,
                    doing: doing(),
                    after: within,
                });
            }
            let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(lost(e.into(), doing)),
            }
        }
    }
}

/// Makes the error for an answer that breaks the protocol.
pub(crate) fn broken(got: String, doing: &dyn Fn() -> String) -> Error {
    Error::Protocol {
        service: SERVICE,
        doing: doing(),
        got,
    }
}

fn lost(source: io::Error, doing: &dyn Fn() -> String) -> Error {
    Error::LauncherLost {
        service: SERVICE,
        doing: doing(),
        source,
    }
}
