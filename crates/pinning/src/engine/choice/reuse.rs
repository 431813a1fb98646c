//! Whether what is attached is used again: some of it is looked at a while later.

use std::collections::VecDeque;

/// One attached extent in so many is looked at.
const SAMPLED: u32 = 4;
/// When so many more were picked.
const LATER: usize = 64;
/// Shares are counted in these parts.
const WHOLE: u32 = 1 << 16;
/// It is likely if so much of what was looked at had been used.
const LIKELY: u32 = WHOLE / 8;

/// What was attached lately, and how much of it was used.
#[derive(Debug)]
pub(in crate::engine) struct Reuse {
    /// Peers and first buckets, the oldest first.
    picked: VecDeque<(u32, u64)>,
    attached: u32,
    share: u32,
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            picked: VecDeque::new(),
            attached: 0,
            share: WHOLE,
        }
    }
}

impl Reuse {
    /// Whether what is attached now will likely be used again.
    pub(super) fn is_likely(&self) -> bool {
        self.share >= LIKELY
    }

    /// An extent was attached: whether it is picked.
    pub(in crate::engine) fn pick(&mut self, peer: u32, bucket: u64) -> bool {
        self.attached = self.attached.wrapping_add(1);
        let picks = self.attached.is_multiple_of(SAMPLED);
        if picks {
            self.picked.push_back((peer, bucket));
        }
        picks
    }

    /// What is to be looked at now.
    pub(in crate::engine) fn due(&mut self) -> Option<(u32, u64)> {
        match self.picked.len() > LATER {
            true => self.picked.pop_front(),
            false => None,
        }
    }

    /// One that was looked at had been used, or not.
    pub(in crate::engine) fn seen(&mut self, used: bool) {
        self.share -= self.share / 16;
        if used {
            self.share += WHOLE / 16;
        }
    }
}
