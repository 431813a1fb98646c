//! The objects that the handles of C lead to.

use std::{
    cell::{Cell, RefCell},
    mem,
    pin::Pin,
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
};

use hydrant::{
    AnywhereLoan, Exposed, Handler, Job, Mutexes, RawOperation, Symmetric, Team, may_wait,
};
use parking_lot::Mutex;

use super::types::{
    hydrant_exposed, hydrant_job, hydrant_loan, hydrant_locks, hydrant_memory, hydrant_team,
};
use crate::{
    operations::{self, OwnerOfOperations},
    status::{CallFailure, HYDRANT_ERROR_HANDLER, Result},
    table::CHandles,
};

pub(super) static JOBS: CHandles<hydrant_job, JobObject> = CHandles::new(1);
pub(super) static MEMORIES: CHandles<hydrant_memory, MemoryObject> = CHandles::new(2);
pub(super) static TEAMS: CHandles<hydrant_team, TeamObject> = CHandles::new(3);
pub(super) static LOCKS: CHandles<hydrant_locks, LocksObject> = CHandles::new(4);
pub(super) static EXPOSED: CHandles<hydrant_exposed, ExposedObject> = CHandles::new(5);
pub(super) static LOANS: CHandles<hydrant_loan, LoanObject> = CHandles::new(6);

/// A job and what C began in it.
pub(super) struct JobObject {
    pub(super) job: Job,
    /// The handle of the team of all ranks, once it was asked for.
    pub(super) world: AtomicUsize,
    implicit: Mutex<ImplicitOperations>,
}

/// Operations without a handle.
struct ImplicitOperations {
    open: Vec<RawOperation>,
    /// The number of operations at which the complete ones are dropped.
    most: usize,
    /// The first error that was found.
    failed: Option<hydrant::Error>,
}

/// The number of operations that are kept at first before complete ones are dropped.
const MANY: usize = 64;

pub(super) struct MemoryObject {
    pub(super) job: Arc<JobObject>,
    pub(super) bytes: Symmetric<u8>,
    /// The same memory as words of 32 and of 64 bits.
    pub(super) halves: Symmetric<u32>,
    pub(super) words: Symmetric<u64>,
}

pub(super) struct TeamObject {
    pub(super) job: Arc<JobObject>,
    /// `None` for the team of all ranks.
    pub(super) part: Option<Team>,
}

pub(super) struct LocksObject {
    pub(super) job: Arc<JobObject>,
    pub(super) mutexes: Mutexes,
}

pub(super) struct ExposedObject {
    pub(super) job: Arc<JobObject>,
    pub(super) exposed: Exposed<'static, u8>,
}

pub(super) struct LoanObject {
    pub(super) job: Arc<JobObject>,
    pub(super) _loan: AnywhereLoan,
}

impl JobObject {
    pub(super) fn new(job: Job) -> Self {
        Self {
            job,
            world: AtomicUsize::new(0),
            implicit: Mutex::new(ImplicitOperations {
                open: Vec::new(),
                most: MANY,
                failed: None,
            }),
        }
    }

    /// Returns the handle of the team of all ranks.
    pub(super) fn world(self: &Arc<Self>) -> Result<*mut hydrant_team> {
        let mut known = self.world.load(Acquire);
        if known == 0 {
            let made = TEAMS.insert(TeamObject {
                job: Arc::clone(self),
                part: None,
            })?;
            known = match (self.world).compare_exchange(0, made.addr(), Release, Acquire) {
                Ok(_) => made.addr(),
                Err(other) => {
                    TEAMS.remove(made)?;
                    other
                }
            };
        }
        Ok(ptr::without_provenance_mut(known))
    }

    /// Returns a handler by its number.
    ///
    /// # Errors
    /// HYDRANT_ERROR_HANDLER.
    pub(super) fn handler(&self, number: u32) -> Result<Handler> {
        let known = (number.try_into().ok()).and_then(|number| self.job.handler_numbered(number));
        known.ok_or_else(|| {
            let text = format!("there is no handler number {number}");
            CallFailure::new(HYDRANT_ERROR_HANDLER, text)
        })
    }

    /// Completes the operations without handles. Returns the first error among them, once.
    pub(super) fn finish_implicit(&self) -> Result<()> {
        may_wait("a wait for operations")?;
        let mut implicit = self.implicit.lock();
        let (open, failed) = (std::mem::take(&mut implicit.open), implicit.failed.take());
        drop(implicit);
        let mut outcome = failed.map_or(Ok(()), Err);
        for mut operation in open {
            outcome = outcome.and(operation.wait());
        }
        Ok(outcome?)
    }

    /// Removes all handles of the job.
    pub(super) fn remove_handles(self: &Arc<Self>) {
        let is_ours = |job: &Arc<Self>| Arc::ptr_eq(job, self);
        operations::remove_all(self);
        drop(MEMORIES.remove_all(|it| is_ours(&it.job)));
        drop(TEAMS.remove_all(|it| is_ours(&it.job)));
        drop(LOCKS.remove_all(|it| is_ours(&it.job)));
        drop(EXPOSED.remove_all(|it| is_ours(&it.job)));
        drop(LOANS.remove_all(|it| is_ours(&it.job)));
        drop(JOBS.remove_all(|it| ptr::eq(it, &raw const **self)));
        forget_last();
    }
}

