//! The registration strategies of the papers, as values.

use std::{fmt, str::FromStr};

use crate::Error;

/// The way in which an operation gets the memory of both sides registered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Strategy {
    /// Memory is registered when it is allocated and stays so (Firehose §3.3).
    PinEverything,
    /// Data is copied through registered buffers on both sides (Firehose §3.3, ARMCI §3).
    Bounce,
    /// A message round trip registers the remote side for each operation (Firehose §3.3, §4.2).
    /// With `unpin` the target deregisters it after the operation; without `unpin`, never.
    Rendezvous {
        /// True if the target deregisters the remote side after the operation.
        unpin: bool,
    },
    /// Both sides register when an operation needs it, and stay registered or not (Li §2).
    OnDemand {
        /// True if memory stays registered after its use, as far as the limits go.
        leave_pinned: bool,
    },
    /// Each side registers chunk by chunk under the transfer (Li §6, Woodall).
    Pipeline {
        /// True if memory stays registered after its use, as far as the limits go.
        leave_pinned: bool,
    },
    /// Each side caches registrations, and evicts the least recently used first (Tezuka §4).
    PinDown,
    /// Peers own handles to buckets and move them (Bell & Bonachea §3.2).
    Firehose,
    /// The NIC pages on demand: nothing is registered (Firehose §2, hardware-assisted).
    Paging,
    /// Firehoses or a copy, by the measured cost and the pattern of misses.
    Auto,
    /// A helper thread deregisters memory after its use, and registers it again just before the
    /// predicted next use. Memory that it did not foresee is registered on demand (Li §3).
    Foresight,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 13] = [
        Strategy::PinEverything,
        Strategy::Bounce,
        Strategy::Rendezvous { unpin: true },
        Strategy::Rendezvous { unpin: false },
        Strategy::OnDemand { leave_pinned: true },
        Strategy::OnDemand {
            leave_pinned: false,
        },
        Strategy::Pipeline { leave_pinned: true },
        Strategy::Pipeline {
            leave_pinned: false,
        },
        Strategy::PinDown,
        Strategy::Firehose,
        Strategy::Paging,
        Strategy::Auto,
        Strategy::Foresight,
    ];

    /// The name by which users choose the strategy.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::PinEverything => "pin-everything",
            Strategy::Bounce => "bounce",
            Strategy::Rendezvous { unpin: true } => "rendezvous-unpin",
            Strategy::Rendezvous { unpin: false } => "rendezvous-no-unpin",
            Strategy::OnDemand { leave_pinned: true } => "on-demand-leave-pinned",
            Strategy::OnDemand {
                leave_pinned: false,
            } => "on-demand",
            Strategy::Pipeline { leave_pinned: true } => "pipeline-leave-pinned",
            Strategy::Pipeline {
                leave_pinned: false,
            } => "pipeline",
            Strategy::PinDown => "pin-down",
            Strategy::Firehose => "firehose",
            Strategy::Paging => "paging",
            Strategy::Auto => "auto",
            Strategy::Foresight => "foresight",
        }
    }

    /// The policy of the strategy on each side.
    pub(crate) fn policy(self) -> StrategyPolicy {
        let handshake = |after| StrategyPolicy {
            remote: RemotePolicy::Handshake(after),
            local: LocalPolicy::Cached,
            pieces: 2,
            chunked: false,
        };
        match self {
            Strategy::PinEverything => StrategyPolicy {
                remote: RemotePolicy::Static,
                ..handshake(AfterUse::Keep)
            },
            Strategy::Bounce => StrategyPolicy {
                remote: RemotePolicy::Copy,
                local: LocalPolicy::Copied,
                pieces: 1,
                chunked: false,
            },
            Strategy::Rendezvous { unpin: true } => handshake(AfterUse::Unpin),
            Strategy::Rendezvous { unpin: false } => handshake(AfterUse::Keep),
            // Each side's helper looks after its own memory. It could not evict memory that peers
            // held beyond the operation.
            Strategy::OnDemand { leave_pinned: true } | Strategy::PinDown | Strategy::Foresight => {
                handshake(AfterUse::Release)
            }
            Strategy::OnDemand {
                leave_pinned: false,
            } => StrategyPolicy {
                local: LocalPolicy::PerOperation,
                ..handshake(AfterUse::Unpin)
            },
            Strategy::Pipeline { leave_pinned } => StrategyPolicy {
                local: if leave_pinned {
                    LocalPolicy::Cached
                } else {
                    LocalPolicy::PerOperation
                },
                pieces: 3,
                chunked: true,
                ..handshake(if leave_pinned {
                    AfterUse::Release
                } else {
                    AfterUse::Unpin
                })
            },
            Strategy::Paging => StrategyPolicy {
                remote: RemotePolicy::Paged,
                ..handshake(AfterUse::Keep)
            },
            Strategy::Firehose | Strategy::Auto => StrategyPolicy {
                remote: RemotePolicy::Firehose,
                ..handshake(AfterUse::Release)
            },
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let all = || Strategy::ALL.into_iter();
        match all().find(|strategy| strategy.name() == name) {
            Some(strategy) => Ok(strategy),
            None => Err(Error::UnknownStrategy {
                name: name.to_owned(),
                known: (all().map(Strategy::name).collect::<Vec<_>>()).join(", "),
            }),
        }
    }
}

/// The policy of a strategy on each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StrategyPolicy {
    pub(crate) remote: RemotePolicy,
    pub(crate) local: LocalPolicy,
    /// The most pieces of an operation in flight at once.
    pub(crate) pieces: usize,
    /// True if an operation is cut into chunks that overlap registration with transfer.
    pub(crate) chunked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RemotePolicy {
    /// Memory is registered at allocation; other memory is copied.
    Static,
    /// Data is copied through messages.
    Copy,
    /// Each operation asks the target to register.
    Handshake(AfterUse),
    /// The initiator owns firehoses.
    Firehose,
    /// The NIC reaches memory without registration.
    Paged,
}

/// The fate of the remote side's registration after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterUse {
    /// The registration stays for good, without a message, until the memory goes.
    Keep,
    /// The target may evict the registration when it needs room.
    Release,
    /// The target deregisters.
    Unpin,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LocalPolicy {
    /// The memory stays registered, as a victim.
    Cached,
    /// The memory is deregistered after the operation.
    PerOperation,
    /// The memory is not registered: data is copied.
    Copied,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_found_by_its_name() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
    }

    #[test]
    fn an_unknown_strategy_is_named() {
        let error = "firehoze".parse::<Strategy>().expect_err("no such name");
        assert!(error.to_string().contains("firehose"), "{error}");
    }
}
