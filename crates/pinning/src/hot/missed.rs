//! The records that misses announced for a moment while the engine waited for them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use super::KeptHit;

/// Misses add records, and the engine takes them at its next step. Every miss leads to a step.
#[derive(Debug, Default)]
pub(super) struct MissedReleases {
    /// True if there may be records. The miss that adds some comes to the engine itself.
    some: AtomicBool,
    records: Mutex<Vec<KeptHit>>,
}

impl MissedReleases {
    pub(super) fn add(&self, records: KeptHit) {
        let mut all = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(records);
        self.some.store(true, Relaxed);
    }

    pub(super) fn take(&self) -> Vec<KeptHit> {
        if !self.some.load(Relaxed) {
            return Vec::new();
        }
        let mut all = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        self.some.store(false, Relaxed);
        std::mem::take(&mut all)
    }
}
