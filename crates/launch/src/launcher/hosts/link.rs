//! Non-blocking frames over a pair of pipes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::Serialize;

use super::frame::{self, Framed, GREETING_WORDS};

/// One end of the connection between the launcher and an agent.
#[derive(Debug)]
pub(super) struct AgentLink {
    from: OwnedFd,
    to: OwnedFd,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// The bytes that must come before the first frame.
    greeting: Option<&'static [u8]>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FramesRead {
    /// A read's worth of frames. There may be more.
    All,
    /// The other end closed the link.
    End,
}

impl AgentLink {
    /// Makes a link whose other end sends `greeting` before its first frame.
    pub(super) fn new(
        from: OwnedFd,
        to: OwnedFd,
        greeting: Option<&'static [u8]>,
    ) -> io::Result<AgentLink> {
        rustix::io::ioctl_fionbio(&from, true)?;
        rustix::io::ioctl_fionbio(&to, true)?;
        Ok(AgentLink {
            from,
            to,
            unread: Vec::new(),
            unsent: Vec::new(),
            greeting,
        })
    }

    pub(super) fn from(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    pub(super) fn to(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Returns true if bytes wait for room.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the number of bytes that wait for room.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Returns true if the other end has sent its greeting.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeting.is_none()
    }

    /// Sends a frame, or keeps the part that does not fit for later.
    pub(super) fn send(&mut self, value: &impl Serialize) {
        self.unsent.extend(frame::encode(value));
        self.flush();
    }

    /// Sends bytes outside a frame.
    pub(super) fn greet(&mut self, greeting: &[u8]) {
        self.unsent.extend_from_slice(greeting);
        self.flush();
    }

    /// Sends waiting bytes, as far as there is room.
    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::io::write(&self.to, &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // A closed reader needs no bytes. The next read notices the end.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Reads once, and adds the complete frames to `frames`. An endless writer costs no more memory
    /// than one read and one frame, and delays nobody else.
    ///
    /// The error describes the malformed bytes.
    pub(super) fn receive<T: Framed>(&mut self, frames: &mut Vec<T>) -> Result<FramesRead, String> {
        let mut buffer = [0; 64 * 1024];
        match rustix::io::read(&self.from, &mut buffer) {
            Ok(0) => return Ok(FramesRead::End),
            Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(FramesRead::All),
            Err(_) => return Ok(FramesRead::End),
        }
        if let Some(greeting) = self.greeting {
            let found = (self.unread.windows(greeting.len())).position(|w| w == greeting);
            match found {
                Some(at) => drop(self.unread.drain(..at + greeting.len())),
                None if self.unread.len() > NOISE => {
                    return Err(String::from("more noise than a login shell makes"));
                }
                None => return Ok(FramesRead::All),
            }
            self.greeting = None;
        }
        let mut at = 0;
        while let Some((frame, taken)) = frame::decode(&self.unread[at..])? {
            frames.push(frame);
            at += taken;
        }
        self.unread.drain(..at);
        Ok(FramesRead::All)
    }

    /// Returns the version of the agent at the other end, if it greeted as an agent of another version.
    pub(super) fn other_version(&self) -> Option<String> {
        self.greeting?;
        let text = String::from_utf8_lossy(&self.unread);
        // The last piece may be an incomplete line.
        let (lines, _) = text.rsplit_once('\n')?;
        let version = (lines.lines()).find_map(|line| line.strip_prefix(GREETING_WORDS))?;
        Some(crate::pmi1::wire::shorten(version.trim()))
    }

    /// Returns the last line that came instead of a greeting.
    pub(super) fn noise(&self) -> Option<String> {
        self.greeting?;
        let text = String::from_utf8_lossy(&self.unread);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(crate::pmi1::wire::shorten(last))
    }
}

/// The most bytes that may come before the greeting.
const NOISE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::super::frame::{AgentOrder, AgentReport, GREETING};
    use super::*;

    fn pair() -> (AgentLink, AgentLink) {
        let (a, b) = (io::pipe().unwrap(), io::pipe().unwrap());
        let launcher = AgentLink::new(a.0.into(), b.1.into(), Some(GREETING)).unwrap();
        let agent = AgentLink::new(b.0.into(), a.1.into(), None).unwrap();
        (launcher, agent)
    }

    #[test]
    fn frames_follow_the_greeting_and_output_of_shells_is_skipped() {
        let (mut launcher, mut agent) = pair();
        agent.greet(b"Welcome!\nhydrant agent 0\n");
        let mut got = Vec::new();
        assert_eq!(
            launcher.receive::<AgentReport>(&mut got),
            Ok(FramesRead::All)
        );
        assert_eq!(launcher.noise().as_deref(), Some("hydrant agent 0"));
        assert_eq!(launcher.other_version().as_deref(), Some("0"));
        agent.greet(GREETING);
        agent.send(&AgentReport::Begun);
        assert_eq!(launcher.receive(&mut got), Ok(FramesRead::All));
        assert!(launcher.is_greeted() && launcher.noise().is_none());
        assert_eq!(launcher.other_version(), None);
        assert_eq!(got, [AgentReport::Begun]);
        drop(agent);
        assert_eq!(launcher.receive(&mut got), Ok(FramesRead::End));
    }

    #[test]
    fn bytes_that_do_not_fit_wait() {
        let (mut launcher, mut agent) = pair();
        let many = AgentOrder::Input(vec![7; 300_000]);
        launcher.send(&many);
        launcher.send(&AgentOrder::Beat);
        assert!(launcher.wants_to_send());
        let mut got: Vec<AgentOrder> = Vec::new();
        while got.len() < 2 {
            launcher.flush();
            assert_eq!(agent.receive(&mut got), Ok(FramesRead::All));
        }
        assert_eq!(got, [many, AgentOrder::Beat]);
    }

    #[test]
    fn endless_noise_is_an_error() {
        let (mut launcher, mut agent) = pair();
        let mut got = Vec::<AgentReport>::new();
        let error = loop {
            agent.greet(&[b'x'; 4096]);
            match launcher.receive(&mut got) {
                Ok(came) => assert_eq!(came, FramesRead::All),
                Err(error) => break error,
            }
        };
        assert!(error.contains("noise"), "{error}");
    }
}
