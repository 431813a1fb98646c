//! Prints the savings of a helper on traces, in virtual time. Registered memory (the paper's Figure 11) and time
//! (Table 2) are compared with leaving everything registered. Ranks wait for nobody: the messages are not replayed.
//!
//! `cargo run --release -p hydrant-foresight --example memory -- bt.A.4.tar.zst`

use std::error::Error;
use std::path::Path;

use hydrant_foresight::evaluation::TraceClock;
use hydrant_foresight::plan::PlanConfig;
use hydrant_foresight::predictor::Method;

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/world/mod.rs"]
mod world;

use world::{RunOutcome, RunSetup, program, run};

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "rank 0; peak and mean of the registered bytes and time, in percent of leaving all registered"
    );
    println!(
        "{:<20} {:<12} {:>8} {:>6} {:>6} {:>7} {:>9} {:>9} {:>6} {:>7} {:>9} {:>6}",
        "trace",
        "method",
        "bytes",
        "peak",
        "mean",
        "time",
        "uses",
        "on demand",
        "late",
        "unused",
        "waiting",
        "unread"
    );
    for path in std::env::args().skip(1) {
        let trace = support::read(Path::new(&path))?;
        let Some(rank) = trace.ranks().first() else {
            continue;
        };
        let program = program(rank, TraceClock::Computing);
        let starved = RunSetup {
            is_starved: true,
            ..RunSetup::new(PlanConfig::DEFAULT)
        };
        let pinned = run(&starved, vec![program.clone()]);
        for method in [
            Method::Shortest,
            Method::Median { of: 9 },
            Method::Landmarks,
        ] {
            let plan = PlanConfig {
                method,
                ..PlanConfig::DEFAULT
            };
            let outcome = run(&RunSetup::new(plan), vec![program.clone()]);
            print(&path, method, &outcome, &pinned);
        }
    }
    Ok(())
}

fn print(path: &str, method: Method, outcome: &RunOutcome, pinned: &RunOutcome) {
    let percent = |of: f64, all: f64| 100.0 * of / all.max(1.0);
    let stats = outcome.stats;
    println!(
        "{:<20} {:<12} {:>8} {:>6.1} {:>6.1} {:>7.2} {:>9} {:>9} {:>6} {:>7} {:>9} {:>6}",
        Path::new(path)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy(),
        method.to_string(),
        pinned.peak_bytes,
        percent(outcome.peak_bytes as f64, pinned.peak_bytes as f64),
        percent(outcome.mean_bytes, pinned.mean_bytes),
        percent(outcome.end.0 as f64, pinned.end.0 as f64),
        stats.found + stats.on_demand,
        stats.on_demand,
        stats.late,
        stats.unused,
        outcome.times.waiting_ns,
        outcome.overwritten,
    );
}
