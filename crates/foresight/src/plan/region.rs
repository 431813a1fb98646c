//! A region of memory that is registered repeatedly, and its expected uses.

use super::uses::RegionUses;
use crate::communication::PageRun;
use crate::time::Time;

/// The keys of a region in the indexes, as of the last time it was [settled](super::regions::Regions::settle).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct IndexKeys {
    /// The time to look at it.
    pub(super) overdue_at: Option<Time>,
    /// The time of its last use, if it is idle.
    pub(super) idle: Option<Time>,
    /// The time of its next use, if it can be deregistered.
    pub(super) can_go: Option<Time>,
    /// The time it is due, if it was put off.
    pub(super) postponed: Option<Time>,
    /// The time of its last use, if it is spared until deregistration is worth its cost.
    pub(super) spared: Option<Time>,
    /// True if it was in use when it was to be deregistered.
    pub(super) is_held: bool,
}

/// The registration state of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionState {
    Absent,
    /// The helper was told to register it.
    Registering,
    Registered,
    /// The helper was told to deregister it.
    Deregistering,
}

/// The plan's knowledge of a region.
#[derive(Debug)]
pub(super) struct KnownRegion {
    pub(super) memory: PageRun,
    pub(super) state: RegionState,
    /// True if the region was in use when it was to be deregistered; only its next record allows another try.
    pub(super) is_held: bool,
    /// True if the helper registered it and it has not been used since.
    pub(super) is_ahead: bool,
    /// True if it was due for deregistration, but that may have cost more than it is [worth](super::worth).
    pub(super) is_spared: bool,
    /// The cost of deregistering it in vain, when it was spared.
    pub(super) spared_ns: u64,
    /// The charge for deregistering it.
    pub(super) charged_ns: u64,
    /// The time of that charge.
    pub(super) charged_at: Time,
    /// True if it was to be registered and there was no room.
    pub(super) is_postponed: bool,
    /// When the helper last began to register it.
    pub(super) registered_from: Time,
    pub(super) last_used: Time,
    /// Its keys in the indexes.
    pub(super) index_keys: IndexKeys,
    pub(super) uses: RegionUses,
}

impl KnownRegion {
    pub(super) fn new(memory: PageRun, now: Time) -> Self {
        Self {
            memory,
            state: RegionState::Absent,
            is_held: false,
            is_ahead: false,
            is_spared: false,
            spared_ns: 0,
            charged_ns: 0,
            charged_at: Time::default(),
            is_postponed: false,
            registered_from: Time::default(),
            last_used: now,
            index_keys: IndexKeys::default(),
            uses: RegionUses::default(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// The registration deadline: the earliest deadline of all its uses (§3.2).
    pub(super) fn earliest(&self) -> Option<Time> {
        self.uses.first().deadline
    }

    /// The earliest deadline to act on; uses that await a landmark do not count.
    pub(super) fn due(&self) -> Option<Time> {
        self.uses.first().due
    }

    /// The time at which its first use is overdue. Immediate if the region is registered without any forecast.
    pub(super) fn expires(&self) -> Option<Time> {
        let is_left = self.can_go() && !self.is_spared;
        (self.uses.first().overdue).or(is_left.then_some(self.last_used))
    }

    /// True if it can be deregistered: it is registered, and no use of it is in progress.
    pub(super) fn can_go(&self) -> bool {
        self.state == RegionState::Registered && !self.is_held
    }

    /// True if it is registered for an expected use.
    pub(super) fn is_kept(&self) -> bool {
        self.can_go() && self.earliest().is_some()
    }

    /// True if it is neither registered nor expected, so that it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        self.state == RegionState::Absent && self.earliest().is_none()
    }
}
