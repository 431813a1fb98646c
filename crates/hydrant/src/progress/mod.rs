//! Polls for messages, routes what arrives, and lets threads wait.
//!
//! Each rank has one service thread, as ARMCI's server. An application thread that waits handles
//! messages itself and leaves the service thread asleep. While the application computes, the
//! service thread answers, polls on briefly, and blocks.
//!
//! This room owns the conduit. It calls the rooms above through what these hand in when the job is
//! composed: a [`Route`] for each kind of message, and one [`Operations`] for completions of
//! one-sided operations.
//!
//! # The fast path
//!
//! Each thread writes in a stripe of its own (`stripe`): its counters, its marks for the service thread, and
//! its count of uses of the transfer's state. A blocking put or get that hits is not recorded among the operations
//! in flight. The call that posts it looks for its completion itself, and handles messages after every few of them.
//!
//! # The service thread
//!
//! A waiting application thread spins, yields, then sleeps on the rank's notify word. The service thread must not be
//! woken for every message while the application polls, and must not sleep while the application computes:
//!
//! - While the application handles messages, the service thread *naps*. When it sees that the application has
//!   stopped, it takes over and *arms* the notify word. Naps begin at 1 ms and double up to 32 ms, because waking
//!   takes a core from the application for as long as several messages take.
//! - A sender looks at the notify word after every message: one load of a line that hardly ever changes. So does a
//!   put, but it wakes only a thread that waits for memory in general (`wait_until`). The writer of a
//!   collective's flag wakes those that wait for the flag.
//! - With fewer than two cores for each rank, the service thread has no core of its own, and waking another core
//!   costs more than the answer. A rank with one core therefore runs its service thread on the other
//!   cores of the host (`HYDRANT_HOST_CPUS`, [`service`]). The sender wakes the thread on the sender's own core,
//!   which is free until the answer comes. The thread sleeps again at once, and the first time without the
//!   sleeper's fence (`smp`'s `notify`). Over RDMA the network wakes.
//! - A peer that waits for an answer from a napping rank wakes that rank before it sleeps itself, armed or not.
//! - A thread that finds no room for messages between engines wakes those that sleep for something else. No thread
//!   sleeps without a last try ([`backlog`]).
//! - Polls advance collectives in the background ([`errands`]), and the service thread stays awake for them as for
//!   tasks. A thread looks for a ready one before it sleeps.
//! - An application thread in a call that posts is expected to poll again soon (`Progress::enter`). Soft-RoCE works
//!   in the caller's time, so a post takes longer than a nap. The service thread then answers once
//!   for each nap, and naps on. An armed word would wake it for each completion.
//!
//! With more ranks than cores, waits yield and sleep almost at once. An idle job uses no CPU but for a look a second,
//! and regular checks of its connections over RDMA.
//!
//! # Ends of ranks
//!
//! Each wait names the ranks whose death ends it (`On`), and then returns `PeerLost`. A rank whose message
//! breaks a rule is *expelled*: nothing more is read from it. Its own waits end with `Expelled`, those of others
//! with `PeerLost`, and the job of the rank that read the message ends with the cause.
//!
//! A forked child is like a rank whose job is over, with another error. One comparison checks for both. Code in a
//! child takes no lock, which a thread of the parent may have held. It never drops the conduit's resources. The
//! child's thread also loses its stripe, so the fast path of a put needs no further check.

mod arrivals;
mod attention;
mod background;
mod backlog;
mod end;
mod errands;
mod faults;
mod guard;
mod handler;
pub(crate) mod kind;
mod onward;
mod rest;
mod send;
mod service;
mod spawned;
mod taking;
mod tasks;
mod threads;
mod until;
mod wait;

use std::{
    any::Any,
    collections::BTreeMap,
    mem::ManuallyDrop,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task::Waker,
    time::Duration,
};

use hydrant_conduit::{
    Conduit, Message,
    fork::{CreatorProcess, Presence},
};
use hydrant_pinning::Hot;
use parking_lot::{Condvar, Mutex};

