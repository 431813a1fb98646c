//! Finds the ranks of this host that can be looked at, and looks at all of them at once.

use std::{
    fmt, fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use hydrant_conduit::socket_peer::SocketPeer;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
        socket_with,
    },
};

use super::snapshot::RankSnapshot;

/// The begin of the names of all sockets.
const PREFIX: &str = "hydrant-top-";
/// The kernel's list of the sockets of this network namespace.
const SOCKETS: &str = "/proc/net/unix";
/// The flag of a listening socket in that list.
const LISTENS: &str = "00010000";
/// The most bytes of an answer; a job of the most ranks needs a tenth.
const MOST: usize = 4 << 20;

/// The address at which a rank of this host can be looked at. Its text is the name of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct RankAddress {
    /// The number of the job.
    pub job: u64,
    /// The rank.
    pub rank: u32,
    /// The number of ranks of the job.
    pub ranks: u32,
}

impl fmt::Display for RankAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:016x}-{}-{}", self.job, self.rank, self.ranks)
    }
}

impl FromStr for RankAddress {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let read = || {
            let mut words = name.strip_prefix(PREFIX)?.split('-');
            let address = Self {
                job: u64::from_str_radix(words.next()?, 16).ok()?,
                rank: words.next()?.parse().ok()?,
                ranks: words.next()?.parse().ok()?,
            };
            // Each address has one text.
            (address.to_string() == name && address.rank < address.ranks).then_some(address)
        };
        read().ok_or(())
    }
}

/// The outcome of a look at a rank.
#[derive(Debug)]
#[non_exhaustive]
pub struct RankAnswer {
    /// The address that was asked.
    pub address: RankAddress,
    /// The process of the rank, if it is visible here.
    pub pid: Option<u32>,
    /// The snapshot, or the reason why there is none.
    pub outcome: Result<RankSnapshot, NoAnswer>,
}

/// The reason why a rank gave no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoAnswer {
    /// The rank has ended.
    #[error("the rank has ended")]
    Ended,
    /// The socket belongs to another user.
    #[error("the rank belongs to another user")]
    OtherUser,
    /// The rank did not answer in time: it is stopped, or its host is very busy.
    #[error("the rank does not answer")]
    Silent,
    /// The answer cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// Returns the addresses of the ranks in this network namespace that can be looked at, by job and
