//! Collectives and teams.

mod answers;
mod barriers;
mod begun;
mod flat;
mod given_up;
mod in_segments;
mod large_boards;
mod long;
mod lost;
mod mismatch;
mod mix;
mod teams;
mod types;
mod unfit;

use hydrant::{Job, Result};

use crate::support;

/// Ranks to try: powers of two, their neighbours, primes.
const SIZES: [u32; 7] = [1, 2, 3, 4, 5, 7, 8];

/// Runs a job of `n` ranks, each outcome by rank.
fn outcomes<R: Send>(n: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<Result<R>> {
    support::builder().heap(4 << 20).run_local(n, body)
}

/// Runs a job of `n` ranks that all succeed.
fn run<R: Send>(n: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<R> {
    outcomes(n, body).into_iter().map(Result::unwrap).collect()
}