pub(crate) use arrivals::{Operations, Outcome, Route};
pub use background::BackgroundHandle;
pub(crate) use background::ResultSlot;
pub(crate) use backlog::Backlog;
pub(crate) use errands::Errand;
pub(crate) use handler::in_handler;
pub use handler::may_wait;
pub(crate) use rest::Resting;
pub(crate) use service::start_service;
pub(crate) use tasks::{already_taken, wait_for, wake};
pub(crate) use wait::{For, On};

use crate::{Error, Rank, Result, Settings, counters::Tally, stripe::Striped};
use attention::Attention;
use background::Chains;
use faults::PeerFaults;
use onward::Onward;
use spawned::Spawned;
use threads::RankHere;

/// The conduit of a rank, and the state of its progress.
pub(crate) struct Progress {
    /// The rank of this process.
    pub(crate) rank: Rank,
    /// The number of ranks in the job.
    pub(crate) size: u32,
    /// The number of the job: the same at every rank, different from job to job.
    pub(crate) id: u64,
    /// The counters of this rank.
    pub(crate) tally: Arc<Tally>,
    /// True if time is virtual. It advances when the conduit is called, so there is no use in
    /// spinning, and there is no service thread.
    pub(crate) virtual_time: bool,
    /// How long a waiting thread spins.
    spin: Duration,
    /// The number of processors that the ranks of this host share.
    #[cfg_attr(
        not(feature = "foresight"),
        expect(dead_code, reason = "only the strategy `foresight` reads it")
    )]
    pub(crate) host_cores: usize,
    /// True if there are more ranks than cores. A thread that spins then takes the core from the
    /// rank that it waits for.
    crowded: bool,
    /// True if there are fewer than two cores for each rank. A thread that spins may then occupy
    /// the core that a peer's service thread needs for the answer.
    shares_cores: bool,
    /// Dropped by the process that joined, never by a forked child. A child lacks the conduit's
    /// threads, and shares descriptors and registrations with its parent or lacks them.
    conduit: ManuallyDrop<Box<dyn Conduit>>,
    /// Memory that the conduit has registered; dropped after the conduit.
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The receiver of each kind of message; set once, when the job is composed.
    routes: [OnceLock<Arc<dyn Route>>; Message::KINDS as usize],
    /// The receiver of completions; set once, when the job is composed.
    operations: OnceLock<Weak<dyn Operations>>,
    /// The first rule that each peer broke.
    faults: PeerFaults,
    /// The activity of application threads; each thread writes its own entry.
    attention: Striped<Attention>,
    /// Counts this rank among those of the process.
    here: RankHere,
    /// The number of application threads asleep in a wait.
    asleep: AtomicU32,
    /// Work due at the next poll: bits of [`Backlog`].
    backlog: AtomicU8,
    /// The part of the engine that counts changes of own memory; set once, where memory of the program may stay
    /// registered.
    hot: OnceLock<Arc<Hot>>,
    /// True once peers reach memory that only the monitor watches. The registration room sets it.
    lends_watched: AtomicBool,
    /// Messages that handlers sent while the peers had no room.
    onward: Mutex<Onward>,
    /// The job's own tasks.
    spawned: Mutex<Spawned>,
    /// Operations of several steps that advance by themselves.
    chains: Mutex<Chains>,
    /// The last news of programs that came to their ends.
    news: Mutex<end::EndNews>,
    /// The number of ends whose news counts by now.
    settled: AtomicU64,
    /// Answers of other ranks to the question whether anything is in flight there.
    survey: Mutex<rest::Survey>,
    /// Wakers of tasks that wait for a [condition](until::Until), and true if there are any.
    condition_waiters: Mutex<Vec<Waker>>,
    has_condition_waiters: AtomicBool,
    /// A weak reference to itself.
    me: Weak<Progress>,
    /// True while the service thread waits until no application thread is asleep.
    parked: AtomicBool,
    park: Mutex<()>,
    unpark: Condvar,
    /// True while the service thread sleeps for something other than [room](backlog).
    service_rests: AtomicBool,
    /// The number of changes of standings that were [handled](Self::notice_ended). `u64::MAX` while
    /// news must be looked at again.
    handled_changes: AtomicU64,
    /// The number of changes that were reported to the rooms above.
    reported_changes: AtomicU64,
    /// True if there is a service thread until the end of the job.
    served: bool,
    /// The number of tasks that wait for a completion.
    tasks: AtomicU32,
    /// Wakers called when a peer ends, by an id from the caller; the caller adds and removes them.
    watchers: Mutex<BTreeMap<u64, Waker>>,
    /// True while the service thread sleeps and no completion wakes it.
    ignores_tasks: AtomicBool,
    /// Background work that polls advance, and its count.
    errands: Mutex<Vec<Arc<dyn Errand>>>,
    errands_open: AtomicU32,
    /// Identifies the process that joined.
    origin: CreatorProcess,
    /// Present while the job is active here; ended once, when this rank leaves.
    running: Presence,
    /// True once every waiter for a peer is told that the job is over.
    closed: AtomicBool,
    /// The time that the virtual clock showed last, in nanoseconds.
    shown: AtomicU64,
}

