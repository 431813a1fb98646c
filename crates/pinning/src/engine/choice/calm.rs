//! Whether a peer has time for what it is asked, so that what an operation takes says what it costs.
//!
//! A move that gives something up may be answered before that is deregistered. Where deregistering takes
//! long (Myrinet/GM), the next operation waits for it, and is no measure of its own way.

/// When a peer was last kept busy by a move.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::engine) struct Calm {
    /// Moves that give something up: those begun and those answered, together.
    disturbances: u32,
    /// Whether the peer may be deregistering what the last one gave up.
    is_busy: bool,
}

impl Calm {
    /// A move begins that gives something up.
    pub(in crate::engine) fn move_begins(&mut self) {
        self.disturbances = self.disturbances.wrapping_add(1);
    }

    /// It is answered.
    pub(in crate::engine) fn move_is_answered(&mut self) {
        self.disturbances = self.disturbances.wrapping_add(1);
        self.is_busy = true;
    }

    /// Whether nothing is known to keep the peer from what is asked now.
    pub(in crate::engine) fn is_free(&self) -> bool {
        !self.is_busy
    }

    /// To be handed to [`settles`](Self::settles) at the end of an operation that begins now.
    pub(in crate::engine) fn now(&self) -> u32 {
        self.disturbances
    }

    /// An operation is over that began then: whether nothing came between. The peer has done what it
    /// had to do before.
    pub(in crate::engine) fn settles(&mut self, began: u32) -> bool {
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
    fn what_a_move_delays_is_no_measure() {
        let mut calm = Calm::default();
        let before = calm.now();
        calm.move_begins();
        let beside = calm.now();
        assert!(!calm.settles(before));
        calm.move_is_answered();
        assert!(!calm.settles(beside) && !calm.is_free());
        // The next one waits for what is given up, and tells by its end that this is done.
        let after = calm.now();
        assert!(calm.settles(after) && calm.is_free());
        assert!(calm.settles(calm.now()));
    }
}
