//! How the ranks of a host come to share one file.
//!
//! Rank 0 makes the file and a secret, listens on an abstract socket of random name (it is in
//! no file system, and gone with the process), and publishes both in the launcher's key-value
//! space, which only the job's processes can read. The others connect, show the secret and
//! their rank, and get the file's descriptor. A stranger that finds the socket has another
//! user id or lacks the secret; it is hung up on, and delays nobody.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

use hydrant_conduit::Error;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
    },
    process::geteuid,
};

const SECRET: usize = 16;
/// What a rank shows: the secret and its number.
const HELLO: usize = SECRET + 4;
/// A connection that has shown nothing in this time is a stranger's.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that may be undecided at once, beside one for each rank.
const STRANGERS: usize = 64;

/// Where to come, and what to show there.
#[derive(Clone)]
pub(crate) struct Invitation {
    name: [u8; 16],
    secret: [u8; SECRET],
}

impl Invitation {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.name[..], &self.secret[..]].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (name, secret) = bytes.split_first_chunk()?;
        Some(Self {
            name: *name,
            secret: secret.try_into().ok()?,
        })
    }

    fn address(&self) -> Result<SocketAddr, Error> {
        let name: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        SocketAddr::from_abstract_name(format!("hydrant-{name}"))
            .map_err(|cause| Error::system("naming the socket", cause))
    }
}

/// The door at which the file is handed out.
pub(crate) struct Host {
    listener: UnixListener,
    invitation: Invitation,
}

/// Opens the door.
pub(crate) fn open() -> Result<(Host, Invitation), Error> {
    let mut invitation = Invitation {
        name: [0; 16],
        secret: [0; SECRET],
    };
    for bytes in [&mut invitation.name[..], &mut invitation.secret[..]] {
        let got = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|cause| Error::system("drawing the job's secret", cause))?;
        if got != bytes.len() {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::system("drawing the job's secret", short));
        }
    }
    let listener = UnixListener::bind_addr(&invitation.address()?)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|cause| Error::system("listening for the other ranks", cause))?;
    let host = Host {
        listener,
        invitation: invitation.clone(),
    };
    Ok((host, invitation))
}

/// A connection that has not shown everything yet.
struct Caller {
    stream: UnixStream,
    shown: Vec<u8>,
    until: Instant,
}

impl Host {
    /// Hands `file` to ranks 1 to `ranks` - 1, once each.
    ///
    /// # Errors
    /// [`Error::Unreachable`] naming a rank that did not come in `timeout`.
    pub(crate) fn serve(
        self,
        file: BorrowedFd<'_>,
        ranks: usize,
        timeout: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + timeout;
        let mut joined = vec![false; ranks];
        joined[0] = true;
        let mut callers: Vec<Caller> = Vec::new();
        while let Some(missing) = joined.iter().position(|joined| !joined) {
            let now = Instant::now();
            if now >= deadline {
                return Err(Error::Unreachable(format!(
                    "rank {missing} did not join the shared memory in {} s; are all ranks on \
                     one host and in one network namespace? (HYDRANT_JOIN_TIMEOUT waits longer)",
                    timeout.as_secs()
                )));
            }
            callers.retain(|caller| caller.until > now);
            self.wait(&callers, (deadline - now).min(PATIENCE));
            self.accept(&mut callers, ranks + STRANGERS);
            callers.retain_mut(|caller| match caller.hear() {
                Heard::More => true,
                Heard::Hello => {
                    if let Some(rank) = self.admit(&caller.shown, &joined)
                        && give(&caller.stream, file).is_ok()
                    {
                        joined[rank] = true;
                    }
                    false
                }
                Heard::Gone => false,
            });
        }
        Ok(())
    }

    fn wait(&self, callers: &[Caller], time: Duration) {
        let mut fds: Vec<PollFd<'_>> = callers
            .iter()
            .map(|caller| PollFd::new(&caller.stream, PollFlags::IN))
            .collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        let time = Timespec::try_from(time).ok();
        // Errors (a signal) are like time passing.
        let _ = poll(&mut fds, time.as_ref());
    }

