//! The state of a rank at one moment.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::transfer::Transfer;

/// The state of a rank at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankSnapshot {
    /// The number of the job, the same at all of its ranks.
    pub job: u64,
    /// The rank.
    pub rank: u32,
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The network, as in `HYDRANT_CONDUIT`.
    pub conduit: String,
    /// The events since the start of the job, by name: those of [`Counters`](crate::Counters), and
    /// of [`RegistrationStats`](crate::RegistrationStats) `moves`, `served` and `revocations`.
    pub counters: BTreeMap<String, u64>,
    /// The registered memory, if the network needs that.
    pub memory: Option<RegisteredMemory>,
}

/// The firehoses between a rank and a peer. Several peers may hold the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FirehoseBytes {
    /// The peer.
    pub peer: u32,
    /// The bytes of the rank's memory that the peer holds.
    pub held_here_bytes: u64,
    /// The bytes of the peer's memory that the rank holds.
    pub held_there_bytes: u64,
}

/// Names each quantity once: as a field, and as a name on the wire.
macro_rules! quantities {
    ($($(#[doc = $doc:literal])+ $field:ident,)+) => {
        /// The registered memory of a rank, in bytes. It is counted in whole buckets.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct RegisteredMemory {
            $($(#[doc = $doc])+ pub $field: u64,)+
            /// The firehoses between this rank and each peer, by rising rank. Peers without
            /// firehoses are left out.
            pub firehoses: Vec<FirehoseBytes>,
        }

        impl RegisteredMemory {
            /// Returns the quantities by name.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),+]
            }

            /// Sets the quantity of that name. Returns false if there is none.
            pub(super) fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($field) => self.$field = value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

quantities! {
    /// The unit of registration.
    bucket_bytes,
    /// M: the most that peers together may keep registered here.
    m_bytes,
    /// MAXVICTIM: the most that may be registered beside M.
    maxvictim_bytes,
    /// M and MAXVICTIM together, which `registered_bytes` never exceeds.
    limit_bytes,
    /// All registered memory: the sum of the six that follow.
    registered_bytes,
    /// Memory that changed, was freed or is lent no more, and that operations or peers still hold.
    dead_bytes,
    /// Memory registered for good, such as symmetric memory.
    permanent_bytes,
    /// Memory on which peers hold firehoses, or which they use.
    peers_bytes,
    /// Memory that only operations of this rank use.
    in_use_bytes,
    /// Memory kept after its use, which can be evicted.
    victim_bytes,
    /// Memory that is being registered or deregistered.
    changing_bytes,
    /// The most that was ever registered at once.
    peak_bytes,
}

impl RankSnapshot {
    /// Looks at a rank.
    pub(super) fn of(transfer: &Transfer) -> Self {
        let progress = &transfer.progress;
        let rows = progress.tally.snapshot().rows();
        let mut counters: BTreeMap<String, u64> = (rows.into_iter())
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        let memory = transfer.registration().map(|registration| {
            let (usage, stats) = registration.usage();
            let counts = [
                ("moves", stats.moves),
                ("served", stats.served),
                ("revocations", stats.revocations),
            ];
            counters.extend(counts.map(|(name, count)| (name.to_owned(), count)));
            let limits = registration.limits();
            let bucket = limits.geometry.bucket();
            let bytes = |buckets: u64| buckets.saturating_mul(bucket);
            RegisteredMemory {
                bucket_bytes: bucket,
                m_bytes: bytes(limits.peers_total),
                maxvictim_bytes: bytes(limits.victims),
                limit_bytes: bytes(limits.total),
                registered_bytes: bytes(usage.registered),
                dead_bytes: bytes(usage.dead),
                permanent_bytes: bytes(usage.permanent),
                peers_bytes: bytes(usage.peers),
                in_use_bytes: bytes(usage.in_use),
                victim_bytes: bytes(usage.victims),
                changing_bytes: bytes(usage.changing),
                peak_bytes: bytes(stats.local.peak),
                firehoses: (usage.firehoses.into_iter())
                    .map(|it| FirehoseBytes {
                        peer: it.peer,
                        held_here_bytes: bytes(it.held_here),
                        held_there_bytes: bytes(it.held_there),
                    })
                    .collect(),
            }
        });
        Self {
            job: progress.id,
            rank: progress.rank.0,
            ranks: progress.size,
            conduit: progress.conduit().caps().name.to_owned(),
            counters,
            memory,
        }
    }

    /// Returns a counter, or 0 if the rank has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}
