//! A progress bar on rank 0, if standard error is a terminal.

use std::time::Duration;

use hydrant::{Job, Rank};
use indicatif::{ProgressBar, ProgressStyle};

/// The progress of the program.
pub struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    /// A bar of `units`; hidden on all ranks but the first.
    pub fn new(job: &Job, units: usize) -> Self {
        let bar = if job.rank() == Rank(0) {
            // The bar draws nothing where standard error is no terminal.
            ProgressBar::new(units as u64)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{msg:16} {wide_bar} {percent:>3} % {elapsed:>4}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Self(bar)
    }

    /// Names the current phase.
    pub fn phase(&self, what: &'static str) {
        self.0.set_message(what);
    }

    /// Adds finished units.
    pub fn advance(&self, units: usize) {
        self.0.inc(units as u64);
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
