//! Who looks after messages, how waiting works, and who gets what arrives.
//!
//! Each rank has one service thread, ARMCI's server. An application thread that waits looks
//! after messages itself and leaves the service thread asleep; while the application
//! computes, the service thread answers, looks on briefly, and blocks.
//!
//! This room owns the conduit. What arrives goes to the rooms above through what they handed in when
//! the job was composed: a [`Route`] for each kind of message, and one [`Operations`] for the ends of
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
mod backlog;
mod begun;
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
    fork::{Origin, Presence},
};
use parking_lot::{Condvar, Mutex};

pub(crate) use arrivals::{Operations, Outcome, Route};
pub(crate) use backlog::Backlog;
pub use begun::Begun;
pub(crate) use begun::Slot;
pub(crate) use errands::Errand;
pub(crate) use handler::in_handler;
pub use handler::may_wait;
pub(crate) use rest::Resting;
pub(crate) use service::start_service;
pub(crate) use tasks::{taken, wait_for, wake};
pub(crate) use wait::{For, On};

use crate::{Error, Rank, Result, Settings, counters::Tally, stripe::Striped};
use attention::Attention;
use begun::Chains;
use faults::Faults;
use onward::Onward;
use spawned::Spawned;
use threads::RankHere;

/// The conduit of a rank, and the state of its progress.
pub(crate) struct Progress {
    /// This process.
    pub(crate) rank: Rank,
    /// Processes in the job.
    pub(crate) size: u32,
    /// The job's number: the same at every rank, different from job to job.
    pub(crate) id: u64,
    /// What this rank did.
    pub(crate) tally: Arc<Tally>,
    /// Time passes by what is asked of the conduit: there is no use in looking again and again,
    /// and no service thread.
    pub(crate) virtual_time: bool,
    /// How long a waiting thread spins.
    spin: Duration,
    /// Processors that the ranks of this host share.
    pub(crate) host_cores: usize,
    /// More ranks than cores: whoever spins takes the core from the one it waits for.
    crowded: bool,
    /// Fewer than two cores for each rank: a thread that spins may have the core that a peer's service
    /// thread needs to answer it.
    shares_cores: bool,
    /// Only the process that joined drops it. A child lacks its threads, and shares its descriptors and registrations
    /// with the parent or lacks them.
    conduit: ManuallyDrop<Box<dyn Conduit>>,
    /// Memory that the conduit knows of; dropped after it.
    kept: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Who gets messages of each kind; set once, when the job is composed.
    routes: [OnceLock<Arc<dyn Route>>; Message::KINDS as usize],
    /// Who is told of the ends of one-sided operations; set once, when the job is composed.
    operations: OnceLock<Weak<dyn Operations>>,
    /// What peers did wrong.
    faults: Faults,
    /// What application threads say of themselves; each writes its own.
    attention: Striped<Attention>,
    /// Counts this rank among those of the process.
    here: RankHere,
    /// Application threads asleep in a wait.
    asleep: AtomicU32,
    /// What whoever polls is to do: bits of [`Backlog`].
    backlog: AtomicU8,
    /// What handlers sent and peers had no room for.
    onward: Mutex<Onward>,
    /// Tasks of the job's own.
    spawned: Mutex<Spawned>,
    /// What was begun and goes on by itself.
    chains: Mutex<Chains>,
    /// The news of programs' ends, until it is old enough.
    news: Mutex<end::News>,
    /// The number of ends whose news is old enough.
    settled: AtomicU64,
    /// The answers of other ranks to the question whether anything is in flight.
    rest: Mutex<rest::Rest>,
    /// Those that wait [until](until::Until) something is so; and whether there are any.
    hopeful: Mutex<Vec<Waker>>,
    has_hopeful: AtomicBool,
    /// Itself.
    me: Weak<Progress>,
    /// The service thread waits until no application thread is asleep.
    parked: AtomicBool,
    park: Mutex<()>,
    unpark: Condvar,
    /// The service thread sleeps, and not for [room](backlog).
    service_rests: AtomicBool,
    /// The number of changes of peers that were [noticed](Self::notice_ended). It exceeds their true number while
    /// news is to be noticed again.
    noticed: AtomicU64,
    /// The number of changes that the modules above were told of.
    told: AtomicU64,
    /// There is a service thread until the end of the job.
    served: bool,
    /// Tasks that wait for the end of an operation.
    tasks: AtomicU32,
    /// Who is woken when a peer ends, by the number of a question; they come and go by themselves.
    watchers: Mutex<BTreeMap<u64, Waker>>,
    /// The service thread sleeps, and is not woken by the end of an operation.
    ignores_tasks: AtomicBool,
    /// What goes on while somebody polls, and how much that is.
    errands: Mutex<Vec<Arc<dyn Errand>>>,
    errands_open: AtomicU32,
    /// The process that joined.
    origin: Origin,
    /// The job is active here; ended once, when this rank leaves.
    running: Presence,
    /// Every waiter for a peer has been told that the job is over.
    closed: AtomicBool,
    /// What the virtual clock showed last, in nanoseconds.
    shown: AtomicU64,
}

