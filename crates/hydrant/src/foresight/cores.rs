//! The idle cores of a host, which the helpers of its ranks share (Li §5).
//!
//! Each rank publishes how much it has registered, and reads what the other ranks of its host
//! publish. All compute the same placements from that ([`hydrant_foresight::sharing`]), without a
//! message. A helper without a core rests: its rank registers on demand, registrations stay until
//! room is short, and firehoses that were moved ahead are released.

use std::{sync::Arc, time::Duration};

use hydrant_conduit::Standing;
use hydrant_foresight::{
    Time,
    sharing::{HelperHost, Placement, Policy, Sharing},
};

use crate::{
    Rank,
    progress::Progress,
    settings::{ForesightPolicy, IdleCores, Settings},
};

/// The number of uses after which a helper publishes its bytes and reads those of others.
const CHECK_AFTER_USES: u32 = 64;

/// The time after which a helper does so anyway: bytes and placements change even if it hears of no
/// use.
pub(super) const CHECK_AFTER: Duration = Duration::from_millis(100);

/// The cost of a switch between threads.
const CONTEXT_SWITCH_NS: u64 = 5_000;

/// The helpers of a host, as far as one rank knows them.
pub(super) struct Cores {
    progress: Arc<Progress>,
    policy: Policy,
    time_slice_ns: u64,
    idle: u32,
    /// The ranks of the host, in the job's order.
    mates: Vec<Rank>,
    uses: u32,
    checked_at: Time,
}

impl Cores {
    /// Returns `None` if each helper has a core of its own.
    pub(super) fn new(progress: &Arc<Progress>, settings: &Settings) -> Option<Self> {
        let conduit = progress.conduit();
        let is_mate = |it: &Rank| *it == progress.rank || conduit.published(*it).is_some();
        let mates: Vec<Rank> = (0..progress.size).map(Rank).filter(is_mate).collect();
        let idle = match settings.foresight_cores {
            IdleCores::Each => return None,
            IdleCores::Auto => {
                // The rank may be bound to some of the cores, but idle cores are those of the host.
                progress.host_cores.saturating_sub(mates.len()) as u32
            }
            IdleCores::Count(count) => count,
        };
        Some(Self {
            progress: Arc::clone(progress),
            policy: match settings.foresight_policy {
                ForesightPolicy::Conservative => Policy::Conservative,
                ForesightPolicy::Aggressive => Policy::Aggressive,
            },
            time_slice_ns: (settings.foresight_slice.as_nanos().try_into()).unwrap_or(u64::MAX),
            idle,
            mates,
            uses: 0,
            checked_at: Time(0),
        })
    }

    /// Returns whether other ranks may change the placement of this helper.
    pub(super) fn may_change(&self) -> bool {
        self.mates.len() > 1
    }

    /// Notes a turn of the helper while it is awake. Returns whether it is time to
    /// [check](Self::publish_and_place). `has_read`: the helper read a use.
    pub(super) fn note_turn(&mut self, has_read: bool, now: Time) -> bool {
        self.uses = self.uses.wrapping_add(u32::from(has_read));
        let has_read_many = has_read && self.uses.is_multiple_of(CHECK_AFTER_USES);
        let is_late = u128::from(now.since(self.checked_at)) >= CHECK_AFTER.as_nanos();
        self.may_change() && (has_read_many || is_late)
    }

    /// Publishes the registered bytes. Returns how the helper shares its core, or `None` if it has
    /// no core.
    pub(super) fn publish_and_place(
        &mut self,
        registered_bytes: u64,
        now: Time,
    ) -> Option<Sharing> {
        self.checked_at = now;
        let conduit = self.progress.conduit();
        // Zero means that a rank has not published yet.
        conduit.publish(registered_bytes.saturating_add(1));
        let (own, idle) = (self.progress.rank, self.idle);
        // The seed is the same at all ranks of the job.
        let seed = self.progress.id;
        let mut host = HelperHost::new(self.mates.len() as u32, idle, self.policy, seed);
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
                time_slice_ns: self.time_slice_ns,
                context_switch_ns: CONTEXT_SWITCH_NS,
            }),
        }
    }
}
