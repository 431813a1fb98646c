//! What can be set about the strategy that foresees what is used.

/// How the strategy `foresight` goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForesightSettings {
    /// Whether firehoses are moved to peers' memory ahead of the puts and gets that are expected, and given back
    /// after them.
    pub firehoses: bool,
}

impl Default for ForesightSettings {
    fn default() -> Self {
        Self { firehoses: true }
    }
}
