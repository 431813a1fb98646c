//! Ranks as threads of the test.

use std::thread;

use hydrant_launch::LocalBootstrap;

/// Lets `ranks` ranks join a job, each on its own thread; returns the results by rank.
///
/// # Panics
/// If a rank panics.
pub fn joined<T: Send>(ranks: u32, join: impl Fn(LocalBootstrap) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let join = &join;
        let ranks: Vec<_> = (hydrant_launch::local(ranks).into_iter())
            .map(|bootstrap| scope.spawn(move || join(bootstrap)))
            .collect();
        (ranks.into_iter())
            .map(|rank| rank.join().expect("a rank that joins"))
            .collect()
    })
}
