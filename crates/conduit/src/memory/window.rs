//! A mapped range of shared memory.

use std::{
    any::Any,
    fmt, mem,
    ops::Deref,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64},
    },
};

use bytemuck::Pod;

use super::{
    accumulate::{self, Factor},
    copy,
    stores::{self, Sort, StoreTimes},
};

/// The reason why a window refused an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The access leaves the window.
    OutOfBounds,
    /// The address is not a multiple of the type's alignment.
    Misaligned,
}

/// A range of memory that other threads and processes may read and write at any time.
///
/// It can be copied into and out of, and its aligned words can be used as atomics. It keeps its
/// mapping alive. A copy that races with another gives torn data, nothing worse.
#[derive(Clone)]
pub struct Window {
    base: NonNull<u8>,
    len: usize,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: every access is a relaxed atomic or an opaque copy, which any number of threads may make
// at once. `keep` itself is Send + Sync.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({:p}, {} bytes)", self.base, self.len)
    }
}

impl Window {
    /// Makes a view of `len` bytes at `base`.
    ///
    /// # Safety
    /// 1. The bytes are mapped, readable and writable for as long as `keep` lives.
    /// 2. Nobody holds a reference to the bytes. All accesses in this process go through windows,
    ///    or are atomic, or opaque to the compiler.
    /// 3. The bytes are initialized.
    pub unsafe fn new(base: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, len, keep }
    }

    /// Makes a window over zeroed memory of this process alone, aligned to 64 bytes.
    pub fn private(len: usize) -> Self {
        #[repr(C, align(64))]
        struct Line([AtomicU64; 8]);
        let lines: Arc<Vec<Line>> = Arc::new(
            (0..len.div_ceil(64))
                .map(|_| Line([const { AtomicU64::new(0) }; 8]))
                .collect(),
        );
        let base = NonNull::from(lines.as_slice()).cast::<u8>();
        // SAFETY: 1. the vector is never resized and lives in `keep`. 2. It is made of atomics, and
        // only this window accesses them. 3. It is zeroed.
        unsafe { Self::new(base, len, lines) }
    }

    /// Returns the bytes in view.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no bytes are in view.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, in this process.
    #[inline]
    pub fn addr(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// Returns the first byte, for `unsafe` code above that justifies its own accesses.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns a smaller window.
    pub fn part(&self, offset: usize, len: usize) -> Option<Window> {
        let base = self.at(offset, len).ok()?;
        // SAFETY: 1., 2. and 3. hold for the whole window, and `at` checked that this is a part of
        // it.
        Some(unsafe { Self::new(base, len, Arc::clone(&self.keep)) })
    }

    /// Copies `data` in.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        let dst = self.at(offset, data.len())?;
        // SAFETY: 1. `data` is borrowed. 2. `at` checked that the target is in the window. 3. They
        // do not overlap, because nobody holds a reference into the window.
        unsafe { copy::store(dst.as_ptr(), data.as_ptr(), data.len()) };
        Ok(())
    }

    /// Like [`write`](Self::write), for memory that other processors have read and will read again:
    /// long data goes past the caches.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    pub fn write_past_caches(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        if data.len() < stores::LONG {
            return self.write(offset, data);
        }
        let dst = self.at(offset, data.len())?;
        // SAFETY: 1., 2. and 3. as in `write`.
        unsafe { copy::store_past_caches(dst.as_ptr(), data.as_ptr(), data.len()) };
        Ok(())
    }

    /// Like [`write_past_caches`](Self::write_past_caches), or through the caches if `stores` found
    /// that a reader shares them.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    pub fn write_for_reader(
        &self,
        offset: usize,
        data: &[u8],
        stores: &StoreTimes,
    ) -> Result<(), Fault> {
        if data.len() < stores::LONG {
            self.write(offset, data)
        } else {
            self.write_long_for_reader(offset, data, stores)
        }
    }

    /// Not inlined, so that the code that sends short messages stays short.
    #[inline(never)]
    fn write_long_for_reader(
        &self,
        offset: usize,
        data: &[u8],
        stores: &StoreTimes,
    ) -> Result<(), Fault> {
        stores.copy(data.len(), |sort| match sort {
            Sort::Cached => self.write(offset, data),
            Sort::NonTemporal => self.write_past_caches(offset, data),
        })
    }

    /// Copies `len` bytes in from memory that others may change meanwhile.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    ///
    /// # Safety
    /// 1. `from` is readable for `len` bytes. Concurrent accesses to them are atomic or outside the compiler's view.
    /// 2. The two ranges do not overlap.
    pub unsafe fn write_shared(
        &self,
        offset: usize,
        from: *const u8,
        len: usize,
    ) -> Result<(), Fault> {
        let dst = self.at(offset, len)?;
        // SAFETY: 1. and 3. the caller's conditions 1 and 2. 2. `at` checked that the target is in the window. The copy is
        // outside the compiler's view at both sides.
        unsafe { copy::bulk(dst.as_ptr(), from, len) };
        Ok(())
    }

    /// Copies `len` bytes out to memory that others may access meanwhile.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    ///
    /// # Safety
    /// 1. `to` is writable for `len` bytes. Concurrent accesses to them are atomic or outside the compiler's view.
    /// 2. The two ranges do not overlap.
    pub unsafe fn read_shared(&self, offset: usize, to: *mut u8, len: usize) -> Result<(), Fault> {
        let src = self.at(offset, len)?;
        // SAFETY: as in `write_shared`, with the window as the source.
        unsafe { copy::bulk(to, src.as_ptr(), len) };
        Ok(())
    }

    /// Copies `data.len()` bytes out.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<(), Fault> {
        let src = self.at(offset, data.len())?;
        // SAFETY: 1., 2. and 3. as in `write`.
        unsafe { copy::load(data.as_mut_ptr(), src.as_ptr(), data.len()) };
        Ok(())
    }

    /// Adds the multiple of each element of `data` to the elements from `offset` on. `data` has
    /// whole elements. Concurrent changes of the same elements may be lost.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`]. Nothing was added then.
    #[inline]
    pub fn accumulate(&self, offset: usize, data: &[u8], factor: &Factor) -> Result<(), Fault> {
        let dst = self.at(offset, data.len())?;
        // SAFETY: 1. `data` is borrowed. 2. `at` checked that the target is in the window. 3. They
        // do not overlap, because nobody holds a reference into the window.
        unsafe { accumulate::add(dst.as_ptr(), data.as_ptr(), data.len(), factor) };
        Ok(())
    }

    /// Stores one value.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    pub fn store<T: Pod>(&self, offset: usize, value: T) -> Result<(), Fault> {
        self.write(offset, bytemuck::bytes_of(&value))
    }

    /// Loads one value.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    #[inline]
    pub fn load<T: Pod>(&self, offset: usize) -> Result<T, Fault> {
        let mut value = T::zeroed();
        self.read(offset, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Sets `len` bytes to `value`.
    ///
    /// # Errors
    /// [`Fault::OutOfBounds`].
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Fault> {
        let dst = self.at(offset, len)?;
        // SAFETY: `at` checked that the target is in the window.
        unsafe { copy::fill(dst.as_ptr(), value, len) };
        Ok(())
    }

    /// Returns the 32-bit word at `offset`.
    ///
    /// # Errors
    /// [`Fault`].
    #[inline]
    pub fn atomic_u32(&self, offset: usize) -> Result<&AtomicU32, Fault> {
        // SAFETY: `word` checked bounds and alignment. Windows are only accessed atomically.
        self.word::<u32>(offset)
            .map(|at| unsafe { AtomicU32::from_ptr(at.as_ptr()) })
    }

    /// Returns the 64-bit word at `offset`.
    ///
    /// # Errors
    /// [`Fault`].
    #[inline]
    pub fn atomic_u64(&self, offset: usize) -> Result<&AtomicU64, Fault> {
        // SAFETY: `word` checked bounds and alignment. Windows are only accessed atomically.
        self.word::<u64>(offset)
            .map(|at| unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }

    /// Returns the 32-bit word at `offset`, checked once and kept.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn word32(&self, offset: usize) -> Result<Word32, Fault> {
        Ok(Word32 {
            word: self.word::<AtomicU32>(offset)?,
            _keep: Arc::clone(&self.keep),
        })
    }

    /// Returns the eight 64-bit words at `offset`, checked once and kept.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn line(&self, offset: usize) -> Result<Line, Fault> {
        Ok(Line {
            words: self.word::<[AtomicU64; 8]>(offset)?,
            _keep: Arc::clone(&self.keep),
        })
    }

    /// Returns true if `len` bytes at `offset` share a byte with `other`.
    #[inline]
    pub fn overlaps(&self, offset: usize, len: usize, other: &[u8]) -> bool {
        let here = self.addr().wrapping_add(offset);
        let there = other.as_ptr().addr();
        // One range begins within the other.
        there.wrapping_sub(here) < len && !other.is_empty()
            || here.wrapping_sub(there) < other.len() && len != 0
    }

    /// Returns the address of `len` bytes at `offset`, if the window holds them.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Fault> {
        // In this order neither side can overflow.
        if len > self.len || offset > self.len - len {
            return Err(Fault::OutOfBounds);
        }
        // SAFETY: `offset` is at most the length of the window, as was just checked.
        Ok(unsafe { self.base.add(offset) })
    }

    #[inline]
    fn word<T>(&self, offset: usize) -> Result<NonNull<T>, Fault> {
        let at = self.at(offset, mem::size_of::<T>())?.cast::<T>();
        if at.is_aligned() {
            Ok(at)
        } else {
            Err(Fault::Misaligned)
        }
    }
}

