//! The helper thread paper's figures 2, 3, 5, 6 and 8 to 14, and tables 1 to 4 (Li et al. 2011, §2,
//! §3.1, §5, §6).
//!
//! Its microbenchmark runs on `hydrant` over `sim:connectx`. Its NAS benchmarks are replayed there
//! from traces ([`traces`](super::traces)), at other sizes than the paper's: class D was not
//! recorded. Its idle cores are a separate model ([`policies`]), because in virtual time each
//! helper of `hydrant` counts as on a host of its own.

mod accuracy;
mod benchmarks;
mod groups;
mod host;
mod micro;
mod policies;
mod scaling;

pub(super) use accuracy::{figure_5, figure_6};
pub(super) use benchmarks::figure_11;
pub(super) use groups::figure_12;
pub(super) use micro::{figure_2, figure_9, figure_10};
pub(super) use policies::figure_8;
pub(super) use scaling::figure_13;

use super::job::MB;
use hydrant_report::plot::{Axis, Scale};
use hydrant_report::units;

/// The paper's machine.
const MACHINE: &str = "connectx";

/// The axis of registered memory.
const REGISTERED: Axis = Axis {
    label: "registered, MiB",
    scale: Scale::Plain,
    words: units::plain,
};

/// Bytes over milliseconds, in the units of [`REGISTERED`].
fn in_mib(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mib = |(at, bytes): (f64, f64)| (at, bytes / MB as f64);
    points.into_iter().map(mib).collect()
}

/// The percentage by which `one` exceeds `other`.
fn percent_above(one: f64, other: f64) -> f64 {
    100.0 * (one / other - 1.0)
}

/// The percentage of `other` that `one` saves.
fn percent_saved(one: f64, other: f64) -> f64 {
    100.0 * (1.0 - one / other)
}

/// The part of a staircase between two moments, counted from the first moment.
fn cut(points: &[(f64, f64)], from: f64, until: f64) -> Vec<(f64, f64)> {
    let before = points.iter().rfind(|it| it.0 < from).map_or(0.0, |it| it.1);
    let within: Vec<(f64, f64)> = (points.iter())
        .filter(|it| it.0 >= from && it.0 <= until)
        .map(|it| (it.0 - from, it.1))
        .collect();
    let last = within.last().map_or(before, |it| it.1);
    std::iter::once((0.0, before))
        .chain(within)
        .chain([(until - from, last)])
        .collect()
}
