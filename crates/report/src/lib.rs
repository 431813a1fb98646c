//! The parts that Hydrant's commands share: the [options of other hosts](remote), [tables](table), [units], the [`format`](mod@format) of a result,
//! the exit [status], the [machine] and, with the feature `plot`, pictures.

pub mod format;
pub mod machine;
#[cfg(feature = "plot")]
pub mod plot;
pub mod remote;
pub mod status;
pub mod table;
pub mod units;
