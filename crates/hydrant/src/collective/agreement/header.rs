//! What a member says about the collective it calls.

use crate::{
    Rank, TeamRank,
    collective::{Op, kind},
};

/// Which collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollectiveKind {
    Barrier,
    End,
    Alloc,
    Free,
    Handler,
    Split,
    Broadcast,
    Gather,
    AllGather,
    Scatter,
    AllToAll,
    AllToAllV,
    GatherV,
    AllGatherV,
    ScatterV,
    Reduce,
    AllReduce,
    Scan,
    ExclusiveScan,
    ReduceScatter,
    ReduceScatterV,
    Exclusive,
    Share,
    Mutexes,
    FreeMutexes,
}

/// By number.
const NAMES: [&str; 25] = [
    "barrier",
    "end of the job",
    "alloc",
    "free",
    "handler",
    "split",
    "broadcast",
    "gather",
    "all_gather",
    "scatter",
    "all_to_all",
    "all_to_all_v",
    "gather_v",
    "all_gather_v",
    "scatter_v",
    "reduce",
    "all_reduce",
    "scan",
    "exclusive_scan",
    "reduce_scatter",
    "reduce_scatter_v",
    "exclusive",
    "share",
    "mutexes",
    "free_mutexes",
];

impl CollectiveKind {
    pub(in crate::collective) fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// What is compared: three words, so that they fit a cache line twice.
///
/// ```text
/// word 0   bits 0..8 operation, 8..16 reduction, 16..24 type, 24 refused, 25 named, 32..64 root
/// word 1   elements, or all ones if each member has as many as it likes; a barrier's name
/// word 2   bytes of an element
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::collective) struct CallHeader(pub(super) [u64; 3]);

const REDUCTION: u32 = 8;
const KIND: u32 = 16;
const REFUSED: u64 = 1 << 24;
const NAMED: u64 = 1 << 25;
const ROOT: u32 = 32;
const UNEVEN: u64 = u64::MAX;

impl CallHeader {
    pub(in crate::collective) fn new(operation: CollectiveKind) -> Self {
        Self([operation as u64, 0, 0])
    }

    /// A barrier; `who` named it, if it has a name.
    #[inline]
    pub(in crate::collective) fn barrier(name: Option<u64>, who: Rank) -> Self {
        let word = CollectiveKind::Barrier as u64;
        match name {
            None => Self([word, 0, 0]),
            Some(name) => Self([word | NAMED | u64::from(who.0) << ROOT, name, 0]),
        }
    }

    pub(in crate::collective) fn of<T>(mut self, count: usize) -> Self {
        self.0[1] = count as u64;
        self.0[2] = size_of::<T>() as u64;
        self
    }

    /// Elements of which members may have different numbers.
    pub(in crate::collective) fn of_uneven<T>(mut self) -> Self {
        self.0[1] = UNEVEN;
        self.0[2] = size_of::<T>() as u64;
        self
    }

    pub(in crate::collective) fn root(mut self, root: TeamRank) -> Self {
        self.0[0] |= u64::from(root.0) << ROOT;
        self
    }

    /// The reduction, or none for a closure; and the number of the element's type.
    pub(in crate::collective) fn reduction(mut self, op: Option<Op>, kind: u8) -> Self {
        let op = op.map_or(u64::from(u8::MAX), |op| op as u64 + 1);
        self.0[0] |= op << REDUCTION | u64::from(kind) << KIND;
        self
    }

    /// The caller's own arguments are unfit.
    pub(super) fn refused(mut self) -> Self {
        self.0[0] |= REFUSED;
        self
    }

    fn operation(self) -> u64 {
        self.0[0] & 0xff
    }

    pub(in crate::collective) fn name(self) -> &'static str {
        NAMES
            .get(self.operation() as usize)
            .unwrap_or(&"nothing known")
    }

    /// Returns whether the caller has no elements of its own in it.
    fn is_internal(self) -> bool {
        let internal = [
            CollectiveKind::Alloc,
            CollectiveKind::Free,
            CollectiveKind::Handler,
            CollectiveKind::Split,
            CollectiveKind::Exclusive,
            CollectiveKind::Share,
            CollectiveKind::Mutexes,
            CollectiveKind::FreeMutexes,
        ];
        (internal.iter()).any(|kind| *kind as u64 == self.operation())
    }

    fn is_barrier(self) -> bool {
        self.operation() == CollectiveKind::Barrier as u64
    }

    /// Who is known to have said this, if not whoever passed it on: barriers without a name
    /// take on the name they hear.
    pub(super) fn origin(self) -> Option<Rank> {
        (self.is_barrier() && self.0[0] & NAMED != 0).then_some(Rank((self.0[0] >> ROOT) as u32))
    }

    /// Whether the two fit together. A barrier without a name fits any, and takes on its name.
    #[inline]
    pub(super) fn agrees(&mut self, other: CallHeader) -> bool {
        *self == other || self.agrees_as_barrier(other)
    }

    fn agrees_as_barrier(&mut self, other: CallHeader) -> bool {
        if !self.is_barrier() || !other.is_barrier() {
            return false;
        }
        match (self.origin(), other.origin()) {
            (_, None) => true,
            (None, Some(_)) => {
                *self = other;
                true
            }
            (Some(_), Some(_)) => self.0[1] == other.0[1],
        }
    }

    /// For people.
    pub(super) fn describe(self) -> String {
        let [word, count, size] = self.0;
        if self.operation() == CollectiveKind::End as u64 {
            return "came to the end of the job".to_owned();
        }
        let mut text = format!("called {}", self.name());
        if self.is_barrier() {
            if self.origin().is_some() {
                text += &format!(" named {count}");
            }
            return text;
        }
        match (count, size) {
            (_, 0) => {}
            // The elements are records that Hydrant exchanges, and not the caller's.
            _ if self.is_internal() => {}
            (UNEVEN, _) => text += &format!(" with elements of {size} bytes"),
            _ => text += &format!(" with {count} elements of {size} bytes"),
        }
        let root = [
            CollectiveKind::Broadcast,
            CollectiveKind::Gather,
            CollectiveKind::GatherV,
            CollectiveKind::Scatter,
            CollectiveKind::ScatterV,
            CollectiveKind::Reduce,
        ];
        if root.iter().any(|rooted| *rooted as u64 == self.operation()) {
            text += &format!(" and root {}", word >> ROOT);
        }
        match (word >> REDUCTION) as u8 {
            0 => {}
            op => {
                let kind = kind::describe((word >> KIND) as u8, size);
                text += &format!(" of type {kind} by {}", Op::name_of(op));
            }
        }
        if word & REFUSED != 0 {
            text += ", with arguments that it refused itself";
        }
        text
    }
}
