//! The settings of registration.

use hydrant_pinning::Strategy;

/// How memory is registered, and how much of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RegistrationSettings {
    /// The strategy of registration.
    pub strategy: Strategy,
    /// M: the bytes that peers together may keep registered here. By default, a share of what the
    /// conduit can pin.
    pub m: Option<u64>,
    /// The bytes of victims and of own operations. By default, an eighth of M.
    pub maxvictim: Option<u64>,
    /// The bytes of a bucket. By default, a page.
    pub bucket: Option<usize>,
    /// The most bytes of data that piggyback on a move.
    pub piggyback: usize,
    /// True if victims may fill what peers leave unused.
    pub adaptive_victims: bool,
    /// True if a peer may borrow what others leave unused.
    pub borrowing: bool,
    /// True if consecutive misses widen registrations.
    pub widening: bool,
    /// The most entries of the pin-down cache.
    pub entries: u64,
}

impl Default for RegistrationSettings {
    fn default() -> Self {
        Self {
            strategy: Strategy::Auto,
            m: None,
            maxvictim: None,
            bucket: None,
            piggyback: 1 << 10,
            adaptive_victims: true,
            borrowing: true,
            widening: true,
            entries: 1024,
        }
    }
}
