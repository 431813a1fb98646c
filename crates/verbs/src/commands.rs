//! The commands to the control thread.

use hydrant_conduit::Rank;

/// A task that another thread gives the control thread.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Makes the connection to a peer, for the first time or again.
    Connect(Rank),
    /// Asks a peer for the PSN that it expects next on a connection that broke.
    QueryPsn(Rank),
    /// Declares a peer lost, for this reason.
    Lose(Rank, &'static str),
    /// Declares a peer lost that broke the protocol, and tells the peer.
    Expel(Rank),
    /// Announces that this rank's program has come to its end, or continues after all. Carries the
    /// number of the announcement.
    ComeToEnd(u32),
    /// Announces that this rank leaves; `true` if in good order.
    Leave(bool),
    /// Resends the wake of this number to a peer until the peer acknowledges.
    ConfirmWake(Rank, u32),
    /// Ends the thread: the conduit is dropped.
    Stop,
}