impl Progress {
    /// `id`: the job's number.
    pub(crate) fn new(conduit: Box<dyn Conduit>, id: u64, settings: &Settings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self::knowing_itself(me, conduit, id, settings))
    }

    fn knowing_itself(
        me: &Weak<Self>,
        conduit: Box<dyn Conduit>,
        id: u64,
        settings: &Settings,
    ) -> Self {
        // The count is of the host's ranks, not of those whose memory is mapped here: ranks on played NICs map none,
        // but share the cores.
        let ranks_here = conduit.caps().host_ranks as usize;
        let cores = host_cores(settings);
        let origin = Origin::here();
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
            faults: Faults::default(),
            attention: Striped::new(Attention::default),
            here: RankHere::new(),
            asleep: AtomicU32::new(0),
            backlog: AtomicU8::new(0),
            onward: Mutex::default(),
            spawned: Mutex::default(),
            chains: Mutex::default(),
            news: Mutex::default(),
            settled: AtomicU64::new(0),
            rest: Mutex::default(),
            hopeful: Mutex::default(),
            has_hopeful: AtomicBool::new(false),
            me: Weak::clone(me),
            parked: AtomicBool::new(false),
            park: Mutex::new(()),
            unpark: Condvar::new(),
            service_rests: AtomicBool::new(false),
            noticed: AtomicU64::new(0),
            told: AtomicU64::new(0),
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

    /// Who gets messages of a kind, which is one of [`kind`]. Called once a kind, before anything is
    /// polled.
    pub(crate) fn route(&self, kind: u8, route: Arc<dyn Route>) {
        let set = self.routes[usize::from(kind)].set(route);
        debug_assert!(set.is_ok(), "kind {kind} has two routes");
    }

    /// Who is told of the ends of operations. Called once, before anything is posted.
    pub(crate) fn report_to(&self, operations: Weak<dyn Operations>) {
        let set = self.operations.set(operations);
        debug_assert!(set.is_ok(), "operations are told to two");
    }

    /// Keeps memory that the conduit has registered until the conduit is gone. Called once at most.
    pub(crate) fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        let set = self.kept.set(memory);
        debug_assert!(set.is_ok(), "one memory is kept");
    }

    /// Itself, for what outlives a call.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Whether there are more ranks than cores.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// The network.
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

    /// The job is over here.
    pub(crate) fn stop(&self) {
        self.running.end();
        self.unpark_service();
        self.wake_sleepers();
        self.wake_watchers();
        self.conduit.wake(self.rank);
    }

    /// Tells every waiter for a peer that the job is over: otherwise some would wait for ever.
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

    /// The reason why the job is over here.
    #[cold]
    #[inline(never)]
    pub(crate) fn ended(&self) -> Error {
        if self.is_forked() {
            Error::Forked { rank: self.rank }
        } else {
            Error::JobOver
        }
    }

    /// Returns whether this process was forked from the rank. A child's calls never reach the conduit. Nor do they
    /// take locks, which threads that the child lacks may have held.
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

    /// Checks that this thread may wait for `what`: not in a handler, nor in a forked child.
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
            // SAFETY: nothing refers to this any more.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.conduit);
            }
        }
    }
}

/// Processors that the ranks of this host share. A rank bound to one still shares nothing with one bound to
/// another, so that its own are no measure.
fn host_cores(settings: &Settings) -> usize {
    if !settings.host_cpus.is_empty() {
        return settings.host_cpus.len();
    }
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    own.max(online.map_or(1, |text| cores_in(&text)))
}

/// How many cores the kernel lists, in ranges.
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
