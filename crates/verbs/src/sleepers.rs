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
    state: Mutex<State>,
    /// Of those, how many sleep until something arrives.
    listening: AtomicUsize,
}

#[derive(Default)]
struct State {
    seats: Vec<(Arc<OwnedFd>, Listens)>,
    spare: Vec<Arc<OwnedFd>>,
}

/// Whether a sleeper wants to know of what arrives, or only of being woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Listens {
    Yes,
    No,
}

/// A thread that sleeps, until dropped.
pub(crate) struct Seat<'a> {
    all: &'a Sleepers,
    bell: Arc<OwnedFd>,
    listens: Listens,
}

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// The channel has something to tell.
    Channel,
    /// Somebody woke it, or the time is over.
    Otherwise,
}

impl Sleepers {
    /// From now on, whoever wakes anybody wakes this thread.
    pub(crate) fn sit(&self, listens: Listens) -> Result<Seat<'_>, Error> {
        let spare = self.state().spare.pop();
        let bell = match spare {
            Some(bell) => bell,
            None => {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                Arc::new(eventfd(0, flags).map_err(|cause| Error::system("making a bell", cause))?)
            }
        };
        if listens == Listens::Yes {
            self.listening.fetch_add(1, SeqCst);
        }
        self.state().seats.push((Arc::clone(&bell), listens));
        // Then it looks; who brings something looks for sleepers after another one.
        fence(SeqCst);
        Ok(Seat {
            all: self,
            bell,
            listens,
        })
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&self) {
        for (bell, _) in &self.state().seats {
            ring(bell);
        }
    }

    /// Something was taken that sleepers may have waited for.
    #[inline]
    pub(crate) fn arrived(&self) {
        // A sleeper sits before it looks; this looks for sleepers after what it took.
        fence(SeqCst);
        if self.listening.load(SeqCst) > 0 {
            self.wake_listening(None);
        }
    }

    fn wake_listening(&self, but: Option<&Arc<OwnedFd>>) {
        for (bell, listens) in &self.state().seats {
            if *listens == Listens::Yes && but.is_none_or(|but| !Arc::ptr_eq(but, bell)) {
                ring(bell);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Seat<'_> {
    /// Sleeps.
    pub(crate) fn sleep(
        &self,
        channel: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> Woken {
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        fds.extend(channel.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        // An interrupted sleep is one that ended early.
        let _ = poll(&mut fds, timeout.as_ref());
        match fds.get(1) {
            Some(fd) if !fd.revents().is_empty() => Woken::Channel,
            _ => Woken::Otherwise,
        }
    }

    /// This thread took what the channel told: the others are told so.
    pub(crate) fn tell_others(&self) {
        self.all.wake_listening(Some(&self.bell));
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if self.listens == Listens::Yes {
            self.all.listening.fetch_sub(1, SeqCst);
        }
        let mut state = self.all.state();
        state
            .seats
            .retain(|(bell, _)| !Arc::ptr_eq(bell, &self.bell));
        // Nobody has it in the list any more, so nobody rings it after it is silenced.
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        state.spare.push(Arc::clone(&self.bell));
    }
}

fn ring(bell: &OwnedFd) {
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_woken_before_sleeping_does_not_sleep() {
        let sleepers = Sleepers::default();
        let seat = sleepers.sit(Listens::No).unwrap();
        sleepers.arrived();
        let brief = Some(Duration::from_millis(1));
        assert_eq!(seat.sleep(None, brief), Woken::Otherwise);
        sleepers.wake_all();
        assert_eq!(seat.sleep(None, None), Woken::Otherwise);
        drop(seat);
        // Its bell is used again, silent.
        let seat = sleepers.sit(Listens::Yes).unwrap();
        assert_eq!(sleepers.state().spare.len(), 0);
        sleepers.arrived();
        assert_eq!(seat.sleep(None, None), Woken::Otherwise);
    }
}
