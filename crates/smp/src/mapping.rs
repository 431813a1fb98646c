//! The mapping of the shared file.

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
    memory::{StoreTimes, group_room},
};
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{self, FallocateFlags, FlockOperation, MemfdFlags, SealFlags},
    mm::{self, Advice, MapFlags, ProtFlags},
};

use crate::{
    file_size,
    forked::Listed,
    layout::{FileShape, HUGE},
    ring::{Consumed, RingSlot, Slots},
    sync::AtomicU64,
};

/// The shared file in this process's address space.
pub(crate) struct SharedMapping {
    /// The address of the mapping.
    base: NonNull<u8>,
    len: usize,
    /// Dropped before the file, whose descriptor it uses.
    listed: Option<Listed>,
    /// The `memfd`, to commit and decommit pages.
    file: OwnedFd,
}

// SAFETY: the mapping is plain memory, and gives access to it only by atomics and windows.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

/// Makes the file for a job of this shape: zeroed, nameless, of fixed size.
pub(crate) fn create(shape: &FileShape) -> Result<OwnedFd, Error> {
    let failed = |cause: rustix::io::Errno| Error::system("making the shared file", cause);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = fs::memfd_create("hydrant", flags).map_err(failed)?;
    file_size::set(&file, shape.total() as u64)?;
    // No peer can shrink the file later, which would cause SIGBUS in the others.
    fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(failed)?;
    Ok(file)
}

