//! The shared file, mapped.

#![allow(unsafe_code)] // maps memory and gives out typed views of it

use std::{
    any::Any,
    ffi::c_void,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    sync::Arc,
};

use hydrant_conduit::{
    Error, Window,
    memory::{Stores, group_room},
};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{self, FallocateFlags, FlockOperation, MemfdFlags, SealFlags},
    mm::{self, Advice, MapFlags, ProtFlags},
};

use crate::{
    file_size,
    forked::Listed,
    layout::{HUGE, Shape},
    ring::{Consumed, Slot, Slots},
    sync::AtomicU64,
};

/// The shared file in this process's address space.
pub(crate) struct Mapping {
    /// Where it is mapped.
    base: NonNull<u8>,
    len: usize,
    /// Dropped before the file, whose descriptor it uses.
    listed: Option<Listed>,
    /// The `memfd`, for making pages and giving them back.
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory; everything given out of it is atomics and windows.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Makes the file for a job of this shape: zeroed, nameless, of fixed size.
pub(crate) fn create(shape: &Shape) -> Result<OwnedFd, Error> {
    let failed = |cause: rustix::io::Errno| Error::system("making the shared file", cause);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create("hydrant", flags).map_err(failed)?;
    file_size::set(&file, shape.total() as u64)?;
    // Nobody can shrink it later under a peer's feet, which would be SIGBUS there.
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(failed)?;
    Ok(file)
}

impl Mapping {
    /// Maps the file for a rank. What the tables of the others say it can read, and not change.
    pub(crate) fn new(file: OwnedFd, shape: &Shape, rank: usize) -> Result<Arc<Self>, Error> {
        let failed = |cause: rustix::io::Errno| Error::system("mapping the shared file", cause);
        let size = fs::fstat(&file).map_err(failed)?.st_size;
        if size != shape.total() as i64 {
            let what = "the shared file has another size than its layout".to_owned();
            return Err(Error::Unreachable(what));
        }
        let len = shape.total();
        // Reserve room to align: huge pages want address and offset alike modulo 2 MiB.
        // SAFETY: a fresh reservation that touches no other mapping.
        let room = unsafe {
            mm::mmap_anonymous(
                ptr::null_mut(),
                len + HUGE,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(failed)?;
        let skip = room.addr().next_multiple_of(HUGE) - room.addr();
        // SAFETY: [skip, skip + len) lies in the reservation just made, which nobody uses.
        let base = unsafe {
            mm::mmap(
                room.cast::<u8>().add(skip).cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                &file,
                0,
            )
        };
        let give_back = |at: usize, len: usize| {
            // SAFETY: a part of the reservation that nothing was mapped over.
            let _ = unsafe { mm::munmap(room.cast::<u8>().wrapping_add(at).cast(), len) };
        };
        let base = match base {
            Ok(base) => base,
            Err(cause) => {
                give_back(0, len + HUGE);
                return Err(failed(cause));
            }
        };
        if skip > 0 {
            give_back(0, skip);
        }
        if skip < HUGE {
            give_back(skip + len, HUGE - skip);
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| Error::Unreachable("mapped at address zero".to_owned()))?;
        let mut mapping = Self {
            base,
            len,
            listed: None,
            file,
        };
        for (start, end) in [(0, rank), (rank + 1, shape.ranks())] {
            (mapping.protect(shape.tables(start), shape.tables(end))).map_err(failed)?;
        }
        let (at, file) = (base.as_ptr().expose_provenance(), mapping.file.as_raw_fd());
        // SAFETY: 1., 2. It is dropped with the mapping, before that is undone and the file closed.
        mapping.listed = Some(unsafe { Listed::new(at, len, file) });
        Ok(Arc::new(mapping))
    }

    /// Makes a part read-only for this process, as far as it is whole pages of the system: a store there ends it.
    fn protect(&self, start: usize, end: usize) -> rustix::io::Result<()> {
        // Not by `rustix`, whose way to the answer crashes under valgrind, where CI counts instructions.
        // SAFETY: it only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).expect("pages have a size");
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start >= end {
            return Ok(());
        }
        let at = self.base.as_ptr().wrapping_add(start).cast::<c_void>();
        // SAFETY: whole pages of our own mapping; only tables lie there, to whose atomics none but their owner stores.
        unsafe { mm::mprotect(at, end - start, mm::MprotectFlags::READ) }
    }

    /// A window over a part.
    ///
    /// # Panics
    /// If the part is not within the file: offsets come from the layout, not from peers.
    pub(crate) fn window(self: &Arc<Self>, offset: usize, len: usize) -> Window {
        let keep: Arc<dyn Any + Send + Sync> = Arc::clone(self) as _;
        // SAFETY: (1) mapped until the last reference to the mapping goes; (2) only windows
        // and references to atomics are ever given out; (3) files are zeroed.
        let whole = unsafe { Window::new(self.base, self.len, keep) };
        whole
            .part(offset, len)
            .expect("the layout lies in the file")
    }

    /// A table of atomics that lives as long as `self`.
    ///
    /// # Panics
    /// As [`window`](Self::window).
    fn table<T: Shareable>(&self, offset: usize, count: usize) -> &[T] {
        let bytes = count * size_of::<T>();
        assert!(offset <= self.len && bytes <= self.len - offset);
        // SAFETY: offset is within the mapping.
        let at = unsafe { self.base.add(offset) }.cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: in bounds and aligned, checked; `Shareable` types are atomics, valid for
        // any bytes, and safe while others write.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), count) }
    }

    /// A row of words.
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.table(offset, count)
    }

    /// A row of words, checked once and kept.
    pub(crate) fn kept_words(self: &Arc<Self>, offset: usize, count: usize) -> MappedWords {
        MappedWords {
            words: NonNull::from(self.words(offset, count)),
            _keep: Arc::clone(self),
        }
    }

    /// A table of extents. Only its owner may change it.
    pub(crate) fn entries(&self, offset: usize, count: usize) -> &[crate::extents::Entry] {
        self.table(offset, count)
    }

    /// A value of a conduit on top.
    pub(crate) fn mapped<T: Shareable>(self: &Arc<Self>, offset: usize) -> Mapped<T> {
        Mapped {
            value: NonNull::from(&self.table::<T>(offset, 1)[0]),
            _keep: Arc::clone(self),
        }
    }

    /// Makes a part of the file usable: real, zeroed pages, or an error and no harm.
    pub(crate) fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Ok(()); // which the system would call an invalid length
        }
        // One rank at a time, or each would count the same free memory as its own.
        let _turn = Turn::take(self.file.as_fd())?;
        let available = available_memory();
        if len as u64 > available {
            return Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            });
        }
        // A thread that is stopped and goes on may be interrupted all the same; what was done is undone then.
        let committed = without_signals(|| {
            rustix::io::retry_on_intr(|| {
                fs::fallocate(
                    &self.file,
                    FallocateFlags::empty(),
                    offset as u64,
                    len as u64,
                )
            })
        });
        committed.map_err(|cause| match cause {
            // The system gives back what it added, and nothing else: pages that were there keep what
            // they hold.
            rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM => Error::OutOfMemory {
                wanted: len as u64,
                available,
            },
            cause => Error::system("committing shared memory", cause),
        })
    }

    /// Makes a part usable in huge pages, as far as the system gives them: how many bytes
    /// this process now maps by huge pages. The part is aligned to 2 MiB.
    pub(crate) fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let _turn = Turn::take(self.file.as_fd())?;
        let available = available_memory();
        if len as u64 > available {
            return Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            });
        }
        let at = self.base.as_ptr().wrapping_add(offset).cast::<c_void>();
        // SAFETY: advice on a part of our own mapping; it changes no contents.
        if unsafe { mm::madvise(at, len, Advice::LinuxHugepage) }.is_err() {
            return Ok(0);
        }
        // SAFETY: as above; it faults the pages in, zeroed, as a store would.
        match without_signals(|| unsafe { mm::madvise(at, len, Advice::LinuxPopulateWrite) }) {
            Ok(()) => Ok(huge_bytes(at.addr())),
            Err(rustix::io::Errno::NOMEM) => Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            }),
            Err(cause) => Err(Error::system("committing shared memory", cause)),
        }
    }

    /// Gives the pages of a part back; it reads as zero again.
    pub(crate) fn decommit(&self, offset: usize, len: usize) {
        if len == 0 {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(cause) = fs::fallocate(&self.file, flags, offset as u64, len as u64) {
            tracing::warn!(%cause, offset, len, "shared memory could not be given back");
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.listed = None;
        // SAFETY: every view of the mapping holds a reference to it, so none is left.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A type made of atomics alone.
///
/// # Safety
/// 1. Any bytes are a valid value.
/// 2. It may change while borrowed.
/// 3. Any thread may use it.
pub unsafe trait Shareable {}
// SAFETY: an atomic.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: a struct of atomics.
unsafe impl Shareable for Slot {}
// SAFETY: a struct of atomics.
unsafe impl Shareable for Consumed {}
// SAFETY: a struct of atomics.
unsafe impl Shareable for crate::extents::Entry {}

/// A row of words in the shared file.
pub(crate) struct MappedWords {
    words: NonNull<[AtomicU64]>,
    _keep: Arc<Mapping>,
}

// SAFETY: it gives out atomics; `_keep` is Send + Sync.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl std::ops::Deref for MappedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: taken from `Mapping::table`, whose mapping `_keep` holds.
        unsafe { self.words.as_ref() }
    }
}

/// A value in the shared file.
pub struct Mapped<T> {
    value: NonNull<T>,
    _keep: Arc<Mapping>,
}

// SAFETY: it gives out atomics, by `Shareable`; `_keep` is Send + Sync.
unsafe impl<T: Shareable> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for Mapped<T> {}

impl<T: Shareable> std::ops::Deref for Mapped<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: taken from `Mapping::table`, whose mapping `_keep` holds.
        unsafe { self.value.as_ref() }
    }
}

