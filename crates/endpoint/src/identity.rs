//! The name of a peer.

/// One incarnation of a peer.
#[derive(Debug)]
pub(crate) struct PeerIdentity {
    /// The number that the endpoint drew when it started.
    pub(crate) incarnation: u64,
    /// The name that it gave itself.
    pub(crate) name: String,
}

impl PeerIdentity {
    /// Returns the name for people.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() {
            format!("{:016x}", self.incarnation)
        } else {
            self.name.clone()
        }
    }
}
