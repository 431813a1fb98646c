//! The expectations and the results, on the terminal.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use hydrant_report::format::Format;
use hydrant_report::table::{Align, Table};

use super::part::Criterion;
use super::runner::FinishedExperiment;

/// Prints each criterion, then the path of the page.
pub(crate) fn print(
    format: Format,
    outcomes: &[FinishedExperiment],
    page: &Path,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let parts = || {
        outcomes
            .iter()
            .filter_map(|outcome| outcome.part.as_ref().ok())
    };
    let criteria = || parts().flat_map(|part| &part.criteria);
    match format {
        Format::Json => {
            for criterion in criteria() {
                writeln!(out, "{}", serde_json::to_string(criterion)?)?;
            }
            for outcome in outcomes {
                if let Err(why) = &outcome.part {
                    let failed = Failed {
                        part: outcome.id,
                        failed: why.to_string(),
                    };
                    writeln!(out, "{}", serde_json::to_string(&failed)?)?;
                }
            }
        }
        Format::Table => {
            write!(out, "{}", table(criteria()))?;
            let reasons: Vec<&Criterion> = criteria()
                .filter(|criterion| !criterion.met && !criterion.why.is_empty())
                .collect();
            for criterion in reasons {
                writeln!(
                    out,
                    "\n✗ {}, {}:\n  {}",
                    criterion.part, criterion.what, criterion.why
                )?;
            }
            for outcome in outcomes {
                if let Err(why) = &outcome.part {
                    writeln!(out, "\n✗ {} failed: {why}", outcome.id)?;
                }
            }
            writeln!(out, "\n{}", page.display())?;
        }
    }
    out.flush()
}

#[derive(Serialize)]
struct Failed {
    part: &'static str,
    failed: String,
}

fn table<'a>(criteria: impl Iterator<Item = &'a Criterion>) -> Table {
    let mut table = Table::new(
        "what was expected, and what came out",
        &[
            ("experiment", Align::Left),
            ("criterion", Align::Left),
            ("paper", Align::Right),
            ("ours", Align::Right),
            ("within", Align::Left),
        ],
    );
    for criterion in criteria {
        table.row([
            criterion.part.clone(),
            criterion.what.clone(),
            criterion.paper.clone(),
            criterion.ours.clone(),
            if criterion.met { "✓" } else { "✗" }.to_owned(),
        ]);
    }
    table
}
