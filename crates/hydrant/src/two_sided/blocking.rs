//! Sends and receives that are complete when the call returns.

#![allow(unsafe_code)] // lends buffers to requests that end before the call returns

use std::panic::Location;

use hydrant_conduit::Standing;

use super::{
    Source, Status, Tag, TwoSided,
    direct::PollCount,
    handles::{destination, source},
    pattern::Pattern,
};
use crate::{Error, Rank, Result, progress};

impl TwoSided {
    /// Sends a message. Its source is free on return.
    ///
    /// # Errors
    /// As [`Job::send`](crate::Job::send).
    pub(crate) fn send(
        &self,
        to: Rank,
        tag: u64,
        data: &[u8],
        site: &'static Location<'static>,
    ) -> Result<()> {
        if self.send_at_once(to, tag, data)? {
            return Ok(());
        }
        self.send_with_request(to, tag, data, site)
    }

    /// Sends a message that needs a request.
    fn send_with_request(
        &self,
        to: Rank,
        tag: u64,
        data: &[u8],
        site: &'static Location<'static>,
    ) -> Result<()> {
        self.progress.abort_on_unwind(|| {
            // SAFETY: 1., 2. `data` is borrowed until `finish` has returned.
            let request = unsafe { self.begin_send(to, tag, source(data), false, site)? };
            self.finish(&request).map(drop)
        })
    }

    /// Receives a message.
    ///
    /// # Errors
    /// As [`Job::receive`](crate::Job::receive).
    pub(crate) fn receive(
        &self,
        (from, tag): (Source, Tag),
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<Status> {
        let pattern = Pattern::new(from, tag);
        match self.receive_at_once(pattern, data, PollCount::Repeated)? {
            Some(status) => Ok(status),
            None => self.receive_with_request(pattern, data, site),
        }
    }

    /// Receives a message by a posted receive.
    fn receive_with_request(
        &self,
        pattern: Pattern,
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<Status> {
        self.progress.abort_on_unwind(|| {
            // SAFETY: 1., 2. `data` is borrowed mutably until `finish` has returned.
            let (request, _) = unsafe { self.begin_receive(pattern, destination(data), site)? };
            self.finish(&request)
        })
    }

    /// Sends one message and receives another at the same time.
    ///
    /// # Errors
    /// As [`Job::send_receive`](crate::Job::send_receive).
    pub(crate) fn send_receive(
        &self,
        (to, tag, data): (Rank, u64, &[u8]),
        (from, of, room): (Source, Tag, &mut [u8]),
        site: &'static Location<'static>,
    ) -> Result<Status> {
        let pattern = Pattern::new(from, of);
        progress::may_wait("a send")?;
        self.check(Some(to.0), Some(tag))?;
        self.check(pattern.source, pattern.tag)?;
        // A poll notices the end of a peer.
        self.note_found(pattern);
        // This check comes before the receive takes a message.
        let standing = self.progress.conduit().standing(to);
        if to != self.progress.rank && standing != Standing::Present {
            return Err(self.progress.why_gone(to));
        }
        self.progress.abort_on_unwind(|| {
            let send = || {
                // SAFETY: 1., 2. `data` is borrowed until `finish` has returned.
                let sent = unsafe { self.begin_send(to, tag, source(data), false, site)? };
                self.finish(&sent).map(drop)
            };
            // SAFETY: 1., 2. `room` is borrowed mutably until `finish` has returned.
            let received = unsafe { self.take_or_post(pattern, destination(room), site) };
            let (received, at) = match received {
                Ok(begun) => begun,
                // The peer gets its message, as it would if the too long message came later.
                Err(cause @ Error::ReceiveTooShort { .. }) => return send().and(Err(cause)),
                Err(cause) => return Err(cause),
            };
            let sent = send();
            if sent.is_err()
                && let Some(at) = at
            {
                // The peer may never answer a message that was not sent.
                self.withdraw(at);
            }
            let received = self.finish(&received);
            sent.and(received)
        })
    }
}
