//! Memory that the ranks of a bench share without Hydrant.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The unit in which caches exchange memory: two cache lines, because neighbours are fetched in
/// pairs.
const LINE: usize = 128;

/// Slots of the line stream.
pub(super) const SLOTS: u64 = 256;

/// The lines that loops use, from the start of the window.
pub(super) const PING: usize = 0;
pub(super) const PONG: usize = 1;
pub(super) const ACK: usize = 2;
const WORD: usize = 3;
pub(super) const STREAM: usize = 4;

/// The bytes of a window that suffice for every loop.
pub(crate) const WINDOW: usize = (STREAM + SLOTS as usize) * LINE;

/// Memory shared by the ranks of a job, mapped by the bench itself.
#[derive(Debug)]
pub(crate) struct SharedWindow {
    base: NonNull<u8>,
    len: usize,
    /// Kept open so that other ranks can open it through `/proc`.
    memory: OwnedFd,
}

impl SharedWindow {
    /// New zeroed memory.
    pub(crate) fn create(len: usize) -> io::Result<Self> {
        let memory = memfd_create("hydrant-bench", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, len as u64)?;
        Self::map(memory, len)
    }

    /// Opens the memory that another process of the same user created.
    pub(crate) fn open(process: u64, descriptor: u64, len: usize) -> io::Result<Self> {
        if !hydrant_launch::proc_is_own() {
            return Err(io::Error::other(crate::report::NOT_OURS));
        }
        let path = format!("/proc/{process}/fd/{descriptor}");
        let memory = File::options().read(true).write(true).open(path)?;
        if memory.metadata()?.len() < len as u64 {
            return Err(io::Error::other(
                "the shared memory of the bench is shorter than agreed",
            ));
        }
        Self::map(memory.into(), len)
    }

    /// The arguments of [`SharedWindow::open`].
    pub(crate) fn address(&self) -> [u64; 2] {
        [
            u64::from(std::process::id()),
            self.memory.as_raw_fd() as u64,
        ]
    }

    fn map(memory: OwnedFd, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose the address, so no mapping of ours is
        // replaced.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                &memory,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(SharedWindow { base, len, memory })
    }

    /// The first word of a line.
    pub(super) fn word(&self, line: usize) -> &AtomicU64 {
        self.word_at(line, 0)
    }

    pub(super) fn word_at(&self, line: usize, word: usize) -> &AtomicU64 {
        let at = line * LINE + word * size_of::<u64>();
        assert!(at + size_of::<u64>() <= self.len && word < LINE / size_of::<u64>());
        let word = self.base.as_ptr().wrapping_add(at).cast::<u64>();
        // SAFETY: the word is in bounds (just checked) and aligned: the mapping by pages, `at` by
        // words. The memory stays mapped as long as `self`. Zeroed memory is a valid AtomicU64, and
        // all processes access these words only atomically.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// The word for atomics, alone on its line.
    pub(crate) fn counter(&self) -> &AtomicU64 {
        self.word(WORD)
    }
}

impl Drop for SharedWindow {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this range, and every borrow of it has ended.
        // If unmapping fails, the memory stays mapped until the process ends.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_memory_than_agreed_is_refused() {
        let window = SharedWindow::create(4096).unwrap();
        let [process, descriptor] = window.address();
        assert!(SharedWindow::open(process, descriptor, WINDOW).is_err());
        assert!(SharedWindow::open(process, u64::MAX, WINDOW).is_err());
    }
}