/// The memory of a ring in the shared file.
pub(crate) struct MappedRing {
    slots: NonNull<[Slot]>,
    consumed: NonNull<Consumed>,
    payload: Window,
    /// What copies into the payload took.
    stores: Stores,
    _keep: Arc<Mapping>,
}

// SAFETY: it gives out atomics, and bytes under the ring's protocol; `_keep` is Send.
unsafe impl Send for MappedRing {}

impl MappedRing {
    pub(crate) fn new(
        mapping: &Arc<Mapping>,
        (consumed, slots, payload): (usize, usize, usize),
        shape: &Shape,
    ) -> Self {
        Self {
            slots: NonNull::from(mapping.table::<Slot>(slots, shape.slots as usize)),
            consumed: NonNull::from(&mapping.table::<Consumed>(consumed, 1)[0]),
            payload: mapping.window(payload, shape.payload as usize),
            stores: Stores::default(),
            _keep: Arc::clone(mapping),
        }
    }

    /// The bytes of a payload that was published and is not finished with.
    #[inline]
    pub(crate) fn payload(&self, offset: usize, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        assert!(offset <= self.payload.len() && len <= self.payload.len() - offset);
        // SAFETY: in bounds, checked. Between publishing and `Consumed` passing it, the
        // writer does not touch these bytes: that is the ring's protocol, which `model.rs`
        // checks, and peers are processes that run this same code.
        unsafe { std::slice::from_raw_parts(self.payload.as_ptr().add(offset), len) }
    }
}

