//! The idle cores of a host, which the helpers of its ranks share (Li §5).
//!
//! Each rank publishes what it has registered, and reads what the others of its host did; from that all come to the same
//! placements ([`hydrant_foresight::sharing`]), without a message. A helper that has no core rests: its rank
//! registers on demand, what is registered stays until room is short, and firehoses that were moved ahead go back.

use std::{sync::Arc, time::Duration};

use hydrant_conduit::Standing;
use hydrant_foresight::{
    Time,
    sharing::{Host, Placement, Sharing},
};

use crate::{
    Rank,
    progress::Progress,
    settings::{ForesightSettings, IdleCores},
};

/// Uses after which a helper publishes what is registered, and looks what others did.
const POSTS_AFTER: u32 = 64;

/// The time after which it does so, too: what is registered, and where helpers run, changes though it hears of no use.
pub(super) const LOOKS_AFTER: Duration = Duration::from_millis(100);

/// What it takes to switch from one thread to another.
const CONTEXT_SWITCH_NS: u64 = 5_000;

/// What a rank knows of its host's helpers.
pub(super) struct Cores {
    progress: Arc<Progress>,
    settings: ForesightSettings,
    idle: u32,
    /// The ranks of the host, in the job's order.
    mates: Vec<Rank>,
    uses: u32,
    looked: Time,
}

impl Cores {
    /// None where each helper has a core of its own.
    pub(super) fn new(progress: &Arc<Progress>, settings: &ForesightSettings) -> Option<Self> {
        let conduit = progress.conduit();
        let is_mate = |it: &Rank| *it == progress.rank || conduit.published(*it).is_some();
        let mates: Vec<Rank> = (0..progress.size).map(Rank).filter(is_mate).collect();
        let idle = match settings.cores {
            IdleCores::Each => return None,
            IdleCores::Auto => {
                // The rank may be bound to a part of them: idle ones are the host's.
                progress.host_cores.saturating_sub(mates.len()) as u32
            }
            IdleCores::Count(count) => count,
        };
        Some(Self {
            progress: Arc::clone(progress),
            settings: settings.clone(),
            idle,
            mates,
            uses: 0,
            looked: Time(0),
        })
    }

    /// Whether what other ranks do may change where this helper runs.
    pub(super) fn may_change(&self) -> bool {
        self.mates.len() > 1
    }

    /// Whether it is time to [look](Self::look): asked whenever the helper is awake, and whether it read a use.
    pub(super) fn is_due(&mut self, has_read: bool, now: Time) -> bool {
        self.uses = self.uses.wrapping_add(u32::from(has_read));
        let has_read_many = has_read && self.uses.is_multiple_of(POSTS_AFTER);
        let is_late = u128::from(now.since(self.looked)) >= LOOKS_AFTER.as_nanos();
        self.may_change() && (has_read_many || is_late)
    }

    /// Publishes that so many bytes are registered. What the helper is to allow for others on its core; none if it
    /// has no core.
    pub(super) fn look(&mut self, registered_bytes: u64, now: Time) -> Option<Sharing> {
        self.looked = now;
        let conduit = self.progress.conduit();
        // Zero is what nobody has published yet.
        conduit.publish(registered_bytes.saturating_add(1));
        let (own, idle) = (self.progress.rank, self.idle);
        // The same at all ranks of the job.
        let seed = self.progress.id;
        let mut host = Host::new(self.mates.len() as u32, idle, self.settings.policy, seed);
        for (at, mate) in (0..).zip(&self.mates) {
            let published = if *mate == own {
                Some(registered_bytes.saturating_add(1))
            } else {
                conduit.published(*mate)
            };
            if *mate != own && conduit.standing(*mate) != Standing::Present {
                host.leave(at);
            } else if let Some(bytes) = published.and_then(|it| it.checked_sub(1)) {
                host.post(at, bytes);
            }
        }
        let own = self.mates.iter().position(|it| *it == own)?;
        match host.placements().get(own)? {
            Placement::Stopped => None,
            Placement::On { helpers, .. } => Some(Sharing {
                helpers: *helpers,
                time_slice_ns: self
                    .settings
                    .slice
                    .as_nanos()
                    .try_into()
                    .unwrap_or(u64::MAX),
                context_switch_ns: CONTEXT_SWITCH_NS,
            }),
        }
    }
}
