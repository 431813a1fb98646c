//! Atomic operations on elements of symmetric memory.
//!
//! Either processors change words, or NICs. A processor of a rank that maps the word changes it, the
//! owner's included. For words that are not mapped, a [message](by_message) has the owner's processor do
//! it. All operations are sequentially consistent.
//!
//! Or [NICs](native) change all words of 64 bits, at all ranks. A NIC's operation is mostly not a single
//! step to a processor, so a word is never changed by both. The job chooses one [`AtomicsExecutor`], and
//! two allocations share no word. Processors always change elements of 32 bits, which lie in allocations of
//! their own.
//!
//! Settings and capabilities decide the executor. Rank 0 announces it together with the job's number, and a
//! rank that found another executor does not start. Where NICs change words, the blocks of 64-bit words have no
//! mapped part. So the fast path of an atomic operation needs no branch for this.

mod by_message;
mod executor;
mod native;
mod non_blocking;
mod pointed;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use bytemuck::Pod;

pub(crate) use by_message::{ByMessage, Verb};
pub(crate) use executor::AtomicsExecutor;
pub(crate) use non_blocking::begin_exposed;
pub use pointed::GlobalAtomic;

use crate::{Error, Rank, Result, memory::Symmetric};

mod sealed {
    pub trait Sealed: Copy + Send + Sync + 'static {
        /// An atomic of the element's width.
        type Word;
        /// Whether the word has 64 bits, as the words that NICs change.
        const WIDE: bool = size_of::<Self>() == 8;
        /// The type of the word, in requests to its owner.
        const KIND: super::by_message::WordKind;
        fn to_bits(self) -> u64;
        fn of_bits(bits: u64) -> Self;
        fn word(window: &hydrant_conduit::Window, offset: usize) -> Option<&Self::Word>;
        fn load(word: &Self::Word) -> Self;
        fn store(word: &Self::Word, value: Self);
        fn swap(word: &Self::Word, value: Self) -> Self;
        fn compare_swap(word: &Self::Word, expected: Self, value: Self) -> Result<Self, Self>;
        fn fetch_add(word: &Self::Word, value: Self) -> Self;
    }

    pub trait BitOperations: Sealed {
        fn fetch_and(word: &Self::Word, value: Self) -> Self;
        fn fetch_or(word: &Self::Word, value: Self) -> Self;
        fn fetch_xor(word: &Self::Word, value: Self) -> Self;
    }
}

/// `u32`, `i32`, `u64` and `i64`: every atomic operation.
pub trait AtomicInteger: Pod + sealed::BitOperations {}

/// `f32` and `f64`: load, store, swap, and addition by compare-and-swap.
pub trait AtomicFloat: Pod + sealed::Sealed {}

macro_rules! integer {
    ($type:ty, $atomic:ty, $word:ident, $kind:ident) => {
        impl sealed::Sealed for $type {
            type Word = $atomic;
            const KIND: by_message::WordKind = by_message::WordKind::$kind;
            fn to_bits(self) -> u64 {
                self as u64
            }
            fn of_bits(bits: u64) -> Self {
                bits as $type
            }
            #[inline]
            fn word(window: &hydrant_conduit::Window, offset: usize) -> Option<&$atomic> {
                window.$word(offset).ok()
            }
            #[inline]
            fn load(word: &$atomic) -> Self {
                word.load(SeqCst) as $type
            }
            #[inline]
            fn store(word: &$atomic, value: Self) {
                word.store(value as _, SeqCst);
            }
            #[inline]
            fn swap(word: &$atomic, value: Self) -> Self {
                word.swap(value as _, SeqCst) as $type
            }
            #[inline]
            fn compare_swap(word: &$atomic, expected: Self, value: Self) -> Result<Self, Self> {
                word.compare_exchange(expected as _, value as _, SeqCst, SeqCst)
                    .map(|old| old as $type)
                    .map_err(|old| old as $type)
            }
            #[inline]
            fn fetch_add(word: &$atomic, value: Self) -> Self {
                word.fetch_add(value as _, SeqCst) as $type
            }
        }
        impl sealed::BitOperations for $type {
            #[inline]
            fn fetch_and(word: &$atomic, value: Self) -> Self {
                word.fetch_and(value as _, SeqCst) as $type
            }
            #[inline]
            fn fetch_or(word: &$atomic, value: Self) -> Self {
                word.fetch_or(value as _, SeqCst) as $type
            }
            #[inline]
            fn fetch_xor(word: &$atomic, value: Self) -> Self {
                word.fetch_xor(value as _, SeqCst) as $type
            }
        }
        impl AtomicInteger for $type {}
    };
}

