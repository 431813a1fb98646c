//! The load of a peer, which decides if an operation's time is a fair sample of its route.
//!
//! The target may answer a move that evicts before it has deregistered. Where deregistering takes
//! long (Myrinet/GM), the next operation waits for it, and is no sample of its own route.

/// The times at which moves kept a peer busy.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct PeerLoad {
    /// The number of moves that evict: those begun plus those answered.
    disturbances: u32,
    /// True if the peer may still be deregistering for the last such move.
    is_busy: bool,
}

impl PeerLoad {
    /// Notes the beginning of a move that evicts.
    pub(in crate::engine) fn begin_move(&mut self) {
        self.disturbances = self.disturbances.wrapping_add(1);
    }

    /// Notes the answer to a move that evicts.
    pub(in crate::engine) fn answer_move(&mut self) {
        self.disturbances = self.disturbances.wrapping_add(1);
        self.is_busy = true;
    }

    /// Returns true if no known load keeps the peer from answering at once.
    pub(in crate::engine) fn is_free(&self) -> bool {
        !self.is_busy
    }

    /// The epoch of an operation that begins now, for [`finish`](Self::finish).
    pub(in crate::engine) fn epoch(&self) -> u32 {
        self.disturbances
    }

    /// Ends an operation that began in the epoch `began`. Returns true if no move came between.
    /// Then the peer has also finished its earlier load.
    pub(in crate::engine) fn finish(&mut self, began: u32) -> bool {
        let is_undisturbed = began == self.disturbances;
        if is_undisturbed {
            self.is_busy = false;
        }
        is_undisturbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_a_move_delays_is_no_sample() {
        let mut load = PeerLoad::default();
        let before = load.epoch();
        load.begin_move();
        let beside = load.epoch();
        assert!(!load.finish(before));
        load.answer_move();
        assert!(!load.finish(beside) && !load.is_free());
        // The next operation waits for the deregistration, and its end shows that this is over.
        let after = load.epoch();
        assert!(load.finish(after) && load.is_free());
        assert!(load.finish(load.epoch()));
    }
}
