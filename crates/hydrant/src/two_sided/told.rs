//! What is told of messages for who foresees when their buffers are needed again.

use std::panic::Location;

use super::{Buffer, Request, TwoSided};
use crate::uses::{Stood, Use, UseKind, site_or};

impl TwoSided {
    /// A message is to be sent or received. Where that is foreseen, it is told twice: that it begins, which says
    /// what comes next, and at its end what it used, if the network reached that by itself. Ends are told
    /// in the order in which the program asks for them, which is the same in every round, as that
    /// of the messages themselves is not.
    pub(super) fn begins(
        &self,
        kind: UseKind,
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
                    UseKind::Sent => UseKind::Put,
                    _ => UseKind::Written,
                },
                stood: registration.stood(addr, len),
                ..begins
            });
        }
    }

    /// Whether uses are told to anybody.
    pub(super) fn are_told(&self) -> bool {
        (self.transfer.registration()).is_some_and(|registration| registration.uses().is_some())
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
}
