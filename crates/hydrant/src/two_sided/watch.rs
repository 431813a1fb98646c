//! Which buffers the network reaches for two-sided messages, for who predicts when they are needed again:
//! each use is told in one place, [`TwoSided::uses`](super::TwoSided).

use std::panic::{self, AssertUnwindSafe, Location};

use super::{Buffer, Request, TwoSided};
use crate::{
    Error, Rank, Result,
    uses::{self, Stood, Use, site_or},
};

/// What a buffer is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UseKind {
    /// A message is written from it.
    Sent,
    /// A message is written into it.
    Received,
}

/// A use of a buffer that the network reaches by itself, so that it is registered where the network
/// needs that.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BufferUse {
    /// Where the program asked for it.
    pub site: &'static Location<'static>,
    /// The buffer's address.
    pub addr: usize,
    /// Bytes of it that are used.
    pub bytes: usize,
    /// What for.
    pub kind: UseKind,
    /// With whom.
    pub peer: Rank,
}

/// Who is told of each use, just before it.
pub(super) type Watcher = dyn Fn(&BufferUse) + Send + Sync;

impl TwoSided {
    /// Has each use told from now on.
    ///
    /// # Errors
    /// [`Error::OutOfTurn`] if somebody else is told.
    pub(crate) fn watch(&self, watcher: Box<Watcher>) -> Result<()> {
        self.watcher.set(watcher).map_err(|_| Error::OutOfTurn {
            what: "watch_buffers",
            why: "another function is told of the uses already",
        })
    }

    /// A message is to be sent or received. Where that is foreseen, it is told twice: that it begins, which says
    /// what comes next, and at its end what it used, if the network reached that by itself. Ends are told
    /// in the order in which the program asks for them, which is the same in every round, as that
    /// of the messages themselves is not.
    pub(super) fn begins(
        &self,
        kind: uses::UseKind,
        buffer: Buffer,
        request: &Request,
        site: &'static Location<'static>,
    ) {
        let Some(registration) = self.transfer.registration() else {
            return;
        };
        let Some(foresight) = registration.uses() else {
            return;
        };
        let (addr, len) = (buffer.at.addr() as u64, buffer.len as u64);
        let begins = Use {
            kind,
            addr,
            len,
            stood: Stood::Elsewhere,
            begun: self.progress.conduit().now(),
            site: site_or(site),
        };
        foresight.used(&begins);
        if !self.protocols.is_eager(buffer.len) && registration.lasts(addr, len) {
            request.uses(Use {
                kind: match kind {
                    uses::UseKind::Sent => uses::UseKind::Put,
                    _ => uses::UseKind::Written,
                },
                stood: registration.stood(addr, len),
                ..begins
            });
        }
    }

    /// The end of a send or a receive was asked for.
    pub(super) fn ends(&self, request: &Request) {
        let foresight = self.transfer.registration().and_then(|it| it.uses());
        if let Some(foresight) = foresight
            && let Some(used) = request.take_use()
        {
            foresight.used(&used);
        }
    }

    /// A buffer is to be used so.
    pub(super) fn uses(
        &self,
        (site, kind): (&'static Location<'static>, UseKind),
        buffer: Buffer,
        bytes: usize,
        peer: Rank,
    ) {
        if let Some(watcher) = self.watcher.get() {
            let addr = buffer.at.addr();
            let it = BufferUse {
                site,
                addr,
                bytes,
                kind,
                peer,
            };
            // It is the program's, and called in the midst of whatever polls.
            let tell = || crate::progress::in_handler(|| watcher(&it));
            if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(tell)) {
                tracing::error!("a function that is told of uses of buffers panicked");
                // Dropping that may panic, too.
                std::mem::forget(cause);
            }
        }
    }
}
