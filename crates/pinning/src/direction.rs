//! The direction of data, and the use of the memory on either side.

/// The direction of the data of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From own memory to the peer's memory.
    Put,
    /// From the peer's memory to own memory.
    Get,
}

/// The use of registered memory, which its extent must permit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Use {
    /// The memory is read.
    Read,
    /// The memory is written.
    Write,
}

impl Direction {
    /// The use of the peer's memory.
    #[inline(always)]
    pub fn remote(self) -> Use {
        match self {
            Self::Put => Use::Write,
            Self::Get => Use::Read,
        }
    }

    /// The use of own memory.
    #[inline(always)]
    pub fn local(self) -> Use {
        match self {
            Self::Put => Use::Read,
            Self::Get => Use::Write,
        }
    }
}

impl Use {
    /// Returns true if memory that is `writable`, or is not, permits this use.
    #[inline(always)]
    pub fn is_permitted(self, writable: bool) -> bool {
        writable || self == Self::Read
    }
}