impl OwnerOfOperations for JobObject {
    fn keep_implicit(&self, operation: RawOperation) {
        if operation.is_complete() {
            return;
        }
        let mut implicit = self.implicit.lock();
        implicit.open.push(operation);
        if implicit.open.len() < implicit.most {
            return;
        }
        // A poll may run handlers, which may begin operations.
        let taken = std::mem::take(&mut implicit.open);
        drop(implicit);
        let (mut open, mut failed) = (Vec::with_capacity(taken.len()), None);
        for mut operation in taken {
            match operation.test() {
                Ok(true) => {}
                Ok(false) => open.push(operation),
                Err(cause) => _ = failed.get_or_insert(cause),
            }
        }
        let mut implicit = self.implicit.lock();
        implicit.open.append(&mut open);
        implicit.most = MANY.max(2 * implicit.open.len());
        implicit.failed = implicit.failed.take().or(failed);
    }

    fn wait_for(&self, future: Pin<&mut dyn Future<Output = ()>>) -> hydrant::Result<()> {
        self.job.wait_for(future)
    }
}

impl MemoryObject {
    pub(super) fn new(job: &Arc<JobObject>, bytes: Symmetric<u8>) -> Self {
        Self {
            job: Arc::clone(job),
            halves: bytes.cast(),
            words: bytes.cast(),
            bytes,
        }
    }
}

impl TeamObject {
    #[inline]
    pub(super) fn team(&self) -> &Team {
        match &self.part {
            Some(team) => team,
            None => self.job.job.world(),
        }
    }
}

/// The memory that a thread used last, so that most calls share nothing with other threads.
struct LastMemory {
    handle: Cell<*const hydrant_memory>,
    /// The number of removals when it was looked up.
    removals: Cell<u64>,
    /// Valid while `handle` is not null: [`LAST_OWNED`] keeps it.
    memory: Cell<*const MemoryObject>,
    /// The number of calls of this thread that use it. It is only replaced while there are none.
    uses: Cell<u32>,
}

/// Keeps what [`LAST_MEMORY`] points to.
struct OwnedMemory(Option<Arc<MemoryObject>>);

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        LAST_MEMORY.with(|last| last.handle.set(ptr::null()));
    }
}

thread_local! {
    // Without a destructor, so that an access is a few instructions.
    static LAST_MEMORY: LastMemory = const {
        LastMemory {
            handle: Cell::new(ptr::null()),
            removals: Cell::new(0),
            memory: Cell::new(ptr::null()),
            uses: Cell::new(0),
        }
    };
    static LAST_OWNED: RefCell<OwnedMemory> = const { RefCell::new(OwnedMemory(None)) };
}

/// A use of the memory that a thread used last.
struct LastMemoryUse;

impl LastMemoryUse {
    #[inline]
    fn begin(last: &LastMemory) -> Self {
        last.uses.set(last.uses.get() + 1);
        Self
    }
}

impl Drop for LastMemoryUse {
    #[inline]
    fn drop(&mut self) {
        LAST_MEMORY.with(|last| last.uses.set(last.uses.get() - 1));
    }
}

/// Runs `act` with the memory of a handle.
///
/// # Errors
/// As [`CHandles::get`], and as `act`.
#[inline]
pub(super) fn with_memory<R>(
    handle: *const hydrant_memory,
    act: impl FnOnce(&MemoryObject) -> Result<R>,
) -> Result<R> {
    let known = LAST_MEMORY.with(|last| {
        let is_known = last.handle.get() == handle
            && last.removals.get() == MEMORIES.removals()
            && !handle.is_null();
        is_known.then(|| (last.memory.get(), LastMemoryUse::begin(last)))
    });
    let Some((memory, _using)) = known else {
        return act(&*look_up(handle)?);
    };
    // SAFETY: the handle is not null, so `LAST_OWNED` keeps the memory, and keeps it while it is used.
    act(unsafe { &*memory })
}

/// Looks memory up, and notes it as the last of this thread, unless a call of this thread uses another.
#[inline(never)]
fn look_up(handle: *const hydrant_memory) -> Result<Arc<MemoryObject>> {
    let removals = MEMORIES.removals();
    let found = MEMORIES.get(handle)?;
    LAST_MEMORY.with(|last| {
        if last.uses.get() == 0 {
            last.handle.set(ptr::null());
            let owned = Some(Arc::clone(&found));
            let kept = LAST_OWNED.try_with(|kept| mem::replace(&mut kept.borrow_mut().0, owned));
            if let Ok(before) = kept {
                last.memory.set(Arc::as_ptr(&found));
                last.removals.set(removals);
                last.handle.set(handle);
                drop(before);
            }
        }
    });
    Ok(found)
}

/// Forgets the memory that this thread used last.
fn forget_last() {
    LAST_MEMORY.with(|last| {
        if last.uses.get() == 0 {
            last.handle.set(ptr::null());
            let before = LAST_OWNED.try_with(|kept| kept.borrow_mut().0.take());
            drop(before);
        }
    });
}
