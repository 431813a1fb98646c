//! Records the uses of message buffers, for the prediction of later uses.

use std::panic::Location;

use super::{MessageRequest, RawBuffer, TwoSided};
use crate::uses::{MemoryState, MemoryUse, UseKind, site_or};

impl TwoSided {
    /// Records the start of a send or a receive. If the network may use the buffer by itself,
    /// prepares the record of its end. Ends are recorded in the order in which the program asks for
    /// them. That order is the same in every round, unlike the order of the messages.
    pub(super) fn record_start(
        &self,
        kind: UseKind,
        buffer: RawBuffer,
        request: &MessageRequest,
        site: &'static Location<'static>,
    ) {
        let Some(registration) = self.transfer.registration() else {
            return;
        };
        let Some(foresight) = registration.uses() else {
            return;
        };
        let (addr, len) = (buffer.at.addr() as u64, buffer.len as u64);
        let begins = MemoryUse {
            kind,
            addr,
            len,
            state: MemoryState::Elsewhere,
            begun: self.progress.conduit().now(),
            site: site_or(site),
        };
        foresight.used(&begins);
        if !self.protocols.is_eager(buffer.len) && registration.lasts(addr, len) {
            request.set_use(MemoryUse {
                kind: match kind {
                    UseKind::Sent => UseKind::Put,
                    _ => UseKind::Written,
                },
                state: registration.state_of_own(addr, len),
                ..begins
            });
        }
    }

    /// Returns whether uses are recorded.
    pub(super) fn records_uses(&self) -> bool {
        (self.transfer.registration()).is_some_and(|registration| registration.uses().is_some())
    }

    /// Records the end of a send or a receive, when the program asks for it.
    pub(super) fn record_end(&self, request: &MessageRequest) {
        let foresight = self.transfer.registration().and_then(|it| it.uses());
        if let Some(foresight) = foresight
            && let Some(used) = request.take_use()
        {
            foresight.used(&used);
        }
    }
}
