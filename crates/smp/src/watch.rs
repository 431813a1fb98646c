//! Notices the death of a peer.
//!
//! A thread of each rank sleeps in `poll` on the `pidfd` of every peer's process. The kernel makes
//! the descriptor readable when the process is gone, for whatever reason. A death is therefore
//! noticed at once, and the watch costs nothing.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use hydrant_conduit::{Error, Rank};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The watch of all peers, until this is dropped.
pub(crate) struct ProcessWatch {
    /// An eventfd that is written to end the thread.
    stop: Arc<OwnedFd>,
    /// The thread, which is joined when this is dropped.
    thread: Option<JoinHandle<()>>,
}

impl ProcessWatch {
    /// Starts a thread that calls `gone` once for each of `peers` whose process ends.
    pub(crate) fn start(
        peers: Vec<(Rank, u32)>,
        gone: impl Fn(Rank) + Send + 'static,
    ) -> Result<Self, Error> {
        let mut watched = Vec::new();
        for (rank, pid) in peers {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                Some(Ok(fd)) => watched.push((rank, fd)),
                // The process ended before it could be watched, or never existed.
                None | Some(Err(Errno::SRCH)) => gone(rank),
                Some(Err(cause)) => return Err(Error::system("watching a peer", cause)),
            }
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|cause| Error::system("making an eventfd", cause))?;
        let stop = Arc::new(stop);
        let thread = thread::Builder::new()
            .name("hydrant-watch".to_owned())
            .stack_size(64 << 10)
            .spawn({
                let stop = Arc::clone(&stop);
                move || watch(&stop, watched, gone)
            })
            .map_err(|cause| Error::system("starting the watch thread", cause))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

fn watch(stop: &OwnedFd, mut watched: Vec<(Rank, OwnedFd)>, gone: impl Fn(Rank)) {
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        fds.extend((watched.iter()).map(|(_, fd)| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(cause) => {
                let cause = io::Error::from(cause);
                tracing::error!(%cause, "peers are no longer watched: a dead one will not be seen");
                return;
            }
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let mut ready = ready[1..].iter();
        watched.retain(|(rank, _)| {
            let ended = ready.next() == Some(&true);
            if ended {
                gone(*rank);
            }
            !ended
        });
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
