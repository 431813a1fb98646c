//! Atomic operations on the element that a pointer names.

use std::{fmt, sync::Arc};

use bytemuck::Pod;
use hydrant_conduit::Remote;

use super::{
    AtomicInteger,
    by_message::{Verb, ask_exposed},
    non_blocking,
    sealed::Sealed,
};
use crate::{
    BackgroundHandle, Rank, Result,
    memory::{Registry, Symmetric},
    message::Calls,
    transfer::Transfer,
};

/// An element of some rank's memory, for atomic operations. [`Job::atomic`](crate::Job::atomic) makes it of
/// a pointer.
///
/// On symmetric memory, operations are those of [`Symmetric`] and are atomic with them. On an exposed
/// buffer, the owner's processor does all of them, so they are atomic among each other. An operation that
/// races with the end of the loan is done as a whole or refused.
pub struct GlobalAtomic<'job, T> {
    rank: Rank,
    target: AtomicTarget<'job, T>,
}

enum AtomicTarget<'job, T> {
    Symmetric(Symmetric<T>, usize),
    Exposed {
        transfer: &'job Transfer,
        memory: &'job Registry,
        calls: &'job Arc<Calls>,
        remote: Remote,
    },
}

impl<'job, T: Pod> GlobalAtomic<'job, T> {
    pub(crate) fn symmetric(memory: Symmetric<T>, rank: Rank, index: usize) -> Self {
        let target = AtomicTarget::Symmetric(memory, index);
        Self { rank, target }
    }

    pub(crate) fn exposed(
        transfer: &'job Transfer,
        memory: &'job Registry,
        calls: &'job Arc<Calls>,
        rank: Rank,
        remote: Remote,
    ) -> Self {
        let target = AtomicTarget::Exposed {
            transfer,
            memory,
            calls,
            remote,
        };
        Self { rank, target }
    }

    /// The rank that owns the memory.
    pub fn rank(&self) -> Rank {
        self.rank
    }
}

/// The documentation of a blocking operation, with its errors.
macro_rules! errors {
    ($what:literal) => {
        concat!(
            $what,
            "\n\n# Errors\n",
            "[`Error::Freed`](crate::Error::Freed) or [`Error::Revoked`](crate::Error::Revoked) if the memory ",
            "has gone, [`Error::OutOfBounds`](crate::Error::OutOfBounds), ",
            "[`Error::Misaligned`](crate::Error::Misaligned), ",
            "[`Error::PeerLost`](crate::Error::PeerLost), [`Error::JobOver`](crate::Error::JobOver); ",
            "[`Error::InHandler`](crate::Error::InHandler) where the owner is to be asked."
        )
    };
}

/// The documentation of an operation in the background.
macro_rules! begins {
    ($what:literal, $gives:literal) => {
        concat!(
            "Begins to ",
            $what,
            "; the handle gives ",
            $gives,
            ". In a handler, too.\n\n",
            "# Errors\n",
            "As the blocking call; what is found later, the handle says."
        )
    };
}

