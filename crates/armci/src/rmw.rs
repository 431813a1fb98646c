//! Reading, changing and writing a word atomically.

#![allow(unsafe_code)] // memory is named by its address

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::SeqCst};

use hydrant::{AtomicInteger, Symmetric};

use crate::{
    Armci, Error, Result,
    error::not_null,
    memory::{Location, Memory},
};

/// A change of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rmw {
    /// The word gets another value.
    Swap,
    /// A number is added to the word.
    FetchAndAdd,
}

/// `int` and `long`.
pub trait Word: AtomicInteger {
    #[doc(hidden)]
    fn memory(armci: &Armci) -> &Symmetric<Self>;
    /// # Safety
    /// 1. `at` points to an aligned word that is readable and writable.
    /// 2. Meanwhile the word is accessed only atomically.
    #[doc(hidden)]
    unsafe fn change(at: *mut Self, op: Rmw, value: Self) -> Self;
}

macro_rules! word {
    ($type:ty, $atomic:ty, $memory:ident) => {
        impl Word for $type {
            fn memory(armci: &Armci) -> &Symmetric<Self> {
                &armci.memory.$memory
            }
            unsafe fn change(at: *mut Self, op: Rmw, value: Self) -> Self {
                // SAFETY: 1 and 2. The caller's conditions 1 and 2: the word is aligned, and is
                // accessed only atomically.
                let word = unsafe { <$atomic>::from_ptr(at) };
                match op {
                    Rmw::Swap => word.swap(value, SeqCst),
                    Rmw::FetchAndAdd => word.fetch_add(value, SeqCst),
                }
            }
        }
    };
}

word!(i32, AtomicI32, ints);
word!(i64, AtomicI64, longs);

impl Armci {
    /// Changes a word of a process atomically. Returns its previous value. ARMCI's `Rmw`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::Misaligned`].
    ///
    /// # Safety
    /// If the process is this one and ARMCI did not allocate `word`:
    /// 1. It is readable and writable.
    /// 2. Meanwhile it is changed only by such atomic operations.
    #[inline]
    pub unsafe fn read_modify_write<W: Word>(
        &self,
        op: Rmw,
        word: *mut W,
        value: W,
        proc: i32,
    ) -> Result<W> {
        let index = match self.word_at(word, proc)? {
            Ok(index) => index,
            // SAFETY: 1. `word_at` checked the alignment, and the word is readable and writable by
            // the caller's condition 1.
            // 2. The caller's condition 2: others change the word only atomically.
            Err(word) => return Ok(unsafe { W::change(word, op, value) }),
        };
        let (memory, rank) = (W::memory(self), Memory::rank(proc as usize));
        Ok(match op {
            Rmw::Swap => memory.swap(rank, index, value)?,
            Rmw::FetchAndAdd => memory.fetch_add(rank, index, value)?,
        })
    }

    /// Changes a word that ARMCI allocated, if it has the expected value. Returns its previous
    /// value.
    ///
    /// # Errors
    /// As [`read_modify_write`](Self::read_modify_write).
    pub(crate) fn compare_and_swap(
        &self,
        word: *mut i64,
        expected: i64,
        value: i64,
        proc: i32,
    ) -> Result<i64> {
        let index = self
            .word_at(word, proc)?
            .map_err(|_| Error::UnknownAddress {
                proc,
                addr: word.addr(),
            })?;
        let (memory, rank) = (i64::memory(self), Memory::rank(proc as usize));
        Ok(memory.compare_swap(rank, index, expected, value)?)
    }

    /// Completes this process's operations on a word, then returns the word's index in ARMCI's
    /// memory. Returns the address instead for a word of this process that ARMCI did not allocate.
    #[inline]
    fn word_at<W: Word>(&self, word: *mut W, proc: i32) -> Result<Result<usize, *mut W>> {
        let size = size_of::<W>();
        if !word.addr().is_multiple_of(size) {
            not_null(word, "a word")?;
            return Err(Error::Misaligned {
                addr: word.addr(),
                align: size,
            });
        }
        let offset = match self.memory.find(proc, word.cast(), size)? {
            Location::Arena(offset) => offset,
            Location::Own(word) => return Ok(Err(word.cast())),
        };
        self.settle_all(proc as usize, &(offset..offset + size))?;
        // The arena begins at a page, so an aligned word has an index in the arena.
        Ok(Ok(offset / size))
    }
}