/// A 32-bit word of a window, checked when it was taken.
#[derive(Clone)]
pub struct Word32 {
    word: NonNull<AtomicU32>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: it gives access to an `&AtomicU32` only.
unsafe impl Send for Word32 {}
// SAFETY: as above.
unsafe impl Sync for Word32 {}

impl Deref for Word32 {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        // SAFETY: the word was in bounds and aligned when it was taken from a window, whose mapping
        // is kept.
        unsafe { self.word.as_ref() }
    }
}

impl fmt::Debug for Word32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word32({:p})", self.word)
    }
}

/// Eight consecutive 64-bit words of a window, checked when they were taken. They are a cache line
/// if the offset was a multiple of 64.
#[derive(Clone)]
pub struct Line {
    words: NonNull<[AtomicU64; 8]>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: it gives access to an `&[AtomicU64; 8]` only.
unsafe impl Send for Line {}
// SAFETY: as above.
unsafe impl Sync for Line {}

impl Deref for Line {
    type Target = [AtomicU64; 8];

    #[inline]
    fn deref(&self) -> &[AtomicU64; 8] {
        // SAFETY: the words were in bounds and aligned when they were taken from a window, whose
        // mapping is kept.
        unsafe { self.words.as_ref() }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:p})", self.words)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn copies_of_every_length_and_alignment_arrive() {
        let window = Window::private(512);
        let data: Vec<u8> = (0..200).map(|i| i as u8 ^ 0x5a).collect();
        for offset in [0, 1, 4, 7, 8, 63] {
            for len in 0..data.len() {
                window.fill(0, 512, 0).unwrap();
                window.write(offset, &data[..len]).unwrap();
                let mut back = vec![0; len];
                window.read(offset, &mut back).unwrap();
                assert_eq!(back, data[..len], "offset {offset} len {len}");
                let mut beyond = [1];
                window.read(offset + len, &mut beyond).unwrap();
                assert_eq!(beyond, [0], "offset {offset} len {len}");
            }
        }
    }

    #[test]
    fn accesses_outside_the_window_are_refused() {
        let window = Window::private(64);
        assert_eq!(window.write(60, &[0; 5]), Err(Fault::OutOfBounds));
        assert_eq!(
            window.read(usize::MAX, &mut [0; 2]),
            Err(Fault::OutOfBounds)
        );
        assert_eq!(window.fill(1, usize::MAX, 0), Err(Fault::OutOfBounds));
        assert!(window.part(1, 64).is_none());
        assert_eq!(window.atomic_u64(60).err(), Some(Fault::OutOfBounds));
        assert_eq!(window.atomic_u64(4).err(), Some(Fault::Misaligned));
        assert!(window.write(64, &[]).is_ok());
    }

    #[test]
    fn overlap_is_a_shared_byte() {
        let window = Window::private(64);
        let base = window.as_ptr();
        for (offset, len, start, count) in (0..6)
            .flat_map(|o| (0..4).flat_map(move |l| (0..6).map(move |s| (o, l, s))))
            .flat_map(|(o, l, s)| (0..4).map(move |c| (o, l, s, c)))
        {
            // SAFETY: the range is in bounds of the window, which nobody writes to in this test.
            let other = unsafe { std::slice::from_raw_parts(base.wrapping_add(start), count) };
            let shared = (offset..offset + len).any(|byte| (start..start + count).contains(&byte));
            assert_eq!(
                window.overlaps(offset, len, other),
                shared,
                "{offset} {len} {start} {count}"
            );
        }
    }

    #[test]
    fn words_and_parts_are_views_of_the_same_memory() {
        let window = Window::private(64);
        let part = window.part(8, 16).unwrap();
        part.store(0, 7_u64).unwrap();
        assert_eq!(window.atomic_u64(8).unwrap().load(Relaxed), 7);
        let word = window.word32(8).unwrap();
        word.store(9, Relaxed);
        assert_eq!(part.load::<u32>(0).unwrap(), 9);
        let line = window.line(0).unwrap();
        line[7].store(5, Relaxed);
        assert_eq!(window.load::<u64>(56).unwrap(), 5);
        assert_eq!(window.line(8).err(), Some(Fault::OutOfBounds));
    }
}
