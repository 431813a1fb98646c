//! Threads that sleep, and how they are woken: by the NIC, by another thread, by a peer.
//!
//! Every sleeper has an eventfd of its own, and looks at the completion channel beside it. The
//! channel tells one event to one reader: who takes it wakes all others. A thread that takes
//! completions without having slept wakes them, too, for it may have taken what they sleep for.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst, fence},
    },
    time::Duration,
};

use hydrant_conduit::Error;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// All that sleep, or are about to.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// Who they are.
    state: Mutex<SleeperList>,
    /// Of those, how many sleep until something arrives.
    listening: AtomicUsize,
}

#[derive(Default)]
struct SleeperList {
    /// The eventfd of each, and what it wants to know of.
    waiters: Vec<(Arc<OwnedFd>, Listens)>,
    /// Eventfds that nobody has now, emptied.
    spare: Vec<Arc<OwnedFd>>,
}

/// Whether a sleeper wants to know of what arrives, or only of being woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Listens {
    Yes,
    No,
}

/// A thread that sleeps, until dropped.
pub(crate) struct Waiter<'a> {
    /// Those it is one of.
    all: &'a Sleepers,
    /// What it sleeps on; written to by who wakes it.
    event: Arc<OwnedFd>,
    /// What it wants to know of.
    listens: Listens,
}

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WakeCause {
    /// The channel has something to tell.
    Channel,
    /// Somebody woke it, or the time is over.
    Otherwise,
}

impl Sleepers {
    /// From now on, whoever wakes anybody wakes this thread.
    pub(crate) fn enter(&self, listens: Listens) -> Result<Waiter<'_>, Error> {
        let spare = self.state().spare.pop();
        let event = match spare {
            Some(event) => event,
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                Arc::new(
                    eventfd(0, flags).map_err(|cause| Error::system("making an eventfd", cause))?,
                )
            }
        };
        if listens == Listens::Yes {
            self.listening.fetch_add(1, SeqCst);
        }
        self.state().waiters.push((Arc::clone(&event), listens));
        // Then it looks; who brings something looks for sleepers after another one.
        fence(SeqCst);
        Ok(Waiter {
            all: self,
            event,
            listens,
        })
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&self) {
        for (event, _) in &self.state().waiters {
            notify(event);
        }
    }

    /// Something was taken that sleepers may have waited for.
    #[inline]
    pub(crate) fn wake_listening(&self) {
        // A sleeper enters before it looks; this looks for sleepers after what it took.
        fence(SeqCst);
        if self.listening.load(SeqCst) > 0 {
            self.wake_listening_except(None);
        }
    }

    fn wake_listening_except(&self, but: Option<&Arc<OwnedFd>>) {
        for (event, listens) in &self.state().waiters {
            if *listens == Listens::Yes && but.is_none_or(|but| !Arc::ptr_eq(but, event)) {
                notify(event);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, SleeperList> {
        self.state.lock()
    }
}

impl Waiter<'_> {
    /// Sleeps.
    pub(crate) fn sleep(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> WakeCause {
        let mut fds = vec![PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
        fds.extend(channel.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        // An interrupted sleep is one that ended early.
        let _ = poll(&mut fds, timeout.as_ref());
        match fds.get(1) {
            Some(fd) if !fd.revents().is_empty() => WakeCause::Channel,
            _ => WakeCause::Otherwise,
        }
    }

    /// This thread took what the channel told: the others look, too.
    pub(crate) fn notify_others(&self) {
        self.all.wake_listening_except(Some(&self.event));
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.listens == Listens::Yes {
            self.all.listening.fetch_sub(1, SeqCst);
        }
        let mut state = self.all.state();
        state
            .waiters
            .retain(|(event, _)| !Arc::ptr_eq(event, &self.event));
        // Nobody has it in the list any more, so nobody notifies it after it is silenced.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        state.spare.push(Arc::clone(&self.event));
    }
}

fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_woken_before_sleeping_does_not_sleep() {
        let sleepers = Sleepers::default();
        let waiter = sleepers.enter(Listens::No).unwrap();
        sleepers.wake_listening();
        let brief = Some(Duration::from_millis(1));
        assert_eq!(waiter.sleep(None, brief), WakeCause::Otherwise);
        sleepers.wake_all();
        assert_eq!(waiter.sleep(None, None), WakeCause::Otherwise);
        drop(waiter);
        // Its eventfd is used again, emptied.
        let waiter = sleepers.enter(Listens::Yes).unwrap();
        assert_eq!(sleepers.state().spare.len(), 0);
        sleepers.wake_listening();
        assert_eq!(waiter.sleep(None, None), WakeCause::Otherwise);
    }
}
