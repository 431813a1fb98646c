//! Prints what a helper saves on traces, in virtual time: registered memory against leaving everything
//! registered (the paper's Figure 11), and time against that (Table 2). Ranks wait for nobody: this is about
//! each rank's helper, and no replay of their messages.
//!
//! `cargo run --release -p hydrant-foresight --example memory -- bt.A.4.tar.zst`

use std::error::Error;
use std::path::Path;

use hydrant_foresight::evaluation::Clock;
use hydrant_foresight::plan::Config;
use hydrant_foresight::predictor::Method;

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/world/mod.rs"]
mod world;

use world::{Outcome, Setup, program, run};

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
        let program = program(rank, Clock::Computing);
        let starved = Setup {
            is_starved: true,
            ..Setup::new(Config::DEFAULT)
        };
        let pinned = run(&starved, vec![program.clone()]);
        for method in [
            Method::Shortest,
            Method::Median { of: 9 },
            Method::Landmarks,
        ] {
            let plan = Config {
                method,
                ..Config::DEFAULT
            };
            let outcome = run(&Setup::new(plan), vec![program.clone()]);
            print(&path, method, &outcome, &pinned);
        }
    }
    Ok(())
}

fn print(path: &str, method: Method, outcome: &Outcome, pinned: &Outcome) {
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
