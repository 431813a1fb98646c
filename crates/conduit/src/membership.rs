//! Who takes part in the job.

use crate::Rank;

/// What a conduit knows of the ranks of the job, and tells them of its own end.
pub trait Membership {
    /// How `peer` stands to the job. Costs a load.
    fn standing(&self, peer: Rank) -> Standing;

    /// The rank that was [lost](Standing::Lost) before all others: those lost later may only
    /// have given up for its sake. Costs a load.
    fn first_lost(&self) -> Option<Rank>;

    /// Counts up whenever some rank's standing changes. Costs a load.
    fn changes(&self) -> u64;

    /// Tells the peers that this rank ends: in good order, or not.
    fn leave(&self, orderly: bool);

    /// Puts a peer out of the job, because a message of it follows no rule of the layer above: it is
    /// [lost](Standing::Lost) to all from now on, to itself as well, as if its process had ended.
    ///
    /// Where ranks are threads of one program in virtual time this does nothing: the message was
    /// thrown away, and the program is to be mended.
    fn expel(&self, peer: Rank) {
        let _ = peer;
    }
}

/// How a peer stands to the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Taking part.
    Present,
    /// Ended in good order.
    Left,
    /// Ended otherwise.
    Lost,
}
