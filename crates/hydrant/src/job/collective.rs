//! The collectives of the team of all ranks, on the job itself.

use super::Job;
use crate::{Op, Pod, Rank, Reducible, Result, Team};

/// Methods that hand on to the world's of the same name, or of the one after `=>`.
macro_rules! on_world {
    ($($(#[$meta:meta])* fn $name:ident $(=> $to:ident)? $(<$T:ident: $bound:path>)?
       ($($arg:ident: $type:ty),*) -> $result:ty;)+) => {
        impl Job {$(
            $(#[$meta])*
            #[doc = concat!("\n\nSee [`Team::", on_world!(@name $name $($to)?), "`].")]
            ///
            /// # Errors
            /// As there.
            #[inline]
            pub fn $name $(<$T: $bound>)? (&self, $($arg: $type),*) -> $result {
                on_world!(@call self.world(), $name $($to)?, $($arg),*)
            }
        )+}
    };
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $to:ident) => { stringify!($to) };
    (@call $world:expr, $name:ident, $($arg:ident),*) => { Team::$name($world, $($arg),*) };
    (@call $world:expr, $name:ident $to:ident, $($arg:ident),*) => { Team::$to($world, $($arg),*) };
}

on_world! {
    /// Waits for every rank.
    fn barrier() -> Result<()>;
    /// Waits for every rank, and checks that all give the same name.
    fn barrier_named(name: u64) -> Result<()>;
    /// Says that this rank has come to a barrier.
    fn barrier_notify => notify(name: Option<u64>) -> Result<()>;
    /// Waits until every rank has come to the barrier notified.
    fn barrier_wait => wait(name: Option<u64>) -> Result<()>;
    /// Brings the elements of `root` to every rank.
    fn broadcast<T: Pod>(root: Rank, data: &mut [T]) -> Result<()>;
    /// What every rank gave, by rank, at `root`.
    fn gather<T: Pod>(root: Rank, mine: &[T]) -> Result<Option<Vec<T>>>;
    /// What every rank gave, by rank.
    fn all_gather<T: Pod>(mine: &[T]) -> Result<Vec<T>>;
    /// Gives each rank its part of what `root` has.
    fn scatter<T: Pod>(root: Rank, all: Option<&[T]>, mine: &mut [T]) -> Result<()>;
    /// Gives each rank its part of what this one has, and gets from each.
    fn all_to_all<T: Pod>(parts: &[T]) -> Result<Vec<T>>;
    /// Gives each rank its part of what this one has, and gets from each; of any length.
    fn all_to_all_v<T: Pod>(parts: &[Vec<T>]) -> Result<Vec<Vec<T>>>;
    /// Reduces the ranks' elements to `root`.
    fn reduce<T: Reducible>(root: Rank, mine: &[T], op: Op) -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements to `root` by a function.
    fn reduce_with<T: Pod>(root: Rank, mine: &[T], combine: impl Fn(T, T) -> T)
        -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements on every rank.
    fn all_reduce<T: Reducible>(data: &mut [T], op: Op) -> Result<()>;
    /// Reduces the ranks' elements on every rank by a function.
    fn all_reduce_with<T: Pod>(data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()>;
    /// Reduces the elements of the ranks up to this one.
    fn scan<T: Reducible>(data: &mut [T], op: Op) -> Result<()>;
    /// Reduces the elements of the ranks up to this one by a function.
    fn scan_with<T: Pod>(data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()>;
    /// Reduces the elements of the ranks before this one.
    fn exclusive_scan<T: Reducible>(data: &mut [T], op: Op) -> Result<()>;
    /// Reduces the elements of the ranks before this one by a function.
    fn exclusive_scan_with<T: Pod>(data: &mut [T], first: T, combine: impl Fn(T, T) -> T)
        -> Result<()>;
}