macro_rules! float {
    ($type:ty, $atomic:ty, $word:ident, $kind:ident) => {
        impl sealed::Sealed for $type {
            type Word = $atomic;
            const KIND: by_message::WordKind = by_message::WordKind::$kind;
            fn to_bits(self) -> u64 {
                self.to_bits().into()
            }
            fn of_bits(bits: u64) -> Self {
                Self::from_bits(bits as _)
            }
            #[inline]
            fn word(window: &hydrant_conduit::Window, offset: usize) -> Option<&$atomic> {
                window.$word(offset).ok()
            }
            fn load(word: &$atomic) -> Self {
                Self::from_bits(word.load(SeqCst))
            }
            fn store(word: &$atomic, value: Self) {
                word.store(value.to_bits(), SeqCst);
            }
            fn swap(word: &$atomic, value: Self) -> Self {
                Self::from_bits(word.swap(value.to_bits(), SeqCst))
            }
            fn compare_swap(word: &$atomic, expected: Self, value: Self) -> Result<Self, Self> {
                word.compare_exchange(expected.to_bits(), value.to_bits(), SeqCst, SeqCst)
                    .map(Self::from_bits)
                    .map_err(Self::from_bits)
            }
            fn fetch_add(word: &$atomic, value: Self) -> Self {
                let mut old = word.load(SeqCst);
                loop {
                    let sum = (Self::from_bits(old) + value).to_bits();
                    match word.compare_exchange_weak(old, sum, SeqCst, SeqCst) {
                        Ok(old) => return Self::from_bits(old),
                        Err(now) => old = now,
                    }
                }
            }
        }
        impl AtomicFloat for $type {}
    };
}

integer!(u32, AtomicU32, atomic_u32, Word32);
integer!(i32, AtomicU32, atomic_u32, Word32);
integer!(u64, AtomicU64, atomic_u64, Word64);
integer!(i64, AtomicU64, atomic_u64, Word64);
float!(f32, AtomicU32, atomic_u32, Float32);
float!(f64, AtomicU64, atomic_u64, Float64);

impl<T: Pod + sealed::Sealed> Symmetric<T> {
    /// Operates on the word of an element and returns its old value. `act` is run where the word is mapped;
    /// otherwise `request` is sent to its owner or NIC.
    #[inline(always)]
    pub(crate) fn on_word(
        &self,
        rank: Rank,
        index: usize,
        request: (Verb, [T; 2]),
        act: impl FnOnce(&T::Word) -> T,
    ) -> Result<T> {
        let block = self.block();
        let part = block.word_part(rank, T::WIDE)?;
        let offset = self.offset(index, 1)?;
        block.count_atomic()?;
        let word = (part.mapped.as_ref()).and_then(|mapped| T::word(&mapped.window, offset));
        match word {
            Some(word) => Ok(act(word)),
            None => self.ask(rank, offset, request),
        }
    }

    /// As [`on_word`](Self::on_word), for an operation that changes the word.
    #[inline(always)]
    pub(crate) fn change(
        &self,
        rank: Rank,
        index: usize,
        request: (Verb, [T; 2]),
        act: impl FnOnce(&T::Word) -> T,
    ) -> Result<T> {
        let old = self.on_word(rank, index, request, act)?;
        self.block().wake_watchers(rank);
        Ok(old)
    }

