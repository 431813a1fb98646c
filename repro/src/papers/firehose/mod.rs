//! The Firehose paper's table 3 and figures 3 to 5 (Bell & Bonachea 2003, §4.3, §4.4), and the
//! effects of borrowing and adaptive victims.

mod load;
mod peak;
mod random;
mod shares;
mod table;

pub(super) use peak::figure_5;
pub(super) use random::{figure_3, figure_4};
pub(super) use shares::shares;
pub(super) use table::table_3;

/// The paper's M and MAXVICTIM, in MB.
const LIMITS: (u64, u64) = (400, 50);
