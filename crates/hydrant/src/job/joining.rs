//! The version and the settings that all ranks must share before they attach to a network.
//!
//! Ranks of different networks wait for each other, or fail with what looks like a fault of the network. So each rank
//! compares its version and the settings that choose the network with those of rank 0 first.

use hydrant_launch::Bootstrap;

use super::JobBuilder;
use crate::{Error, Rank, Result};

/// The key of rank 0's version and settings.
const KEY: &str = "joining";

/// Compares this rank's version and choice of network with those of rank 0. Collective.
///
/// # Errors
/// [`Error::CollectiveMismatch`] with both values, if they differ.
pub(super) fn compare(builder: &JobBuilder, bootstrap: &mut dyn Bootstrap) -> Result<()> {
    if bootstrap.size() == 1 {
        return Ok(());
    }
    let ours = alike(builder);
    if bootstrap.rank() == 0 {
        bootstrap.put(KEY, ours.join("\n").as_bytes())?;
    }
    bootstrap.fence()?;
    if bootstrap.rank() == 0 {
        return Ok(());
    }
    let theirs = bootstrap.get(0, KEY)?;
    let theirs = String::from_utf8_lossy(&theirs);
    let differing = theirs
        .lines()
        .zip(&ours)
        .find(|(theirs, ours)| theirs != ours);
    differing.map_or(Ok(()), |(theirs, ours)| {
        Err(Error::CollectiveMismatch {
            operation: "joining the job",
            rank: Rank(0),
            theirs: format!("has {theirs}"),
            own: Rank(bootstrap.rank()),
            ours: format!("has {ours}, which must be the same at all ranks"),
        })
    })
}

/// Returns what must be alike, the version first.
fn alike(builder: &JobBuilder) -> [String; 3] {
    let settings = &builder.settings;
    [
        format!("Hydrant {}", env!("CARGO_PKG_VERSION")),
        format!("HYDRANT_CONDUIT={}", settings.conduit),
        format!("HYDRANT_INTER_NODE={}", settings.inter_node),
    ]
}