impl Progress {
    /// `id`: the job's number.
    pub(crate) fn new(conduit: Box<dyn Conduit>, id: u64, settings: &Settings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self::with_self_reference(me, conduit, id, settings))
    }

    fn with_self_reference(
        me: &Weak<Self>,
        conduit: Box<dyn Conduit>,
        id: u64,
        settings: &Settings,
    ) -> Self {
        // Counts the host's ranks, not those whose memory is mapped here. Ranks on played NICs
        // map no memory but share the cores.
        let ranks_here = conduit.caps().host_ranks as usize;
        let cores = host_cores(settings);
        let origin = CreatorProcess::here();
        crate::stripe::share_in_children();
        Self {
            rank: conduit.rank(),
            size: conduit.size(),
            id,
            tally: Arc::new(Tally::new()),
            virtual_time: settings.conduit.is_virtual(),
            spin: settings.spin,
            host_cores: cores,
            crowded: ranks_here > cores,
            shares_cores: settings.service && 2 * ranks_here > cores,
            conduit: ManuallyDrop::new(conduit),
            kept: OnceLock::new(),
            routes: [const { OnceLock::new() }; Message::KINDS as usize],
            operations: OnceLock::new(),
            faults: PeerFaults::default(),
            attention: Striped::new(Attention::default),
            here: RankHere::new(),
            asleep: AtomicU32::new(0),
            backlog: AtomicU8::new(0),
            hot: OnceLock::new(),
            lends_watched: AtomicBool::new(false),
            onward: Mutex::default(),
            spawned: Mutex::default(),
            chains: Mutex::default(),
            news: Mutex::default(),
            settled: AtomicU64::new(0),
            survey: Mutex::default(),
            condition_waiters: Mutex::default(),
            has_condition_waiters: AtomicBool::new(false),
            me: Weak::clone(me),
            parked: AtomicBool::new(false),
            park: Mutex::new(()),
            unpark: Condvar::new(),
            service_rests: AtomicBool::new(false),
            handled_changes: AtomicU64::new(0),
            reported_changes: AtomicU64::new(0),
            served: settings.service && !settings.conduit.is_virtual(),
            tasks: AtomicU32::new(0),
            watchers: Mutex::default(),
            ignores_tasks: AtomicBool::new(false),
            errands: Mutex::new(Vec::new()),
            errands_open: AtomicU32::new(0),
            origin,
            running: Presence::new(origin),
            closed: AtomicBool::new(false),
            shown: AtomicU64::new(u64::MAX),
        }
    }

    /// Sets the receiver of messages of one [`kind`]. Called once for each kind, before the first
    /// poll.
    pub(crate) fn route(&self, kind: u8, route: Arc<dyn Route>) {
        let set = self.routes[usize::from(kind)].set(route);
        debug_assert!(set.is_ok(), "kind {kind} has two routes");
    }

    /// Sets the receiver of completions. Called once, before anything is posted.
    pub(crate) fn report_to(&self, operations: Weak<dyn Operations>) {
        let set = self.operations.set(operations);
        debug_assert!(set.is_ok(), "completions have two receivers");
    }

    /// Keeps memory that the conduit has registered until the conduit is dropped. Called at most
    /// once.
    pub(crate) fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        let set = self.kept.set(memory);
        debug_assert!(set.is_ok(), "memory is kept already");
    }

    /// Returns a weak reference to this, for work that outlives the call.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Returns whether there are more ranks than cores.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Returns the network.
    #[inline]
    pub(crate) fn conduit(&self) -> &dyn Conduit {
        &**self.conduit
    }

    /// # Errors
    /// [`Error::RankOutOfRange`].
    #[inline]
    pub(crate) fn check_rank(&self, rank: Rank) -> Result<()> {
        if rank.0 < self.size {
            Ok(())
        } else {
            Err(Error::RankOutOfRange {
                rank,
                size: self.size,
            })
        }
    }

    /// Marks the job as over at this rank, and wakes all waiters.
    pub(crate) fn stop(&self) {
        self.running.end();
        self.unpark_service();
        self.wake_sleepers();
        self.wake_watchers();
        self.conduit.wake(self.rank);
    }

    /// Tells every waiter for a peer that the job is over. Some of them would wait forever
    /// otherwise.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake_sleepers();
    }

    /// Returns whether [`close`](Self::close) was called.
    fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// # Errors
    /// [`Error::JobOver`], [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.is_stopped() {
            Err(self.ended())
        } else {
            Ok(())
        }
    }

    /// Returns whether the job is over here, as it is in a forked child.
    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        !self.running.is_here()
    }

    /// Returns the reason why the job is over here.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended(&self) -> Error {
        if self.is_forked() {
            Error::Forked { rank: self.rank }
        } else {
            Error::JobOver
        }
    }

    /// Returns whether this process was forked from the rank. Calls of a child never reach the
    /// conduit. They take no locks either, because threads that the child lacks may have held them.
    #[inline(always)]
    pub(crate) fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    /// # Errors
    /// [`Error::Forked`].
    #[inline(always)]
    pub(crate) fn check_origin(&self) -> Result<()> {
        if self.is_forked() {
            Err(self.ended())
        } else {
            Ok(())
        }
    }

    /// Checks that this thread may wait in the call named `what`. A handler and a forked child may
    /// not.
    ///
    /// # Errors
    /// [`Error::InHandler`], [`Error::Forked`].
    #[inline]
    pub(crate) fn may_wait(&self, what: &'static str) -> Result<()> {
        may_wait(what)?;
        self.check_origin()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.is_forked() {
            // SAFETY: the conduit is dropped once, here, and not used afterwards: `self` is dropped.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.conduit);
            }
        }
    }
}

/// Returns the number of processors that the ranks of this host share. A rank bound to one
/// processor shares it with no rank bound to another, so the rank's own processors are no measure.
fn host_cores(settings: &Settings) -> usize {
    if !settings.host_cpus.is_empty() {
        return settings.host_cpus.len();
    }
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    own.max(online.map_or(1, |text| cores_in(&text)))
}

/// Counts the cores in the kernel's list of ranges.
fn cores_in(list: &str) -> usize {
    (list.trim().split(','))
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_as_the_kernel_lists_them() {
        for (list, cores) in [
            ("0\n", 1),
            ("0-3\n", 4),
            ("0-3,6,8-9\n", 7),
            ("3-0", 0),
            ("", 0),
        ] {
            assert_eq!(cores_in(list), cores, "{list:?}");
        }
    }
}
