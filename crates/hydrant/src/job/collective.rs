//! The collectives of the team of all ranks, on the job itself.

use super::Job;
use crate::{BackgroundHandle, Blocks, Op, Pod, Rank, Reducible, Result, Team, TeamRank};

/// Makes methods that call the method of the same name on the world team, or the one after `=>`. A
/// root, in brackets, has the same number there.
macro_rules! on_world {
    ($($(#[$meta:meta])* fn $name:ident $(=> $to:ident)? $(<$T:ident: $($bound:path)|+>)?
       ($([$root:ident: Rank],)? $($arg:ident: $type:ty),*) -> $result:ty;)+) => {
        impl Job {$(
            $(#[$meta])*
            #[doc = concat!("\n\nSee [`Team::", on_world!(@name $name $($to)?), "`].")]
            ///
            /// # Errors
            /// As the method of the team.
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
    /// Notifies all ranks that this rank has come to a barrier.
    fn barrier_notify => notify(name: Option<u64>) -> Result<()>;
    /// Waits until every rank has come to the notified barrier.
    fn barrier_wait => wait(name: Option<u64>) -> Result<()>;
    /// Brings the elements of `root` to every rank.
    fn broadcast<T: Pod>([root: Rank], data: &mut [T]) -> Result<()>;
    /// Gathers the elements of every rank at `root`, in the order of ranks.
    fn gather<T: Pod>([root: Rank], mine: &[T]) -> Result<Option<Vec<T>>>;
    /// Gathers the elements of every rank into a buffer of `root`, in the order of ranks.
    fn gather_into<T: Pod>([root: Rank], mine: &[T], into: Option<&mut [T]>) -> Result<()>;
    /// Gathers blocks of any length from every rank into a buffer of `root`.
    fn gather_v_into<T: Pod>([root: Rank], mine: &[T], into: Option<(&mut [T], Blocks<'_>)>)
        -> Result<()>;
    /// Gathers the elements of every rank at all, in the order of ranks.
    fn all_gather<T: Pod>(mine: &[T]) -> Result<Vec<T>>;
    /// Gathers the elements of every rank into a buffer, in the order of ranks.
    fn all_gather_into<T: Pod>(mine: &[T], into: &mut [T]) -> Result<()>;
    /// Gathers the elements of every rank in the buffer that holds this rank's elements.
    fn all_gather_in_place<T: Pod>(data: &mut [T]) -> Result<()>;
    /// Gathers blocks of any length from every rank into a buffer.
    fn all_gather_v_into<T: Pod>(mine: &[T], into: &mut [T], blocks: Blocks<'_>) -> Result<()>;
    /// Gathers blocks of any length from every rank in the buffer that holds this rank's block.
    fn all_gather_v_in_place<T: Pod>(data: &mut [T], blocks: Blocks<'_>) -> Result<()>;
    /// Gives each rank its part of the elements of `root`.
    fn scatter<T: Pod>([root: Rank], all: Option<&[T]>, mine: &mut [T]) -> Result<()>;
    /// Gives each rank its block of the elements of `root`; blocks of any length.
    fn scatter_v<T: Pod>([root: Rank], all: Option<(&[T], Blocks<'_>)>, mine: &mut [T])
        -> Result<()>;
    /// Gives each rank its part of this rank's elements, and gets a part from each.
    fn all_to_all<T: Pod>(parts: &[T]) -> Result<Vec<T>>;
    /// As [`all_to_all`](Self::all_to_all), into a buffer.
    fn all_to_all_into<T: Pod>(parts: &[T], into: &mut [T]) -> Result<()>;
    /// As [`all_to_all`](Self::all_to_all), in the same buffer.
    fn all_to_all_in_place<T: Pod>(data: &mut [T]) -> Result<()>;
    /// As [`all_to_all`](Self::all_to_all), with parts of any length.
    fn all_to_all_v<T: Pod>(parts: &[Vec<T>]) -> Result<Vec<Vec<T>>>;
    /// As [`all_to_all`](Self::all_to_all), with blocks of any length in flat buffers.
    fn all_to_all_v_into<T: Pod>(from: &[T], from_blocks: Blocks<'_>, into: &mut [T],
        into_blocks: Blocks<'_>) -> Result<()>;
    /// Reduces the ranks' elements to `root`.
    fn reduce<T: Reducible>([root: Rank], mine: &[T], op: Op) -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements to `root` by a function.
    fn reduce_with<T: Pod>([root: Rank], mine: &[T], combine: impl Fn(T, T) -> T)
        -> Result<Option<Vec<T>>>;
    /// Reduces the ranks' elements to `root`, into the buffer of its own elements.
    fn reduce_in_place<T: Reducible>([root: Rank], data: &mut [T], op: Op) -> Result<()>;
    /// Reduces the ranks' elements to `root` by a function, into the buffer of its own elements.
    fn reduce_in_place_with<T: Pod>([root: Rank], data: &mut [T], combine: impl Fn(T, T) -> T)
        -> Result<()>;
    /// Reduces the ranks' elements, and gives each rank its part.
    fn reduce_scatter<T: Reducible>(data: &[T], mine: &mut [T], op: Op) -> Result<()>;
    /// Reduces the ranks' elements by a function, and gives each rank its part.
    fn reduce_scatter_with<T: Pod>(data: &[T], mine: &mut [T], combine: impl Fn(T, T) -> T)
        -> Result<()>;
    /// Reduces the ranks' elements, and gives each rank its part; parts of any length.
    fn reduce_scatter_v<T: Reducible>(data: &[T], counts: &[usize], mine: &mut [T], op: Op)
        -> Result<()>;
    /// Reduces the ranks' elements by a function, and gives each rank its part; parts of any
    /// length.
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
    fn barrier_nb() -> Result<BackgroundHandle<()>>;
    /// As [`barrier_nb`](Self::barrier_nb), and checks that every rank gave the same name.
    fn barrier_named_nb(name: u64) -> Result<BackgroundHandle<()>>;
    /// Begins to bring the elements of `root` to every rank.
    fn broadcast_nb<T: Pod | Send | Sync>([root: Rank], data: Vec<T>) -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to gather the elements of every rank at `root`; `None` elsewhere.
    fn gather_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>) -> Result<BackgroundHandle<Option<Vec<T>>>>;
    /// Begins to gather blocks into a buffer of `root`, which gets the buffer back.
    fn gather_v_into_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>, into: Option<(Vec<T>,
        Blocks<'_>)>)
        -> Result<BackgroundHandle<Option<Vec<T>>>>;
    /// Begins to gather the elements of every rank at all, in the order of ranks.
    fn all_gather_nb<T: Pod | Send | Sync>(mine: Vec<T>) -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`all_gather_nb`](Self::all_gather_nb), in the buffer that holds this rank's elements in
    /// their place.
    fn all_gather_in_place_nb<T: Pod | Send | Sync>(data: Vec<T>) -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to gather blocks into `into`, on all ranks.
    fn all_gather_v_into_nb<T: Pod | Send | Sync>(mine: Vec<T>, into: Vec<T>, blocks: Blocks<'_>)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`all_gather_v_into_nb`](Self::all_gather_v_into_nb), in the buffer that holds this
    /// rank's block in its place.
    fn all_gather_v_in_place_nb<T: Pod | Send | Sync>(data: Vec<T>, blocks: Blocks<'_>)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to give each rank its part of the elements of `root`: as many elements as `mine`
    /// holds, into `mine`.
    fn scatter_nb<T: Pod | Send | Sync>([root: Rank], all: Option<Vec<T>>, mine: Vec<T>)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to give each rank its block of the elements of `root`, into `mine`.
    fn scatter_v_nb<T: Pod | Send | Sync>([root: Rank], all: Option<(Vec<T>, Blocks<'_>)>,
        mine: Vec<T>)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to give each rank its part of this rank's elements, and to get a part from each.
    fn all_to_all_nb<T: Pod | Send | Sync>(parts: Vec<T>) -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`all_to_all_nb`](Self::all_to_all_nb), with parts of any length.
    fn all_to_all_v_nb<T: Pod | Send | Sync>(parts: Vec<Vec<T>>) -> Result<BackgroundHandle<Vec<Vec<T>>>>;
    /// As [`all_to_all_nb`](Self::all_to_all_nb), from blocks of `from` to blocks of `into`.
    fn all_to_all_v_into_nb<T: Pod | Send | Sync>(from: Vec<T>, from_blocks: Blocks<'_>,
        into: Vec<T>, into_blocks: Blocks<'_>)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, to `root`; `None` elsewhere.
    fn reduce_nb<T: Reducible | Send | Sync>([root: Rank], mine: Vec<T>, op: Op)
        -> Result<BackgroundHandle<Option<Vec<T>>>>;
    /// As [`reduce_nb`](Self::reduce_nb), by a function.
    fn reduce_with_nb<T: Pod | Send | Sync>([root: Rank], mine: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Option<Vec<T>>>>;
    /// As [`reduce_nb`](Self::reduce_nb), with the result in the root's buffer.
    fn reduce_in_place_nb<T: Reducible | Send | Sync>([root: Rank], data: Vec<T>, op: Op)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`reduce_in_place_nb`](Self::reduce_in_place_nb), by a function.
    fn reduce_in_place_with_nb<T: Pod | Send | Sync>([root: Rank], data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, on every rank.
    fn all_reduce_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`all_reduce_nb`](Self::all_reduce_nb), by a function.
    fn all_reduce_with_nb<T: Pod | Send | Sync>(data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to reduce the ranks' elements, index by index, and to give each rank its part, into
    /// `mine`.
    fn reduce_scatter_nb<T: Reducible | Send | Sync>(data: Vec<T>, mine: Vec<T>, op: Op)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), by a function.
    fn reduce_scatter_with_nb<T: Pod | Send | Sync>(data: Vec<T>, mine: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`reduce_scatter_nb`](Self::reduce_scatter_nb), with parts of any length.
    fn reduce_scatter_v_nb<T: Reducible | Send | Sync>(data: Vec<T>, counts: Vec<usize>,
        mine: Vec<T>, op: Op)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`reduce_scatter_v_nb`](Self::reduce_scatter_v_nb), by a function.
    fn reduce_scatter_v_with_nb<T: Pod | Send | Sync>(data: Vec<T>, counts: Vec<usize>,
        mine: Vec<T>, combine: impl Fn(T, T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to reduce, index by index, the elements of the ranks up to and including this one.
    fn scan_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`scan_nb`](Self::scan_nb), by a function.
    fn scan_with_nb<T: Pod | Send | Sync>(data: Vec<T>, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
    /// Begins to reduce, index by index, the elements of the ranks before this one.
    fn exclusive_scan_nb<T: Reducible | Send | Sync>(data: Vec<T>, op: Op) -> Result<BackgroundHandle<Vec<T>>>;
    /// As [`exclusive_scan_nb`](Self::exclusive_scan_nb), by a function.
    fn exclusive_scan_with_nb<T: Pod | Send | Sync>(data: Vec<T>, first: T, combine: impl Fn(T,
        T) -> T + Send + Sync + 'static)
        -> Result<BackgroundHandle<Vec<T>>>;
}
