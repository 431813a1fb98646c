//! The collectives of the team of all ranks, on the job itself.

use super::Job;
use crate::{Begun, Blocks, Op, Pod, Rank, Reducible, Result, Team, TeamRank};

/// Methods that hand on to the world's of the same name, or of the one after `=>`. A root, which is
/// in brackets, has the same number there.
macro_rules! on_world {
    ($($(#[$meta:meta])* fn $name:ident $(=> $to:ident)? $(<$T:ident: $($bound:path)|+>)?
       ($([$root:ident: Rank],)? $($arg:ident: $type:ty),*) -> $result:ty;)+) => {
        impl Job {$(
            $(#[$meta])*
            #[doc = concat!("\n\nSee [`Team::", on_world!(@name $name $($to)?), "`].")]
            ///
            /// # Errors
            /// As there.
            $(#[doc = concat!(
                "A `", stringify!($root), "` that the job does not have is ",
                "[`Error::RankOutOfRange`](crate::Error::RankOutOfRange).",
            )])?
            #[inline]
            pub fn $name $(<$T: $($bound +)+>)? (&self, $($root: Rank,)? $($arg: $type),*) -> $result {
                on_world!(@call self.world(), $name $($to)?, $(TeamRank($root.0),)? $($arg),*)
            }
        )+}
    };
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $to:ident) => { stringify!($to) };
    (@call $world:expr, $name:ident, $($arg:expr),*) => { Team::$name($world, $($arg),*) };
    (@call $world:expr, $name:ident $to:ident, $($arg:expr),*) => { Team::$to($world, $($arg),*) };
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
    fn broadcast<T: Pod>([root: Rank], data: &mut [T]) -> Result<()>;
    /// What every rank gave, by rank, at `root`.
    fn gather<T: Pod>([root: Rank], mine: &[T]) -> Result<Option<Vec<T>>>;
    /// What every rank gave, by rank, at `root`, into a buffer.
    fn gather_into<T: Pod>([root: Rank], mine: &[T], into: Option<&mut [T]>) -> Result<()>;
    /// What every rank gave, in blocks of any length, at `root`, into a buffer.
    fn gather_v_into<T: Pod>([root: Rank], mine: &[T], into: Option<(&mut [T], Blocks<'_>)>)
        -> Result<()>;
    /// What every rank gave, by rank.
    fn all_gather<T: Pod>(mine: &[T]) -> Result<Vec<T>>;
    /// What every rank gave, by rank, into a buffer.
    fn all_gather_into<T: Pod>(mine: &[T], into: &mut [T]) -> Result<()>;
    /// What every rank gave, by rank, in the buffer it gave it in.
    fn all_gather_in_place<T: Pod>(data: &mut [T]) -> Result<()>;
    /// What every rank gave, in blocks of any length, into a buffer.
    fn all_gather_v_into<T: Pod>(mine: &[T], into: &mut [T], blocks: Blocks<'_>) -> Result<()>;
    /// What every rank gave, in blocks of any length, in the buffer it gave it in.
    fn all_gather_v_in_place<T: Pod>(data: &mut [T], blocks: Blocks<'_>) -> Result<()>;
    /// Gives each rank its part of what `root` has.
    fn scatter<T: Pod>([root: Rank], all: Option<&[T]>, mine: &mut [T]) -> Result<()>;
    /// Gives each rank its block of what `root` has; of any length.
    fn scatter_v<T: Pod>([root: Rank], all: Option<(&[T], Blocks<'_>)>, mine: &mut [T])
        -> Result<()>;
    /// Gives each rank its part of what this one has, and gets from each.
    fn all_to_all<T: Pod>(parts: &[T]) -> Result<Vec<T>>;
    /// Gives each rank its part of what this one has, and gets from each, into a buffer.
    fn all_to_all_into<T: Pod>(parts: &[T], into: &mut [T]) -> Result<()>;
    /// Gives each rank its part of what this one has, and gets from each, in the same buffer.
    fn all_to_all_in_place<T: Pod>(data: &mut [T]) -> Result<()>;
    /// Gives each rank its part of what this one has, and gets from each; of any length.
    fn all_to_all_v<T: Pod>(parts: &[Vec<T>]) -> Result<Vec<Vec<T>>>;
    /// Gives each rank its block of what this one has, and gets from each; of any length, in flat
    /// buffers.
    fn all_to_all_v_into<T: Pod>(from: &[T], from_blocks: Blocks<'_>, into: &mut [T],
        into_blocks: Blocks<'_>) -> Result<()>;
    /// Reduces the ranks' elements to `root`.
    fn reduce<T: Reducible>([root: Rank], mine: &[T], op: Op) -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements to `root` by a function.
    fn reduce_with<T: Pod>([root: Rank], mine: &[T], combine: impl Fn(T, T) -> T)
        -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements to `root`, in the place of its own.
    fn reduce_in_place<T: Reducible>([root: Rank], data: &mut [T], op: Op) -> Result<()>;
    /// Reduces the ranks' elements to `root` by a function, in the place of its own.
    fn reduce_in_place_with<T: Pod>([root: Rank], data: &mut [T], combine: impl Fn(T, T) -> T)
        -> Result<()>;
    /// Reduces the ranks' elements, and gives each rank its part.
    fn reduce_scatter<T: Reducible>(data: &[T], mine: &mut [T], op: Op) -> Result<()>;
    /// Reduces the ranks' elements by a function, and gives each rank its part.
    fn reduce_scatter_with<T: Pod>(data: &[T], mine: &mut [T], combine: impl Fn(T, T) -> T)
        -> Result<()>;
    /// Reduces the ranks' elements, and gives each rank its part; of any length.
    fn reduce_scatter_v<T: Reducible>(data: &[T], counts: &[usize], mine: &mut [T], op: Op)
        -> Result<()>;
    /// Reduces the ranks' elements by a function, and gives each rank its part; of any length.
    fn reduce_scatter_v_with<T: Pod>(data: &[T], counts: &[usize], mine: &mut [T],
        combine: impl Fn(T, T) -> T) -> Result<()>;
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
    /// Begins to wait for every rank.
    fn barrier_nb() -> Result<Begun<()>>;
    /// As [`barrier_nb`](Self::barrier_nb), and checks that every rank gave the same name.
    fn barrier_named_nb(name: u64) -> Result<Begun<()>>;
    /// Begins to bring the elements of `root` to every rank.
    fn broadcast_nb<T: Pod | Send | Sync>([root: Rank], data: Vec<T>) -> Result<Begun<Vec<T>>>;
    /// Begins to bring what every rank gave, by rank, to `root`; `None` elsewhere.
    fn gather_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>) -> Result<Begun<Option<Vec<T>>>>;
    /// Begins to bring what every rank gave to its block of a buffer of `root`, which gets it back.
    fn gather_v_into_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>, into: Option<(Vec<T>,
        Blocks<'_>)>)
        -> Result<Begun<Option<Vec<T>>>>;
    /// Begins to bring what every rank gave, by rank, to all.
    fn all_gather_nb<T: Pod | Send | Sync>(mine: Vec<T>) -> Result<Begun<Vec<T>>>;
    /// As [`all_gather_nb`](Self::all_gather_nb), in the buffer in which this rank's elements are in
    /// their place.
    fn all_gather_in_place_nb<T: Pod | Send | Sync>(data: Vec<T>) -> Result<Begun<Vec<T>>>;
    /// Begins to bring what every rank gave to its block of `into`, on all.
    fn all_gather_v_into_nb<T: Pod | Send | Sync>(mine: Vec<T>, into: Vec<T>, blocks: Blocks<'_>)
        -> Result<Begun<Vec<T>>>;
    /// As [`all_gather_v_into_nb`](Self::all_gather_v_into_nb), in the buffer in which this rank's
    /// block is in its place.
    fn all_gather_v_in_place_nb<T: Pod | Send | Sync>(data: Vec<T>, blocks: Blocks<'_>)
        -> Result<Begun<Vec<T>>>;
    /// Begins to give each rank its part of what `root` has: as many elements as `mine` holds, in
    /// their place.
    fn scatter_nb<T: Pod | Send | Sync>([root: Rank], all: Option<Vec<T>>, mine: Vec<T>)
        -> Result<Begun<Vec<T>>>;
    /// Begins to give each rank its block of what `root` has, in the place of `mine`.
    fn scatter_v_nb<T: Pod | Send | Sync>([root: Rank], all: Option<(Vec<T>, Blocks<'_>)>,
        mine: Vec<T>)
        -> Result<Begun<Vec<T>>>;
    /// Begins to give each rank its part of what this one has, and to get from each.
    fn all_to_all_nb<T: Pod | Send | Sync>(parts: Vec<T>) -> Result<Begun<Vec<T>>>;
    /// As [`all_to_all_nb`](Self::all_to_all_nb), with parts of any length.
    fn all_to_all_v_nb<T: Pod | Send | Sync>(parts: Vec<Vec<T>>) -> Result<Begun<Vec<Vec<T>>>>;
    /// As [`all_to_all_nb`](Self::all_to_all_nb), from blocks of `from` to blocks of `into`.
    fn all_to_all_v_into_nb<T: Pod | Send | Sync>(from: Vec<T>, from_blocks: Blocks<'_>,
        into: Vec<T>, into_blocks: Blocks<'_>)
        -> Result<Begun<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, to `root`; `None` elsewhere.
    fn reduce_nb<T: Reducible | Send | Sync>([root: Rank], mine: Vec<T>, op: Op)
        -> Result<Begun<Option<Vec<T>>>>;
    /// As [`reduce_nb`](Self::reduce_nb), by a function.
    fn reduce_with_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Option<Vec<T>>>>;
    /// As [`reduce_nb`](Self::reduce_nb), with the result in the place of what the root gave.
    fn reduce_in_place_nb<T: Reducible | Send | Sync>([root: Rank], data: Vec<T>, op: Op)
        -> Result<Begun<Vec<T>>>;
    /// As [`reduce_in_place_nb`](Self::reduce_in_place_nb), by a function.
    fn reduce_in_place_with_nb<T: Pod | Send | Sync>([root: Rank], data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, on every rank.
    fn all_reduce_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<Begun<Vec<T>>>;
    /// As [`all_reduce_nb`](Self::all_reduce_nb), by a function.
    fn all_reduce_with_nb<T: Pod | Send | Sync>(data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, and to give each rank its part, in the
    /// place of `mine`.
    fn reduce_scatter_nb<T: Reducible | Send | Sync>(data: Vec<T>, mine: Vec<T>, op: Op)
        -> Result<Begun<Vec<T>>>;
    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), by a function.
    fn reduce_scatter_with_nb<T: Pod | Send | Sync>(data: Vec<T>, mine: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), with parts of any length.
    fn reduce_scatter_v_nb<T: Reducible | Send | Sync>(data: Vec<T>, counts: Vec<usize>,
        mine: Vec<T>, op: Op)
        -> Result<Begun<Vec<T>>>;
    /// As [`reduce_scatter_v_nb`](Self::reduce_scatter_v_nb), by a function.
    fn reduce_scatter_v_with_nb<T: Pod | Send | Sync>(data: Vec<T>, counts: Vec<usize>,
        mine: Vec<T>, combine: impl Fn(T, T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
    /// Begins to reduce, index by index, the elements of the ranks up to and including this one.
    fn scan_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<Begun<Vec<T>>>;
    /// As [`scan_nb`](Self::scan_nb), by a function.
    fn scan_with_nb<T: Pod | Send | Sync>(data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
    /// Begins to reduce, index by index, the elements of the ranks before this one.
    fn exclusive_scan_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<Begun<Vec<T>>>;
    /// As [`exclusive_scan_nb`](Self::exclusive_scan_nb), by a function.
    fn exclusive_scan_with_nb<T: Pod | Send | Sync>(data: Vec<T>, first: T, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<Begun<Vec<T>>>;
}
