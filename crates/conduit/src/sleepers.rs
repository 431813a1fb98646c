//! Sleeping threads of conduits over networks, and how arrivals, other threads and peers wake them.
//!
//! Every sleeper has its own eventfd, and polls the descriptor of the network beside it. A
//! descriptor may give an event to one reader only. So that reader wakes all others. A thread that takes completions
//! without sleeping wakes them, too, because it may have taken those that they sleep for.
//!
//! A thread that goes to sleep arms its completion queues, polls once more, and waits.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst, fence},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::Error;

/// All threads that sleep or are about to.
#[derive(Debug, Default)]
pub struct Sleepers {
    list: Mutex<SleeperList>,
    /// How many of them listen for arrivals.
    listening: AtomicUsize,
}

#[derive(Debug, Default)]
struct SleeperList {
    /// The eventfd of each sleeper, and whether it listens for arrivals.
    waiters: Vec<(Arc<OwnedFd>, Listens)>,
    /// Emptied eventfds for later sleepers.
    spare: Vec<Arc<OwnedFd>>,
}

/// The wake-ups that a sleeper wants: those by arrivals, too, or only explicit ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listens {
    /// By arrivals, too.
    Yes,
    /// Only explicit ones.
    No,
}

/// A thread registered as a sleeper, until dropped.
#[derive(Debug)]
pub struct Waiter<'a> {
    all: &'a Sleepers,
    /// The eventfd that it sleeps on. Other threads write to it to wake the sleeper.
    event: Arc<OwnedFd>,
    listens: Listens,
}

/// The cause of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeCause {
    /// The completion channel has an event.
    Channel,
    /// Another thread woke the sleeper, or its timeout expired.
    Otherwise,
}

impl Sleepers {
    /// Registers this thread as a sleeper: from now on, wake-ups reach it.
    ///
    /// # Errors
    /// [`Error::System`] if the process has no descriptor left.
    pub fn enter(&self, listens: Listens) -> Result<Waiter<'_>, Error> {
        let spare = self.list().spare.pop();
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
        self.list().waiters.push((Arc::clone(&event), listens));
        // Orders the registration before the sleeper's last check. A waker publishes its news,
        // passes a fence and then looks for sleepers.
        fence(SeqCst);
        Ok(Waiter {
            all: self,
            event,
            listens,
        })
    }

    /// Wakes all sleepers.
    pub fn wake_all(&self) {
        for (event, _) in &self.list().waiters {
            notify(event);
        }
    }

    /// Returns true if a thread sleeps until something arrives, or is about to.
    pub fn are_listening(&self) -> bool {
        self.listening.load(SeqCst) > 0
    }

    /// Wakes the sleepers that listen for arrivals, after the caller took something that they may
    /// wait for.
    #[inline]
    pub fn wake_listening(&self) {
        // A sleeper registers before its last check. This fence orders the caller's news before the
        // look for sleepers.
        fence(SeqCst);
        if self.listening.load(SeqCst) > 0 {
            self.wake_listening_except(None);
        }
    }

    fn wake_listening_except(&self, but: Option<&Arc<OwnedFd>>) {
        for (event, listens) in &self.list().waiters {
            if *listens == Listens::Yes && but.is_none_or(|but| !Arc::ptr_eq(but, event)) {
                notify(event);
            }
        }
    }

    fn list(&self) -> MutexGuard<'_, SleeperList> {
        self.list.lock()
    }
}

impl Waiter<'_> {
    /// Sleeps until woken, until `channel` has an event, or until the timeout.
    pub fn sleep(&self, channel: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> WakeCause {
        let mut fds = vec![PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN)];
        fds.extend(channel.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        // An interrupted sleep just ends early.
        let _ = poll(&mut fds, timeout.as_ref());
        match fds.get(1) {
            Some(fd) if !fd.revents().is_empty() => WakeCause::Channel,
            _ => WakeCause::Otherwise,
        }
    }

    /// Wakes the other listening sleepers, after this thread took the event of the channel.
    pub fn notify_others(&self) {
        self.all.wake_listening_except(Some(&self.event));
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.listens == Listens::Yes {
            self.all.listening.fetch_sub(1, SeqCst);
        }
        let mut list = self.all.list();
        list.waiters
            .retain(|(event, _)| !Arc::ptr_eq(event, &self.event));
        // The list no longer has the eventfd, so nobody writes to it after it is emptied.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.event, &mut count);
        list.spare.push(Arc::clone(&self.event));
    }
}

fn notify(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri lacks these system calls")]
    fn a_wake_up_before_the_sleep_is_not_lost() {
        let sleepers = Sleepers::default();
        let waiter = sleepers.enter(Listens::No).unwrap();
        sleepers.wake_listening();
        let brief = Some(Duration::from_millis(1));
        assert_eq!(waiter.sleep(None, brief), WakeCause::Otherwise);
        sleepers.wake_all();
        assert_eq!(waiter.sleep(None, None), WakeCause::Otherwise);
        drop(waiter);
        // Its eventfd is reused, emptied.
        let waiter = sleepers.enter(Listens::Yes).unwrap();
        assert_eq!(sleepers.list().spare.len(), 0);
        sleepers.wake_listening();
        assert_eq!(waiter.sleep(None, None), WakeCause::Otherwise);
    }
}
