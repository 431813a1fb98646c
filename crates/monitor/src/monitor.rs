//! The monitor of a process, its thread and its subscribers.

use std::{
    io,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
};

use hydrant_conduit::fork::CreatorProcess;

use crate::{
    MemoryChange, MonitorAbsent, MonitorSource, Unwatched, blocks,
    change::ChangeQueue,
    userfault::{NoChange, Userfault, block_signals},
};

/// The most subscribers. The list never grows, because that would free memory under its lock.
const MOST: usize = 256;

static MONITOR: OnceLock<Result<Monitor, MonitorAbsent>> = OnceLock::new();

/// Called by the monitor's thread, and by threads that free memory. Neither function may allocate, free or take a lock.
pub trait ChangeListener: Send + Sync {
    /// A change is about to be heard. The calls that change memory return after this.
    fn begins(&self);

    /// The change that [began](Self::begins) was none, or is covered by one that began before and was not taken yet.
    fn cancelled(&self);
}

/// The monitor of this process.
pub struct Monitor {
    /// The kernel's events, or the reason why there are none. Then blocks of the allocator alone are watched.
    userfault: Result<Userfault, MonitorAbsent>,
    /// The listeners and their queues. Held for a moment only, and never while memory is freed.
    subscribers: RwLock<Vec<Arc<Subscriber>>>,
    /// True once the descriptor is gone.
    ended: AtomicBool,
    origin: CreatorProcess,
}

struct Subscriber {
    listener: Arc<dyn ChangeListener>,
    queue: ChangeQueue,
}

/// A subscriber's changes, from [`Monitor::subscribe`] on. Dropping it ends the subscription.
pub struct MemoryChanges {
    monitor: &'static Monitor,
    subscriber: Arc<Subscriber>,
}

