//! Reading, changing and writing a word at once.

#![allow(unsafe_code)] // memory is named by its address

use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::SeqCst};

use hydrant::{AtomicInteger, Symmetric};

use crate::{
    Armci, Error, Result,
    error::not_null,
    memory::{Memory, Place},
};

/// What is done to a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rmw {
    /// It gets another value.
    Swap,
    /// Something is added to it.
    FetchAndAdd,
}

/// `int` and `long`.
pub trait Word: AtomicInteger {
    #[doc(hidden)]
    fn memory(armci: &Armci) -> &Symmetric<Self>;
    /// # Safety
    /// There is an aligned word that may be changed.
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
                // SAFETY: the caller's promise.
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
    /// Changes a word of a process at once: what it was. ARMCI's `Rmw`.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::Misaligned`].
    ///
    /// # Safety
    /// If the process is this one and ARMCI did not allocate `word`:
    /// 1. It is readable and writable.
    /// 2. It is only changed in this way meanwhile.
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
            // SAFETY: the caller's promise; it is aligned.
            Err(word) => return Ok(unsafe { W::change(word, op, value) }),
        };
        let (memory, rank) = (W::memory(self), Memory::rank(proc as usize));
        Ok(match op {
            Rmw::Swap => memory.swap(rank, index, value)?,
            Rmw::FetchAndAdd => memory.fetch_add(rank, index, value)?,
        })
    }

    /// Changes a word of a process that ARMCI allocated, if it is as expected. Returns what it was.
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

    /// The index of a word in ARMCI's memory, once this process's operations on it are complete. A word of this process
    /// that ARMCI did not allocate is given back.
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
            Place::Arena(offset) => offset,
            Place::Own(word) => return Ok(Err(word.cast())),
        };
        self.settle_all(proc as usize, &(offset..offset + size))?;
        // The arena begins at a page, so that what is aligned is a whole word of it.
        Ok(Ok(offset / size))
    }
}
