//! Hands the shared file to all ranks of a host.
//!
//! Rank 0 makes the file and takes [calls](crate::calls). It publishes the invitation in the
//! launcher's key-value space, which only the job's processes can read. The others call with one
//! end of a socket pair, and get the file's descriptor through it. Calls of strangers do not
//! arrive, so none of them delays the job. Rank 0 watches the processes of the ranks that have not
//! called yet. Those see by their end of the pair when rank 0 ends. A death is therefore reported
//! at once.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use hydrant_conduit::{Error, Rank};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
    },
    process::{Pid, PidfdFlags, getuid, pidfd_open},
};

use crate::calls::{Callee, Invitation, RankCall};

/// The datagrams read between two checks of the clock and of the watched processes.
const TURN: usize = 256;

/// The socket at which rank 0 hands out the file.
pub(crate) struct FileServer(Callee);

/// Opens the socket.
pub(crate) fn open() -> Result<(FileServer, Invitation), Error> {
    let (callee, invitation) = Callee::open()?;
    Ok((FileServer(callee), invitation))
}

/// A rank that has not called yet, and its process if it can be watched.
struct Missing {
    rank: Rank,
    process: Option<OwnedFd>,
}

impl FileServer {
    /// Hands `file` to the ranks after 0, once each. `pids` are their processes, in order.
    ///
    /// # Errors
    /// [`Error::PeerLost`] with a rank that ended before it called; [`Error::Unreachable`] with a
    /// rank that did not call within `timeout`.
    pub(crate) fn serve(
        self,
        file: BorrowedFd<'_>,
        pids: &[u32],
        timeout: Duration,
    ) -> Result<(), Error> {
        // A deadline beyond the range of the clock is none.
        let deadline = Instant::now().checked_add(timeout);
        let mut missing = Vec::with_capacity(pids.len());
        for (rank, pid) in (1..).map(Rank).zip(pids) {
            let process = watch(rank, *pid)?;
            missing.push(Missing { rank, process });
        }
        while let Some(first) = missing.first() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Error::Unreachable(format!(
                    "rank {} did not join the shared memory in {} s; are all ranks on one host \
                     and in one network namespace? (HYDRANT_JOIN_TIMEOUT waits longer)",
                    first.rank,
                    timeout.as_secs()
                )));
            }
            let ended = self.wait(&missing, left);
            self.hand_out(file, &mut missing)?;
            // A rank that ended after it got the file is seen by all ranks that have it.
            if let Some(rank) = ended.filter(|rank| missing.iter().any(|one| one.rank == *rank)) {
                return Err(Error::PeerLost(rank));
            }
        }
        Ok(())
    }

    /// Waits for a call or the end of a rank. Returns the rank that ended.
    fn wait(&self, missing: &[Missing], time: Option<Duration>) -> Option<Rank> {
        let watched = || (missing.iter()).filter_map(|one| Some((one.rank, one.process.as_ref()?)));
        let mut fds = vec![PollFd::new(&self.0, PollFlags::IN)];
        fds.extend(watched().map(|(_, process)| PollFd::new(process, PollFlags::IN)));
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        // An error (a signal) counts as passed time.
        poll(&mut fds, time.as_ref()).ok()?;
        let mut ended = watched().zip(&fds[1..]);
        ended
            .find(|(_, fd)| !fd.revents().is_empty())
            .map(|((rank, _), _)| rank)
    }

    /// Hands the file to the callers.
    fn hand_out(&self, file: BorrowedFd<'_>, missing: &mut Vec<Missing>) -> Result<(), Error> {
        let failed = |cause| Error::system("hearing the ranks that join", cause);
        while let Some(RankCall { from, descriptors }) = self.0.next_of(TURN).map_err(failed)? {
            let Some(at) = missing.iter().position(|one| one.rank == from) else {
                continue;
            };
            let Some(way) = descriptors.first() else {
                return Err(Error::Exhausted {
                    what: "descriptors of rank 0 to take the others in with",
                    limit: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                        .current
                        .unwrap_or(u64::MAX),
                    remedy: "raise it: ulimit -n",
                });
            };
            // A caller that is gone again stays missing, as if it had never called.
            if give(way, file).is_ok() {
                missing.remove(at);
            }
        }
        Ok(())
    }
}

/// Returns a descriptor that tells when a rank's process ends. `None` if the system has none.
fn watch(rank: Rank, pid: u32) -> Result<Option<OwnedFd>, Error> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => Ok(Some(process)),
        Some(Err(Errno::SRCH)) => Err(Error::PeerLost(rank)),
        // The process is watched later, and a failure then is an error. Until then only the timeout
        // applies.
        None | Some(Err(_)) => Ok(None),
    }
}

