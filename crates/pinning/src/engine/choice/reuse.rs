//! A guess if buckets that are attached at once are used again before their memory goes.

/// The unit of shares.
const WHOLE: u32 = 1 << 16;
/// Reuse is likely if this share of the gone extents had been used.
const LIKELY: u32 = WHOLE / 8;

/// The share of attached extents that had been used when their memory went.
#[derive(Debug)]
pub(in crate::engine) struct Reuse {
    share: u32,
    /// True if room was short since memory went last. Then an unused extent may have been in the
    /// way of used ones, and says nothing.
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
    /// Returns true if a bucket attached now will likely be used again.
    pub(in crate::engine) fn is_likely(&self) -> bool {
        self.share >= LIKELY
    }

    /// Notes that room is short.
    pub(in crate::engine) fn note_full(&mut self) {
        self.was_full = true;
    }

    /// Notes that the memory of an extent went, and if the extent had been used.
    pub(in crate::engine) fn note_gone(&mut self, used: bool) {
        if used || !self.was_full {
            self.share -= self.share / 16;
        }
        if used {
            self.share += WHOLE / 16;
        }
    }

    /// Notes that all extents on some memory are gone.
    pub(in crate::engine) fn note_room(&mut self) {
        self.was_full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_go_unused_make_reuse_unlikely() {
        let mut reuse = Reuse::default();
        (0..20).for_each(|_| reuse.note_gone(false));
        assert!(reuse.is_likely());
        (0..20).for_each(|_| reuse.note_gone(false));
        assert!(!reuse.is_likely());
        (0..4).for_each(|_| reuse.note_gone(true));
        assert!(reuse.is_likely());
    }

    #[test]
    fn extents_unused_for_want_of_room_say_nothing() {
        let mut reuse = Reuse::default();
        reuse.note_full();
        (0..100).for_each(|_| reuse.note_gone(false));
        assert!(reuse.is_likely());
        reuse.note_room();
        (0..100).for_each(|_| reuse.note_gone(false));
        assert!(!reuse.is_likely());
    }
}
