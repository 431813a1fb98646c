//! The commands to the control thread.

use hydrant_conduit::Rank;

use crate::introduction::FabricIntroduction;

/// A task that another thread gives the control thread.
#[derive(Debug)]
pub(crate) enum LinkCommand {
    /// Looks after a link that is down.
    Attend(Rank),
    /// Declares a peer lost, for this reason.
    Lose(Rank, &'static str),
    /// Declares all peers lost: the endpoint failed.
    LoseAll,
    /// Declares a peer lost that broke the protocol of the layer above, and tells the peer.
    Expel(Rank),
    /// Notes that a peer said that it leaves, in good order or not.
    NoteLeft(Rank, bool),
    /// Notes that another rank found a peer lost.
    NoteLost(Rank),
    /// Notes that a peer expelled this rank.
    Expelled(Rank),
    /// Announces that this rank's program has come to its end, or continues after all. Carries the number of the
    /// announcement.
    ComeToEnd(u32),
    /// Announces that this rank leaves; `true` if in good order.
    Leave(bool),
    /// Keeps children from holding the sockets that were opened.
    MarkSockets,
    /// Ends the thread: the conduit is dropped.
    Stop,
    /// Begins the attempt with this number to get to know a peer.
    Attempt(Rank),
    /// Hears the introduction of a peer that knows the key.
    Introduced(Box<FabricIntroduction>),
    /// Hears that the peer with this number admitted this process.
    Admitted(Rank, Box<FabricIntroduction>),
    /// Hears that the peer with this number declined this process.
    Declined(Rank, Box<FabricIntroduction>),
    /// Hears the first hello of a peer that this process admitted.
    Proved(Rank, Box<[u8]>),
    /// Leaves the session with a peer in good order.
    Disconnect(Rank),
    /// Gives up the session with a peer.
    Abandon(Rank),
    /// Notes that a peer gave up its session.
    GivenUp(Rank),
    /// Frees the number of a peer that has ended.
    Release(Rank),
    /// Ends all sessions, because this process stood still.
    Stalled,
}
