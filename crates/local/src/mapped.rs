//! Memory that peers of this host map: copies to it need no system call.

#![allow(unsafe_code)] // maps memory

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::Arc,
};

use hydrant_conduit::{Error, Window, memory::PAGE};
use hydrant_smp::file_size;
use rustix::{
    fs::{self, FallocateFlags, MemfdFlags, SealFlags},
    mm::{self, MapFlags, ProtFlags},
};

/// A mapping, which is removed when this is dropped.
struct FileMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory, and this gives no access to it.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    fn new(file: impl AsFd, offset: u64, len: usize) -> Result<Self, Error> {
        // SAFETY: the call makes a new mapping, and affects no other.
        let base = unsafe {
            mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        let base = base.map_err(|cause| Error::system("mapping shared memory", cause))?;
        let base = NonNull::new(base.cast()).expect("a mapping is not at address 0");
        Ok(Self { base, len })
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's own, and the windows that refer to it keep it alive.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Own memory that peers can map: a file without a name.
#[derive(Debug)]
pub struct MappedMemory {
    file: OwnedFd,
    window: Window,
}

impl MappedMemory {
    /// Makes zeroed memory. Its pages are there at once, so that no later access finds none.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn new(len: usize) -> Result<Self, Error> {
        let failed = |cause| Error::system("making shared memory", cause);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("hydrant-region", flags).map_err(failed)?;
        let bytes = len.max(1).next_multiple_of(PAGE);
        file_size::set(&file, bytes as u64)?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(failed)?;
        fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64).map_err(failed)?;
        let mapping = FileMapping::new(&file, 0, bytes)?;
        let base = mapping.base;
        // SAFETY: 1. the mapping lives as long as the window. 2. Nobody else has its address. 3. It is zeroed.
        let window = unsafe { Window::new(base, len, Arc::new(mapping)) };
        Ok(Self { file, window })
    }

    /// Returns the memory.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the file, for peers to map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A peer's memory in this process.
#[derive(Clone, Debug)]
pub struct ForeignMapping {
    window: Window,
}

impl ForeignMapping {
    /// Maps `len` bytes of a peer's file from `offset` on.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if the file is shorter, or can become shorter; [`Error::System`].
    pub fn new(file: &OwnedFd, offset: u64, len: usize) -> Result<Self, Error> {
        let failed = |cause| Error::system("mapping a peer's memory", cause);
        let size = fs::fstat(file).map_err(failed)?.st_size;
        let seals = fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let end = offset.checked_add(len as u64);
        let fits = end.is_some_and(|end| u64::try_from(size).is_ok_and(|size| end <= size));
        if !fits || !seals.contains(SealFlags::SHRINK) {
            let what = "a peer's memory is shorter than it says, or can become shorter".to_owned();
            return Err(Error::Unreachable(what));
        }
        let first = offset - offset % PAGE as u64;
        let before = (offset - first) as usize;
        let mapping = FileMapping::new(file, first, before + len.max(1))?;
        let base = NonNull::new(mapping.base.as_ptr().wrapping_add(before));
        let base = base.expect("the mapping does not wrap around");
        // SAFETY: 1. the mapping covers the bytes, lives as long as the window, and its file cannot shrink. 2. Nobody
        // else has its address here. 3. The bytes of a file are initialized.
        let window = unsafe { Window::new(base, len, Arc::new(mapping)) };
        Ok(Self { window })
    }

    /// Returns the memory.
    pub fn window(&self) -> &Window {
        &self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_see_the_same_memory() {
        let own = MappedMemory::new(10_000).unwrap();
        let file = own.file().try_clone_to_owned().unwrap();
        let foreign = ForeignMapping::new(&file, 5000, 5000).unwrap();
        foreign.window().write(1, b"there").unwrap();
        let mut seen = [0; 5];
        own.window().read(5001, &mut seen).unwrap();
        assert_eq!(&seen, b"there");
        drop(own);
        foreign.window().read(1, &mut seen).unwrap();
        assert_eq!(&seen, b"there");
    }

    #[test]
    fn a_file_that_is_too_short_or_can_shrink_is_not_mapped() {
        let own = MappedMemory::new(4096).unwrap();
        let file = own.file().try_clone_to_owned().unwrap();
        assert!(ForeignMapping::new(&file, 4096, 1).is_err());
        assert!(ForeignMapping::new(&file, u64::MAX, 2).is_err());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = fs::memfd_create("open", flags).unwrap();
        fs::ftruncate(&open, 4096).unwrap();
        assert!(ForeignMapping::new(&open, 0, 1).is_err());
    }
}