    fn accept(&self, callers: &mut Vec<Caller>, most: usize) {
        while let Ok((stream, _)) = self.listener.accept() {
            let same_user = sockopt::socket_peercred(&stream)
                .is_ok_and(|credentials| credentials.uid == geteuid());
            if same_user && callers.len() < most && stream.set_nonblocking(true).is_ok() {
                callers.push(Caller {
                    stream,
                    shown: Vec::with_capacity(HELLO),
                    until: Instant::now() + PATIENCE,
                });
            }
        }
    }

    /// The rank that showed the secret, if it is one that is still missing.
    fn admit(&self, shown: &[u8], joined: &[bool]) -> Option<usize> {
        let (secret, rank) = shown.split_first_chunk::<SECRET>()?;
        // Every byte is looked at, so the time tells nothing of where they differ.
        let differs = (secret.iter().zip(&self.invitation.secret))
            .fold(0, |differs, (a, b)| differs | (a ^ b));
        let rank = u32::from_le_bytes(rank.try_into().ok()?) as usize;
        (differs == 0 && joined.get(rank) == Some(&false)).then_some(rank)
    }
}

enum Heard {
    More,
    Hello,
    Gone,
}

impl Caller {
    fn hear(&mut self) -> Heard {
        let mut buffer = [0; HELLO];
        let left = HELLO - self.shown.len();
        match self.stream.read(&mut buffer[..left]) {
            Ok(0) => Heard::Gone,
            Ok(count) => {
                self.shown.extend_from_slice(&buffer[..count]);
                if self.shown.len() == HELLO {
                    Heard::Hello
                } else {
                    Heard::More
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Heard::More,
            Err(_) => Heard::Gone,
        }
    }
}

fn give(stream: &UnixStream, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let fds = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(
        stream,
        &[IoSlice::new(&[1])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Fetches the file from the rank that made it.
///
/// # Errors
/// [`Error::Unreachable`] if the door is not there or does not open.
pub(crate) fn join(
    invitation: &Invitation,
    rank: u32,
    timeout: Duration,
) -> Result<OwnedFd, Error> {
    let refused = |cause: io::Error| {
        Error::Unreachable(format!(
            "rank {rank} cannot join the shared memory of rank 0: {cause}; are both on one host \
             and in one network namespace?"
        ))
    };
    let mut stream = UnixStream::connect_addr(&invitation.address()?).map_err(refused)?;
    stream.set_read_timeout(Some(timeout)).map_err(refused)?;
    let hello = [&invitation.secret[..], &rank.to_le_bytes()].concat();
    stream.write_all(&hello).map_err(refused)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        stream.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(|cause| refused(cause.into()))?;
    ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| refused(io::Error::from(io::ErrorKind::ConnectionRefused)))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn ranks_get_the_file_and_strangers_do_not() {
        let (host, invitation) = open().unwrap();
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4321).unwrap();
        let address = invitation.address().unwrap();
        thread::scope(|scope| {
            let file = file.as_fd();
            let served = scope.spawn(move || host.serve(file, 3, Duration::from_secs(20)));
            // One that says nothing, one that says half, one that guesses, one that lies.
            let silent = UnixStream::connect_addr(&address).unwrap();
            let mut half = UnixStream::connect_addr(&address).unwrap();
            half.write_all(&[1; 7]).unwrap();
            let mut guesser = UnixStream::connect_addr(&address).unwrap();
            guesser.write_all(&[1; HELLO]).unwrap();
            assert_eq!(
                guesser.read(&mut [0; 8]).unwrap_or(0),
                0,
                "a stranger was answered"
            );
            let wrong = Invitation {
                secret: [9; SECRET],
                ..invitation.clone()
            };
            assert!(join(&wrong, 1, PATIENCE).is_err());
            assert!(join(&invitation, 7, PATIENCE).is_err(), "no such rank");
            for rank in [2, 1] {
                let got = join(&invitation, rank, PATIENCE).unwrap();
                assert_eq!(rustix::fs::fstat(&got).unwrap().st_size, 4321);
            }
            assert!(served.join().unwrap().is_ok());
            drop((silent, half));
        });
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let (host, _) = open().unwrap();
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let error = host
            .serve(file.as_fd(), 2, Duration::from_millis(50))
            .unwrap_err();
        assert!(error.to_string().contains("rank 1"), "{error}");
    }
}
