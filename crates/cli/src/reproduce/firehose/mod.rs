//! The Firehose paper's table 3 and figures 3 to 5 (Bell & Bonachea 2003, §4.3, §4.4), and what
//! borrowing and adaptive victims change.

mod random;
mod table;

pub(super) use random::{figure_3, figure_4, figure_5, shares};
pub(super) use table::table_3;
