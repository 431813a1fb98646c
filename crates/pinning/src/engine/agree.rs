//! How the rooms compare what they counted on the way with what there is.

use std::fmt::Display;

/// Whether a count agrees with what it counts.
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