impl<T: Pod + Sealed> GlobalAtomic<'_, T> {
    /// Runs the operation of symmetric memory, or has the owner of the exposed buffer do it.
    fn act(
        &self,
        what: (Verb, [T; 2]),
        symmetric: impl FnOnce(&Symmetric<T>, usize) -> Result<T>,
    ) -> Result<T> {
        match &self.target {
            AtomicTarget::Symmetric(memory, index) => symmetric(memory, *index),
            AtomicTarget::Exposed {
                transfer,
                memory,
                calls,
                remote,
            } => ask_exposed(transfer, memory, calls, (self.rank, *remote), what),
        }
    }

    /// Begins the operation of symmetric memory, or has the owner of the exposed buffer do it.
    fn begin(
        &self,
        what: (Verb, [T; 2]),
        symmetric: impl FnOnce(&Symmetric<T>, usize) -> Result<BackgroundHandle<T>>,
    ) -> Result<BackgroundHandle<T>> {
        match &self.target {
            AtomicTarget::Symmetric(memory, index) => symmetric(memory, *index),
            AtomicTarget::Exposed {
                transfer,
                memory,
                calls,
                remote,
            } => non_blocking::begin_exposed(transfer, memory, calls, (self.rank, *remote), what),
        }
    }

    #[doc = begins!("read it", "it")]
    pub fn load_nb(&self) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::Load, [T::zeroed(); 2]), |memory, index| {
            memory.atomic_load_nb(self.rank, index)
        })
    }

    #[doc = begins!("set it", "what it was")]
    pub fn swap_nb(&self, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::Swap, [value; 2]), |memory, index| {
            memory.swap_nb(self.rank, index, value)
        })
    }

    #[doc = begins!("set it if it is `expected`, to the bit", "what it was")]
    pub fn compare_swap_nb(&self, expected: T, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::CompareSwap, [value, expected]), |memory, index| {
            memory.compare_swap_nb(self.rank, index, expected, value)
        })
    }

    #[doc = begins!("add to it", "what it was")]
    pub fn fetch_add_nb(&self, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::Add, [value; 2]), |memory, index| {
            memory.fetch_add_nb(self.rank, index, value)
        })
    }

    #[doc = errors!("Reads it.")]
    pub fn load(&self) -> Result<T> {
        self.act((Verb::Load, [T::zeroed(); 2]), |memory, index| {
            memory.atomic_load(self.rank, index)
        })
    }

    #[doc = errors!("Sets it.")]
    pub fn store(&self, value: T) -> Result<()> {
        let stored = self.act((Verb::Store, [value; 2]), |memory, index| {
            memory.atomic_store(self.rank, index, value).map(|()| value)
        });
        stored.map(drop)
    }

    #[doc = errors!("Sets it and returns what it was.")]
    pub fn swap(&self, value: T) -> Result<T> {
        self.act((Verb::Swap, [value; 2]), |memory, index| {
            memory.swap(self.rank, index, value)
        })
    }

    #[doc = errors!("Sets it if it is `expected`, to the bit, and returns what it was.")]
    pub fn compare_swap(&self, expected: T, value: T) -> Result<T> {
        self.act((Verb::CompareSwap, [value, expected]), |memory, index| {
            memory.compare_swap(self.rank, index, expected, value)
        })
    }

    #[doc = errors!("Adds to it and returns what it was. Integers wrap.")]
    pub fn fetch_add(&self, value: T) -> Result<T> {
        self.act((Verb::Add, [value; 2]), |memory, index| {
            memory.fetch_add(self.rank, index, value)
        })
    }
}

impl<T: AtomicInteger> GlobalAtomic<'_, T> {
    #[doc = begins!("take the bitwise and of it and `value`", "what it was")]
    pub fn fetch_and_nb(&self, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::And, [value; 2]), |memory, index| {
            memory.fetch_and_nb(self.rank, index, value)
        })
    }

    #[doc = begins!("take the bitwise or of it and `value`", "what it was")]
    pub fn fetch_or_nb(&self, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::Or, [value; 2]), |memory, index| {
            memory.fetch_or_nb(self.rank, index, value)
        })
    }

    #[doc = begins!("take the bitwise exclusive or of it and `value`", "what it was")]
    pub fn fetch_xor_nb(&self, value: T) -> Result<BackgroundHandle<T>> {
        self.begin((Verb::Xor, [value; 2]), |memory, index| {
            memory.fetch_xor_nb(self.rank, index, value)
        })
    }

    #[doc = errors!("Takes the bitwise and of it and `value`, and returns what it was.")]
    pub fn fetch_and(&self, value: T) -> Result<T> {
        self.act((Verb::And, [value; 2]), |memory, index| {
            memory.fetch_and(self.rank, index, value)
        })
    }

    #[doc = errors!("Takes the bitwise or of it and `value`, and returns what it was.")]
    pub fn fetch_or(&self, value: T) -> Result<T> {
        self.act((Verb::Or, [value; 2]), |memory, index| {
            memory.fetch_or(self.rank, index, value)
        })
    }

    #[doc = errors!("Takes the bitwise exclusive or of it and `value`, and returns what it was.")]
    pub fn fetch_xor(&self, value: T) -> Result<T> {
        self.act((Verb::Xor, [value; 2]), |memory, index| {
            memory.fetch_xor(self.rank, index, value)
        })
    }
}

impl<T> fmt::Debug for GlobalAtomic<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.target {
            AtomicTarget::Symmetric(..) => "an allocation",
            AtomicTarget::Exposed { .. } => "an exposed buffer",
        };
        write!(f, "GlobalAtomic(rank {}, {what})", self.rank)
    }
}
