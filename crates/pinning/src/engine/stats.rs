//! The counts of an engine's work.

use super::local::LocalStats;

/// The counts of an engine's work.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// The counts of the local table.
    pub local: LocalStats,
    /// Pieces of operations that reached the engine.
    pub pieces: u64,
    /// Of those, the pieces whose remote side was registered.
    pub remote_hits: u64,
    /// Moves sent.
    pub moves: u64,
    /// Operations whose data was piggybacked on a move.
    pub piggybacked: u64,
    /// Pieces copied through messages.
    pub copies: u64,
    /// Pieces whose first bytes were copied while the peer registered the rest.
    pub heads: u64,
    /// Operations cut into more than one piece.
    pub splits: u64,
    /// Pieces that waited for firehoses.
    pub stalls: u64,
    /// Firehoses given back by moves and messages.
    pub released: u64,
    /// Moves answered for peers.
    pub served: u64,
    /// Of those, moves that needed no registration.
    pub served_from_cache: u64,
    /// Firehoses lent to peers beyond their share.
    pub lent: u64,
    /// Firehoses asked back.
    pub recalled: u64,
    /// Revocations of own memory begun: it changed, was freed or is lent no more.
    pub revocations: u64,
    /// Runs that could not be registered.
    pub refused: u64,
    /// Messages of peers that broke the protocol, or named unknown things.
    pub faults: u64,
    /// Bugs of the engine or of its driver: steps that were left undone.
    pub impossible: u64,
}
