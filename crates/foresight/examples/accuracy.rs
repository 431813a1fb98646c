//! Prints the accuracy of each predictor on traces (the paper's Figures 5 and 6). Each trace is an archive with a
//! file for each rank.
//!
//! `cargo run --release -p hydrant-foresight --example accuracy -- cg.A.4.tar.zst lu.A.4.tar.zst`

use std::error::Error;
use std::path::Path;

use hydrant_foresight::evaluation::{
    AccuracyRow, Errors, EvaluationSetting, TraceClock, bound, compare,
};
use hydrant_foresight::trace::Trace;

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "within 5 % / 0.5 % of the period, in percent of the forecasts; uses that came before their deadline"
    );
    for path in std::env::args().skip(1) {
        let trace = support::read(Path::new(&path))?;
        for clock in [TraceClock::Computing, TraceClock::Smooth] {
            println!("\n{path}, {clock:?}");
            print(&trace, clock);
        }
    }
    Ok(())
}

fn print(trace: &Trace, clock: TraceClock) {
    println!(
        "{:<16} {:>6} {:>9} {:>9}  {:>13}  {:>13}  {:>5}",
        "method", "window", "repeated", "forecasts", "at use", "acted upon", "late"
    );
    let setting = EvaluationSetting {
        clock,
        ..EvaluationSetting::PAPER
    };
    for row in compare(trace, &setting) {
        let AccuracyRow {
            method,
            window,
            accuracy: found,
        } = row;
        println!(
            "{:<16} {window:>6} {:>9} {:>9}  {:>13}  {:>13}  {:>5.1}",
            method.to_string(),
            found.repeated,
            found.at_use.forecasts,
            pair(&found.at_use),
            pair(&found.acted),
            found.deadlines.percent(found.deadlines.late),
        );
    }
    let best = bound(trace, &setting);
    println!(
        "{:<43}  {:>13}  {:>13}",
        "best constants in hindsight",
        pair(&best.periods),
        pair(&best.gaps)
    );
}

fn pair(errors: &Errors) -> String {
    let within = |bound| errors.percent_within(bound);
    format!("{:.1} / {:.1}", within(50), within(5))
}
