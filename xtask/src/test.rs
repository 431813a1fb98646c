//! Sets the machine up, then runs each check, even after a failure.

use crate::check::Check;
use crate::dose::Dose;
use crate::report::{CheckRow, Verdict};
use crate::setup;
use crate::tool::{Tool, missing, with_sources};

/// One row for the setup and one for each check of this dose.
pub(crate) fn report_all(dose: Dose) -> Vec<CheckRow> {
    let mut rows = vec![setup::report()];
    rows.extend(Check::all(dose).iter().map(run_or_leave_out));
    rows
}

fn run_or_leave_out(check: &Check) -> CheckRow {
    let lacking = missing(check.needs());
    if check.is_optional() && !lacking.is_empty() {
        return left_out(check, &lacking);
    }
    check.report()
}

fn left_out(check: &Check, lacking: &[Tool]) -> CheckRow {
    CheckRow {
        check: check.name(),
        result: Verdict::LeftOut,
        seconds: 0.0,
        building: 0.0,
        notes: vec![format!("not on this machine: {}", with_sources(lacking))],
    }
}