impl SharedMapping {
    /// Maps the file for a rank. The tables of other ranks are read-only.
    pub(crate) fn new(file: OwnedFd, shape: &FileShape, rank: usize) -> Result<Arc<Self>, Error> {
        let failed = |cause: rustix::io::Errno| Error::system("mapping the shared file", cause);
        let size = fs::fstat(&file).map_err(failed)?.st_size;
        if size != shape.total() as i64 {
            let what = "the shared file has another size than its layout".to_owned();
            return Err(Error::Unreachable(what));
        }
        let len = shape.total();
        // The reservation has room to align: huge pages need the address and the offset to be equal
        // modulo 2 MiB. SAFETY: the call makes a new mapping and affects no other.
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
        // SAFETY: [skip, skip + len) lies in the new reservation, which nothing uses.
        let base = unsafe {
            mm::mmap(
                room.cast::<u8>().wrapping_add(skip).cast(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                &file,
                0,
            )
        };
        let give_back = |at: usize, len: usize| {
            // SAFETY: the range is a part of the reservation over which nothing was mapped.
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
        // SAFETY: 1. and 2. `listed` is dropped with the mapping, before the range is unmapped and
        // the file closed.
        mapping.listed = Some(unsafe { Listed::new(at, len, file) });
        Ok(Arc::new(mapping))
    }

    /// Makes a part read-only for this process, as far as it is whole pages of the system. A store
    /// there ends the process.
    fn protect(&self, start: usize, end: usize) -> rustix::io::Result<()> {
        // `rustix` gets the page size in a way that crashes under valgrind, with which CI counts
        // instructions. SAFETY: the call only returns a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).expect("pages have a size");
        let (start, end) = (start.next_multiple_of(page), end / page * page);
        if start >= end {
            return Ok(());
        }
        let at = self.base.as_ptr().wrapping_add(start).cast::<c_void>();
        // SAFETY: the range is whole pages of this mapping. Only tables are there, and only their
        // owner stores to their atomics.
        unsafe { mm::mprotect(at, end - start, mm::MprotectFlags::READ) }
    }

    /// Returns a window over a part.
    ///
    /// # Panics
    /// If the part is not within the file. Offsets come from the layout, not from peers.
    pub(crate) fn window(self: &Arc<Self>, offset: usize, len: usize) -> Window {
        let keep: Arc<dyn Any + Send + Sync> = Arc::clone(self) as _;
        // SAFETY: 1. The memory is mapped until the last reference to the mapping is dropped. 2.
        // Only windows and references to atomics point to it. 3. Files are zeroed.
        let whole = unsafe { Window::new(self.base, self.len, keep) };
        whole
            .part(offset, len)
            .expect("the layout lies in the file")
    }

    /// Returns a table of atomics that lives as long as `self`.
    ///
    /// # Panics
    /// As [`window`](Self::window).
    fn table<T: Shareable>(&self, offset: usize, count: usize) -> &[T] {
        let bytes = count * size_of::<T>();
        assert!(offset <= self.len && bytes <= self.len - offset);
        // SAFETY: the offset is within the mapping.
        let at = unsafe { self.base.add(offset) }.cast::<T>();
        assert!(at.is_aligned());
        // SAFETY: the asserts check bounds and alignment. `Shareable` types are atomics, which are
        // valid for any bytes and may change while borrowed.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), count) }
    }

    /// Returns a row of words.
    pub(crate) fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        self.table(offset, count)
    }

    /// Returns a row of words, checked once and kept.
    pub(crate) fn kept_words(self: &Arc<Self>, offset: usize, count: usize) -> MappedWords {
        MappedWords {
            words: NonNull::from(self.words(offset, count)),
            _keep: Arc::clone(self),
        }
    }

    /// Returns a table of extents. Only its owner may change it.
    pub(crate) fn entries(&self, offset: usize, count: usize) -> &[crate::extents::ExtentEntry] {
        self.table(offset, count)
    }

    /// Returns a value of a conduit on top.
    pub(crate) fn mapped<T: Shareable>(self: &Arc<Self>, offset: usize) -> MappedValue<T> {
        MappedValue {
            value: NonNull::from(&self.table::<T>(offset, 1)[0]),
            _keep: Arc::clone(self),
        }
    }

    /// Makes a part of the file usable. It gets real, zeroed pages. On an error nothing changes.
    pub(crate) fn commit(&self, offset: usize, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Ok(()); // the system refuses a length of 0
        }
        // One rank commits at a time. Otherwise each would count the same free memory as its own.
        let _turn = CommitTurn::take(self.file.as_fd())?;
        let available = available_memory();
        if len as u64 > available {
            return Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            });
        }
        // A thread that is stopped and continued may still be interrupted. The system then undoes
        // the call.
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
            // The system gives back only the pages it added. Earlier pages keep their contents.
            rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM => Error::OutOfMemory {
                wanted: len as u64,
                available,
            },
            cause => Error::system("committing shared memory", cause),
        })
    }

    /// Makes a part usable in huge pages, as far as the system has them. The part is aligned to 2
    /// MiB. Returns the bytes that this process now maps by huge pages.
    pub(crate) fn commit_huge(&self, offset: usize, len: usize) -> Result<usize, Error> {
        let _turn = CommitTurn::take(self.file.as_fd())?;
        let available = available_memory();
        if len as u64 > available {
            return Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            });
        }
        let at = self.base.as_ptr().wrapping_add(offset).cast::<c_void>();
        // SAFETY: advice on a part of this mapping changes no contents.
        if unsafe { mm::madvise(at, len, Advice::LinuxHugepage) }.is_err() {
            return Ok(0);
        }
        // SAFETY: advice on a part of this mapping. The call faults in zeroed pages, as a store
        // would.
        match without_signals(|| unsafe { mm::madvise(at, len, Advice::LinuxPopulateWrite) }) {
            Ok(()) => Ok(huge_bytes(at.addr())),
            Err(rustix::io::Errno::NOMEM) => Err(Error::OutOfMemory {
                wanted: len as u64,
                available,
            }),
            Err(cause) => Err(Error::system("committing shared memory", cause)),
        }
    }

    /// Gives the pages of a part back to the system. The part reads as zeros afterwards.
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

impl Drop for SharedMapping {
    fn drop(&mut self) {
        self.listed = None;
        // SAFETY: every view of the mapping holds a reference to it, so no view is left.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A type made of atomics alone.
///
/// # Safety
/// 1. Any bytes are a valid value.
/// 2. The value may change while it is borrowed.
/// 3. Any thread may use the value.
pub unsafe trait Shareable {}
// SAFETY: 1., 2. and 3. It is an atomic.
unsafe impl Shareable for AtomicU64 {}
// SAFETY: 1., 2. and 3. It is a struct of atomics.
unsafe impl Shareable for RingSlot {}
// SAFETY: 1., 2. and 3. It is a struct of atomics.
unsafe impl Shareable for Consumed {}
// SAFETY: 1., 2. and 3. It is a struct of atomics.
unsafe impl Shareable for crate::extents::ExtentEntry {}

/// A row of words in the shared file.
pub(crate) struct MappedWords {
    words: NonNull<[AtomicU64]>,
    _keep: Arc<SharedMapping>,
}

// SAFETY: it gives access to atomics only, and `_keep` is Send + Sync.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl std::ops::Deref for MappedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the pointer is from `SharedMapping::table`, and `_keep` holds that mapping.
        unsafe { self.words.as_ref() }
    }
}

