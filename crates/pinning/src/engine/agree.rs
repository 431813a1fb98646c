//! The comparison of a running count with a fresh one.

use std::fmt::Display;

/// Checks that a count agrees with the things that it counts.
pub(super) fn agree<T: PartialEq + Display>(
    what: &str,
    counted: T,
    there: T,
) -> Result<(), String> {
    if counted == there {
        return Ok(());
    }
    Err(format!("{what}: counted {counted}, but there are {there}"))
}
