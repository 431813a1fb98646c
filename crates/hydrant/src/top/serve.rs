//! The thread of a rank that answers those who look at it.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::socket_peer::SocketPeer;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
    net::{SendFlags, send},
};

use super::{find::RankAddress, snapshot::RankSnapshot};
use crate::{Settings, transfer::Transfer};

/// How long a reader may take to read an answer that does not fit into the socket.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long to wait when the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// The stack of the thread.
const STACK: usize = 256 << 10;

/// Answers those who look at a rank, until it is dropped.
pub(crate) struct SnapshotServer {
    stop: Arc<ServerStop>,
    thread: Option<JoinHandle<()>>,
}

/// Ends the thread.
struct ServerStop {
    is_set: AtomicBool,
    /// An eventfd that wakes the thread.
    wake: OwnedFd,
}

impl SnapshotServer {
    /// Begins to answer, if the setting says so. The rank goes on if that fails, which is logged.
    pub(crate) fn start(transfer: &Arc<Transfer>, settings: &Settings) -> Option<Self> {
        // In virtual time nobody can look at a moment.
        if !settings.top || transfer.progress.virtual_time {
            return None;
        }
        let progress = &transfer.progress;
        let address = RankAddress {
            job: progress.id,
            rank: progress.rank.0,
            ranks: progress.size,
        };
        let looked_at = Arc::clone(transfer);
        match Self::listen(address, move || RankSnapshot::of(&looked_at)) {
            Ok(server) => Some(server),
            Err(cause) => {
                let rank = progress.rank;
                tracing::warn!(%rank, %cause, "`hydrant top` cannot look at this rank");
                None
            }
        }
    }

    fn listen(
        address: RankAddress,
        look: impl Fn() -> RankSnapshot + Send + 'static,
    ) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(address.to_string())?;
        let listener = UnixListener::bind_addr(&name)?;
        listener.set_nonblocking(true)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(ServerStop {
            is_set: AtomicBool::new(false),
            wake: eventfd(0, flags)?,
        });
        let thread = thread::Builder::new()
            .name(format!("hydrant-top-{}", address.rank))
            .stack_size(STACK)
            .spawn({
                let stop = Arc::clone(&stop);
                move || serve(&listener, &stop, address.rank, &look)
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for SnapshotServer {
    fn drop(&mut self) {
        self.stop.is_set.store(true, SeqCst);
        let _ = rustix::io::write(&self.stop.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that `hydrant top` asks panicked");
        }
    }
}

impl ServerStop {
    /// Waits until a descriptor is ready for `flags`, for the time, or until the end of the thread.
    fn wait(&self, fd: BorrowedFd<'_>, flags: PollFlags, time: Option<Duration>) {
        let mut fds = [
            PollFd::from_borrowed_fd(fd, flags),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        // An error (a signal) counts as ready: the caller tries again.
        let _ = poll(&mut fds, time.as_ref());
    }

    fn is_set(&self) -> bool {
        self.is_set.load(SeqCst)
    }
}

/// Answers one after the other.
fn serve(listener: &UnixListener, stop: &ServerStop, rank: u32, look: &dyn Fn() -> RankSnapshot) {
    loop {
        stop.wait(listener.as_fd(), PollFlags::IN, None);
        if stop.is_set() {
            return;
        }
        match listener.accept() {
            Ok((asker, _)) => answer(&asker, stop, look),
            Err(cause) => match cause.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    thread::sleep(PAUSE);
                }
                _ => {
                    tracing::warn!(rank, %cause, "`hydrant top` can no longer look at this rank");
                    return;
                }
            },
        }
    }
}

/// Sends a snapshot to a process of this user. Others get nothing.
fn answer(asker: &UnixStream, stop: &ServerStop, look: &dyn Fn() -> RankSnapshot) {
    if !SocketPeer::of(asker).is_ok_and(|it| it.is_same_user()) {
        return;
    }
    let text = look().to_string();
    let mut rest = text.as_bytes();
    let since = Instant::now();
    while !rest.is_empty() && !stop.is_set() {
        match send(asker, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match PATIENCE.checked_sub(since.elapsed()) {
                Some(left) => stop.wait(asker.as_fd(), PollFlags::OUT, Some(left)),
                None => return,
            },
            // The asker is gone.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::top::{FirehoseBytes, NoAnswer, RegisteredMemory, addresses, ask};

    const LONG: Duration = Duration::from_secs(60);

    /// An address of no other test.
    fn address(rank: u32) -> RankAddress {
        RankAddress {
            job: 1 << 63 | u64::from(std::process::id()),
            rank,
            ranks: 100,
        }
    }

    /// A snapshot of some bytes, or of many more than a socket holds.
    fn snapshot(firehoses: u32) -> RankSnapshot {
        let firehoses = (0..firehoses).map(|peer| FirehoseBytes {
            peer,
            ..FirehoseBytes::default()
        });
        RankSnapshot {
            job: 7,
            memory: Some(RegisteredMemory {
                firehoses: firehoses.collect(),
                ..RegisteredMemory::default()
            }),
            ..RankSnapshot::default()
        }
    }

    fn connect(address: RankAddress) -> UnixStream {
        let name = SocketAddr::from_abstract_name(address.to_string()).expect("a name");
        UnixStream::connect_addr(&name).expect("somebody listens")
    }

    #[test]
    fn whoever_asks_gets_a_fresh_snapshot_until_the_end() {
        let (at, other) = (address(1), address(2));
        let server = SnapshotServer::listen(at, || snapshot(3)).expect("a socket");
        assert!(addresses().expect("a list").contains(&at));
        assert!(
            SnapshotServer::listen(at, || snapshot(4)).is_err(),
            "the name is taken"
        );
        for _ in 0..3 {
            let answers = ask(&[at, other], LONG);
            assert_eq!(answers[0].outcome, Ok(snapshot(3)));
            assert_eq!(answers[0].pid, Some(std::process::id()));
            assert_eq!(answers[1].outcome, Err(NoAnswer::Ended));
        }
        drop(server);
        assert!(!addresses().expect("a list").contains(&at));
        assert_eq!(ask(&[at], LONG)[0].outcome, Err(NoAnswer::Ended));
    }

    #[test]
    fn answers_longer_than_a_socket_holds_arrive() {
        let at = address(3);
        let _server = SnapshotServer::listen(at, || snapshot(60_000)).expect("a socket");
        assert_eq!(ask(&[at], LONG)[0].outcome, Ok(snapshot(60_000)));
    }

    #[test]
    fn readers_that_read_nothing_or_send_garbage_hinder_nobody() {
        let at = address(4);
        let server = SnapshotServer::listen(at, || snapshot(60_000)).expect("a socket");
        let mut stuck: Vec<UnixStream> = (0..3).map(|_| connect(at)).collect();
        for asker in &mut stuck {
            let _ = io::Write::write_all(asker, &[0xff; 1000]);
        }
        // Some leave at once.
        (0..20).for_each(|_| drop(connect(at)));
        assert_eq!(ask(&[at], LONG)[0].outcome, Ok(snapshot(60_000)));
        // They get a part of the answer, and then the end.
        for asker in &mut stuck {
            let mut got = Vec::new();
            let _ = asker.read_to_end(&mut got);
            assert!(!got.is_empty() && !got.ends_with(b"end\n"));
        }
        // The end of the rank waits for none of them.
        let _late: Vec<UnixStream> = (0..100).map(|_| connect(at)).collect();
        let since = Instant::now();
        drop(server);
        assert!(since.elapsed() < 50 * PATIENCE, "it served them all first");
    }
}
