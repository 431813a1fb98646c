//! The use of registered memory at one moment, for observers of a running job.

use super::Engine;

/// The registered buckets by their use. The whole extent of a bucket has one use. Of several, it is
/// the first in this order: dead, permanent, for peers, in use.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BucketUsage {
    /// The buckets that the system may have registered: the sum of all that follow.
    pub registered: u64,
    /// Buckets that changed, were freed or are lent no more, and that operations or peers still
    /// hold.
    pub dead: u64,
    /// Buckets registered for good.
    pub permanent: u64,
    /// Buckets that peers hold firehoses on, or use.
    pub peers: u64,
    /// Buckets that only operations of this rank use.
    pub in_use: u64,
    /// Buckets without user, which can be evicted.
    pub victims: u64,
    /// Buckets that are being registered or deregistered.
    pub changing: u64,
    /// The firehoses that peers hold here and that this rank holds there, by peer in rising order.
    /// Peers without firehoses are left out. Several peers may hold one bucket.
    pub firehoses: Vec<PeerFirehoses>,
}

/// The firehoses between this rank and a peer, in buckets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PeerFirehoses {
    /// The peer.
    pub peer: u32,
    /// The buckets of this rank that the peer holds.
    pub held_here: u64,
    /// The buckets of the peer that this rank holds.
    pub held_there: u64,
}

impl Engine {
    /// Counts the use of registered memory. The count walks all records of own buckets, of which a
    /// record takes a few nanoseconds. Operations in flight beside it may be counted or not.
    pub fn usage(&self) -> BucketUsage {
        let mut usage = self.local.usage(&self.target.going());
        let peers = (self.target.holding()).chain(self.initiator.holding());
        let mut peers: Vec<PeerFirehoses> = peers.collect();
        peers.sort_unstable_by_key(|it| it.peer);
        for it in peers {
            match usage.firehoses.last_mut() {
                Some(last) if last.peer == it.peer => {
                    last.held_here += it.held_here;
                    last.held_there += it.held_there;
                }
                _ => usage.firehoses.push(it),
            }
        }
        usage
    }
}
