//! Ranks that are threads of the test.

use std::thread;

use hydrant_launch::LocalBootstrap;

/// Has so many ranks join a job, each by a thread of its own; what they joined, by rank.
///
/// # Panics
/// If one of them does.
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
