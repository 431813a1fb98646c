//! News of peers that nobody has read yet.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Instant,
};

use hydrant_conduit::Error as ConduitError;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use crate::{LossCause, Result, session::Session};

/// The news that are not read, above which no peer may connect any more.
const MOST_UNREAD: usize = 16_384;

/// The news that are not read, above which a connection that has come and gone is no news.
const MANY_UNREAD: usize = 1024;

/// News, as they are kept until somebody reads them.
pub(crate) enum PeerNews {
    Connected(Arc<Session>),
    Returned(Arc<Session>, u64),
    Left(Arc<Session>),
    Lost(Arc<Session>, LossCause),
    Message(Arc<Session>, Vec<u8>),
}

impl PeerNews {
    pub(crate) fn session(&self) -> &Arc<Session> {
        match self {
            Self::Connected(session)
            | Self::Returned(session, _)
            | Self::Left(session)
            | Self::Lost(session, _)
            | Self::Message(session, _) => session,
        }
    }

    fn is_begin(&self) -> bool {
        matches!(self, Self::Connected(_) | Self::Returned(..))
    }

    fn is_end(&self) -> bool {
        matches!(self, Self::Left(_) | Self::Lost(..))
    }
}

/// The news that nobody has read yet.
#[derive(Default)]
pub(crate) struct NewsQueue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    /// Readable while there are news, once somebody asked for it.
    event: OnceLock<OwnedFd>,
}

#[derive(Default)]
struct QueueState {
    news: VecDeque<PeerNews>,
    wakers: Vec<Waker>,
    is_closed: bool,
}

impl NewsQueue {
    /// Adds news, and returns the wakers of those who wait. If many are unread, a connection that has come and gone before
    /// anybody read of it, and has sent nothing, is none.
    pub(crate) fn push(&self, news: PeerNews) -> Vec<Waker> {
        let mut state = self.state.lock();
        if news.is_end() && state.news.len() >= MANY_UNREAD {
            let number = news.session().number;
            let mut its = (state.news.iter()).filter(|other| other.session().number == number);
            let is_unread = its.next().is_some_and(PeerNews::is_begin) && its.next().is_none();
            if is_unread {
                state.news.retain(|other| other.session().number != number);
                return Vec::new();
            }
        }
        state.news.push_back(news);
        self.notify(state)
    }

    fn notify(&self, mut state: parking_lot::MutexGuard<'_, QueueState>) -> Vec<Waker> {
        let wakers = std::mem::take(&mut state.wakers);
        if let Some(event) = self.event.get() {
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
        drop(state);
        self.arrived.notify_all();
        wakers
    }

    /// Ends all waits, once the endpoint is closed. Returns the wakers of those who wait.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.notify(state)
    }

    /// Returns true if so much is unread that no peer may connect.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().news.len() >= MOST_UNREAD
    }

    /// Takes the next news. Returns `None` if there are none.
    pub(crate) fn take(&self) -> Option<PeerNews> {
        self.take_from(&mut self.state.lock())
    }

    fn take_from(&self, state: &mut QueueState) -> Option<PeerNews> {
        let news = state.news.pop_front();
        if state.news.is_empty()
            && !state.is_closed
            && let Some(event) = self.event.get()
        {
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
        news
    }

    /// Waits for news, at most until `deadline`. Returns `None` then, or if the endpoint is closed.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Option<PeerNews> {
        let mut state = self.state.lock();
        loop {
            if let Some(news) = self.take_from(&mut state) {
                return Some(news);
            }
            if state.is_closed {
                return None;
            }
            match deadline {
                None => self.arrived.wait(&mut state),
                Some(deadline) => {
                    if self.arrived.wait_until(&mut state, deadline).timed_out() {
                        return self.take_from(&mut state);
                    }
                }
            }
        }
    }

    /// Takes news, or has the task woken once there are some. Gives `None` if the endpoint is closed.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Option<PeerNews>> {
        // Wakers are of the user, whose code does not run under the lock.
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        match self.take_from(&mut state) {
            Some(news) => Poll::Ready(Some(news)),
            None if state.is_closed => Poll::Ready(None),
            None => {
                state.wakers.push(waker);
                Poll::Pending
            }
        }
    }

    /// Returns the descriptor that is readable while there are news.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System).
    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        // The lock keeps news from coming between the look and the descriptor.
        let state = self.state.lock();
        if self.event.get().is_none() {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let begin = u32::from(!state.news.is_empty() || state.is_closed);
            let event = eventfd(begin, flags)
                .map_err(|cause| ConduitError::system("making an eventfd", cause))?;
            let _ = self.event.set(event);
        }
        drop(state);
        let event = self.event.get().expect("it was set above");
        Ok(event.as_fd())
    }
}
