//! What an access is: made once, where the typed interface ends.

use hydrant_conduit::{Key, Remote};

use crate::Rank;

/// One access to the memory of a rank: a put or a get.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) peer: Rank,
    /// Where it is at the peer: in its segment, in an exposed buffer, or at an address.
    pub(crate) remote: Remote,
    /// Where it is here.
    pub(crate) local: *mut u8,
    /// Bytes.
    pub(crate) len: usize,
    pub(crate) direction: Direction,
}

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// To the peer.
    Put,
    /// From the peer.
    Get,
}

impl Access {
    /// A put of `data`.
    #[inline]
    pub(crate) fn put(peer: Rank, remote: Remote, data: &[u8]) -> Self {
        Self {
            peer,
            remote,
            local: data.as_ptr().cast_mut(),
            len: data.len(),
            direction: Direction::Put,
        }
    }

    /// A get into `data`.
    #[inline]
    pub(crate) fn get(peer: Rank, remote: Remote, data: &mut [u8]) -> Self {
        Self {
            peer,
            remote,
            local: data.as_mut_ptr(),
            len: data.len(),
            direction: Direction::Get,
        }
    }

    /// Whether data goes to the peer.
    #[inline]
    pub(crate) fn is_put(&self) -> bool {
        self.direction == Direction::Put
    }

    /// Whether it names memory by its address.
    #[inline]
    pub(crate) fn is_anywhere(&self) -> bool {
        self.remote.key == Key::ANY
    }
}
