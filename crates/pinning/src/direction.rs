//! Which way data goes, and what is done with the memory on either side.

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From own memory to the peer's.
    Put,
    /// From the peer's memory to own.
    Get,
}

/// What is done with registered memory, which its extent must permit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Use {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

impl Direction {
    /// What is done with the peer's memory.
    #[inline(always)]
    pub fn remote(self) -> Use {
        match self {
            Self::Put => Use::Write,
            Self::Get => Use::Read,
        }
    }

    /// What is done with own memory.
    #[inline(always)]
    pub fn local(self) -> Use {
        match self {
            Self::Put => Use::Read,
            Self::Get => Use::Write,
        }
    }
}

impl Use {
    /// Whether memory that is writable, or is not, may be used so.
    #[inline(always)]
    pub fn is_permitted(self, writable: bool) -> bool {
        writable || self == Self::Read
    }
}
