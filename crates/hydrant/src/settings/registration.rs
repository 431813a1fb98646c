//! What can be set about registration.

use hydrant_pinning::Strategy;

/// How memory is registered, and how much of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RegistrationSettings {
    /// How memory gets registered.
    pub strategy: Strategy,
    /// M: bytes that peers together may keep registered here; a share of what the conduit can
    /// pin, if not given.
    pub m: Option<u64>,
    /// Bytes of victims, and of own operations; an eighth of M, if not given.
    pub maxvictim: Option<u64>,
    /// Bytes of a bucket; a page, if not given.
    pub bucket: Option<usize>,
    /// Most bytes that ride on a move.
    pub ride: usize,
    /// Whether victims may fill what peers leave unused.
    pub adaptive_victims: bool,
    /// Whether a peer may borrow what others leave unused.
    pub borrowing: bool,
    /// Whether misses in sequence widen registrations.
    pub widening: bool,
    /// Entries of the pin-down cache.
    pub entries: u64,
}

impl Default for RegistrationSettings {
    fn default() -> Self {
        Self {
            strategy: Strategy::Auto,
            m: None,
            maxvictim: None,
            bucket: None,
            ride: 1 << 10,
            adaptive_victims: true,
            borrowing: true,
            widening: true,
            entries: 1024,
        }
    }
}
