//! The cost of operations in virtual time, and faults there.

mod costs;
mod faults;
mod memory;
#[path = "../support/mod.rs"]
mod support;
mod turns;

use std::time::Duration;

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn near(got: f64, expected: f64, share: f64) {
    assert!(
        (got - expected).abs() <= expected * share,
        "{got} is not {expected} within {share}"
    );
}
