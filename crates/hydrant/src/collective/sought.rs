//! What a collective waits for: a word of its scratch that another member stores.
//!
//! Who blocks waits for it as for anything else. A collective that goes on while the program
//! computes leaves it to the [queue](super::queue), which looks whether it has come.

use std::{future::poll_fn, sync::atomic::Ordering::Acquire, task::Poll};

use super::team::{QUEUED, Shared, Team, outside};
use crate::{
    Rank, Result,
    progress::{For, On},
};

/// A word of a team's scratch, and what is to be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    at: usize,
    value: u64,
    /// Uses of channels are counted: a word of the same use that counts on will do.
    counts: bool,
}

impl Sought {
    /// This value.
    pub(super) fn word(at: usize, value: u64) -> Self {
        Self {
            at,
            value,
            counts: false,
        }
    }

    /// A count of chunks beyond that of `value`, in the same use of a channel.
    pub(super) fn beyond(at: usize, value: u64) -> Self {
        Self {
            at,
            value,
            counts: true,
        }
    }

    /// Whether it is there.
    #[inline]
    fn is(self, found: u64) -> bool {
        match self.counts {
            false => found == self.value,
            true => found >> 8 == self.value >> 8 && found != self.value,
        }
    }
}

impl Team {
    /// Waits for a word that some of `members` bring about.
    ///
    /// # Errors
    /// [`Error::PeerLost`](crate::Error::PeerLost) if one of them ended first.
    #[inline]
    pub(super) async fn until(&self, members: &[Rank], sought: Sought) -> Result<()> {
        let word = (self.scratch.atomic_u64(sought.at)).map_err(outside)?;
        let come = || sought.is(word.load(Acquire));
        if self.state() != QUEUED {
            let waited = (self.progress).wait(On::Ranks(members), For::Flag, come);
            return waited.or_else(|cause| {
                // What was done before the end still counts.
                self.progress.drain();
                if come() { Ok(()) } else { Err(cause) }
            });
        }
        poll_fn(|_| {
            if come() {
                return Poll::Ready(Ok(()));
            }
            let changes = self.progress.conduit().changes();
            match self.progress.in_vain(On::Ranks(members), For::Flag) {
                None => {
                    self.queue.seek(sought, changes);
                    Poll::Pending
                }
                Some(cause) => {
                    // What was done before the end still counts.
                    self.progress.drain();
                    Poll::Ready(if come() { Ok(()) } else { Err(cause) })
                }
            }
        })
        .await
    }
}

impl Shared {
    /// Whether a word has come.
    pub(super) fn has(&self, sought: Sought) -> bool {
        (self.scratch.atomic_u64(sought.at)).is_ok_and(|word| sought.is(word.load(Acquire)))
    }
}
