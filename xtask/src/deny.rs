//! Licences, sources, duplicates and advisories of the dependencies, by cargo-deny.

use crate::command::{at_root, cargo, cargo_program, run, succeeds};
use crate::error::Error;

/// The longest time to fetch the advisory database, in seconds.
const FETCH_LIMIT: &str = "60";

/// Checks the rules of `deny.toml`. Advisories are checked only where their database can be
/// fetched.
pub(crate) fn dependencies() -> Result<Vec<String>, Error> {
    run(cargo("deny check licenses bans sources"))?;

    // Offline, and behind a mirror of the registry alone, there is no database. That is a fact
    // about the machine, and not a fault of the dependencies.
    let mut fetch = at_root("timeout");
    fetch.args([FETCH_LIMIT, &cargo_program(), "deny", "fetch", "db"]);
    if !succeeds(fetch) {
        return Ok(vec![
            "advisories not checked: the RustSec database cannot be reached from here".into(),
        ]);
    }
    run(cargo("deny check advisories"))?;
    Ok(vec![])
}