/// rank. Those of other users are among them.
///
/// # Errors
/// The system's, if its list of sockets cannot be read.
pub fn addresses() -> io::Result<Vec<RankAddress>> {
    let list = fs::read(Path::new(SOCKETS))?;
    // Names of others may be any bytes.
    let list = String::from_utf8_lossy(&list);
    let mut found: Vec<RankAddress> = list.lines().filter_map(listed).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns the address in a line of the list.
fn listed(line: &str) -> Option<RankAddress> {
    let mut words = line.split_ascii_whitespace();
    let flags = words.nth(3)?;
    let name = words.nth(3)?.strip_prefix('@')?;
    (flags == LISTENS && words.next().is_none())
        .then(|| name.parse().ok())
        .flatten()
}

/// Looks at ranks, at all of them at once. Returns an answer for each, in the same order, after at
/// most `time`.
pub fn ask(addresses: &[RankAddress], time: Duration) -> Vec<RankAnswer> {
    let since = Instant::now();
    let mut asked: Vec<Asked> = addresses.iter().map(|it| Asked::begin(*it)).collect();
    loop {
        let left = time.saturating_sub(since.elapsed());
        let mut fds: Vec<PollFd<'_>> = (asked.iter())
            .filter_map(|it| it.socket.as_ref())
            .map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
            .collect();
        if fds.is_empty() || left.is_zero() {
            break;
        }
        // An error (a signal) counts as nothing that is ready.
        let left = Timespec::try_from(left).ok();
        let _ = poll(&mut fds, left.as_ref());
        asked.iter_mut().for_each(Asked::read);
    }
    asked.into_iter().map(Asked::end).collect()
}

/// A rank that was asked.
struct Asked {
    address: RankAddress,
    pid: Option<u32>,
    /// The socket, until the answer has ended.
    socket: Option<OwnedFd>,
    text: Vec<u8>,
    failure: Option<NoAnswer>,
}

impl Asked {
    fn begin(address: RankAddress) -> Self {
        let mut asked = Self {
            address,
            pid: None,
            socket: None,
            text: Vec::new(),
            failure: None,
        };
        match asked.connect() {
            Ok(socket) => asked.socket = Some(socket),
            Err(failure) => asked.failure = Some(failure),
        }
        asked
    }

    fn connect(&mut self) -> Result<OwnedFd, NoAnswer> {
        let failed = |cause: Errno| match cause {
            Errno::CONNREFUSED | Errno::NOENT => NoAnswer::Ended,
            // Too many others ask.
            Errno::AGAIN => NoAnswer::Silent,
            cause => NoAnswer::Unreadable(io::Error::from(cause).to_string()),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
        let name = self.address.to_string();
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed)?;
        connect(&socket, &name).map_err(failed)?;
        let peer =
            SocketPeer::of(&socket).map_err(|cause| NoAnswer::Unreadable(cause.to_string()))?;
        // Anybody may take such a name.
        if !peer.is_same_user() {
            return Err(NoAnswer::OtherUser);
        }
        self.pid = peer.pid;
        Ok(socket)
    }

    /// Reads what has arrived.
    fn read(&mut self) {
        let mut bytes = [0; 16 << 10];
        while let Some(socket) = &self.socket {
            match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.socket = None,
                Ok((_, len)) => self.text.extend_from_slice(&bytes[..len.min(bytes.len())]),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The rank ended before it answered.
                Err(_) => self.socket = None,
            }
            if self.text.len() > MOST {
                self.socket = None;
            }
        }
    }

    fn end(self) -> RankAnswer {
        let outcome = match self.failure {
            Some(failure) => Err(failure),
            None if self.socket.is_some() => Err(NoAnswer::Silent),
            None if self.text.is_empty() => Err(NoAnswer::Ended),
            None => String::from_utf8_lossy(&self.text)
                .parse()
                .map_err(|why: super::UnreadableSnapshot| NoAnswer::Unreadable(why.to_string())),
        };
        RankAnswer {
            address: self.address,
            pid: self.pid,
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_ranks_are_found() {
        let line = |flags: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0001 01 4242 {name}")
        };
        let name = "@hydrant-top-00000000000000ff-1-4";
        let found = RankAddress {
            job: 255,
            rank: 1,
            ranks: 4,
        };
        assert_eq!(listed(&line("00010000", name)), Some(found));
        assert_eq!(format!("@{found}"), name);
        for (flags, name) in [
            ("00000000", name),
            ("00010000", &name[1..]),
            ("00010000", "@hydrant-top-ff-1-4"),
            ("00010000", "@hydrant-top-00000000000000ff-4-4"),
            ("00010000", "@hydrant-top-00000000000000ff-+1-4"),
            ("00010000", "@hydrant-top-00000000000000ff-1-4-5"),
            ("00010000", "@hydrant-top-00000000000000ff-1-4 x"),
            ("00010000", "@hydrant-0123"),
            ("00010000", ""),
        ] {
            assert_eq!(listed(&line(flags, name)), None, "{flags} {name}");
        }
        assert_eq!(
            listed("Num       RefCount Protocol Flags    Type St Inode Path"),
            None
        );
    }

    #[test]
    fn nobody_answers_at_an_address_without_a_rank() {
        let nobody = RankAddress {
            job: 1,
            rank: 0,
            ranks: 1,
        };
        let answers = ask(&[nobody], Duration::from_secs(60));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].outcome, Err(NoAnswer::Ended));
    }
}
