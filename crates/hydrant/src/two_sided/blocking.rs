//! Sends and receives that are over when the call returns.

#![allow(unsafe_code)] // lends buffers to requests, which are over before these calls return

use std::panic::Location;

use hydrant_conduit::Standing;

use super::{
    Source, Status, Tag, TwoSided,
    direct::Patience,
    handles::{destination, source},
    pattern::Pattern,
};
use crate::{Error, Rank, Result, progress};

impl TwoSided {
    /// Sends a message; its source may be used again on return.
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
        match self.send_at_once(to, tag, data)? {
            true => Ok(()),
            false => self.send_patiently(to, tag, data, site),
        }
    }

    /// Sends a message that has a request.
    fn send_patiently(
        &self,
        to: Rank,
        tag: u64,
        data: &[u8],
        site: &'static Location<'static>,
    ) -> Result<()> {
        self.progress.to_the_end(|| {
            // SAFETY: `data` is borrowed until the request is over.
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
        match self.receive_at_once(pattern, data, Patience::Wait)? {
            Some(status) => Ok(status),
            None => self.receive_patiently(pattern, data, site),
        }
    }

    /// Receives a message by a receive that is posted.
    fn receive_patiently(
        &self,
        pattern: Pattern,
        data: &mut [u8],
        site: &'static Location<'static>,
    ) -> Result<Status> {
        self.progress.to_the_end(|| {
            // SAFETY: `data` is borrowed mutably until the request is over.
            let (request, _) = unsafe { self.begin_receive(pattern, destination(data), site)? };
            self.finish(&request)
        })
    }

    /// Sends one message and receives another, both at once.
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
        // In a look the end of a peer is noticed.
        self.found_one(pattern);
        // Before the receive takes a message.
        let standing = self.progress.conduit().standing(to);
        if to != self.progress.rank && standing != Standing::Present {
            return Err(self.progress.gone(to));
        }
        self.progress.to_the_end(|| {
            let send = || {
                // SAFETY: `data` is borrowed until the request is over.
                let sent = unsafe { self.begin_send(to, tag, source(data), false, site)? };
                self.finish(&sent).map(drop)
            };
            // SAFETY: `room` is borrowed mutably until the request is over.
            let received = unsafe { self.take_or_post(pattern, destination(room), site) };
            let (received, at) = match received {
                Ok(begun) => begun,
                // The peer gets its message, as it would if the one that is too long came later.
                Err(cause @ Error::ReceiveTooShort { .. }) => return send().and(Err(cause)),
                Err(cause) => return Err(cause),
            };
            let sent = send();
            if sent.is_err()
                && let Some(at) = at
            {
                // Nobody may answer what was not sent.
                self.withdraw(at);
            }
            let received = self.finish(&received);
            sent.and(received)
        })
    }
}
