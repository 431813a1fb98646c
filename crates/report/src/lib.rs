//! What Hydrant's commands share to print: [tables](table), [units], the [format] of a result, the [status] they end
//! with, the [machine] they run on and, with the feature `plot`, pictures.

pub mod format;
pub mod machine;
#[cfg(feature = "plot")]
pub mod plot;
pub mod status;
pub mod table;
pub mod units;
