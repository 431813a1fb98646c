//! The queue of commands to the control thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hydrant_conduit::{Error, Rank};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// A task that another thread gives the control thread.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Makes the connection to a peer, for the first time or again.
    Connect(Rank),
    /// Asks a peer for the PSN that it expects next on a connection that broke.
    QueryPsn(Rank),
    /// Declares a peer lost, for this reason.
    Lose(Rank, &'static str),
    /// Declares a peer lost that broke the protocol, and tells the peer.
    Expel(Rank),
    /// Announces that this rank's program has come to its end, or continues after all. Carries the
    /// number of the announcement.
    ComeToEnd(u32),
    /// Announces that this rank leaves; `true` if in good order.
    Leave(bool),
    /// Resends the wake of this number to a peer until the peer acknowledges.
    ConfirmWake(Rank, u32),
    /// Ends the thread: the conduit is dropped.
    Stop,
}

/// Commands that the control thread has not taken yet.
pub(crate) struct CommandQueue {
    /// Filled by any thread, emptied by the control thread, in order.
    queue: Mutex<Vec<ControlCommand>>,
    /// An eventfd, readable while commands wait. The control thread polls it.
    event: OwnedFd,
}

impl CommandQueue {
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|cause| Error::system("making an eventfd", cause))?;
        Ok(Self {
            queue: Mutex::default(),
            event,
        })
    }

    pub(crate) fn push(&self, command: ControlCommand) {
        self.queue.lock().push(command);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub(crate) fn take_all(&self) -> Vec<ControlCommand> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        std::mem::take(&mut *self.queue.lock())
    }
}

impl AsFd for CommandQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