    /// Loads an element atomically.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn atomic_load(&self, rank: Rank, index: usize) -> Result<T> {
        self.on_word(rank, index, (Verb::Load, [T::zeroed(); 2]), T::load)
    }

    /// Stores an element atomically.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn atomic_store(&self, rank: Rank, index: usize, value: T) -> Result<()> {
        self.change(rank, index, (Verb::Store, [value; 2]), |word| {
            T::store(word, value);
            value
        })
        .map(drop)
    }

    /// Stores an element and returns its old value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn swap(&self, rank: Rank, index: usize, value: T) -> Result<T> {
        self.change(rank, index, (Verb::Swap, [value; 2]), |word| {
            T::swap(word, value)
        })
    }

    /// Stores an element if it equals `expected`, bit for bit, and returns its old value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn compare_swap(&self, rank: Rank, index: usize, expected: T, value: T) -> Result<T> {
        self.change(
            rank,
            index,
            (Verb::CompareSwap, [value, expected]),
            |word| T::compare_swap(word, expected, value).unwrap_or_else(|old| old),
        )
    }

    /// As [`compare_swap`](Self::compare_swap), if a processor of this host may do it. Otherwise does
    /// nothing and returns `None`.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) fn compare_swap_here(
        &self,
        rank: Rank,
        index: usize,
        expected: T,
        value: T,
    ) -> Result<Option<T>> {
        let block = self.block();
        let part = block.word_part(rank, T::WIDE)?;
        let offset = self.offset(index, 1)?;
        let word = (part.mapped.as_ref()).and_then(|mapped| T::word(&mapped.window, offset));
        let Some(word) = word else {
            return Ok(None);
        };
        block.count_atomic()?;
        let old = T::compare_swap(word, expected, value).unwrap_or_else(|old| old);
        block.wake_watchers(rank);
        Ok(Some(old))
    }

    /// Adds to an element and returns its old value. Integers wrap.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn fetch_add(&self, rank: Rank, index: usize, value: T) -> Result<T> {
        self.change(rank, index, (Verb::Add, [value; 2]), |word| {
            T::fetch_add(word, value)
        })
    }

    /// Adds to an element. Integers wrap.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn add(&self, rank: Rank, index: usize, value: T) -> Result<()> {
        match self.fetch_add(rank, index, value) {
            // The addition was done, and the caller needs no old value.
            Err(Error::ResultLost { .. }) if T::KIND == by_message::WordKind::Word64 => Ok(()),
            added => added.map(drop),
        }
    }
}

/// The operations on the bits of an integer, fetching and not.
macro_rules! bit_operations {
    ($($fetch:ident $plain:ident $verb:ident $what:literal,)+) => {
        impl<T: AtomicInteger> Symmetric<T> {
            $(
                #[doc = concat!("Takes the ", $what, " of an element and `value`, and returns what it was.")]
                ///
                /// # Errors
                /// As [`put`](Self::put).
                #[inline]
                pub fn $fetch(&self, rank: Rank, index: usize, value: T) -> Result<T> {
                    self.change(rank, index, (Verb::$verb, [value; 2]), |word| T::$fetch(word, value))
                }

                #[doc = concat!("Takes the ", $what, " of an element and `value`.")]
                ///
                /// # Errors
                /// As [`put`](Self::put).
                #[inline]
                pub fn $plain(&self, rank: Rank, index: usize, value: T) -> Result<()> {
                    self.$fetch(rank, index, value).map(drop)
                }
            )+
        }
    };
}

bit_operations! {
    fetch_and and And "bitwise and",
    fetch_or or Or "bitwise or",
    fetch_xor xor Xor "bitwise exclusive or",
}
