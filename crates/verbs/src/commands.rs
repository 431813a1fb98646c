//! What other threads have the control thread do.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hydrant_conduit::{Error, Rank};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// What other threads have the control thread do.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Makes the connection to a peer, or makes it anew.
    Connect(Rank),
    /// Asks a peer how far it got before a connection broke.
    QueryPsn(Rank),
    /// A peer is lost, and why.
    Lose(Rank, &'static str),
    /// A peer sent what follows no rule.
    Expel(Rank),
    /// This rank's program has come to its end, or goes on after all: the number of that announcement.
    ComeToEnd(u32),
    /// This rank ends, in good order or not.
    Leave(bool),
    /// A peer was asked to wake its sleepers: it is asked again until it says that it did.
    ConfirmWake(Rank, u32),
    /// The conduit is dropped.
    Stop,
}

/// CommandQueue on their way to the control thread.
pub(crate) struct CommandQueue {
    /// Given by any thread, taken by the control thread, in order.
    queue: Mutex<Vec<ControlCommand>>,
    /// Readable while commands wait: the control thread polls it.
    event: OwnedFd,
}

impl CommandQueue {
    /// # Errors
    /// [`Error::System`] where the process has no descriptor left.
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
