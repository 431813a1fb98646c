//! Whether what is attached at once is used again before its memory goes.

/// Shares are counted in these parts.
const WHOLE: u32 = 1 << 16;
/// It is likely if so much of what went had been used.
const LIKELY: u32 = WHOLE / 8;

/// How much of what was attached had been used when its memory went.
#[derive(Debug)]
pub(in crate::engine) struct Reuse {
    share: u32,
    /// Whether there was no room for something since memory went last: what is not used then may have
    /// been in the way of what is.
    was_full: bool,
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            share: WHOLE,
            was_full: false,
        }
    }
}

impl Reuse {
    /// Whether what is attached now will likely be used again.
    pub(in crate::engine) fn is_likely(&self) -> bool {
        self.share >= LIKELY
    }

    /// There is no room for more.
    pub(in crate::engine) fn note_full(&mut self) {
        self.was_full = true;
    }

    /// The memory that an extent was attached to went, and it had been used or not.
    pub(in crate::engine) fn gone(&mut self, used: bool) {
        if used || !self.was_full {
            self.share -= self.share / 16;
        }
        if used {
            self.share += WHOLE / 16;
        }
    }

    /// All of what was attached to some memory is gone.
    pub(in crate::engine) fn note_room(&mut self) {
        self.was_full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_unused_says_that_little_is_used_again() {
        let mut reuse = Reuse::default();
        (0..20).for_each(|_| reuse.gone(false));
        assert!(reuse.is_likely());
        (0..20).for_each(|_| reuse.gone(false));
        assert!(!reuse.is_likely());
        (0..4).for_each(|_| reuse.gone(true));
        assert!(reuse.is_likely());
    }

    #[test]
    fn what_went_unused_for_want_of_room_says_nothing() {
        let mut reuse = Reuse::default();
        reuse.note_full();
        (0..100).for_each(|_| reuse.gone(false));
        assert!(reuse.is_likely());
        reuse.note_room();
        (0..100).for_each(|_| reuse.gone(false));
        assert!(!reuse.is_likely());
    }
}