impl Monitor {
    /// Returns the monitor of this process, and starts it at the first call.
    ///
    /// # Errors
    /// [`MonitorAbsent`] says why there is none. The answer stays the same as long as the process lives.
    pub fn of_process() -> Result<&'static Self, MonitorAbsent> {
        let monitor = MONITOR.get_or_init(|| {
            let userfault = Userfault::open();
            if let Err(absent) = &userfault
                && !blocks::is_in_force()
            {
                return Err(*absent);
            }
            Ok(Self {
                userfault,
                subscribers: RwLock::new(Vec::with_capacity(MOST)),
                ended: AtomicBool::new(false),
                origin: CreatorProcess::here(),
            })
        });
        let monitor = monitor.as_ref().map_err(|absent| *absent)?;
        monitor.check()?;
        static STARTED: OnceLock<Result<(), MonitorAbsent>> = OnceLock::new();
        STARTED
            .get_or_init(|| {
                let Ok(userfault) = &monitor.userfault else {
                    return Ok(());
                };
                let started = thread::Builder::new()
                    .name("hydrant-monitor".to_owned())
                    .spawn(|| monitor.run(userfault));
                started.map(drop).map_err(|cause| MonitorAbsent::NoThread {
                    cause: cause.into(),
                })
            })
            .map(|()| monitor)
    }

    /// Returns the monitor, if this process has started one.
    pub(crate) fn started() -> Option<&'static Self> {
        let monitor = MONITOR.get()?.as_ref().ok()?;
        monitor.origin.is_here().then_some(monitor)
    }

    /// Returns how the kernel tells of changes.
    ///
    /// # Errors
    /// [`MonitorAbsent`] says why it does not. Blocks of the [`ReportingAllocator`](crate::ReportingAllocator) alone are watched then.
    pub fn source(&self) -> Result<MonitorSource, MonitorAbsent> {
        let userfault = self.userfault.as_ref().map_err(|absent| *absent)?;
        Ok(userfault.source())
    }

    /// Returns true if mappings of files can be watched, too, and with them initialised statics
    /// (Linux 6.7).
    pub fn watches_files(&self) -> bool {
        (self.userfault.as_ref()).is_ok_and(Userfault::watches_files)
    }

    /// Begins to tell a listener of changes.
    ///
    /// # Errors
    /// [`MonitorAbsent::TooMany`], [`MonitorAbsent::Ended`], [`MonitorAbsent::Forked`].
    pub fn subscribe(
        &'static self,
        listener: Arc<dyn ChangeListener>,
    ) -> Result<MemoryChanges, MonitorAbsent> {
        self.check()?;
        let subscriber = Arc::new(Subscriber {
            listener,
            queue: ChangeQueue::new(),
        });
        let new = Arc::clone(&subscriber);
        {
            let mut all = self
                .subscribers
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            if all.len() == MOST {
                drop(all);
                return Err(MonitorAbsent::TooMany(MOST));
            }
            all.push(new);
        }
        Ok(MemoryChanges {
            monitor: self,
            subscriber,
        })
    }

    /// Watches a range of whole pages, until they are unmapped. Watched memory may be watched again.
    /// A hole in the range is not watched when it is mapped later.
    ///
    /// # Errors
    /// [`Unwatched`]; then nothing of the range is watched anew.
    pub fn watch(&self, start: u64, len: u64) -> Result<(), Unwatched> {
        // A call on another file of that number fails, too.
        match &self.userfault {
            Ok(userfault) => userfault.watch(start, len),
            Err(_) => Err(Unwatched {
                start,
                len,
                cause: io::Error::from_raw_os_error(libc::EOPNOTSUPP).into(),
            }),
        }
    }

    /// Watches the block of the [`ReportingAllocator`](crate::ReportingAllocator) whose pages hold all of a range, until it is freed. Returns its
    /// pages, or `None` if there is no such block. All of these pages stay mapped until subscribers were
    /// [told](MemoryChange::Freed).
    pub fn watch_block(&self, start: u64, len: u64) -> Option<(u64, u64)> {
        self.origin
            .is_here()
            .then(|| blocks::watch_block(start, len))?
    }

    /// Returns false if memory of this process changes at this moment, and its listeners may not have been told yet. A
    /// system call. Blocks of the allocator need no such question.
    ///
    /// # Errors
    /// [`MonitorAbsent::Ended`]: anything may have changed.
    pub fn is_quiet(&self) -> Result<bool, MonitorAbsent> {
        let Ok(userfault) = &self.userfault else {
            return Ok(true);
        };
        userfault.is_quiet().ok_or_else(|| {
            self.ended.store(true, Release);
            MonitorAbsent::Ended
        })
    }

    /// Returns the subscribers. Other threads hold the lock only while they move a pointer.
    fn subscribers(&self) -> RwLockReadGuard<'_, Vec<Arc<Subscriber>>> {
        self.subscribers
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all subscribers of a change that a thread of the program is about to make.
    pub(crate) fn tell(&self, change: MemoryChange) {
        let all = self.subscribers();
        for subscriber in all.iter() {
            subscriber.listener.begins();
            if !subscriber.queue.push(change) {
                subscriber.listener.cancelled();
            }
        }
    }

    /// # Errors
    /// [`MonitorAbsent::Forked`], [`MonitorAbsent::Ended`].
    fn check(&self) -> Result<(), MonitorAbsent> {
        if !self.origin.is_here() {
            Err(MonitorAbsent::Forked)
        } else if self.ended.load(Acquire) {
            Err(MonitorAbsent::Ended)
        } else {
            Ok(())
        }
    }

    /// Hears of changes. This thread ends only if the descriptor does.
    fn run(&self, userfault: &Userfault) {
        block_signals();
        // A wait before each event: subscribers are told of a change only if there is one.
        while userfault.wait() && self.hear(userfault) {}
        self.end();
    }

    /// Hears of one change. Returns false if there will be none any more.
    fn hear(&self, userfault: &Userfault) -> bool {
        let all = self.subscribers();
        all.iter().for_each(|it| it.listener.begins());
        match userfault.read() {
            Ok(Some(change)) => {
                for subscriber in all.iter() {
                    if !subscriber.queue.push(change) {
                        subscriber.listener.cancelled();
                    }
                }
                true
            }
            outcome => {
                all.iter().for_each(|it| it.listener.cancelled());
                !matches!(outcome, Err(NoChange::Ended))
            }
        }
    }

    /// Tells all subscribers that nobody hears of changes any more.
    fn end(&self) {
        self.ended.store(true, Release);
        let all = self.subscribers();
        for subscriber in all.iter() {
            subscriber.listener.begins();
            if !subscriber.queue.lose() {
                subscriber.listener.cancelled();
            }
        }
    }
}

impl MemoryChanges {
    /// Takes the oldest change. All changes that [began](ChangeListener::begins) before the end of a call
    /// that changed memory can be taken soon after.
    pub fn take(&self) -> Option<MemoryChange> {
        self.subscriber.queue.take()
    }

    /// Returns the monitor.
    pub fn monitor(&self) -> &'static Monitor {
        self.monitor
    }
}

impl Drop for MemoryChanges {
    fn drop(&mut self) {
        if !self.monitor.origin.is_here() {
            // A thread of the parent may have held the lock.
            return;
        }
        let mut all = (self.monitor.subscribers.write()).unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().position(|it| Arc::ptr_eq(it, &self.subscriber));
        let gone = own.map(|own| all.swap_remove(own));
        drop(all);
        // The subscriber's memory is freed without the lock.
        drop(gone);
    }
}
