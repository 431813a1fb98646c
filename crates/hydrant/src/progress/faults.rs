//! The rules that peers broke, as causes of the losses that follow.

use parking_lot::{Mutex, MutexGuard};

use super::Progress;
use crate::{Error, Rank};

/// The first rule that each peer broke.
#[derive(Default)]
pub(super) struct PeerFaults(Mutex<Vec<hydrant_conduit::Error>>);

impl PeerFaults {
    fn all(&self) -> MutexGuard<'_, Vec<hydrant_conduit::Error>> {
        self.0.lock()
    }

    /// Keeps the first fault of each peer, so that no peer can fill the memory.
    pub(super) fn note(&self, error: hydrant_conduit::Error) {
        let mut all = self.all();
        if let hydrant_conduit::Error::Malformed { peer, .. } = &error
            && !all.iter().any(|known| is_of(known, *peer))
        {
            all.push(error);
        }
    }

    /// Returns the cause of a loss, if this rank knows one: the fault of `lost`, or that of the
    /// rank lost first. Other ranks may have ended because of the first.
    fn of(&self, lost: Rank, first: Option<Rank>) -> Option<hydrant_conduit::Error> {
        let all = self.all();
        let of = |rank| all.iter().find(|known| is_of(known, rank)).cloned();
        of(lost).or_else(|| first.and_then(of))
    }
}

impl Progress {
    /// Returns the error of a rank's body. For the loss of a peer, returns the cause of the loss.
    pub(crate) fn cause_of(&self, error: Error) -> Error {
        let Error::PeerLost(lost) = error else {
            return error;
        };
        if self.is_lost_itself() {
            return Error::Expelled(self.rank);
        }
        let cause = self.faults.of(lost, self.conduit.first_lost());
        cause.map_or(error, Error::Conduit)
    }
}

fn is_of(error: &hydrant_conduit::Error, rank: Rank) -> bool {
    matches!(error, hydrant_conduit::Error::Malformed { peer, .. } if *peer == rank)
}