fn give(way: &OwnedFd, file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let fds = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(
        way,
        &[IoSlice::new(&[1])],
        &mut ancillary,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    )?;
    Ok(())
}

/// Fetches the file from rank 0.
///
/// # Errors
/// [`Error::PeerLost`] if rank 0 has ended; [`Error::Unreachable`] if it does not answer.
pub(crate) fn join(
    invitation: &Invitation,
    rank: u32,
    timeout: Duration,
) -> Result<OwnedFd, Error> {
    let refused = |cause: io::Error| match cause.kind() {
        // Rank 0 has ended, or has found another rank lost and given up.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Error::PeerLost(Rank(0))
        }
        io::ErrorKind::WouldBlock => Error::Unreachable(format!(
            "rank 0 did not let rank {rank} join the shared memory in {} s (HYDRANT_JOIN_TIMEOUT \
             waits longer)",
            timeout.as_secs()
        )),
        _ => Error::Unreachable(format!(
            "rank {rank} cannot join the shared memory of rank 0: {cause}; are both on one host \
             and in one network namespace?"
        )),
    };
    let (ours, theirs) = UnixStream::pair().map_err(refused)?;
    sockopt::set_socket_passcred(&ours, true).map_err(|cause| refused(cause.into()))?;
    // The system takes a timeout of zero for none.
    let waits = Some(timeout.max(Duration::from_millis(1)));
    ours.set_read_timeout(waits).map_err(refused)?;
    (invitation.call(Rank(rank), &[theirs.as_fd()], waits)).map_err(refused)?;
    // Rank 0 now has the only other end. If it ends, this rank's read returns.
    drop(theirs);
    fetch(&ours).map_err(refused)
}

/// Receives the file from rank 0.
fn fetch(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let message = rustix::io::retry_on_intr(|| {
        recvmsg(
            from,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let (mut file, mut sender) = (None, None);
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(fds) => file = fds.last(),
            RecvAncillaryMessage::ScmCredentials(credentials) => sender = Some(credentials.uid),
            _ => {}
        }
    }
    // Any process may take the name of a rank 0 that ended, and then gets the call.
    if message.bytes == 0 || sender != Some(getuid()) {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    file.ok_or_else(|| io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn file() -> OwnedFd {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4321).unwrap();
        file
    }

    #[test]
    fn ranks_get_the_file_in_any_order() {
        let (host, invitation) = open().unwrap();
        let file = file();
        let pids = [std::process::id(); 2];
        thread::scope(|scope| {
            let served = scope.spawn(|| host.serve(file.as_fd(), &pids, LONG));
            for rank in [2, 1] {
                let got = join(&invitation, rank, LONG).unwrap();
                assert_eq!(rustix::fs::fstat(&got).unwrap().st_size, 4321);
            }
            served.join().unwrap().unwrap();
        });
        let error = join(&invitation, 1, LONG).unwrap_err();
        assert!(matches!(error, Error::PeerLost(Rank(0))), "{error}");
    }

    #[test]
    fn a_rank_gets_the_file_only_once() {
        let (host, invitation) = open().unwrap();
        let file = file();
        let pids = [std::process::id(); 2];
        thread::scope(|scope| {
            let served = scope.spawn(|| host.serve(file.as_fd(), &pids, LONG));
            assert!(join(&invitation, 7, LONG).is_err(), "no such rank");
            join(&invitation, 1, LONG).unwrap();
            assert!(join(&invitation, 1, LONG).is_err(), "it had the file");
            join(&invitation, 2, LONG).unwrap();
            served.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_rank_that_does_not_call_is_named() {
        let (host, _) = open().unwrap();
        let pids = [std::process::id()];
        let error = host
            .serve(file().as_fd(), &pids, Duration::from_millis(50))
            .unwrap_err();
        assert!(error.to_string().contains("rank 1"), "{error}");
    }

    #[test]
    fn a_rank_whose_process_has_ended_is_named_at_once() {
        let (host, _) = open().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let gone = ended.id();
        let serving = thread::spawn(move || {
            let pids = [std::process::id(), gone];
            host.serve(file().as_fd(), &pids, LONG)
        });
        // The process's id is not reused before the process is waited for.
        let error = serving.join().unwrap().unwrap_err();
        ended.wait().unwrap();
        assert!(matches!(error, Error::PeerLost(Rank(2))), "{error}");
    }
}
