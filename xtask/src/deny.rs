//! Licences, sources, duplicates and advisories of the dependencies, by cargo-deny.

use crate::command::{at_root, cargo, cargo_program, run, succeeds};
use crate::error::Error;

/// How long the advisory database may take to come, in seconds.
const FETCH_LIMIT: &str = "60";

/// What `deny.toml` says holds; advisories only where their database can be had.
pub(crate) fn dependencies() -> Result<Vec<String>, Error> {
    run(cargo("deny check licenses bans sources"))?;

    // Offline, and behind a mirror of the registry alone, there is no database:
    // that is a fact about the machine, and not a fault of the dependencies.
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