/// A value in the shared file.
pub struct MappedValue<T> {
    value: NonNull<T>,
    _keep: Arc<SharedMapping>,
}

// SAFETY: a `Shareable` type is made of atomics, and `_keep` is Send + Sync.
unsafe impl<T: Shareable> Send for MappedValue<T> {}
// SAFETY: as above.
unsafe impl<T: Shareable> Sync for MappedValue<T> {}

impl<T: Shareable> std::ops::Deref for MappedValue<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is from `SharedMapping::table`, and `_keep` holds that mapping.
        unsafe { self.value.as_ref() }
    }
}

/// The memory of a ring in the shared file.
pub(crate) struct MappedRing {
    slots: NonNull<[RingSlot]>,
    consumed: NonNull<Consumed>,
    payload: Window,
    /// The measured costs of copies into the payload.
    stores: StoreTimes,
    _keep: Arc<SharedMapping>,
}

// SAFETY: it gives access to atomics, and to bytes under the ring's protocol. `_keep` is Send.
unsafe impl Send for MappedRing {}

impl MappedRing {
    pub(crate) fn new(
        mapping: &Arc<SharedMapping>,
        (consumed, slots, payload): (usize, usize, usize),
        shape: &FileShape,
    ) -> Self {
        Self {
            slots: NonNull::from(mapping.table::<RingSlot>(slots, shape.slots as usize)),
            consumed: NonNull::from(&mapping.table::<Consumed>(consumed, 1)[0]),
            payload: mapping.window(payload, shape.payload as usize),
            stores: StoreTimes::default(),
            _keep: Arc::clone(mapping),
        }
    }

    /// Returns the bytes of a payload that was published and is not finished.
    #[inline]
    pub(crate) fn payload(&self, offset: usize, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        assert!(offset <= self.payload.len() && len <= self.payload.len() - offset);
        let at = self.payload.as_ptr().wrapping_add(offset);
        // SAFETY: the assert checks the bounds. The writer does not touch these bytes between their
        // publication and the moment when `Consumed` passes them. The ring's protocol demands that,
        // and `model.rs` checks it. Peers are processes that run this same code.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

impl Slots for MappedRing {
    #[inline]
    fn slots(&self) -> &[RingSlot] {
        // SAFETY: the pointer is from `SharedMapping::table`, and `_keep` holds that mapping.
        unsafe { self.slots.as_ref() }
    }

    #[inline]
    fn consumed(&self) -> &Consumed {
        // SAFETY: the pointer is from `SharedMapping::table`, and `_keep` holds that mapping.
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

/// Makes a call with this thread's signals blocked. A signal would interrupt the call, and the
/// system would undo it. A program with a fast timer would otherwise never complete the call.
fn without_signals<R>(call: impl FnOnce() -> R) -> R {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call fills the set.
    let is_filled = unsafe { libc::sigfillset(all.as_mut_ptr()) } == 0;
    let is_blocked = is_filled
        // SAFETY: the first set is filled, and the call may write the second.
        && unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let done = call();
    if is_blocked {
        // SAFETY: the call above wrote the set, and the null pointer asks for no old set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    done
}

/// The lock under which one rank of the job at a time commits memory. It ends with the process that
/// holds it.
struct CommitTurn<'a> {
    file: BorrowedFd<'a>,
    _threads: MutexGuard<'static, ()>,
}

impl<'a> CommitTurn<'a> {
    fn take(file: BorrowedFd<'a>) -> Result<Self, Error> {
        // Record locks exclude other processes, but not other threads of the same process.
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

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        let _ = fs::fcntl_lock(self.file, FlockOperation::Unlock);
    }
}

/// Returns the bytes that can be used without pushing other memory out: the kernel's available
/// memory, or the room in the control group if that is less.
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

/// Returns the bytes mapped by huge pages in the mapping that begins at `addr`.
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
