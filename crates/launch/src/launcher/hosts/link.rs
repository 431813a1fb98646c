//! Frames over a pair of pipes, without waiting.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::Serialize;

use super::frame::{self, Framed};

/// One end of the way between the launcher and an agent.
#[derive(Debug)]
pub(super) struct Link {
    from: OwnedFd,
    to: OwnedFd,
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// What has to come before the first frame.
    greeting: Option<&'static [u8]>,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// All that is taken at one time; there may be more.
    All,
    /// The end, too.
    End,
}

impl Link {
    /// A link whose other end says `greeting` before its first frame.
    pub(super) fn new(
        from: OwnedFd,
        to: OwnedFd,
        greeting: Option<&'static [u8]>,
    ) -> io::Result<Link> {
        rustix::io::ioctl_fionbio(&from, true)?;
        rustix::io::ioctl_fionbio(&to, true)?;
        Ok(Link {
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

    /// Whether something waits for room.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// How many bytes wait for room.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Whether the other end has said its greeting.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeting.is_none()
    }

    /// Sends a frame, or keeps what does not fit for later.
    pub(super) fn send(&mut self, value: &impl Serialize) {
        self.unsent.extend(frame::encode(value));
        self.flush();
    }

    /// Sends bytes that are no frame.
    pub(super) fn greet(&mut self, greeting: &[u8]) {
        self.unsent.extend_from_slice(greeting);
        self.flush();
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::io::write(&self.to, &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Who is gone needs nothing; that it is gone is seen where it is read from.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Reads once, and adds the frames that are whole to `frames`: one who goes on writing takes
    /// no more memory than that and a frame, and keeps nobody else waiting.
    ///
    /// An error says what was wrong with what came.
    pub(super) fn receive<T: Framed>(&mut self, frames: &mut Vec<T>) -> Result<Came, String> {
        let mut buffer = [0; 64 * 1024];
        match rustix::io::read(&self.from, &mut buffer) {
            Ok(0) => return Ok(Came::End),
            Ok(n) => self.unread.extend_from_slice(&buffer[..n]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Came::All),
            Err(_) => return Ok(Came::End),
        }
        if let Some(greeting) = self.greeting {
            let found = (self.unread.windows(greeting.len())).position(|w| w == greeting);
            match found {
                Some(at) => drop(self.unread.drain(..at + greeting.len())),
                None if self.unread.len() > NOISE => {
                    return Err(String::from("more noise than a login shell makes"));
                }
                None => return Ok(Came::All),
            }
            self.greeting = None;
        }
        let mut at = 0;
        while let Some((frame, taken)) = frame::decode(&self.unread[at..])? {
            frames.push(frame);
            at += taken;
        }
        self.unread.drain(..at);
        Ok(Came::All)
    }

    /// What came instead of a greeting.
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
    use super::super::frame::{GREETING, Order, Report};
    use super::*;

    fn pair() -> (Link, Link) {
        let (a, b) = (io::pipe().unwrap(), io::pipe().unwrap());
        let launcher = Link::new(a.0.into(), b.1.into(), Some(GREETING)).unwrap();
        let agent = Link::new(b.0.into(), a.1.into(), None).unwrap();
        (launcher, agent)
    }

    #[test]
    fn frames_follow_the_greeting_and_what_shells_print_is_skipped() {
        let (mut launcher, mut agent) = pair();
        agent.greet(b"Welcome!\nhydrant agent 0\n");
        let mut got = Vec::new();
        assert_eq!(launcher.receive::<Report>(&mut got), Ok(Came::All));
        assert_eq!(launcher.noise().as_deref(), Some("hydrant agent 0"));
        agent.greet(GREETING);
        agent.send(&Report::Begun);
        assert_eq!(launcher.receive(&mut got), Ok(Came::All));
        assert!(launcher.is_greeted() && launcher.noise().is_none());
        assert_eq!(got, [Report::Begun]);
        drop(agent);
        assert_eq!(launcher.receive(&mut got), Ok(Came::End));
    }

    #[test]
    fn what_does_not_fit_waits() {
        let (mut launcher, mut agent) = pair();
        let many = Order::Input(vec![7; 300_000]);
        launcher.send(&many);
        launcher.send(&Order::Beat);
        assert!(launcher.wants_to_send());
        let mut got: Vec<Order> = Vec::new();
        while got.len() < 2 {
            launcher.flush();
            assert_eq!(agent.receive(&mut got), Ok(Came::All));
        }
        assert_eq!(got, [many, Order::Beat]);
    }

    #[test]
    fn endless_noise_is_an_error() {
        let (mut launcher, mut agent) = pair();
        let mut got = Vec::<Report>::new();
        let error = loop {
            agent.greet(&[b'x'; 4096]);
            match launcher.receive(&mut got) {
                Ok(came) => assert_eq!(came, Came::All),
                Err(error) => break error,
            }
        };
        assert!(error.contains("noise"), "{error}");
    }
}