impl Slots for MappedRing {
    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: taken from `Mapping::table`, whose mapping `_keep` holds.
        unsafe { self.slots.as_ref() }
    }

    #[inline]
    fn consumed(&self) -> &Consumed {
        // SAFETY: taken from `Mapping::table`, whose mapping `_keep` holds.
        unsafe { self.consumed.as_ref() }
    }

    fn payload_len(&self) -> usize {
        self.payload.len()
    }

    fn write_payload(&self, offset: usize, data: &[u8]) {
        self.payload
            .write_for_reader(offset, data, &self.stores)
            .expect("the cursor stays in the ring");
    }
}

/// Does what a signal would interrupt, and the system would undo then, with this thread's signals blocked: a program
/// whose timer ticks faster than that takes would never get to the end of it.
fn without_signals<R>(call: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it fills the set.
    let is_filled = unsafe { libc::sigfillset(all.as_mut_ptr()) } == 0;
    let is_blocked = is_filled
        // SAFETY: the first set is filled; the second is written to.
        && unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let done = call();
    if is_blocked {
        // SAFETY: the call above wrote the set; nothing is written here.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    done
}

/// The right to commit memory: one rank of the job at a time. It ends with the process that
/// holds it.
struct Turn<'a> {
    file: BorrowedFd<'a>,
    _threads: MutexGuard<'static, ()>,
}

impl<'a> Turn<'a> {
    fn take(file: BorrowedFd<'a>) -> Result<Self, Error> {
        // Record locks hold between processes, not between the threads of one.
        static THREADS: Mutex<()> = Mutex::new(());
        let threads = THREADS.lock();
        rustix::io::retry_on_intr(|| fs::fcntl_lock(file, FlockOperation::LockExclusive))
            .map_err(|cause| Error::system("waiting for the turn to commit memory", cause))?;
        Ok(Self {
            file,
            _threads: threads,
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = fs::fcntl_lock(self.file, FlockOperation::Unlock);
    }
}

/// Bytes that may be had without pushing anybody out: what the kernel says is available, or
/// what the control group leaves, if that is less.
pub fn available_memory() -> u64 {
    let system = meminfo().unwrap_or(u64::MAX);
    system.min(group_room().unwrap_or(u64::MAX))
}

fn meminfo() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Bytes of the mapping that begins at `addr` which are mapped by huge pages.
fn huge_bytes(addr: usize) -> usize {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else {
        return 0;
    };
    let start = format!("{addr:x}-");
    text.lines()
        .skip_while(|line| !line.starts_with(&start))
        .find_map(|line| line.strip_prefix("ShmemPmdMapped:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok())
        .map_or(0, |kib| kib << 10)
}
