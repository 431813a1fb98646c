//! The queue of commands to a conduit's control thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// Commands of one type that the control thread has not taken yet.
#[derive(Debug)]
pub struct CommandQueue<C> {
    /// Filled by any thread, emptied by the control thread, in order.
    queue: Mutex<Vec<C>>,
    /// An eventfd, readable while commands wait. The control thread polls it.
    event: OwnedFd,
}

impl<C> CommandQueue<C> {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn new() -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|cause| Error::system("making an eventfd", cause))?;
        Ok(Self {
            queue: Mutex::new(Vec::new()),
            event,
        })
    }

    /// Adds a command, and wakes the control thread.
    pub fn push(&self, command: C) {
        self.queue.lock().push(command);
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Takes all commands, in the order in which they were pushed.
    pub fn take_all(&self) -> Vec<C> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        std::mem::take(&mut *self.queue.lock())
    }
}

impl<C> AsFd for CommandQueue<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
